/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/cpu_kernels.h"
#include "cpu/isa/dense_kernels.h"
#include "cpu/past_cache.h"

#include <string.h>

/* A thread computes whole samples. The order of samples does not change results. */

/* Largest number of floats of a sample's vectors that a thread collects on its stack. */
enum { TRS_MOST_PLACED_FLOATS = 1 << 15 };

/* Compute the products and the rest of a sample's output. x [n, D] must have no gaps. */
static void finish_products(const TrsDenseKernels *kernels, int n, int D, int copied, int n_zeros,
                            const float *x, float *to)
{
  memcpy(to, x, (size_t)copied * sizeof(float));
  kernels->dot_forward(n, D, x, to + copied);
  memset(to + copied + n * (n - 1) / 2, 0, (size_t)n_zeros * sizeof(float));
}

PetscErrorCode TrsDotForwardCpu(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                TrsMatrix x, TrsMatrix out)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  (void)stream;
  PetscFunctionBegin;
  PetscCall(TrsCheckFloats(x.type));
  PetscCall(TrsCheckFloats(out.type));
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++)
    finish_products(kernels, n, D, copied, n_zeros, (const float *)x.data + b * x.stride,
                    (float *)out.data + b * out.stride);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDotBackwardCpu(TrsStream stream, int64_t batch, int n, int D, int copied, TrsMatrix x,
                                 TrsMatrix dout, TrsMatrix dx)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();
  const int past_cache = TrsPastCacheMatrix(batch, (int64_t)n * D, (const float *)dx.data, dx.stride) &&
                         D % 16 == 0;

  (void)stream;
  PetscFunctionBegin;
  PetscCall(TrsCheckFloats(x.type));
  PetscCall(TrsCheckFloats(dout.type));
  PetscCall(TrsCheckFloats(dx.type));
