/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Layers whose output is as wide as their input. A thread computes whole rows, or for sums over
  rows, whole columns. So the number of threads does not change the bits.
*/
#include "core/random/philox.h"
#include "cpu/cpu_kernels.h"
#include "cpu/isa/dense_kernels.h"
#include "cpu/isa/exponential.h"
#include "cpu/isa/lanes.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { TRS_COLUMNS_A_PART = 64 };
#define TRS_LEAST_LENGTH 1e-12 /* the eps of torch.nn.functional.normalize */

PetscErrorCode TrsActivateCpu(TrsStream stream, int64_t batch, int64_t n, TrsActivation activation,
                              TrsMatrix y)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++) kernels->activate(n, activation, (float *)y.data + b * y.stride);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsActivateBackwardCpu(TrsStream stream, int64_t batch, int64_t n, TrsActivation activation,
                                      TrsMatrix y, TrsMatrix dy)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++)
    kernels->activate_backward(n, activation, (const float *)y.data + b * y.stride,
                               (float *)dy.data + b * dy.stride);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute the mean and the variance of a row. */
static void moments(int64_t n, const float *x, double *mean, double *variance)
{
  double sum[TRS_LANES] = {0}, squares[TRS_LANES] = {0};

  for (int64_t c = 0; c < n; c++) sum[c % TRS_LANES] += (double)x[c];
  *mean = TrsLanesSum(sum) / (double)n;
  for (int64_t c = 0; c < n; c++) {
    const double d = (double)x[c] - *mean;

    squares[c % TRS_LANES] += d * d;
  }
  *variance = TrsLanesSum(squares) / (double)n;
}

