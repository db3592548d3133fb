/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sharding: a group's ids travel to the shards, rows travel back, and gradients update the rows.

  A group is all tables with one payload (what travels: TrsShardingOps), one update (who applies
  gradients: TrsUpdateOps), one grid of ranks (route.h), one kind of weights and one output_dtype.
  choose.h chooses payload, grid and update. Each group has its own exchanges; the counts of all
  groups travel together (sharded_ebc.c).

  Source: TorchRec EmbeddingSharding, BaseSparseFeaturesDist, BaseEmbeddingDist
          (torchrec.distributed.sharding)
*/
#pragma once

#include "dist/pooled_all_to_all.h"
#include "dist/pooled_chunks.h"
#include "shard/route.h"

/*
  Levels of the exchange of row_wise's sums and their gradients (-ebc_row_wise_reduce_scatter).
  auto: hierarchical if there are at least TRS_HIERARCHICAL_HOSTS hosts.
*/
typedef enum {
  TRS_REDUCE_SCATTER_AUTO,
  TRS_REDUCE_SCATTER_FLAT,
  TRS_REDUCE_SCATTER_HIERARCHICAL
} TrsReduceScatterLevels;
enum { TRS_HIERARCHICAL_HOSTS = 4 };

/*
  Number of slots for batches in flight. Training has three: for the batch that is computed, for the
  batch in the input dist, and for a batch that the device has not finished. An evaluation between
  two steps has three more, numbered after training's slots.
*/
enum { TRS_TRAINING_SLOTS = 3, TRS_SHARD_SLOTS = 2 * TRS_TRAINING_SLOTS };
_Static_assert((int)TRS_SHARD_SLOTS == (int)TRS_CACHE_BATCHES, "caches know the batches in flight");

/* The kinds of batches that take turns: 0 training, 1 evaluation. */
enum { TRS_N_TURNS = 2 };
static inline int TrsShardingTurn(int slot)
{
  return slot < TRS_TRAINING_SLOTS ? 0 : 1;
}

/*
  Memory lent for data that is sent to other ranks. Its owner does not need the memory while rows
  and gradients travel. Each forward takes bytes from the front again.
*/
typedef struct {
  char *data;
  int64_t bytes, taken;
} TrsLoan;

/*
  Columns of the model's matrix if the model reads vectors in place. Only features whose vectors
  arrive in the matrix have columns. The first TrsShardingColumn() of a feature assigns them.
*/
typedef struct {
  int64_t *column; /* [F]; -1: none */
  int64_t width;
} TrsMatrixLayout;

/*
  Data that all groups share; the sharded collection owns it. Features have the model's order
  (src/RULES.md, rule A2).
*/
typedef struct {
  const TrsCommGroups *groups;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsTableConfigs *tables;
  const TrsEmbeddingShards *shards;
  /* sharded_ebc.h; a group has its own copies, which differ only in the codecs */
  TrsPooledDistOptions dist, reduce_scatter, sequence;
  const TrsTablePlan **table_plan;   /* [T] each table's plan */
  int *first_feature;                /* [T] each table's first feature; its other features follow */
  const int64_t *columns;            /* [F] as given; read them through TrsShardingColumn() */
  TrsMatrixLayout *layout;           /* if in place: used instead of columns; else NULL */
  const TrsPositionWeight *position; /* [F] */
  PetscBool index_dedup;             /* for sequence tables */
  PetscBool variable_batch;          /* for pooled tables */
  TrsReduceScatterLevels levels;     /* for row_wise tables */
  int copies;                        /* of all tables, in groups of ranks */
  PetscBool copied;                  /* other copies of the tables make the same updates */
  TrsDType rows, wire;               /* sharded_ebc.h */
  PetscBool in_place, ids_in_place;  /* sharded_ebc.h */
  /* Memory for the lookups' rows. If the loan is too small, a lookup has memory of its own. */
  TrsLoan *loan;
} TrsShardingContext;

typedef struct TrsShardingOps TrsShardingOps;
typedef struct TrsUpdateOps TrsUpdateOps;

/* One batch on its way through a group. */
typedef struct {
  const TrsKjt *batch; /* the samples' own ids in model order, borrowed from the reader */
  /*
    The batch without weights (src/RULES.md, rule A14), or with positions as weights. Owns nothing.
  */
  TrsKjt view;
  TrsKjt send, recv;
  TrsKjtExchange exchange; /* NULL for data_parallel */
  const int64_t *source_batch;
  /* The sorted ids of a training batch in `recv`, for its update. NULL: the update sorts them. */
  TrsTbeOccurrences occurrences;
} TrsShardingSlot;

/* The weights that travel with a group's ids. */
typedef enum { TRS_SHARDING_UNWEIGHTED, TRS_SHARDING_WEIGHTS, TRS_SHARDING_POSITIONS } TrsShardingWeights;

struct TrsShardingImpl {
  const TrsShardingOps *ops;
  const TrsShardingContext *context;
  int n_tables;
  int *table; /* [n_tables] indices into context->tables */
  TrsRoute route;
  TrsShardingWeights weights;
  PetscBool weighted; /* weights is not TRS_SHARDING_UNWEIGHTED */
  TrsLookup lookup;
  int64_t local_dim; /* columns of the result of this rank's lookup */
  TrsDeviceBuffer pooled;
  /* Result [G, local_dim] of the last TrsShardingLookup(), in `pooled` or in the loan. */
  float *rows;
  /*
    Type of the result and its gradients, set by the payload: fp32, or bf16 with two numbers in the
    space of a float, so that they travel without encoding.
  */
  TrsDType rows_type;
  /* Set by the payload: rows stay where the lookup put them until the update. */
  PetscBool lends_rows;
  TrsWorkspace workspace;
  TrsShardingSlot slot[TRS_SHARD_SLOTS];
  TrsKjt sent[TRS_N_TURNS]; /* by turn: memory for the ids of the one batch that is being sent */
  TrsKjt received;          /* on a host: memory for the received ids of a training batch */
  TrsMeanColumns *mean;     /* [features], scratch */
  /*
    The type to which the model rounds pooled outputs, and the options of the exchanges. An exchange
    without a codec of its own uses this type.
  */
  TrsDType output_dtype;
  TrsPooledDistOptions dist, reduce_scatter, sequence;
  const TrsUpdateOps *update;
  void *update_data; /* belongs to the update */
  void *data;        /* belongs to the payload */
};

