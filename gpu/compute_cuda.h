/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The GPU's kernels. Internal to gpu/. src/compute/compute_ops.h has the contract of each kernel, at
  its type. Its twin in src/cpu is its specification.
*/
#pragma once

#if defined(__cplusplus)
  #include "gpu/cuda_language.h"
#else
  #include "compute/compute_ops.h"
#endif

TRS_KERNELS(TRS_KERNEL_CUDA)

/* kernels that the CPU lacks */
TRS_KERNEL_CUDA(Assemble, )
TRS_KERNEL_CUDA(TbeFindOccurrences, )
TRS_KERNEL_CUDA(TbeOccurrencesDestroy, )