PetscErrorCode TrsLayerNormForwardCpu(TrsStream stream, int64_t batch, int64_t n, const TrsLayerNorm *norm,
                                      const float *x, int64_t x_stride, float *y, int64_t y_stride)
{
  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++) {
    const float *from = x + b * x_stride;
    float *to = y + b * y_stride, *row = norm->rows + 2 * b;
    double mean, variance;

    moments(n, from, &mean, &variance);
    row[0] = (float)mean;
    row[1] = (float)(1.0 / sqrt(variance + (double)norm->eps));
    for (int64_t c = 0; c < n; c++) to[c] = (from[c] - row[0]) * row[1] * norm->weight[c] + norm->bias[c];
    for (int64_t c = 0; norm->swish && c < n; c++) to[c] = from[c] * TrsSigmoid(to[c]);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute the gradient of the normalised number z in column c; xhat is the standardised x. */
static inline float z_gradient(const TrsLayerNorm *norm, int64_t c, float x, float xhat, float dy)
{
  float s;

  if (!norm->swish) return dy;
  s = TrsSigmoid(xhat * norm->weight[c] + norm->bias[c]);
  return dy * x * s * (1.0F - s);
}

/*
  Compute columns [first, end) of the gradients of weight and bias: sums over the rows, in order.
*/
static void sum_columns(int64_t batch, int64_t first, int64_t end, const TrsLayerNorm *norm, const float *x,
                        int64_t x_stride, const float *dy, int64_t dy_stride)
{
  memset(norm->grad_weight + first, 0, (size_t)(end - first) * sizeof(float));
  memset(norm->grad_bias + first, 0, (size_t)(end - first) * sizeof(float));
  for (int64_t b = 0; b < batch; b++) {
    const float *from = x + b * x_stride, *g = dy + b * dy_stride, *row = norm->rows + 2 * b;

    for (int64_t c = first; c < end; c++) {
      const float xhat = (from[c] - row[0]) * row[1], dz = z_gradient(norm, c, from[c], xhat, g[c]);

      norm->grad_weight[c] += dz * xhat;
      norm->grad_bias[c] += dz;
    }
  }
}

/* Replace g by the gradient of the row x. */
static void norm_row(int64_t n, const TrsLayerNorm *norm, const float *row, const float *x, float *g)
{
  double sum[TRS_LANES] = {0}, products[TRS_LANES] = {0};
  float mean, product;

  for (int64_t c = 0; c < n; c++) {
    const float xhat = (x[c] - row[0]) * row[1], d = z_gradient(norm, c, x[c], xhat, g[c]) * norm->weight[c];

    sum[c % TRS_LANES] += (double)d;
    products[c % TRS_LANES] += (double)d * (double)xhat;
  }
  mean = (float)(TrsLanesSum(sum) / (double)n);
  product = (float)(TrsLanesSum(products) / (double)n);
  for (int64_t c = 0; c < n; c++) {
    const float xhat = (x[c] - row[0]) * row[1], d = z_gradient(norm, c, x[c], xhat, g[c]) * norm->weight[c];
    const float direct = norm->swish ? g[c] * TrsSigmoid(xhat * norm->weight[c] + norm->bias[c]) : 0.0F;

    g[c] = direct + row[1] * (d - mean - xhat * product);
  }
}

PetscErrorCode TrsLayerNormBackwardCpu(TrsStream stream, int64_t batch, int64_t n, const TrsLayerNorm *norm,
                                       const float *x, int64_t x_stride, float *dy, int64_t dy_stride)
{
  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t c = 0; c < n; c += TRS_COLUMNS_A_PART)
    sum_columns(batch, c, PetscMin(n, c + TRS_COLUMNS_A_PART), norm, x, x_stride, dy, dy_stride);
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++)
    norm_row(n, norm, norm->rows + 2 * b, x + b * x_stride, dy + b * dy_stride);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDropOutCpu(TrsStream stream, int64_t batch, int64_t n, const TrsDropout *dropout,
                             const float *x, int64_t x_stride, float *y, int64_t y_stride)
{
  const int64_t blocks = (n + 3) / 4;
  const int64_t first = dropout->now ? dropout->now->first : dropout->first;
  const uint64_t step = dropout->now ? (uint64_t)dropout->now->step : dropout->step;

  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++) {
    const float *from = x + b * x_stride;
    float *to = y + b * y_stride;

    for (int64_t c = 0; c < n; c += 4) {
      uint32_t word[4] = {0};

      if (dropout->kept <= UINT32_MAX)
        TrsPhilox(dropout->key, step, (uint64_t)((first + b) * blocks + c / 4), word);
      for (int64_t k = 0; k < 4 && c + k < n; k++)
        to[c + k] = word[k] < dropout->kept ? dropout->scale * from[c + k] : 0.0F;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- rows of length 1 --- */

/* Return 1 / max(length of a row, TRS_LEAST_LENGTH). */
static double inverse_length(int64_t n, const float *x)
{
  double squares[TRS_LANES] = {0};

  for (int64_t c = 0; c < n; c++) squares[c % TRS_LANES] += (double)x[c] * (double)x[c];
  return 1.0 / fmax(sqrt(TrsLanesSum(squares)), TRS_LEAST_LENGTH);
}

PetscErrorCode TrsUnitRowsCpu(TrsStream stream, int64_t batch, int64_t n, const float *x, int64_t x_stride,
                              float *y, int64_t y_stride)
{
  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++) {
    const double inverse = inverse_length(n, x + b * x_stride);

    for (int64_t c = 0; c < n; c++) y[b * y_stride + c] = (float)((double)x[b * x_stride + c] * inverse);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* if the length was raised to TRS_LEAST_LENGTH, it is a constant, which has no gradient */
PetscErrorCode TrsUnitRowsBackwardCpu(TrsStream stream, int64_t batch, int64_t n, const float *x,
                                      int64_t x_stride, float *dy, int64_t dy_stride)
{
  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++) {
    const float *from = x + b * x_stride;
    const double inverse = inverse_length(n, from);
    float *g = dy + b * dy_stride;
    double products[TRS_LANES] = {0}, along;

    for (int64_t c = 0; c < n; c++) products[c % TRS_LANES] += (double)from[c] * (double)g[c];
    along = inverse * TRS_LEAST_LENGTH < 1.0 ? TrsLanesSum(products) * inverse * inverse : 0.0;
    for (int64_t c = 0; c < n; c++) g[c] = (float)(((double)g[c] - along * (double)from[c]) * inverse);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
