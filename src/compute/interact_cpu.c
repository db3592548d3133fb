/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/cpu_kernels.h"
#include "compute/dense_kernels.h"
#include "compute/past_cache.h"

#include <string.h>

/* One sample after the other, in any order: each is computed by one thread. */

PetscErrorCode TrsDotForwardCpu(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                const float *x, int64_t x_stride, float *out, int64_t out_stride)
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
    memset(to + copied + n * (n - 1) / 2, 0, (size_t)n_zeros * sizeof(float));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NOLINTNEXTLINE(readability-function-size): the slot's parameters, matrices and their strides */
PetscErrorCode TrsDotBackwardCpu(TrsStream stream, int64_t batch, int n, int D, int copied, const float *x,
                                 int64_t x_stride, const float *dout, int64_t dout_stride, float *dx,
                                 int64_t dx_stride)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();
  const int past_cache = TrsPastCacheMatrix(batch, (int64_t)n * D, dx, dx_stride) && D % 16 == 0;

  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel
  {
#pragma omp for schedule(static) nowait
    for (int64_t b = 0; b < batch; b++) {
      const float *g = dout + b * dout_stride;

      kernels->dot_backward(n, D, x + b * x_stride, copied ? g : NULL, g + copied, past_cache,
                            dx + b * dx_stride);
    }
    if (past_cache) TrsPastCacheEnd();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
