/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU's table of kernels. */
#include "cpu/cpu_kernels.h"

const TrsComputeOps trs_compute_cpu = {.name = "cpu",
                                       .product_unit = 1,
                                       .tbe_row_squares = TrsTbeRowSquaresCpu,
                                       TRS_KERNELS(TRS_KERNEL_CPU_ROW)};

PetscErrorCode TrsWorkspaceCreateCpu(TrsWorkspace *workspace)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsWorkspaceDestroyCpu(TrsWorkspace *workspace)
{
  TrsWorkspace w = *workspace;

  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsBufferFree(&w->keys));
  PetscCall(TrsBufferFree(&w->positions));
  PetscCall(TrsBufferFree(&w->scratch));
  PetscCall(TrsBufferFree(&w->by_thread));
  PetscCall(TrsBufferFree(&w->runs));
  PetscCall(PetscFree(*workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}
