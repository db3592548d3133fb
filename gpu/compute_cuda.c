/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPU's table of kernels. */
#include "gpu/compute_cuda.h"

#include "gpu/codec_cuda.h"
#include "gpu/dense_cuda.h"

const TrsComputeOps trs_compute_cuda = {
    .name = "cuda",
    .workspace_create = TrsWorkspaceCreateCuda,
    .workspace_destroy = TrsWorkspaceDestroyCuda,
    .offsets = TrsOffsetsCuda,
    .permute_blocks = TrsPermuteBlocksCuda,
    .bucketize = TrsBucketizeCuda,
    .bounds_check = TrsBoundsCheckCuda,
    .unique = TrsUniqueCuda,
    .gather_ids = TrsGatherIdsCuda,
    .sequence_forward = TrsSequenceForwardCuda,
    .sequence_backward = TrsSequenceBackwardCuda,
    .positions = TrsPositionsCuda,
    .position_weights = TrsPositionWeightsCuda,
    .position_gradients = TrsPositionGradientsCuda,
    .tbe_forward = TrsTbeForwardCuda,
    .tbe_forward_rows = TrsTbeForwardRowsCuda,
    .tbe_backward = TrsTbeBackwardCuda,
    .tbe_weight_gradients = TrsTbeWeightGradientsCuda,
    .tbe_backward_rows = TrsTbeBackwardRowsCuda,
    .tbe_row_gradients = TrsTbeRowGradientsCuda,
    .tbe_update_rows = TrsTbeUpdateRowsCuda,
    .copy_matrix = TrsCopyMatrixCuda,
    .sum_matrices = TrsSumMatricesCuda,
    .divide_rows = TrsDivideRowsCuda,
    .clamp_matrix = TrsClampMatrixCuda,
    .dense_precision = TrsDensePrecisionCuda,
    .gemm = TrsGemmCuda,
    .linear_forward = TrsLinearForwardCuda,
    .linear_backward = TrsLinearBackwardCuda,
    .dot_forward = TrsDotForwardCuda,
    .dot_backward = TrsDotBackwardCuda,
    .cross_forward = TrsCrossForwardCuda,
    .cross_backward = TrsCrossBackwardCuda,
    .bce = TrsBceCuda,
    .sum_of_squares = TrsSumOfSquaresCuda,
    .dense_update = TrsDenseUpdateCuda,
    .codec_bytes = TrsCodecBytesCuda,
    .encode = TrsEncodeCuda,
    .decode = TrsDecodeCuda,
    .convert = TrsConvertCuda,
};
