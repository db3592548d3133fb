/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sharding: how the ids of a group of tables reach their shards, rows come back, and gradients
  update the rows.

  A group is all tables with one payload (what travels: TrsShardingOps), one update (who applies
  gradients: TrsUpdateOps), one grid of ranks (route.h), one kind of weights and one output_dtype;
  choose.h makes the choice. Each group has exchanges of its own; the counts of all groups travel
  together (sharded_ebc.c).

  Source: TorchRec EmbeddingSharding, BaseSparseFeaturesDist, BaseEmbeddingDist
          (torchrec.distributed.sharding)
*/
#pragma once

#include "dist/pooled_all_to_all.h"
#include "dist/pooled_chunks.h"
#include "shard/route.h"

/*
  How row_wise's sums and their gradients travel between hosts (-ebc_row_wise_reduce_scatter). auto:
  hierarchical from TRS_HIERARCHICAL_HOSTS hosts on.
*/
typedef enum {
  TRS_REDUCE_SCATTER_AUTO,
  TRS_REDUCE_SCATTER_FLAT,
  TRS_REDUCE_SCATTER_HIERARCHICAL
} TrsReduceScatterLevels;
enum { TRS_HIERARCHICAL_HOSTS = 4 };

/*
  Number of slots for batches in flight. A training has three: for the batch that is computed, the
  batch in the input dist, and a batch that a device has not ended yet. An evaluation between two
  steps has as many, which follow the training's.
*/
enum { TRS_TRAINING_SLOTS = 3, TRS_SHARD_SLOTS = 2 * TRS_TRAINING_SLOTS };
_Static_assert((int)TRS_SHARD_SLOTS == (int)TRS_CACHE_BATCHES, "caches know the batches in flight");

/* The kinds of batches that take turns: 0 a training's, 1 an evaluation's. */
enum { TRS_N_TURNS = 2 };
static inline int TrsShardingTurn(int slot)
{
  return slot < TRS_TRAINING_SLOTS ? 0 : 1;
}

/*
  Memory for data that is sent to other ranks. Its owner does not need it while rows and gradients
  travel. Each forward takes it anew, from the front.
*/
typedef struct {
  char *data;
  int64_t bytes, taken;
} TrsLoan;

/*
  The columns of the model's matrix where the model takes vectors where they lie. Only features
  whose vectors arrive in the matrix have columns: TrsShardingColumn() gives them when it is first
  asked.
*/
typedef struct {
  int64_t *column; /* [F]; -1: none */
  int64_t width;
} TrsMatrixLayout;

/*
  The data that all groups share; the sharded collection owns it. Features are numbered as the model
  orders them (src/RULES.md, rule A2).
*/
typedef struct {
  const TrsCommGroups *groups;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsTableConfigs *tables;
  const TrsEmbeddingShards *shards;
  /* sharded_ebc.h; only the codecs differ. A group has its own. */
  TrsPooledDistOptions dist, reduce_scatter, sequence;
  const TrsTablePlan **table_plan;   /* [T] each table's plan */
  int *first_feature;                /* [T] each table's first feature; its other features follow */
  const int64_t *columns;            /* [F] as given; read them by TrsShardingColumn() */
  TrsMatrixLayout *layout;           /* in place, instead of them; else NULL */
  const TrsPositionWeight *position; /* [F] */
  PetscBool index_dedup;             /* for sequence tables */
  PetscBool variable_batch;          /* for pooled tables */
  TrsReduceScatterLevels levels;     /* for row_wise tables */
  PetscBool copied;                  /* other copies of the tables make the same updates */
  TrsDType rows, wire;               /* sharded_ebc.h */
  PetscBool in_place, ids_in_place;  /* sharded_ebc.h */
  /* Memory for the lookups' rows. A lookup has memory of its own if the loan is too small. */
  TrsLoan *loan;
} TrsShardingContext;

typedef struct TrsShardingOps TrsShardingOps;
typedef struct TrsUpdateOps TrsUpdateOps;

/* One batch on its way through a group. */
typedef struct {
  const TrsKjt *batch; /* the samples' own ids in model order, borrowed from the reader */
  /*
    The batch without weights (src/RULES.md, rule A14), or with positions as weights; owns nothing.
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
    Type of the result and of its gradients: of floats, or of bf16, two in the place of a float, so
    that they travel without being encoded. A payload sets it.
  */
  TrsDType rows_type;
  /* A payload sets it: rows stay where the lookup put them until the update. */
  PetscBool lends_rows;
  TrsWorkspace workspace;
  TrsShardingSlot slot[TRS_SHARD_SLOTS];
  TrsKjt sent[TRS_N_TURNS]; /* memory for the ids of the one batch that is being sent, by turn */
  TrsKjt received;          /* on a host: memory for the received ids of a training batch */
  TrsMeanColumns *mean;     /* [features], scratch */
  /*
    The type that the pooled outputs are rounded to in the model, and the exchanges' options, with
    this type as their codec where they have none.
  */
  TrsDType output_dtype;
  TrsPooledDistOptions dist, reduce_scatter, sequence;
  const TrsUpdateOps *update;
  void *update_data; /* belongs to the update */
  void *data;        /* belongs to the payload */
};

