/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lookup: the table-batched embedding call of one sharding group on one rank.

  Source: TorchRec GroupedPooledEmbeddingsLookup
*/
#pragma once

#include "embed/placement.h"

/*
  Weights of a feature's ids by their place in the bag (src/RULES.md, section 10). They are a dense
  parameter of the model, in device memory.
*/
typedef struct {
  int64_t length;
  const float *weight; /* [length]; NULL: the feature has none */
  float *grad;         /* [length] TrsLookupPositionGradients() adds the gradient of weight to it */
} TrsPositionWeight;

typedef struct {
  /*
    index into the TrsEmbeddingShards; -1: no row of the table is here, as if all ids were pruned
  */
  int shard;
  PetscBool mean;     /* divide by the length of the bag in the call */
  int64_t out_column; /* the column of the feature's pooled vector in a row of the output */
  /*
    Either all features of a lookup have position weights, and the weights of its KJTs are
    positions, or no feature has.
  */
  TrsPositionWeight position;
} TrsLookupFeature;

typedef struct TrsLookupImpl *TrsLookup;

/*
  Create a lookup. shards is borrowed; feature [n] is in the order of the KJTs that the lookup gets.
  Not collective.
*/
PetscErrorCode TrsLookupCreate(const TrsComputeOps *compute, const TrsEmbeddingShards *shards, int n,
                               const TrsLookupFeature *feature, TrsLookup *lookup);
PetscErrorCode TrsLookupDestroy(TrsLookup *lookup);

/* Write the features' columns of out, which has kjt->batch rows. */
PetscErrorCode TrsLookupForward(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, TrsMatrix out);

/*
  Sort a batch's ids by row, ahead of the call that gets *occurrences for this use. *occurrences
  begins as NULL and may be used again and again (compute_ops.h tbe_find_occurrences); free it with
  TrsLookupOccurrencesDestroy(). A lookup's sorts are all on one stream. On devices that sort table
  by table *occurrences stays NULL, and the later call sorts the ids itself. Position weights and
  the rows' places in caches are not looked at.
*/
PetscErrorCode TrsLookupSort(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, TrsTbeUse use,
                             TrsTbeOccurrences *occurrences);
PetscErrorCode TrsLookupOccurrencesDestroy(const TrsComputeOps *compute, TrsTbeOccurrences *occurrences);

/*
  Add the gradients of the features' position weights, if there are any, from the rows before their
  update. grad [kjt->batch] is that of the bags; with position weights it is of floats.
*/
PetscErrorCode TrsLookupPositionGradients(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                          TrsMatrix grad);

/*
  Do the backward with the fused optimizer: every row that occurs is updated once. grad has
  kjt->batch rows. occurrences: from TrsLookupSort() with TRS_TBE_BY_BAG, or NULL. row_squares: as
  in TrsTbeInput, from TrsLookupRowSquares(); NULL: no table is cut.
*/
PetscErrorCode TrsLookupBackward(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                 TrsTbeOccurrences occurrences, TrsMatrix grad, float *const *row_squares,
                                 const TrsSparseOptimizerArgs *args);

/*
  Sequences: copy row values[i] of its feature's shard to out + i * stride. The backward goes the
  other way, with the fused optimizer; its occurrences are those of TRS_TBE_BY_ID, or NULL. Source:
  TorchRec GroupedEmbeddingsLookup.
*/
PetscErrorCode TrsLookupForwardRows(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, float *out,
                                    int64_t stride);
PetscErrorCode TrsLookupBackwardRows(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                     TrsTbeOccurrences occurrences, const float *grad, int64_t stride,
                                     const TrsSparseOptimizerArgs *args);

/*
  Give the keys of a batch that has arrived their rows (placement.h): ids' values are rows
  afterwards. slot: of the batches in flight. training: an update follows. Call it once for each
  batch, also one without ids, before all other functions. Without it, keys are rows. Here and in
  the next four functions lookup may be NULL, and then nothing happens.
*/
PetscErrorCode TrsLookupTake(TrsLookup lookup, TrsStream stream, int slot, PetscBool training, TrsKjt *ids);

/*
  Bring in the batch's rows ahead of its forward. Without this call the forward does it. kjt's
  arrays of ids and offsets must stay unchanged until the batch's backward.
*/
PetscErrorCode TrsLookupPrefetch(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt);

/* End a batch that was looked up and has no backward. The places that it holds become free. */
PetscErrorCode TrsLookupEvaluated(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt);

/*
  Write rows in other places, such as caches, back to the shards' memory. Call it before any code
  but the lookup reads this memory. drop: also empty these places, so that the memory may be
  changed.
*/
PetscErrorCode TrsLookupSettle(TrsLookup lookup, TrsStream stream, PetscBool drop);

/* The lookup's stack of placements. NULL if lookup is NULL. Borrowed. */
TrsPlacement TrsLookupPlacement(TrsLookup lookup);

/* The caches among them; NULL if there are none. Borrowed. */
TrsRowCaches TrsLookupCaches(TrsLookup lookup);

/*
  List the distinct rows that the batch has of each table (compute_ops.h tbe_list_rows). The caller
  owns workspace. Any stream may be used. occurrences: those of TRS_TBE_LISTS, or NULL.
*/
PetscErrorCode TrsLookupListRows(TrsLookup lookup, TrsStream stream, TrsWorkspace workspace,
                                 const TrsKjt *kjt, TrsTbeOccurrences occurrences, int64_t *row_begin,
                                 int64_t *rows);

/*
  Sum the gradients of these rows, in their order, instead of updating the rows (compute_ops.h
  tbe_row_gradients). The gradients of position weights are added, too. occurrences: those of
  TRS_TBE_LISTS, or NULL.
*/
PetscErrorCode TrsLookupRowGradients(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt,
                                     TrsTbeOccurrences occurrences, TrsMatrix grad, float *row_grad,
                                     int64_t row_stride);

/* Count the ids of each table in the batch: n_ids [n_tables]. For devices of host memory. */
void TrsLookupCountIds(TrsLookup lookup, const TrsKjt *kjt, int64_t *n_ids);

/*
  Sum the squares of the distinct rows' gradients by blocks of columns (compute_ops.h
  tbe_row_squares). squares [n_tables]; NULL for tables that need none.
*/
PetscErrorCode TrsLookupRowSquares(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, const float *grad,
                                   int64_t stride, float *const *squares);

/* The distinct tables of the lookup, in the order of the kernels' numbers. Borrowed. */
PetscErrorCode TrsLookupTables(TrsLookup lookup, int *n_tables, const TrsTbeTable **tables);