#pragma omp parallel
  {
#pragma omp for schedule(static) nowait
    for (int64_t b = 0; b < batch; b++) {
      const float *g = (const float *)dout.data + b * dout.stride;

      kernels->dot_backward(n, D, (const float *)x.data + b * x.stride, copied ? g : NULL, g + copied,
                            past_cache, (float *)dx.data + b * dx.stride, NULL, 0);
    }
    if (past_cache) TrsPastCacheEnd();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsDotTakesPlacesCpu(int n, int D)
{
  return (PetscBool)((int64_t)n * D <= TRS_MOST_PLACED_FLOATS);
}

PetscErrorCode TrsDotPlacesForwardCpu(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                      TrsDType type, const TrsVectorPlace *x, TrsMatrix out)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  (void)stream;
  PetscFunctionBegin;
  PetscCall(TrsCheckFloats(type));
  PetscCall(TrsCheckFloats(out.type));
#pragma omp parallel
  {
    _Alignas(64) float vectors[TRS_MOST_PLACED_FLOATS];

#pragma omp for schedule(static)
    for (int64_t b = 0; b < batch; b++) {
      kernels->collect(n, D, x, b, vectors);
      finish_products(kernels, n, D, copied, n_zeros, vectors, (float *)out.data + b * out.stride);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDotPlacesBackwardCpu(TrsStream stream, int64_t batch, int n, int D, int copied,
                                       TrsDType type, const TrsVectorPlace *x, TrsMatrix dout,
                                       const TrsVectorPlace *dx)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  (void)stream;
  PetscFunctionBegin;
  PetscCall(TrsCheckFloats(type));
  PetscCall(TrsCheckFloats(dout.type));
#pragma omp parallel
  {
    _Alignas(64) float vectors[TRS_MOST_PLACED_FLOATS];

#pragma omp for schedule(static)
    for (int64_t b = 0; b < batch; b++) {
      const float *g = (const float *)dout.data + b * dout.stride;

      kernels->collect(n, D, x, b, vectors);
      kernels->dot_backward(n, D, vectors, copied ? g : NULL, g + copied, 0, NULL, dx, b);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Sum x and its squares, in lanes, so that the compiler vectorises the loop. The order of the sums
  does not depend on the batch.
*/
static void fm_sums(int64_t n, const float *x, float *sum, float *squares)
{
  enum { TRS_FM_LANES = 16 };
  float s[TRS_FM_LANES] = {0}, q[TRS_FM_LANES] = {0};
  int64_t d = 0;

  for (; d + TRS_FM_LANES <= n; d += TRS_FM_LANES)
    for (int l = 0; l < TRS_FM_LANES; l++) {
      s[l] += x[d + l];
      q[l] += x[d + l] * x[d + l];
    }
  for (; d < n; d++) {
    s[0] += x[d];
    q[0] += x[d] * x[d];
  }
  for (int half = TRS_FM_LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) {
      s[l] += s[l + half];
      q[l] += q[l + half];
    }
  *sum = s[0];
  *squares = q[0];
}

PetscErrorCode TrsFmForwardCpu(TrsStream stream, int64_t batch, const TrsFm *fm, float *out,
                               int64_t out_stride)
{
  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++) {
    const float *from = fm->x + b * fm->x_stride;
    float *to = out + b * out_stride, sum, squares;

    fm_sums(fm->n, from, &sum, &squares);
    memcpy(to, from, (size_t)fm->copied * sizeof(float));
    to[fm->at] = 0.5F * (sum * sum - squares);
    memset(to + fm->at + 1, 0, (size_t)fm->n_zeros * sizeof(float));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFmBackwardCpu(TrsStream stream, int64_t batch, const TrsFm *fm, PetscBool add,
                                const float *dout, int64_t dout_stride, float *dx, int64_t dx_stride)
{
  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++) {
    const float *from = fm->x + b * fm->x_stride, *g = dout + b * dout_stride;
    float *to = dx + b * dx_stride, sum, squares;

    fm_sums(fm->n, from, &sum, &squares);
    if (!add) memset(to, 0, (size_t)fm->n * sizeof(float));
    for (int64_t d = 0; d < fm->n; d++) to[d] += g[fm->at] * (sum - from[d]);
    for (int d = 0; d < fm->copied; d++) to[d] += g[d];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVectorCrossForwardCpu(TrsStream stream, int64_t batch, int64_t n, TrsDType type,
                                        const void *x0, const float *s, const float *bias, const void *x,
                                        void *y)
{
  const float *first = (const float *)x0, *from = (const float *)x;
  float *to = (float *)y;

  (void)stream;
  PetscFunctionBegin;
  PetscCall(TrsCheckFloats(type));
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = b * n, c = 0; c < n; i++, c++) to[i] = first[i] * s[b] + bias[c] + from[i];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A thread sums a range of columns of g over all samples. */
PetscErrorCode TrsVectorCrossBackwardCpu(TrsStream stream, int64_t batch, int64_t n, int place,
                                         const TrsCrossBackward *layer)
{
  enum { TRS_COLUMNS = 256 };
  const float *first_x = (const float *)layer->x0, *s = (const float *)layer->u,
              *grad = (const float *)layer->g;
  float *h = (float *)layer->h;

  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++) {
    const float *g = grad + b * n, *x0 = first_x + b * n;
    float *dx0 = layer->dx0 + b * n;
    double sum = 0.0;

    for (int64_t c = 0; c < n; c++) {
      sum += (double)g[c] * (double)x0[c];
      dx0[c] = (place & TRS_CROSS_FIRST ? 0.0F : dx0[c]) + g[c] * s[b];
    }
    h[b] = (float)sum;
  }
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < n; first += TRS_COLUMNS) {
    const int64_t end = PetscMin(n, first + TRS_COLUMNS);

    memset(layer->grad_bias + first, 0, (size_t)(end - first) * sizeof(float));
    for (int64_t b = 0; b < batch; b++)
      for (int64_t c = first; c < end; c++) layer->grad_bias[c] += grad[b * n + c];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSampleGemmCpu(TrsStream stream, int64_t batch, const TrsMatrixProduct *product)
{
  const TrsMatrixProduct p = *product;
  const int64_t a_row = p.trans_a ? 1 : p.k, a_col = p.trans_a ? p.m : 1, b_row = p.trans_b ? 1 : p.n,
                b_col = p.trans_b ? p.k : 1;

  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t s = 0; s < batch; s++) {
    const float *a = (const float *)p.a.data + s * p.a.stride, *b = (const float *)p.b.data + s * p.b.stride;
    float *c = (float *)p.c.data + s * p.c.stride;

    memset(c, 0, (size_t)(p.m * p.n) * sizeof(float));
    for (int64_t i = 0; i < p.m; i++)
      for (int64_t l = 0; l < p.k; l++) {
        const float left = a[i * a_row + l * a_col];

        for (int64_t j = 0; j < p.n; j++) c[i * p.n + j] += left * b[l * b_row + j * b_col];
      }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
