/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lookup: a sharding group's table-batched embedding (TBE) call on one rank.

  Source: TorchRec GroupedPooledEmbeddingsLookup
*/
#pragma once

#include "embed/placement.h"

/*
  Weights of a feature's ids by their position in the bag (src/RULES.md, section 10). They are a
  dense parameter of the model, in device memory.
*/
typedef struct {
  int64_t length;
  const float *weight; /* [length]; NULL: the feature has none */
  float *grad;         /* [length] TrsLookupPositionGradients() adds the weights' gradients to it */
} TrsPositionWeight;

typedef struct {
  /*
    index into the TrsEmbeddingShards; -1: this rank has no row of the table, as if all ids were
    pruned
  */
  int shard;
  PetscBool mean;     /* divide by the bag's length in this call */
  int64_t out_column; /* column of the feature's pooled vector in a row of the output */
  /*
    Either all features of a lookup have position weights, and the weights of its KJTs are
    positions, or no feature has position weights.
  */
  TrsPositionWeight position;
} TrsLookupFeature;

typedef struct TrsLookupImpl *TrsLookup;

/*
  Create a lookup. shards is borrowed; feature [n] must have the order of the KJTs that the lookup
  receives. Not collective.
*/
PetscErrorCode TrsLookupCreate(const TrsComputeOps *compute, const TrsEmbeddingShards *shards, int n,
                               const TrsLookupFeature *feature, TrsLookup *lookup);
PetscErrorCode TrsLookupDestroy(TrsLookup *lookup);

/* Write the features' columns of out. out has kjt->batch rows. */
PetscErrorCode TrsLookupForward(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, TrsMatrix out);

/*
  Find the bags of `next` that the update of the batch `written` does not touch (untouched.h): bags
  [features * next->batch]. Both batches must have arrived, and the lookup must have no placement.
  The host must be able to read the ids. Not collective.
*/
PetscErrorCode TrsLookupUntouched(TrsLookup lookup, const TrsKjt *written, const TrsKjt *next, uint8_t *bags);

/*
  Look up bags of one feature: bag b of `bags`, which has only this feature, is pooled to out + b *
  stride. The lookup must have no placement and no position weights. Not collective.
*/
PetscErrorCode TrsLookupForwardFeature(TrsLookup lookup, TrsStream stream, int feature,
                                       const TrsTbeInput *bags, float *out, int64_t stride);

/*
  Sort a batch's ids by row, ahead of the call that uses *occurrences. *occurrences must be NULL at
  first, and may be reused (compute_ops.h tbe_find_occurrences); free it with
  TrsLookupOccurrencesDestroy(). All sorts of a lookup must use one stream. On devices that sort
  table by table *occurrences stays NULL, and the later call sorts the ids itself. Position weights
  and the rows' places in caches are not read.
*/
PetscErrorCode TrsLookupSort(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, TrsTbeUse use,
                             TrsTbeOccurrences *occurrences);
PetscErrorCode TrsLookupOccurrencesDestroy(const TrsComputeOps *compute, TrsTbeOccurrences *occurrences);

/*
  If features have position weights, add these weights' gradients, computed from the rows before
  their update. grad [kjt->batch] is the bags' gradient; with position weights it must be fp32.
*/
PetscErrorCode TrsLookupPositionGradients(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                          TrsMatrix grad);

/*
  The backward with the fused optimizer: every row that occurs is updated once. grad has kjt->batch
  rows. occurrences: from TrsLookupSort() with TRS_TBE_BY_BAG, or NULL. row_squares: as in
  TrsTbeInput, from TrsLookupRowSquares(); NULL: no table is cut.
*/
PetscErrorCode TrsLookupBackward(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                 TrsTbeOccurrences occurrences, TrsMatrix grad, float *const *row_squares,
                                 const TrsSparseOptimizerArgs *args);

