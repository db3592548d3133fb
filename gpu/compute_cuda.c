/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPU's table of kernels. */
#include "gpu/compute_cuda.h"

const TrsComputeOps trs_compute_cuda = {
    .name = "cuda",
    .workspace_create = TrsWorkspaceCreateCuda,
    .workspace_destroy = TrsWorkspaceDestroyCuda,
    .copy_matrix = TrsCopyMatrixCuda,
    .sum_matrices = TrsSumMatricesCuda,
    .divide_rows = TrsDivideRowsCuda,
    .clamp_matrix = TrsClampMatrixCuda,
};
