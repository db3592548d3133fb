/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sharding: how the ids of a group of tables reach their shards, the rows come back, and the gradients update them.

  A group is all tables with one way to travel (TrsShardingOps: the payload), one grid of ranks (route.h) and one kind of weights; which these
  are choose.h says. Its exchanges are its own; the counts of all groups travel together (sharded_ebc.c). Source: TorchRec
  EmbeddingSharding, BaseSparseFeaturesDist, BaseEmbeddingDist (torchrec.distributed.sharding).
*/
#pragma once

#include "dist/pooled_all_to_all.h"
#include "shard/route.h"

/*
  Batches that may be in flight: the one computed, the next one's input dist, one that a device has not ended yet; and as many of an evaluation between
  two steps, whose slots follow the training's.
*/
enum { TRS_TRAINING_SLOTS = 3, TRS_SHARD_SLOTS = 2 * TRS_TRAINING_SLOTS };

/* The slots of batches that take turns: 0 a training's, 1 an evaluation's. */
enum { TRS_N_TURNS = 2 };
static inline int TrsShardingTurn(int slot)
{
  return slot < TRS_TRAINING_SLOTS ? 0 : 1;
}

/* Memory, for what is sent to other ranks, that its owner does not need while rows and gradients travel: each forward takes it anew, from the front. */
typedef struct {
  char *data;
  int64_t bytes, taken;
} TrsLoan;

/* What all groups share; owned by the sharded collection. Features are numbered as the model orders them (rule A2). */
typedef struct {
  const TrsCommGroups *groups;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsTableConfigs *tables;
  const TrsEmbeddingShards *shards;
  TrsPooledDistOptions dist, reduce_scatter, sequence; /* sharded_ebc.h; the codecs alone differ */
  const TrsTablePlan **table_plan;                     /* [T] each table's plan, */
  int *first_feature;                /* [T] and its first feature: they follow one another */
  const int64_t *columns;            /* [F] of the model's matrix */
  const TrsPositionWeight *position; /* [F] */
  PetscBool index_dedup;             /* of sequence tables */
  PetscBool variable_batch;          /* of pooled tables */
  TrsLoan *loan; /* for the lookups' rows; they have memory of their own where it is short */
} TrsShardingContext;

typedef struct TrsShardingOps TrsShardingOps;
typedef struct TrsUpdateOps TrsUpdateOps;

/* One batch on its way through a group. */
typedef struct {
  const TrsKjt *batch; /* the samples' own ids: model order, borrowed from the reader */
  TrsKjt view;         /* the same with the group's weights: none (rule A14), or positions; owns nothing */
  TrsKjt send, recv;
  TrsKjtExchange exchange; /* NULL for data_parallel */
  const int64_t *source_batch;
} TrsShardingSlot;

/* What travels with a group's ids. */
typedef enum { TRS_SHARDING_UNWEIGHTED, TRS_SHARDING_WEIGHTS, TRS_SHARDING_POSITIONS } TrsShardingWeights;

struct TrsShardingImpl {
  const TrsShardingOps *ops;
  const TrsShardingContext *context;
  int n_tables;
  int *table; /* [n_tables] indices into context->tables */
  TrsRoute route;
  TrsShardingWeights weights;
  PetscBool weighted; /* weights is not none */
  TrsLookup lookup;
  int64_t local_dim; /* columns this rank's lookup yields */
  TrsDeviceBuffer pooled;
  float *rows; /* what the last TrsShardingLookup() gave: [G, local_dim], in `pooled` or the loan */
  TrsWorkspace workspace;
  TrsShardingSlot slot[TRS_SHARD_SLOTS];
  TrsKjt sent[TRS_N_TURNS]; /* the memory in which batches' ids are sent: that of one at a time; */
  TrsKjt received;          /* of training batches in host memory also that in which they are kept */
  TrsMeanColumns *mean;     /* [features], scratch */
  const TrsUpdateOps *update;
  void *update_data; /* the update's own */
  void *data;        /* the payload's own */
};

struct TrsShardingOps {
  const char *name;
  /* Allocate, make the exchanges and the lookup. Collective. */
  PetscErrorCode (*setup)(TrsSharding sharding);
  PetscErrorCode (*destroy)(TrsSharding sharding);
  /* The slot's batch in the order in which it is sent (data_parallel: looked up). Not collective. */
  PetscErrorCode (*prepare)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Where a family exchanges more before the lookup than the slot's `exchange` does, else NULL: its start, once the counts have travelled that prepare
    sent, and its end. Collective.
  */
  PetscErrorCode (*input_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  PetscErrorCode (*input_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /* Lookup, and start the rows' way back. Collective where there is an exchange, like the following. */
  PetscErrorCode (*forward_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                  const TrsPooledMatrix *pooled);
  /* The samples' rows are in the model's matrix. */
  PetscErrorCode (*forward_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                 const TrsPooledMatrix *pooled);
  PetscErrorCode (*backward_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                   const TrsPooledMatrix *grad);
  /* Gradients have arrived at the shards, *arrived with *stride floats from row to row: for the update. */
  PetscErrorCode (*backward_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                  const TrsPooledMatrix *grad, const float **arrived, int64_t *stride);
};

/* Who applies the gradients of a group's rows, and how. NULL: nothing to do. */
struct TrsUpdateOps {
  const char *name;
  PetscErrorCode (*setup)(TrsSharding sharding); /* after the payload's setup, which made the lookup */
  PetscErrorCode (*destroy)(TrsSharding sharding);
  /* A training batch's ids are here. Not collective. */
  PetscErrorCode (*list)(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream);
  /* What backward_wait gave, to the rows. Collective on the world. */
  PetscErrorCode (*apply)(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                          const float *grad, int64_t stride, const TrsSparseOptimizerArgs *args);
};

/* The payloads. */
extern const TrsShardingOps trs_payload_pooled, trs_payload_distinct_bags, trs_payload_sequence,
    trs_payload_ordered_rows, trs_payload_replicas, trs_payload_ordered_replicas,
    trs_payload_sequence_replicas;

/* The updates: a rank updates its shards by bags, or by ids; rows are updated whole (whole_rows.c); all replicas do the same. */
extern const TrsUpdateOps trs_update_owner, trs_update_owner_by_id, trs_update_whole_rows,
    trs_update_replicas;

/* --- shared by the payloads (sharding.c) --- */

/* Plan of the group's i-th table. Borrowed. */
const TrsTablePlan *TrsShardingTablePlan(TrsSharding sharding, int i);
const TrsTableConfig *TrsShardingTableConfig(TrsSharding sharding, int i);

/*
  Does the model see the mean of a bag's rows? Of a mean table, and of a sequence table that every rank holds: its rows are pooled where they
  are, to the same bits (rule A26).
*/
PetscBool TrsShardingIsMean(const TrsTableConfig *config);

/* Position weights of model feature f, if it has any. */
TrsPositionWeight TrsShardingPosition(TrsSharding sharding, int f);

/* Room for the lookup's result, and the lookup: the slot's ids -> sharding->rows [G, local_dim]. */
PetscErrorCode TrsShardingLookup(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream);

/* Divide mean features' columns by the bags' lengths, which only the samples' own rank knows when rows are split. */
PetscErrorCode TrsShardingDivideMeans(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                      const TrsPooledMatrix *pooled);
