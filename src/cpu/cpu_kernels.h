/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The CPU's kernels. Internal to compute/. The contract of each kernel stands at its type in
  compute_ops.h.

  Streams run inline on a CPU, so the argument `stream` is unused. The bits of every result are
  independent of the number of OpenMP threads: sums over samples run over fixed blocks of samples,
  which are then added in order. Inside a matrix product the order is the library's own
  (gemm_cpu.c).
*/
#pragma once

#include "compute/compute_ops.h"

#include <string.h>

/*
  The table of kernels for TrsComputeIsa(), of those that the files of the instruction sets define:
  &tables_avx512, &tables_avx2 or &tables_portable.
*/
#if defined(__x86_64__)
  #define TRS_KERNELS_OF_ISA(tables) \
    (!strcmp(TrsComputeIsa(), "avx512") ? &tables##_avx512 \
     : !strcmp(TrsComputeIsa(), "avx2") ? &tables##_avx2 \
                                        : &tables##_portable)
#else
  #define TRS_KERNELS_OF_ISA(tables) (&tables##_portable)
#endif

/* Scratch memory that each kernel grows as it needs. A call may use all of it. */
struct TrsWorkspaceImpl {
  TrsBuffer keys, positions, scratch, runs;
  /* A part for each thread: counts of buckets, or sums too wide for the stack. */
  TrsBuffer by_thread;
};

/* Refuse what is not of floats: a CPU has no kernels for matrices of the type of operands. */
static inline PetscErrorCode TrsCheckFloats(TrsDType type)
{
  PetscFunctionBegin;
  PetscCheck(type == TRS_FP32, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a CPU's matrices are fp32, not %s",
             TrsDTypeName(type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TRS_KERNELS(TRS_KERNEL_CPU)
PETSC_EXTERN TrsTbeRowSquaresFn TrsTbeRowSquaresCpu;
