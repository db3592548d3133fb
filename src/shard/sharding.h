/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sharding: the ids of a group are sent to the shards, rows are sent back, and gradients update the
  rows.

  A group has all tables with the same payload, update, grid of ranks (route.h), kind of weights and
  output_dtype. The payload defines the data that is sent (TrsShardingOps). The update defines which
  rank applies gradients (TrsUpdateOps). choose.h chooses payload, grid and update. Each group has
  its own exchanges, but the counts of all groups are sent together (sharded_ebc.c).

  Source: TorchRec EmbeddingSharding, BaseSparseFeaturesDist, BaseEmbeddingDist
          (torchrec.distributed.sharding)
*/
#pragma once

#include "dist/pooled_all_to_all.h"
#include "dist/pooled_chunks.h"
#include "shard/route.h"

/*
  Number of levels of the exchange that sums row_wise's rows and sends their gradients
  (-ebc_row_wise_reduce_scatter). auto: hierarchical if there are at least TRS_HIERARCHICAL_HOSTS
  hosts.
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
  two steps has three more slots, numbered after training's slots.
*/
enum { TRS_TRAINING_SLOTS = 3, TRS_SHARD_SLOTS = 2 * TRS_TRAINING_SLOTS };
_Static_assert((int)TRS_SHARD_SLOTS == (int)TRS_CACHE_BATCHES, "caches know the batches in flight");

/* The kinds of batches, whose slots are separate: 0 training, 1 evaluation. */
enum { TRS_N_TURNS = 2 };
static inline int TrsShardingTurn(int slot)
{
  return slot < TRS_TRAINING_SLOTS ? 0 : 1;
}

/*
  Memory that is lent for data to other ranks. Its owner does not need the memory while rows and
  gradients are sent. Each forward again reserves bytes from the front.
*/
typedef struct {
  char *data;
  int64_t bytes, taken;
} TrsLoan;

/*
  The columns of the model's matrix if the model reads vectors in place. Only features whose vectors
  arrive in the matrix have columns. The first TrsShardingColumn() call for a feature assigns them.
*/
typedef struct {
  int64_t *column; /* [F] first column; -1: there is none */
  int64_t width;
} TrsMatrixLayout;

/*
  Data that all groups share. The sharded collection owns it. Features have the model's order
  (src/RULES.md, rule A2).
*/
typedef struct {
  const TrsCommGroups *groups;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsTableConfigs *tables;
  const TrsEmbeddingShards *shards;
  /* see sharded_ebc.h; each group has copies of these, which differ only in the codecs */
  TrsPooledDistOptions dist, reduce_scatter, sequence;
  const TrsTablePlan **table_plan; /* [T] the plan of each table */
  /* [T] index of each table's first feature, after which its other features follow */
  int *first_feature;
  /* [F] as the caller gave them; read them with TrsShardingColumn() */
  const int64_t *columns;
  TrsMatrixLayout *layout;           /* in place: used instead of `columns`; otherwise NULL */
  const TrsPositionWeight *position; /* [F] */
  PetscBool index_dedup;             /* used for sequence tables */
  PetscBool variable_batch;          /* used for pooled tables */
  TrsReduceScatterLevels levels;     /* used for row_wise tables */
  int copies;                        /* number of copies of the tables, each in a group of ranks */
  PetscBool copied;                  /* true: other copies of the tables make the same updates */
  TrsDType rows, wire;               /* see sharded_ebc.h */
  PetscBool in_place, ids_in_place;  /* see sharded_ebc.h */
  /* Memory for the lookups' rows. If the loan is too small, a lookup has separate memory. */
  TrsLoan *loan;
  TrsComm ahead; /* for rows that travel a batch ahead (look_ahead.h); NULL: none do */
} TrsShardingContext;

typedef struct TrsShardingOps TrsShardingOps;
typedef struct TrsUpdateOps TrsUpdateOps;
typedef struct TrsLookAheadImpl *TrsLookAhead; /* look_ahead.h */