struct TrsShardingOps {
  const char *name;
  PetscBool typed; /* it works on a model's matrix of bf16, too; else such a matrix is refused */
  /* Allocate, make the exchanges and the lookup. Collective. */
  PetscErrorCode (*setup)(TrsSharding sharding);
  PetscErrorCode (*destroy)(TrsSharding sharding);
  /* Lay out the slot's batch as it is sent (replicas: looked up). Not collective. */
  PetscErrorCode (*prepare)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Start and end the exchange that a payload makes before the lookup, beside the slot's `exchange`.
    The counts that prepare sent have arrived. NULL: there is no such exchange. Collective.
  */
  PetscErrorCode (*input_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  PetscErrorCode (*input_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Sort what backward_start of a training batch adds up by bag or by id, beside other work and
    without waiting. It comes before backward_start, or is left out. NULL: there is nothing to sort.
    Not collective.
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
  /* End a forward that no backward follows. NULL: there is nothing to do. */
  PetscErrorCode (*forward_end)(TrsSharding sharding, TrsStream stream);
  PetscErrorCode (*backward_start)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                   const TrsPooledMatrix *grad);
  /*
    Wait until the gradients have arrived at the shards. *arrived is set to them, for the update.
  */
  PetscErrorCode (*backward_wait)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                  const TrsPooledMatrix *grad, TrsMatrix *arrived);
};

/* The update applies the gradients to a group's rows. setup, destroy, list and sort may be NULL. */
struct TrsUpdateOps {
  const char *name;
  /* Called after the payload's setup, which made the lookup. It may choose another update. */
  PetscErrorCode (*setup)(TrsSharding sharding);
  PetscErrorCode (*destroy)(TrsSharding sharding);
  /* Called when the ids of a training batch have arrived. Not collective. */
  PetscErrorCode (*list)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /*
    Sort these ids for apply (TrsLookupSort), beside other work and without waiting. It comes before
    apply, or is left out. Not collective.
  */
  PetscErrorCode (*sort)(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream);
  /* Apply the result of backward_wait to the rows. Collective on the world. */
  PetscErrorCode (*apply)(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream, TrsMatrix grad,
                          const TrsSparseOptimizerArgs *args);
};

/* The payloads. */
extern const TrsShardingOps trs_payload_pooled, trs_payload_distinct_bags, trs_payload_sequence,
    trs_payload_ordered_rows, trs_payload_replicas, trs_payload_ordered_replicas,
    trs_payload_sequence_replicas;

/*
  The updates. Owners update their shards by bags, or by ids. Rows that are cut by columns are
  updated by whole_rows.c, or by row_squares.c, which it chooses. All replicas make the same update.
*/
extern const TrsUpdateOps trs_update_owner, trs_update_owner_by_id, trs_update_whole_rows,
    trs_update_row_squares, trs_update_replicas;

/* --- shared by the payloads (sharding.c) --- */

/* The matrix of rows of sharding->rows_type at `data`, with `stride` numbers a row. */
TrsMatrix TrsShardingRows(TrsSharding sharding, const float *data, int64_t stride);

/*
  The first column of the group's feature f (its number in the model) in the model's matrix. Call it
  at setup, for features whose vectors arrive there: those of all columns of their table.
*/
int64_t TrsShardingColumn(TrsSharding sharding, int f);

/* The plan of the group's i-th table. Borrowed. */
const TrsTablePlan *TrsShardingTablePlan(TrsSharding sharding, int i);
const TrsTableConfig *TrsShardingTableConfig(TrsSharding sharding, int i);

/*
  Does the model see the mean of a bag's rows? This holds for a mean table, and for a sequence table
  that is treated as a mean table: its rows are pooled where they are, to the same bits
  (src/RULES.md, rule A26).
*/
PetscBool TrsShardingIsMean(const TrsTableConfig *config);

/* The position weights of model feature f, if it has any. */
TrsPositionWeight TrsShardingPosition(TrsSharding sharding, int f);

/*
  Look up the slot's ids, and make room for the result: sharding->rows [G, local_dim]. Not
  collective.
*/
PetscErrorCode TrsShardingLookup(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream);

/*
  Create the exchange that adds the partial sums of the group's rows, with dim columns: inside a
  host, or over all ranks. NULL: shards have all rows, and there is nothing to add. Not collective.
*/
PetscErrorCode TrsShardingCreateSums(TrsSharding sharding, int64_t dim, TrsPooledChunks *sums);

/*
  Divide the columns of mean features by the lengths of bags. If rows are split, only the samples'
  own rank knows these lengths. Not collective.
*/
PetscErrorCode TrsShardingDivideMeans(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                      const TrsPooledMatrix *pooled);
