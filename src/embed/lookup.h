/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lookup: the table-batched embedding call of one sharding group on one rank. Source: TorchRec GroupedPooledEmbeddingsLookup.
*/
#pragma once

#include "embed/embedding_shards.h"
#include "sparse/kjt.h"

/*
  Weights of a feature's ids by their place in the bag (src/RULES.md, section 10): device memory, a
  dense parameter of the model.
*/
typedef struct {
  int64_t length;
  const float *weight; /* [length]; NULL: the feature has none */
  float *grad;         /* [length] what TrsLookupBackward() adds its gradient to */
} TrsPositionWeight;

typedef struct {
  int shard; /* index into the TrsEmbeddingShards; -1: none of the table's rows is here, all ids are as if pruned */
  PetscBool mean;     /* divide by the bag's length in the call */
  int64_t out_column; /* where its pooled vector goes in a row of the output */
  TrsPositionWeight
      position; /* all features of a lookup have one, and the KJTs' weights are positions; or none has */
} TrsLookupFeature;

typedef struct TrsLookupImpl *TrsLookup;

/* In: shards borrowed; feature [n] in the order of the KJTs this lookup gets. Not collective. */
PetscErrorCode TrsLookupCreate(const TrsComputeOps *compute, const TrsEmbeddingShards *shards, int n,
                               const TrsLookupFeature *feature, TrsLookup *lookup);
PetscErrorCode TrsLookupDestroy(TrsLookup *lookup);

/* out [kjt->batch, stride]: the features' columns are written. */
PetscErrorCode TrsLookupForward(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, float *out,
                                int64_t stride);

/* Backward with the fused optimizer: every row that occurs is updated once. grad [kjt->batch, stride]. */
PetscErrorCode TrsLookupBackward(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, const float *grad,
                                 int64_t stride, const TrsSparseOptimizerArgs *args);

/*
  Sequences: row values[i] of its feature's shard to out + i * stride, and the way back with the fused optimizer. Source: TorchRec
  GroupedEmbeddingsLookup.
*/
PetscErrorCode TrsLookupForwardRows(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, float *out,
                                    int64_t stride);
PetscErrorCode TrsLookupBackwardRows(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, const float *grad,
                                     int64_t stride, const TrsSparseOptimizerArgs *args);

/*
  Bring the batch's rows into the caches of its tables (embed/row_cache.h), ahead of its forward; without it the forward does. kjt's arrays of ids and offsets
  stay as they are until the batch's backward. Nothing where no table is cached.
*/
PetscErrorCode TrsLookupPrefetch(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt);

/* A batch that was looked up and has no backward is over: its lines of the caches are free. Nothing where no table is cached. */
PetscErrorCode TrsLookupEvaluated(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt);

/* The shards' memory holds what the caches do: before anything but the lookup reads it. drop: the caches are emptied, so that it may be changed. */
PetscErrorCode TrsLookupWriteBack(TrsLookup lookup, TrsStream stream, PetscBool drop);

/* The lookup's caches, NULL where it (or NULL for lookup) has none. Borrowed. */
TrsRowCaches TrsLookupCaches(TrsLookup lookup);

/* The distinct rows that the batch has of each table (compute_ops.h tbe_list_rows). workspace: the caller's; stream: any. */
PetscErrorCode TrsLookupListRows(TrsLookup lookup, TrsStream stream, TrsWorkspace workspace,
                                 const TrsKjt *kjt, int64_t *row_begin, int64_t *rows);

/* Their summed gradients instead of an update (compute_ops.h tbe_row_gradients). row_begin host [n_tables + 1], or NULL, as rows. */
PetscErrorCode TrsLookupRowGradients(TrsLookup lookup, TrsStream stream, const TrsKjt *kjt, const float *grad,
                                     int64_t stride, int64_t *row_begin, int64_t *rows, float *row_grad,
                                     int64_t row_stride);

/* The distinct tables of the lookup, in the order its kernels number them. Borrowed. */
PetscErrorCode TrsLookupTables(TrsLookup lookup, int *n_tables, const TrsTbeTable **tables);