/* One batch in a group. */
typedef struct {
  const TrsKjt *batch; /* the samples' own ids in model order, borrowed from the reader */
  /*
    The batch without weights (src/RULES.md, rule A14), or with positions as weights. It owns no
    memory.
  */
  TrsKjt view;
  TrsKjt send, recv;
  TrsKjtExchange exchange; /* NULL for data_parallel */
  const int64_t *source_batch;
  /* The sorted ids in `recv` of a training batch, for its update. NULL: the update sorts them. */
  TrsTbeOccurrences occurrences;
} TrsShardingSlot;

/* The weights that are sent with a group's ids. */
typedef enum { TRS_SHARDING_UNWEIGHTED, TRS_SHARDING_WEIGHTS, TRS_SHARDING_POSITIONS } TrsShardingWeights;

struct TrsShardingImpl {
  const TrsShardingOps *ops;
  const TrsShardingContext *context;
  int n_tables;
  int *table; /* [n_tables] indices into context->tables */
  TrsRoute route;
  TrsShardingWeights weights;
  PetscBool weighted; /* true: `weights` is not TRS_SHARDING_UNWEIGHTED */
  TrsLookup lookup;
  int64_t local_dim; /* number of columns in the result of this rank's lookup */
  TrsDeviceBuffer pooled;
  /* The result [G, local_dim] of the last TrsShardingLookup(). It lies in `pooled` or in the
     loan. */
  float *rows;
  /*
    The type of the result and its gradients, set by the payload: fp32 or bf16. Two bf16 numbers
    have the space of one float, so they are sent without encoding.
  */
  TrsDType rows_type;
  /* Set by the payload. true: rows stay at the lookup's addresses until the update. */
  PetscBool lends_rows;
  TrsWorkspace workspace;
  TrsShardingSlot slot[TRS_SHARD_SLOTS];
  TrsKjt sent[TRS_N_TURNS]; /* by turn: memory for the ids of the batch that is being sent */
  TrsKjt received;          /* on a host: memory for the received ids of a training batch */
  TrsMeanColumns *mean;     /* [features], scratch */
  /*
    The type to which the model rounds pooled outputs, and the options of the exchanges. An exchange
    without a codec of its own uses this type.
  */
  TrsDType output_dtype;
  TrsPooledDistOptions dist, reduce_scatter, sequence;
  TrsLookAhead ahead; /* set by the payload; NULL: no row of the group travels ahead */
  const TrsUpdateOps *update;
  void *update_data; /* data of the update */
  void *data;        /* data of the payload */
};

