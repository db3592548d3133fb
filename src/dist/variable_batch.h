/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchange of pooled embeddings if each feature has its own batch size. The ids of each distinct bag
  are looked up only once, and every sample refers to its bag's row (inverse indices).

  Pooled rows are a flat vector: for each rank and each feature, a block [bags, D], row-major. If
  such vectors are partial sums, with the same layout on all ranks, they are added as chunks of
  unequal length with one column (pooled_chunks.h). Objects are created, lent and freed as in
  pooled_all_to_all.h, and codecs are used in the same way. The ids are sent as a KJT with strides
  (TrsKjtExchangeSetVariable).

  Source: TorchRec VariableBatchPooledEmbeddingsAllToAll, VariableBatchPooledEmbeddingsReduceScatter
*/
#pragma once

#include "dist/coded_exchange.h"
#include "dist/pooled_all_to_all.h"

typedef struct TrsVariableAllToAllImpl *TrsVariableAllToAll;

/*
  Create the exchange. n_features [size] is the number of features of each owner. dims [sum of
  n_features] is the number of columns of each feature, in the order of the owners. Not collective.
*/
PetscErrorCode TrsVariableAllToAllCreate(TrsComm comm, const int *n_features, const int64_t *dims,
                                         const TrsPooledDistOptions *options, TrsVariableAllToAll *dist);
PetscErrorCode TrsVariableAllToAllDestroy(TrsVariableAllToAll *dist);

/*
  Do an exchange. Start sends `pooled`: for each source rank and each of this rank's features, a
  block [source_strides[source][feature], D]. strides [sum of n_features] are the numbers of bags in
  this rank's batch, with features in the order of their owners. Wait returns recv: for each owner
  and each of its features, a block [strides[f], D_f]. Feature f begins at feature_displs[f] ([sum
  of n_features + 1]). Collective on comm.
*/
PetscErrorCode TrsVariableAllToAllStart(TrsVariableAllToAll dist, TrsStream stream, float *pooled,
                                        const int64_t *source_strides, const int64_t *strides);
PetscErrorCode TrsVariableAllToAllWait(TrsVariableAllToAll dist, TrsStream stream, const float **recv,
                                       const int64_t **feature_displs);
PetscErrorCode TrsVariableAllToAllGradBuffer(TrsVariableAllToAll dist, float **send,
                                             const int64_t **feature_displs);
PetscErrorCode TrsVariableAllToAllGradStart(TrsVariableAllToAll dist, TrsStream stream);
PetscErrorCode TrsVariableAllToAllGradWait(TrsVariableAllToAll dist, TrsStream stream, const float **grad);

/*
  Expansion of a flat vector of bags' rows to the matrix of the samples, and the opposite for
  gradients.
*/
typedef struct TrsVariableExpandImpl *TrsVariableExpand;

/*
  Create the expansion. Feature f has dims[f] columns, which begin at columns[f] of the matrix. Not
  collective.
*/
PetscErrorCode TrsVariableExpandCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                       int n_features, const int64_t *dims, const int64_t *columns,
                                       TrsVariableExpand *expand);
PetscErrorCode TrsVariableExpandDestroy(TrsVariableExpand *expand);

/*
  TrsVariableExpandForward, TrsVariableExpandBackward - Copy the rows of bags to their samples, and
    sum the samples' gradients for each bag.

  Feature f has a block [strides[f], D] at flat + feature_displs[f]. Forward copies row
  inverse[f][b] of this block to row b of the feature's columns. Backward sets row i of the block in
  grad_flat to the sum of the gradients of all samples that refer to row i, in the order of the
  samples.

  TrsVariableExpandSort - Sort the samples by bag before Backward is called, which then gets
    *occurrences. *occurrences must be NULL at first, and is used and freed as for TrsLookupSort()
    (embed/lookup.h). All sorts of an expansion must use the same stream. If Backward gets NULL, it
    sorts the samples itself.

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
