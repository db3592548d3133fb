/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The GPU's kernels. Internal to gpu/. src/compute/compute_ops.h describes the contract of each
  kernel at its function type. The kernel's twin in src/cpu is its specification.
*/
#pragma once

#if defined(__cplusplus)
  #include "gpu/cuda_language.h"
#else
  #include "compute/compute_ops.h"
#endif

TRS_KERNELS(TRS_KERNEL_CUDA)

/* kernels that only the GPU has */
TRS_KERNEL_CUDA(Assemble, )
TRS_KERNEL_CUDA(TbeFindOccurrences, )
TRS_KERNEL_CUDA(TbeOccurrencesDestroy, )
TRS_KERNEL_CUDA(CrossInputBackward, )
