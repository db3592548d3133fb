/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sharding: how the ids of a group of tables reach their shards, rows come back, and gradients
  update the rows.

  A group is all tables with one payload (what travels: TrsShardingOps), one update (who applies
  gradients: TrsUpdateOps), one grid of ranks (route.h) and one kind of weights; choose.h makes the
  choice. The exchanges of a group are its own; the counts of all groups travel together
  (sharded_ebc.c). Source: TorchRec EmbeddingSharding, BaseSparseFeaturesDist, BaseEmbeddingDist
  (torchrec.distributed.sharding).
*/
#pragma once

#include "dist/pooled_all_to_all.h"
#include "shard/route.h"

/*
  Batches that may be in flight: the one computed, the one in the input dist, and one that a device
  has not ended yet. An evaluation between two steps has as many slots, which follow the training's.
*/
enum { TRS_TRAINING_SLOTS = 3, TRS_SHARD_SLOTS = 2 * TRS_TRAINING_SLOTS };
_Static_assert((int)TRS_SHARD_SLOTS == (int)TRS_CACHE_BATCHES, "caches know the batches in flight");

/* The slots of batches that take turns: 0 a training's, 1 an evaluation's. */
enum { TRS_N_TURNS = 2 };
static inline int TrsShardingTurn(int slot)
{
  return slot < TRS_TRAINING_SLOTS ? 0 : 1;
}

/*
  Memory for what is sent to other ranks. Its owner does not need it while rows and gradients
  travel; each forward takes it anew, from the front.
*/
typedef struct {
  char *data;
  int64_t bytes, taken;
} TrsLoan;

/*
  What all groups share; owned by the sharded collection. Features are numbered as the model orders
  them (src/RULES.md, rule A2).
*/
typedef struct {
  const TrsCommGroups *groups;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsTableConfigs *tables;
  const TrsEmbeddingShards *shards;
  TrsPooledDistOptions dist, reduce_scatter, sequence; /* sharded_ebc.h; the codecs alone differ */
  const TrsTablePlan **table_plan;                     /* [T] each table's plan */
  int *first_feature;                /* [T] each table's first feature; the others follow it */
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
  /* The batch without weights (src/RULES.md, rule A14), or with positions; owns nothing. */
  TrsKjt view;
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
  TrsKjt sent[TRS_N_TURNS]; /* memory for the ids of the one batch that is being sent, by turn */
  TrsKjt received;          /* memory for the ids of a training batch that have come, on a host */
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
  /* Lay out the slot's batch as it is sent (replicas: as it is looked up). Not collective. */
  PetscErrorCode (*prepare)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Start and end what a payload exchanges before the lookup beside the slot's `exchange`; NULL:
    nothing. The counts that prepare sent have travelled. Collective.
  */
  PetscErrorCode (*input_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  PetscErrorCode (*input_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Look up, and start the rows' way back. This and the following are collective where there is an
    exchange.
  */
  PetscErrorCode (*forward_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                  const TrsPooledMatrix *pooled);
  /* The samples' rows are in the model's matrix. */
  PetscErrorCode (*forward_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                 const TrsPooledMatrix *pooled);
  PetscErrorCode (*backward_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                   const TrsPooledMatrix *grad);
  /*
    Gradients have come to the shards: to *arrived, *stride floats from row to row, for the update.
  */
  PetscErrorCode (*backward_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                  const TrsPooledMatrix *grad, const float **arrived, int64_t *stride);
};

/* Who applies the gradients to a group's rows, and how. setup, destroy and list may be NULL. */
struct TrsUpdateOps {
  const char *name;
  /* Called after the payload's setup, which made the lookup. It may choose another update. */
  PetscErrorCode (*setup)(TrsSharding sharding);
  PetscErrorCode (*destroy)(TrsSharding sharding);
  /* Called once a training batch's ids are here. Not collective. */
  PetscErrorCode (*list)(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream);
  /* Apply what backward_wait gave to the rows. Collective on the world. */
  PetscErrorCode (*apply)(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                          const float *grad, int64_t stride, const TrsSparseOptimizerArgs *args);
};

/* The payloads. */
extern const TrsShardingOps trs_payload_pooled, trs_payload_distinct_bags, trs_payload_sequence,
    trs_payload_ordered_rows, trs_payload_replicas, trs_payload_ordered_replicas,
    trs_payload_sequence_replicas;

/*
  The updates: owners update their shards by bags, or by ids; rows are updated whole (whole_rows.c);
  all replicas make the same update.
*/
extern const TrsUpdateOps trs_update_owner, trs_update_owner_by_id, trs_update_whole_rows,
    trs_update_replicas;

/* --- shared by the payloads (sharding.c) --- */

/* Plan of the group's i-th table. Borrowed. */
const TrsTablePlan *TrsShardingTablePlan(TrsSharding sharding, int i);
const TrsTableConfig *TrsShardingTableConfig(TrsSharding sharding, int i);

/*
  Does the model see the mean of a bag's rows? It does of a mean table, and of a sequence table that
  is treated as one: its rows are pooled where they are, to the same bits (src/RULES.md,
  rule A26).
*/
PetscBool TrsShardingIsMean(const TrsTableConfig *config);

/* Position weights of model feature f, if it has any. */
TrsPositionWeight TrsShardingPosition(TrsSharding sharding, int f);

/* Room for the lookup's result, and the lookup: the slot's ids -> sharding->rows [G, local_dim]. */
PetscErrorCode TrsShardingLookup(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream);

/*
  Divide the columns of mean features by the lengths of bags. Where rows are split, only the
  samples' own rank knows these.
*/
PetscErrorCode TrsShardingDivideMeans(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                      const TrsPooledMatrix *pooled);