struct TrsShardingOps {
  const char *name;
  PetscBool typed; /* supports a model matrix of bf16; otherwise such a matrix is refused */
  /* Allocate, and create the exchanges and the lookup. Collective. */
  PetscErrorCode (*setup)(TrsSharding sharding);
  PetscErrorCode (*destroy)(TrsSharding sharding);
  /* Lay out the slot's batch for sending (replicas: for the lookup). Not collective. */
  PetscErrorCode (*prepare)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Start and finish the payload's own exchange before the lookup, in addition to the slot's
    `exchange`. The counts that prepare sent have arrived. NULL: the payload has no such exchange.
    Collective.
  */
  PetscErrorCode (*input_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  PetscErrorCode (*input_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Sort the bags or ids by which a training batch's backward_start adds up gradients, beside other
    work and without waiting. Optional; must come before backward_start. NULL: nothing to sort. Not
    collective.
  */
  PetscErrorCode (*sort)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Look up, and send the rows back. This function and the following ones are collective if there is
    an exchange.
  */
  PetscErrorCode (*forward_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                  const TrsPooledMatrix *pooled);
  /* Wait until the samples' rows are in the model's matrix. */
  PetscErrorCode (*forward_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                 const TrsPooledMatrix *pooled);
  /* End a forward without a backward. NULL: nothing to do. */
  PetscErrorCode (*forward_end)(TrsSharding sharding, TrsStream stream);
  PetscErrorCode (*backward_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                   const TrsPooledMatrix *grad);
  /* Wait until the gradients have arrived at the shards; set *arrived to them, for the update. */
  PetscErrorCode (*backward_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                  const TrsPooledMatrix *grad, TrsMatrix *arrived);
};

/* An update applies the gradients to a group's rows. setup, destroy, list and sort may be NULL. */
struct TrsUpdateOps {
  const char *name;
  /* Called after the payload's setup, which made the lookup. It may choose another update. */
  PetscErrorCode (*setup)(TrsSharding sharding);
  PetscErrorCode (*destroy)(TrsSharding sharding);
  /* Called when the ids of a training batch have arrived. Not collective. */
  PetscErrorCode (*list)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Sort these ids for apply (TrsLookupSort), beside other work and without waiting. Optional; must
    come before apply. Not collective.
  */
  PetscErrorCode (*sort)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /* Apply the gradients from backward_wait to the rows. Collective on the world. */
  PetscErrorCode (*apply)(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream, TrsMatrix grad,
                          const TrsSparseOptimizerArgs *args);
};

/* The payloads. */
extern const TrsShardingOps trs_payload_pooled, trs_payload_distinct_bags, trs_payload_sequence,
    trs_payload_ordered_rows, trs_payload_replicas, trs_payload_ordered_replicas,
    trs_payload_sequence_replicas;

/*
  The updates. Owners update their shards by bag or by id. Rows that are cut by columns have
  updates of their own (cut_rows.h). All replicas make the same update.
*/
extern const TrsUpdateOps trs_update_owner, trs_update_owner_by_id, trs_update_cut_rows, trs_update_replicas;

/* --- shared by the payloads (sharding.c) --- */

/* The matrix at `data` with elements of sharding->rows_type and a row stride of `stride`. */
TrsMatrix TrsShardingRows(TrsSharding sharding, const float *data, int64_t stride);

/*
  The first column of feature f (its number in the model) in the model's matrix. Call it at setup,
  and only for features whose vectors arrive in the matrix with all of their table's columns.
*/
int64_t TrsShardingColumn(TrsSharding sharding, int f);

/* The plan of the group's i-th table. Borrowed. */
const TrsTablePlan *TrsShardingTablePlan(TrsSharding sharding, int i);
const TrsTableConfig *TrsShardingTableConfig(TrsSharding sharding, int i);

/*
  True if the model sees the mean of a bag's rows: for a mean table, and for a sequence table that
  is treated as one. The rows of such a sequence table are pooled at their shard, with the same bits
  (src/RULES.md, rule A26).
*/
PetscBool TrsShardingIsMean(const TrsTableConfig *config);

/* The position weights of model feature f, if it has any. */
TrsPositionWeight TrsShardingPosition(TrsSharding sharding, int f);

/*
  Look up the slot's ids, and make room for the result sharding->rows [G, local_dim]. Not
  collective.
*/
PetscErrorCode TrsShardingLookup(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream);

/*
  Create the exchange that adds up partial sums with dim columns, inside a host or over all ranks.
  *sums is NULL if shards have all rows and there is nothing to add. Not collective.
*/
PetscErrorCode TrsShardingCreateSums(TrsSharding sharding, int64_t dim, TrsPooledChunks *sums);

/*
  Divide the columns of mean features by bag lengths. If rows are split, only the samples' rank
  knows these lengths. Not collective.
*/
PetscErrorCode TrsShardingDivideMeans(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                      const TrsPooledMatrix *pooled);
