/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The CPU's kernels on jagged tensors, embeddings and matrices: slots of compute_ops.h that compute.c puts into the CPU's table. Internal to
  compute/; what each does is documented at its slot. Streams run inline on a CPU, so the argument is unused.
*/
#pragma once

#include "compute/compute_ops.h"

/* Scratch memory, grown by whoever needs it; a call may use all of it. */
struct TrsWorkspaceImpl {
  TrsBuffer keys, positions, scratch, runs;
  TrsBuffer by_thread; /* a part for each thread: counts of buckets, or sums of rows too wide for the stack */
};

PetscErrorCode TrsWorkspaceCreateCpu(TrsWorkspace *workspace);
PetscErrorCode TrsWorkspaceDestroyCpu(TrsWorkspace *workspace);

/* sparse_ops_cpu.c */
PetscErrorCode TrsOffsetsCpu(TrsStream stream, int64_t n, const int32_t *lengths, int64_t *offsets);
PetscErrorCode TrsPermuteBlocksCpu(TrsStream stream, TrsWorkspace workspace, int n_in,
                                   const int64_t *block_begin, int n_out, const int *permutation,
                                   const TrsJagged *in, TrsJagged *out);
PetscErrorCode TrsBoundsCheckCpu(TrsStream stream, int mode, int n_features, int64_t batch,
                                 const int64_t *rows, int64_t *offsets, int64_t *values, int64_t n_values,
                                 int64_t report[5]);
PetscErrorCode TrsUniqueCpu(TrsStream stream, TrsWorkspace workspace, int n_tables,
                            const int64_t *values_begin, const int64_t *values, int64_t *unique_begin,
                            int64_t *unique_values, int64_t *reverse);

/* bags_cpu.c */
PetscErrorCode TrsUniqueBagsCpu(TrsStream stream, TrsWorkspace workspace, int n_features, const int *feature,
                                const TrsJagged *in, const TrsBagLists *lists, int64_t *inverse);
PetscErrorCode TrsTakeBagsCpu(TrsStream stream, TrsWorkspace workspace, int n_out, const int *block,
                              const int *list, const TrsBagLists *lists, const TrsJagged *in, TrsJagged *out,
                              int64_t *limits);
PetscErrorCode TrsPadOffsetsCpu(TrsStream stream, TrsWorkspace workspace, int n_features,
                                const int64_t *strides, int64_t batch, const int64_t *offsets, int64_t *to);

/* bucketize_cpu.c */
PetscErrorCode TrsBucketizeCpu(TrsStream stream, TrsWorkspace workspace, int n_buckets, int n_features,
                               int64_t batch, const TrsBucketSpec *spec, PetscBool keep_ids,
                               const TrsJagged *in, TrsJagged *out, int64_t *positions, int64_t *unbucketize);

/* sequence_cpu.c */
PetscErrorCode TrsSequenceForwardCpu(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                     float *out, int64_t out_stride);
PetscErrorCode TrsSequenceBackwardCpu(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                      const float *grad, int64_t grad_stride, PetscBool by_id, float *to);
PetscErrorCode TrsPositionsCpu(TrsStream stream, int64_t n_bags, const int64_t *offsets, float *positions);
PetscErrorCode TrsPositionWeightsCpu(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                     const float *positions, int64_t length, const float *by_position,
                                     float *weights);
PetscErrorCode TrsPositionGradientsCpu(TrsStream stream, TrsWorkspace workspace, int64_t n_bags,
                                       const int64_t *offsets, const float *positions,
                                       const float *grad_weights, int64_t length, float *by_position);

/* cache_cpu.c */
PetscErrorCode TrsCachePrefetchCpu(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                   const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations,
                                   int32_t *held);
PetscErrorCode TrsCacheLocateCpu(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                 const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations);
PetscErrorCode TrsCacheReleaseCpu(TrsStream stream, const TrsCache *cache, int64_t n, const int32_t *held);
PetscErrorCode TrsCacheWriteBackCpu(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                    const TrsTbe *tbe);

/* tbe_cpu.c */
PetscErrorCode TrsTbeForwardCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                const TrsTbeInput *input, float *out, int64_t out_stride);
PetscErrorCode TrsTbeForwardRowsCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                    const TrsTbeInput *input, float *out, int64_t out_stride);
PetscErrorCode TrsTbeBackwardCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                 const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                 float max_gradient, const TrsSparseOptimizerArgs *args, float *grad_weights);
PetscErrorCode TrsTbeWeightGradientsCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                        const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                        float *grad_weights);
PetscErrorCode TrsTbeBackwardRowsCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                     const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                     float max_gradient, const TrsSparseOptimizerArgs *args);
PetscErrorCode TrsTbeRowGradientsCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                     const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                     float max_gradient, int64_t *row_begin, int64_t *rows, float *row_grad,
                                     int64_t row_stride);
PetscErrorCode TrsTbeUpdateRowsCpu(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                   const TrsTbeTable *table, int64_t n, const int64_t *keys,
                                   const int64_t *index, const float *grad, int64_t grad_stride,
                                   const TrsSparseOptimizerArgs *args);

/* row_lists_cpu.c */
PetscErrorCode TrsTbeListRowsCpu(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                 const TrsTbeInput *input, int64_t *row_begin, int64_t *rows);
PetscErrorCode TrsMergeRowsCpu(TrsStream stream, TrsWorkspace workspace, int n_tables,
                               const TrsTbeTable *table, int n_lists, const int64_t *begin,
                               const int64_t *rows, int64_t *keys, int64_t *index);

/* matrix_cpu.c */
PetscErrorCode TrsCopyColumnsCpu(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy);
PetscErrorCode TrsCopyRowsCpu(TrsStream stream, TrsWorkspace workspace, int n, const TrsRowsCopy *copy);
PetscErrorCode TrsSumMatricesCpu(TrsStream stream, int n_parts, const float *const *from, int64_t from_stride,
                                 int64_t rows, int64_t cols, float *to, int64_t to_stride);
PetscErrorCode TrsDivideColumnsCpu(TrsStream stream, int64_t rows, int n, const TrsMeanColumns *mean,
                                   int64_t stride);
PetscErrorCode TrsClampMatrixCpu(TrsStream stream, int64_t rows, int64_t cols, float limit, float *matrix,
                                 int64_t stride);
