/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The CPU's kernels. Internal to cpu/. The contract of each kernel is at its function type in
  compute_ops.h.

  On a CPU a kernel runs immediately, so the argument `stream` is unused. The number of OpenMP
  threads does not change the bits of any result. For a sum over samples, fixed blocks of samples
  are summed, and these sums are added in order. In a matrix product the library determines the
  order (gemm_cpu.c).
*/
#pragma once

#include "compute/compute_ops.h"

#include <string.h>

/*
  Choose the table of kernels for TrsComputeIsa(): &tables_avx512, &tables_avx2 or &tables_portable.
  The file of each instruction set defines its table.
*/
#if defined(__x86_64__)
  #define TRS_KERNELS_OF_ISA(tables) \
    (!strcmp(TrsComputeIsa(), "avx512") ? &tables##_avx512 \
     : !strcmp(TrsComputeIsa(), "avx2") ? &tables##_avx2 \
                                        : &tables##_portable)
#else
  #define TRS_KERNELS_OF_ISA(tables) (&tables##_portable)
#endif

/* Scratch memory, which grows if a kernel needs more. A call may use all of it. */
struct TrsWorkspaceImpl {
  TrsBuffer keys, positions, scratch, runs;
  /* A part for each thread: counts of buckets, or sums that are too wide for the stack. */
  TrsBuffer by_thread;
};

/*
  Check that the type is fp32, because the CPU has no kernels for matrices of the operands' type.
*/
static inline PetscErrorCode TrsCheckFloats(TrsDType type)
{
  PetscFunctionBegin;
  PetscCheck(type == TRS_FP32, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a CPU's matrices are fp32, not %s",
             TrsDTypeName(type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TRS_KERNELS(TRS_KERNEL_CPU)
PETSC_EXTERN TrsTbeRowSquaresFn TrsTbeRowSquaresCpu;