/*
  Sequences: the forward copies row values[i] of its feature's shard to out + i * stride. The
  backward updates these rows from grad with the fused optimizer; its occurrences are from
  TRS_TBE_BY_ID, or NULL. Source: TorchRec GroupedEmbeddingsLookup.
*/
PetscErrorCode TrsLookupForwardRows(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, float *out,
                                    int64_t stride);
PetscErrorCode TrsLookupBackwardRows(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                     TrsTbeOccurrences occurrences, const float *grad, int64_t stride,
                                     const TrsSparseOptimizerArgs *args);

/*
  Give rows to the keys of a batch that has arrived (placement.h): ids' values become rows. slot:
  the batch's slot among the batches in flight. training: an update follows. sources: the order of
  the samples, or NULL for that of the global batch. Must be called once for
  each batch, also for a batch without ids, before all other functions; otherwise keys are taken as
  rows. For this function and the next four, lookup may be NULL; they then do nothing.
*/
PetscErrorCode TrsLookupTake(TrsLookup lookup, TrsStream stream, int slot, PetscBool training,
                             const TrsPlacementSources *sources, TrsKjt *ids);

/*
  Bring in the batch's rows before its forward; otherwise the forward does it. kjt's arrays of ids
  and offsets must stay unchanged until the batch's backward.
*/
PetscErrorCode TrsLookupPrefetch(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt);

/* End a batch without a backward, and free the places that it holds. */
PetscErrorCode TrsLookupEvaluated(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt);

/*
  Some rows are outside the shards' memory, for example in caches. Copy these rows back to the
  shards' memory. Must be called before code outside the lookup reads this memory. drop: also empty
  the caches, so that the caller may change the shards' memory.
*/
PetscErrorCode TrsLookupSettle(TrsLookup lookup, TrsStream stream, PetscBool drop);

/*
  Write the rows in caches back to the shards' memory, and empty the caches, in the middle of an
  update. Rows that the next batch has given to ids keep their old contents until its forward.
*/
PetscErrorCode TrsLookupDropLines(TrsLookup lookup, TrsStream stream);

/* The lookup's stack of placements. NULL if lookup is NULL. Borrowed. */
TrsPlacement TrsLookupPlacement(TrsLookup lookup);

/* The caches in this stack; NULL if there are none. Borrowed. */
TrsRowCaches TrsLookupCaches(TrsLookup lookup);

/*
  List the batch's distinct rows of each table (compute_ops.h tbe_list_rows). The caller owns
  workspace. Any stream may be used. occurrences: from TRS_TBE_LISTS, or NULL.
*/
PetscErrorCode TrsLookupListRows(TrsLookup lookup, TrsStream stream, TrsWorkspace workspace,
                                 const TrsKjt *kjt, TrsTbeOccurrences occurrences, int64_t *row_begin,
                                 int64_t *rows);

/*
  Sum the gradients of these rows, in their order, instead of updating the rows (compute_ops.h
  tbe_row_gradients). Also adds the gradients of position weights. occurrences: from TRS_TBE_LISTS,
  or NULL.
*/
PetscErrorCode TrsLookupRowGradients(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                     TrsTbeOccurrences occurrences, TrsMatrix grad, float *row_grad,
                                     int64_t row_stride);

/* Count each table's ids in the batch: n_ids [n_tables]. For devices with host memory. */
void TrsLookupCountIds(TrsLookup lookup, const TrsKjt *kjt, int64_t *n_ids);

/*
  Sum the squares of the distinct rows' gradients by blocks of columns (compute_ops.h
  tbe_row_squares). squares [n_tables]; NULL for tables without sums.
*/
PetscErrorCode TrsLookupRowSquares(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, const float *grad,
                                   int64_t stride, float *const *squares);

/* The lookup's distinct tables, in the order of the kernels' numbers. Borrowed. */
PetscErrorCode TrsLookupTables(TrsLookup lookup, int *n_tables, const TrsTbeTable **tables);
