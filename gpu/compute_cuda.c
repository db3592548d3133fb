/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPU's table of kernels. */
#include "gpu/compute_cuda.h"

const TrsComputeOps trs_compute_cuda = {
    .name = "cuda",
    /* 64 bytes: 16-byte loads, and a whole number of tensor core steps along k */
    .product_unit = 16,
    .assemble = TrsAssembleCuda,
    .tbe_find_occurrences = TrsTbeFindOccurrencesCuda,
    .tbe_occurrences_destroy = TrsTbeOccurrencesDestroyCuda,
    .cross_input_backward = TrsCrossInputBackwardCuda,
    TRS_KERNELS(TRS_KERNEL_CUDA_ROW)};
