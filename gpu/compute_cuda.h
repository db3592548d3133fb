/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The GPU's kernels. Internal to gpu/. The contract of each stands at its type in
  src/compute/compute_ops.h, and its twin in src/compute is its specification.
*/
#pragma once

#if defined(__cplusplus)
  #include "gpu/cuda_language.h"
#else
  #include "compute/compute_ops.h"
#endif

TRS_KERNELS(TRS_KERNEL_CUDA)

/* kernels that the CPU does without */
TRS_KERNEL_CUDA(Assemble, )
TRS_KERNEL_CUDA(TbeFindOccurrences, )
TRS_KERNEL_CUDA(TbeOccurrencesDestroy, )
