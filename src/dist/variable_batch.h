/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pooled embeddings if each feature has its own batch size. Ids are looked up once for each distinct
  bag, and every sample refers to its bag's row (inverse indices).

  Pooled rows are a flat vector: for each rank, for each feature, [bags, D] row-major. Partial sums
  of such vectors, with the same layout on all ranks, are added as chunks of uneven length with one
  column (pooled_chunks.h). Object life, borrowing and codecs are as in pooled_all_to_all.h. The ids
  travel as a KJT with strides (TrsKjtExchangeSetVariable).

  Source: TorchRec VariableBatchPooledEmbeddingsAllToAll, VariableBatchPooledEmbeddingsReduceScatter
*/
#pragma once

#include "dist/coded_exchange.h"
#include "dist/pooled_all_to_all.h"

typedef struct TrsVariableAllToAllImpl *TrsVariableAllToAll;

/*
  Create the exchange. n_features [size] is each owner's number of features, dims [sum of
  n_features] the number of columns of each feature, in owner order. Not collective.
*/
PetscErrorCode TrsVariableAllToAllCreate(TrsComm comm, const int *n_features, const int64_t *dims,
                                         const TrsPooledDistOptions *options, TrsVariableAllToAll *dist);
PetscErrorCode TrsVariableAllToAllDestroy(TrsVariableAllToAll *dist);

/*
  Start sends pooled: for each source rank, for each of this rank's features,
  [source_strides[source][feature], D]. strides [sum of n_features] are the numbers of bags in this
  rank's batch, with features in owner order. Wait returns recv: for each owner, for each of its
  features, [strides[f], D_f]. Feature f begins at feature_displs[f] ([sum of n_features + 1]).
  Collective on comm.
*/
PetscErrorCode TrsVariableAllToAllStart(TrsVariableAllToAll dist, TrsStream stream, float *pooled,
                                        const int64_t *source_strides, const int64_t *strides);
PetscErrorCode TrsVariableAllToAllWait(TrsVariableAllToAll dist, TrsStream stream, const float **recv,
                                       const int64_t **feature_displs);
PetscErrorCode TrsVariableAllToAllGradBuffer(TrsVariableAllToAll dist, float **send,
                                             const int64_t **feature_displs);
PetscErrorCode TrsVariableAllToAllGradStart(TrsVariableAllToAll dist, TrsStream stream);
PetscErrorCode TrsVariableAllToAllGradWait(TrsVariableAllToAll dist, TrsStream stream, const float **grad);

/* Expansion of a flat vector of bag rows to the samples' matrix, and back for gradients. */
typedef struct TrsVariableExpandImpl *TrsVariableExpand;

/*
  Create the expansion. Feature f has dims[f] columns, at columns[f] of the matrix. Not collective.
*/
PetscErrorCode TrsVariableExpandCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                       int n_features, const int64_t *dims, const int64_t *columns,
                                       TrsVariableExpand *expand);
PetscErrorCode TrsVariableExpandDestroy(TrsVariableExpand *expand);

/*
  TrsVariableExpandForward, TrsVariableExpandBackward - Copy bag rows to samples; sum the samples'
  gradients into bags.

  Feature f has a block [strides[f], D] at flat + feature_displs[f]. Forward: row b of the feature's
  columns is row inverse[f][b] of the block. Backward: row i of the block in grad_flat is the sum of
  the gradients of all samples that refer to row i, in order of sample.

  TrsVariableExpandSort - Sort the samples by bag ahead of Backward, which then gets *occurrences.
  *occurrences must be NULL at first, and is used and freed as for TrsLookupSort() (embed/lookup.h).
  All sorts of an expansion must use one stream. If Backward gets NULL, it sorts.

  Not collective.

  In: batch           number of samples
      inverse         device [n_features][batch]
      feature_displs  host [n_features + 1]
*/
PetscErrorCode TrsVariableExpandForward(TrsVariableExpand expand, TrsStream stream, int64_t batch,
                                        const int64_t *inverse, const float *flat,
                                        const int64_t *feature_displs, float *matrix, int64_t stride);
PetscErrorCode TrsVariableExpandBackward(TrsVariableExpand expand, TrsStream stream, int64_t batch,
                                         const int64_t *inverse, TrsTbeOccurrences occurrences,
                                         const float *grad_matrix, int64_t stride, float *grad_flat,
                                         const int64_t *feature_displs);
PetscErrorCode TrsVariableExpandSort(TrsVariableExpand expand, TrsStream stream, int64_t batch,
                                     const int64_t *inverse, const int64_t *feature_displs,
                                     TrsTbeOccurrences *occurrences);
