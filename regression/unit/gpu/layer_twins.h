/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of kernels for layers, which several GPU tests share. */
#pragma once

#include "gpu/twins.h"

static inline PetscErrorCode cross_backward(const TrsComputeOps *ops, int64_t B, int64_t n, int place,
                                            float *const *x)
{
  const TrsCrossBackward layer = {x[0], x[1], x[2], x[3], x[4], x[5], x[6], TRS_FP32, .total = NULL};

  PetscFunctionBegin;
  PetscCall(ops->cross_backward(NULL, B, n, place, &layer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static inline PetscErrorCode vector_cross_backward(const TrsComputeOps *ops, int64_t B, int64_t n, int place,
                                                   float *const *x)
{
  const TrsCrossBackward layer = {x[0], x[1], NULL, x[2], x[3], x[4], x[5], TRS_FP32, .total = NULL};

  PetscFunctionBegin;
  PetscCall(ops->vector_cross_backward(NULL, B, n, place, &layer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static inline PetscErrorCode drop_out(const TrsComputeOps *ops, int64_t B, int64_t n, float *const *x)
{
  const TrsDropout dropout = {12345, 7, 1000, 3000000000U, 1.5F, NULL};

  PetscFunctionBegin;
  PetscCall(ops->drop_out(NULL, B, n, &dropout, x[0], n + 1, x[1], n));
  PetscFunctionReturn(PETSC_SUCCESS);
}
