/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The GPU's kernels on jagged tensors, embeddings and matrices: slots of compute_ops.h that compute_cuda.c puts into the GPU's table. Internal to gpu/; what each does is
  documented at its slot, and the CPU's twin in src/compute is its specification.
*/
#pragma once

#if defined(__cplusplus)
  #include "gpu/cuda_language.h"
#else
  #include "compute/compute_ops.h"
#endif

PETSC_EXTERN PetscErrorCode TrsWorkspaceCreateCuda(TrsWorkspace *workspace);
PETSC_EXTERN PetscErrorCode TrsWorkspaceDestroyCuda(TrsWorkspace *workspace);

/* sparse_ops_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsOffsetsCuda(TrsStream stream, int64_t n, const int32_t *lengths,
                                           int64_t *offsets);
PETSC_EXTERN PetscErrorCode TrsPermuteBlocksCuda(TrsStream stream, TrsWorkspace workspace, int n_in,
                                                 const int64_t *block_begin, int n_out,
                                                 const int *permutation, const TrsJagged *in, TrsJagged *out);
PETSC_EXTERN PetscErrorCode TrsBucketizeCuda(TrsStream stream, TrsWorkspace workspace, int n_buckets,
                                             int n_features, int64_t batch, const TrsBucketSpec *spec,
                                             PetscBool keep_ids, const TrsJagged *in, TrsJagged *out,
                                             int64_t *positions, int64_t *unbucketize);
PETSC_EXTERN PetscErrorCode TrsBoundsCheckCuda(TrsStream stream, int mode, int n_features, int64_t batch,
                                               const int64_t *rows, int64_t *offsets, int64_t *values,
                                               int64_t n_values, int64_t report[5]);
PETSC_EXTERN PetscErrorCode TrsUniqueCuda(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                          const int64_t *values_begin, const int64_t *values,
                                          int64_t *unique_begin, int64_t *unique_values, int64_t *reverse);

/* bags_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsUniqueBagsCuda(TrsStream stream, TrsWorkspace workspace, int n_features,
                                              const int *feature, const TrsJagged *in,
                                              const TrsBagLists *lists, int64_t *inverse);
PETSC_EXTERN PetscErrorCode TrsTakeBagsCuda(TrsStream stream, TrsWorkspace workspace, int n_out,
                                            const int *block, const int *list, const TrsBagLists *lists,
                                            const TrsJagged *in, TrsJagged *out, int64_t *limits);
PETSC_EXTERN PetscErrorCode TrsPadOffsetsCuda(TrsStream stream, TrsWorkspace workspace, int n_features,
                                              const int64_t *strides, int64_t batch, const int64_t *offsets,
                                              int64_t *to);

/* sequence_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsSequenceForwardCuda(TrsStream stream, const TrsSequenceBags *bags,
                                                   const float *rows, float *out, int64_t out_stride);
PETSC_EXTERN PetscErrorCode TrsSequenceBackwardCuda(TrsStream stream, const TrsSequenceBags *bags,
                                                    const float *rows, const float *grad, int64_t grad_stride,
                                                    PetscBool by_id, float *to);
PETSC_EXTERN PetscErrorCode TrsPositionsCuda(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                             float *positions);
PETSC_EXTERN PetscErrorCode TrsPositionWeightsCuda(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                                   const float *positions, int64_t length,
                                                   const float *by_position, float *weights);
PETSC_EXTERN PetscErrorCode TrsPositionGradientsCuda(TrsStream stream, TrsWorkspace workspace, int64_t n_bags,
                                                     const int64_t *offsets, const float *positions,
                                                     const float *grad_weights, int64_t length,
                                                     float *by_position);

/* cache_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsCachePrefetchCuda(TrsStream stream, TrsWorkspace workspace,
                                                 const TrsCache *cache, const TrsTbe *tbe,
                                                 const TrsTbeInput *input, int32_t *locations, int32_t *held);
PETSC_EXTERN PetscErrorCode TrsCacheLocateCuda(TrsStream stream, TrsWorkspace workspace,
                                               const TrsCache *cache, const TrsTbe *tbe,
                                               const TrsTbeInput *input, int32_t *locations);
PETSC_EXTERN PetscErrorCode TrsCacheReleaseCuda(TrsStream stream, const TrsCache *cache, int64_t n,
                                                const int32_t *held);
PETSC_EXTERN PetscErrorCode TrsCacheWriteBackCuda(TrsStream stream, TrsWorkspace workspace,
                                                  const TrsCache *cache, const TrsTbe *tbe);

/* tbe_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsTbeForwardCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                              const TrsTbeInput *input, float *out, int64_t out_stride);
PETSC_EXTERN PetscErrorCode TrsTbeForwardRowsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                                  const TrsTbeInput *input, float *out, int64_t out_stride);
PETSC_EXTERN PetscErrorCode TrsTbeWeightGradientsCuda(TrsStream stream, TrsWorkspace workspace,
                                                      const TrsTbe *tbe, const TrsTbeInput *input,
                                                      const float *grad, int64_t grad_stride,
                                                      float *grad_weights);

/* tbe_backward_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsTbeBackwardCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, const float *grad,
                                               int64_t grad_stride, float max_gradient,
                                               const TrsSparseOptimizerArgs *args, float *grad_weights);
PETSC_EXTERN PetscErrorCode TrsTbeBackwardRowsCuda(TrsStream stream, TrsWorkspace workspace,
                                                   const TrsTbe *tbe, const TrsTbeInput *input,
                                                   const float *grad, int64_t grad_stride, float max_gradient,
                                                   const TrsSparseOptimizerArgs *args);
PETSC_EXTERN PetscErrorCode TrsTbeRowGradientsCuda(TrsStream stream, TrsWorkspace workspace,
                                                   const TrsTbe *tbe, const TrsTbeInput *input,
                                                   const float *grad, int64_t grad_stride, float max_gradient,
                                                   int64_t *row_begin, int64_t *rows, float *row_grad,
                                                   int64_t row_stride);
PETSC_EXTERN PetscErrorCode TrsTbeUpdateRowsCuda(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                                 const TrsTbeTable *table, int64_t n, const int64_t *keys,
                                                 const int64_t *index, const float *grad, int64_t grad_stride,
                                                 const TrsSparseOptimizerArgs *args);

/* row_lists_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsTbeListRowsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, int64_t *row_begin, int64_t *rows);
PETSC_EXTERN PetscErrorCode TrsMergeRowsCuda(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                             const TrsTbeTable *table, int n_lists, const int64_t *begin,
                                             const int64_t *rows, int64_t *keys, int64_t *index);

/* matrix_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsCopyColumnsCuda(TrsStream stream, int64_t rows, int n,
                                               const TrsColumnCopy *copy);
PETSC_EXTERN PetscErrorCode TrsCopyRowsCuda(TrsStream stream, TrsWorkspace workspace, int n,
                                            const TrsRowsCopy *copy);
PETSC_EXTERN PetscErrorCode TrsSumMatricesCuda(TrsStream stream, int n_parts, const float *const *from,
                                               int64_t from_stride, int64_t rows, int64_t cols, float *to,
                                               int64_t to_stride);
PETSC_EXTERN PetscErrorCode TrsDivideColumnsCuda(TrsStream stream, int64_t rows, int n,
                                                 const TrsMeanColumns *mean, int64_t stride);
PETSC_EXTERN PetscErrorCode TrsClampMatrixCuda(TrsStream stream, int64_t rows, int64_t cols, float limit,
                                               float *matrix, int64_t stride);
