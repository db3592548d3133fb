/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The CPU's kernels. Internal to cpu/. compute_ops.h has the contract of each kernel, at its type.

  Streams run inline on a CPU, so the argument `stream` is unused. The number of OpenMP threads does
  not change the bits of any result: sums over samples run over fixed blocks of samples, which are
  then added in order. Inside a matrix product the library determines the order (gemm_cpu.c).
*/
#pragma once

#include "compute/compute_ops.h"

#include <string.h>

/*
  The table of kernels for TrsComputeIsa(): &tables_avx512, &tables_avx2 or &tables_portable, each
  defined in its instruction set's file.
*/
#if defined(__x86_64__)
  #define TRS_KERNELS_OF_ISA(tables) \
    (!strcmp(TrsComputeIsa(), "avx512") ? &tables##_avx512 \
     : !strcmp(TrsComputeIsa(), "avx2") ? &tables##_avx2 \
                                        : &tables##_portable)
#else
  #define TRS_KERNELS_OF_ISA(tables) (&tables##_portable)
#endif

/* Scratch memory, grown by kernels as needed. Each call may use all of it. */
struct TrsWorkspaceImpl {
  TrsBuffer keys, positions, scratch, runs;
  /* One part per thread: counts of buckets, or sums too wide for the stack. */
  TrsBuffer by_thread;
};

/* Fail unless the type is fp32: the CPU has no kernels for matrices of the operands' type. */
static inline PetscErrorCode TrsCheckFloats(TrsDType type)
{
  PetscFunctionBegin;
  PetscCheck(type == TRS_FP32, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a CPU's matrices are fp32, not %s",
             TrsDTypeName(type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TRS_KERNELS(TRS_KERNEL_CPU)
PETSC_EXTERN TrsTbeRowSquaresFn TrsTbeRowSquaresCpu;
