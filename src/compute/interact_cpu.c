/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/cpu_kernels_dense.h"
#include "compute/dense_kernels.h"

#include <string.h>

/* One sample after the other, in any order: each is computed by one thread. */

PetscErrorCode TrsDotForwardCpu(TrsStream stream, int64_t batch, int n, int D, int copied, const float *x,
                                int64_t x_stride, float *out, int64_t out_stride)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++) {
    const float *from = x + b * x_stride;
    float *to = out + b * out_stride;

    memcpy(to, from, (size_t)copied * sizeof(float));
    kernels->dot_forward(n, D, from, to + copied);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NOLINTNEXTLINE(readability-function-size): the slot's parameters, matrices and their strides */
PetscErrorCode TrsDotBackwardCpu(TrsStream stream, int64_t batch, int n, int D, int copied, const float *x,
                                 int64_t x_stride, const float *dout, int64_t dout_stride, float *dx,
                                 int64_t dx_stride)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++) {
    const float *g = dout + b * dout_stride;
    float *to = dx + b * dx_stride;

    kernels->dot_backward(n, D, x + b * x_stride, g + copied, to);
    for (int i = 0; i < copied; i++) to[i] += g[i];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
