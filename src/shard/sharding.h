/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sharding: how the ids of a group of tables reach their shards, and the pooled rows come back. One table of functions a family of types:
  data_parallel; table_wise (also column_wise and table_column_wise); row_wise; table_row_wise (also grid_shard).

  A group is all tables of one family and one kind of weights. Its exchanges are its own; the counts of all groups travel together
  (sharded_ebc.c). Source: TorchRec EmbeddingSharding, BaseSparseFeaturesDist, BaseEmbeddingDist (torchrec.distributed.sharding).
*/
#pragma once

#include "dist/kjt_all_to_all.h"
#include "dist/pooled_all_to_all.h"
#include "embed/lookup.h"

/*
  Batches that may be in flight: the one computed, the next one's input dist, one that a device has not ended yet; and as many of an evaluation between
  two steps, whose slots follow the training's.
*/
enum { TRS_TRAINING_SLOTS = 3, TRS_SHARD_SLOTS = 2 * TRS_TRAINING_SLOTS };
_Static_assert((int)TRS_SHARD_SLOTS == (int)TRS_CACHE_BATCHES, "caches know the batches in flight");

/* The slots of batches that take turns: 0 a training's, 1 an evaluation's. */
enum { TRS_N_TURNS = 2 };
static inline int TrsShardingTurn(int slot)
{
  return slot < TRS_TRAINING_SLOTS ? 0 : 1;
}

/* A [B, ...] matrix of pooled embeddings in the model's layout: feature f of sample b at data + b * stride + columns[f]. */
typedef struct {
  float *data;
  int64_t stride;
  const int64_t *columns;
} TrsPooledMatrix;

/* Memory, for what is sent to other ranks, that its owner does not need while rows and gradients travel: each forward takes it anew, from the front. */
typedef struct {
  char *data;
  int64_t bytes, taken;
} TrsLoan;

/* What all groups share; owned by the sharded collection. Features are numbered as the model orders them (src/RULES.md, rule A2). */
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
  PetscBool variable_batch;          /* of pooled tables that are not cut over the ranks of a host */
  TrsLoan *loan; /* for the lookups' rows; they have memory of their own where it is short */
} TrsShardingContext;

typedef struct TrsShardingOps TrsShardingOps;
typedef struct TrsWholeRowsImpl *TrsWholeRows; /* whole_rows.h */

/* A copy of adjacent columns between the block that rank (or host) `block` sends and the model's matrix. */
typedef struct {
  int block;
  int64_t block_column, column, width;
} TrsColumnRun;

/* One batch on its way through a group. */
typedef struct {
  const TrsKjt *batch; /* the samples' own ids: model order, borrowed from the reader */
  TrsKjt
      view; /* the same with the group's weights: none (src/RULES.md, rule A14), or positions; owns nothing */
  TrsKjt send, recv;
  TrsKjtExchange exchange; /* NULL for data_parallel */
  const int64_t *source_batch;
} TrsShardingSlot;

/* What travels with a group's ids. */
typedef enum { TRS_SHARDING_UNWEIGHTED, TRS_SHARDING_WEIGHTS, TRS_SHARDING_POSITIONS } TrsShardingWeights;

typedef struct TrsShardingImpl {
  const TrsShardingOps *ops;
  const TrsShardingContext *context;
  int n_tables;
  int *table; /* [n_tables] indices into context->tables */
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
  int n_runs;
  TrsColumnRun *run;    /* [n_runs] */
  TrsColumnCopy *copy;  /* [n_runs], scratch */
  TrsMeanColumns *mean; /* [features], scratch */
  TrsWholeRows
      whole; /* the update of rows whose columns other ranks have, where results must be reproducible; else NULL */
  void *data; /* the family's own */
} * TrsSharding;

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
  /* Gradients have arrived at the shards: update the rows. */
  PetscErrorCode (*backward_update)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                    const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args);
};

extern const TrsShardingOps trs_sharding_data_parallel, trs_sharding_table_wise, trs_sharding_row_wise,
    trs_sharding_table_row_wise, trs_sharding_ordered_rows, trs_sharding_ordered_replicas;
/* of -ebc_variable_batch */
extern const TrsShardingOps trs_variable_by_tables, trs_variable_by_rows;
/* of sequence tables */
extern const TrsShardingOps trs_sequence_data_parallel, trs_sequence_by_tables, trs_sequence_by_rows;

/* --- shared by the families (sharding.c) --- */

/* The features of the group, in table order: calls for n_features = number of entries; feature[] may be NULL to count. */
int TrsShardingFeatures(TrsSharding sharding, int *feature);

/* Plan of the group's i-th table. Borrowed. */
const TrsTablePlan *TrsShardingTablePlan(TrsSharding sharding, int i);
const TrsTableConfig *TrsShardingTableConfig(TrsSharding sharding, int i);

/*
  Does the model see the mean of a bag's rows? Of a mean table, and of a sequence table that every rank holds: its rows are pooled where they
  are, to the same bits (src/RULES.md, rule A26).
*/
PetscBool TrsShardingIsMean(const TrsTableConfig *config);

/* Position weights of model feature f, if it has any. */
TrsPositionWeight TrsShardingPosition(TrsSharding sharding, int f);

/* First model feature of the group's i-th table: its features follow one another. */
int TrsShardingFirstFeature(TrsSharding sharding, int i);

/* Note that a block's columns go to the model's matrix; adjacent ones join. Call in order of block column. */
PetscErrorCode TrsShardingAddRun(TrsSharding sharding, int block, int64_t block_column, int64_t column,
                                 int64_t width);

/*
  TrsShardingCreateExchanges - The exchange of ids of every slot.

  In:  n_features    [W] that go to each rank
       source_order  as TrsKjtExchangeCreate()
       in_turn       a batch's ids are laid out before the next one's come (TrsKjtExchangeShare()); an evaluation's may come between a training's
*/
PetscErrorCode TrsShardingCreateExchanges(TrsSharding sharding, const int *n_features,
                                          const int *source_order, PetscBool in_turn);

/* Room for the lookup's result, and the lookup: the slot's ids -> sharding->rows [G, local_dim]. */
PetscErrorCode TrsShardingLookup(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream);

/*
  Copy all runs from the blocks' matrices to the model's, or the other way: block q is [B, dims[q]], at block[q] or displs[q] floats; own (or NULL): this
  rank's block is there instead.
*/
PetscErrorCode TrsShardingScatterRuns(TrsSharding sharding, TrsStream stream, int64_t B,
                                      const float *const *block, const int64_t *dims,
                                      const TrsPooledMatrix *pooled);
PetscErrorCode TrsShardingGatherRuns(TrsSharding sharding, TrsStream stream, int64_t B,
                                     const TrsPooledMatrix *pooled, float *blocks, const int64_t *displs,
                                     const int64_t *dims, float *own);

/* The fused update by the slot's ids, of whole rows where there is a TrsWholeRows; the rest as TrsLookupBackward(). */
PetscErrorCode TrsShardingUpdate(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                 const float *grad, int64_t stride, const TrsSparseOptimizerArgs *args);

/* Divide mean features' columns by the bags' lengths, which only the samples' own rank knows when rows are split. */
PetscErrorCode TrsShardingDivideMeans(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                      const TrsPooledMatrix *pooled);