struct TrsShardingOps {
  const char *name;
  PetscBool typed; /* true: supports bf16 matrices of the model; false: such a matrix is refused */
  /* Allocate memory, and create the exchanges and the lookup. Collective. */
  PetscErrorCode (*setup)(TrsSharding sharding);
  PetscErrorCode (*destroy)(TrsSharding sharding);
  /* Lay out the slot's batch for sending. For replicas, lay it out for the lookup. Not
     collective. */
  PetscErrorCode (*prepare)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Start and finish the payload's second exchange before the lookup. The slot's `exchange` is the
    first. If `prepare` sent counts for this exchange, input_start waits for the other ranks'
    counts. NULL: the payload has no such exchange. Collective.
  */
  PetscErrorCode (*input_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  PetscErrorCode (*input_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Sort the bags or ids by which the backward_start of a training batch adds up gradients. It runs
    next to other work and does not wait. Calling it is optional, but must be done before
    backward_start. NULL: there is nothing to sort. Not collective.
  */
  PetscErrorCode (*sort)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Look up rows, and send them back. This function and the following functions are collective if
    there is an exchange.
  */
  PetscErrorCode (*forward_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                  const TrsPooledMatrix *pooled);
  /* Wait until the samples' rows are in the model's matrix. */
  PetscErrorCode (*forward_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                 const TrsPooledMatrix *pooled);
  /* End a forward without a backward. NULL: there is nothing to do. */
  PetscErrorCode (*forward_end)(TrsSharding sharding, TrsStream stream);
  PetscErrorCode (*backward_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                   const TrsPooledMatrix *grad);
  /* Wait until the gradients have arrived at the shards. Set *arrived to them, for the update. */
  PetscErrorCode (*backward_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                  const TrsPooledMatrix *grad, TrsMatrix *arrived);
};

/* An update applies the gradients to a group's rows. setup, destroy, list and sort may be NULL. */
struct TrsUpdateOps {
  const char *name;
  /* Called after the setup of the payload, which created the lookup. It may choose another
     update. */
  PetscErrorCode (*setup)(TrsSharding sharding);
  PetscErrorCode (*destroy)(TrsSharding sharding);
  /* Called when the ids of a training batch have arrived. Not collective. */
  PetscErrorCode (*list)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Sort these ids for apply (TrsLookupSort). It runs next to other work and does not wait. Calling
    it is optional, but must be done before apply. Not collective.
  */
  PetscErrorCode (*sort)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /* Apply the gradients of backward_wait to the rows. Collective on the world. */
  PetscErrorCode (*apply)(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream, TrsMatrix grad,
                          const TrsSparseOptimizerArgs *args);
};

/* The payloads. */
extern const TrsShardingOps trs_payload_pooled, trs_payload_distinct_bags, trs_payload_sequence,
    trs_payload_ordered_rows, trs_payload_replicas, trs_payload_ordered_replicas,
    trs_payload_sequence_replicas;

/*
  The updates. Owners update their shards by bag or by id. Rows whose columns are cut have updates
  of their own (cut_rows.h). All replicas make the same update.
*/
extern const TrsUpdateOps trs_update_owner, trs_update_owner_by_id, trs_update_cut_rows, trs_update_replicas;

/* --- functions for all payloads (sharding.c) --- */

/*
  A matrix at `data` with elements of sharding->rows_type. `stride` is the distance from row to row.
*/
TrsMatrix TrsShardingRows(TrsSharding sharding, const float *data, int64_t stride);

/*
  The first column of feature f in the model's matrix. f is the index in the model. Must be called
  at setup, and only for features whose vectors arrive in the matrix with all of their table's
  columns.
*/
int64_t TrsShardingColumn(TrsSharding sharding, int f);

/* The plan of the group's i-th table. Borrowed. */
const TrsTablePlan *TrsShardingTablePlan(TrsSharding sharding, int i);
const TrsTableConfig *TrsShardingTableConfig(TrsSharding sharding, int i);

/*
  True if the model uses the mean of a bag's rows. This is so for a mean table, and for a sequence
  table that is treated as a mean table. The rows of such a sequence table are pooled on their
  shard, with the same bits (src/RULES.md, rule A26).
*/
PetscBool TrsShardingIsMean(const TrsTableConfig *config);

/* The position weights of the model's feature f, if it has any. */
TrsPositionWeight TrsShardingPosition(TrsSharding sharding, int f);

/*
  Look up the slot's ids. The call provides memory for the result sharding->rows [G, local_dim]. Not
  collective.
*/
PetscErrorCode TrsShardingLookup(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream);

/* Provide the memory for sharding->rows [G, local_dim], without a lookup. Not collective. */
PetscErrorCode TrsShardingReserveRows(TrsSharding sharding, int64_t G);

/*
  Create the exchange that adds up partial sums with `dim` columns, inside a host or over all ranks.
  If shards have all rows, there is nothing to add, and *sums is NULL. Not collective.
*/
PetscErrorCode TrsShardingCreateSums(TrsSharding sharding, int64_t dim, TrsPooledChunks *sums);

/*
  Divide the columns of mean features by bag lengths. If rows are split, only the sample's rank
  knows these lengths. Not collective.
*/
PetscErrorCode TrsShardingDivideMeans(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                      const TrsPooledMatrix *pooled);
