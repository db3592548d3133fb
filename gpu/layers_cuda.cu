/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Layers on the GPU whose output is as wide as their input. The numbers of a matrix are distributed
  to the threads. For layer norm a warp handles a row: each lane sums its columns, then the lanes'
  sums are added.
*/
#include "core/random/philox.h"
#include "gpu/column_sums_cuda.h"
#include "gpu/compute_cuda.h"
#include "gpu/tbe/tbe_rows_cuda.h"
#include "gpu/wide_cuda.h"

#include <math.h>

/*
  --- activations: each number is read and written once; a thread handles COLUMNS adjacent numbers
  ---
*/

/* NaN stays NaN. */
static __device__ __forceinline__ float activated(TrsActivation activation, float x)
{
  return activation == TRS_ACTIVATION_RELU      ? (x <= 0.0f ? 0.0f : x)
         : activation == TRS_ACTIVATION_SIGMOID ? sigmoid(x)
         : activation == TRS_ACTIVATION_TANH    ? tanhf(x)
                                                : x;
}

/* The gradient of the input, computed from the output. */
static __device__ __forceinline__ float activated_backward(TrsActivation activation, float out, float dy)
{
  return activation == TRS_ACTIVATION_RELU      ? (out <= 0.0f ? 0.0f : dy)
         : activation == TRS_ACTIVATION_SIGMOID ? dy * (out * (1.0f - out))
         : activation == TRS_ACTIVATION_TANH    ? dy * (1.0f - out * out)
                                                : dy;
}

template <int COLUMNS, class S>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    activate_kernel(int64_t batch, int64_t n, TrsActivation activation, S *y, int64_t y_stride)
{
  const int64_t shares = n / COLUMNS;

  for (int64_t i = TrsCudaFirst(); i < batch * shares; i += TrsCudaStep()) {
    S *const to = y + i / shares * y_stride + i % shares * COLUMNS;
    float x[COLUMNS];

    load_numbers<COLUMNS>(to, x);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) x[j] = activated(activation, x[j]);
    keep_numbers<COLUMNS>(to, x);
  }
}

template <class S>
static PetscErrorCode activate(TrsStream stream, int64_t batch, int64_t n, TrsActivation activation,
                               TrsMatrix y)
{
  const bool wide = is_wide({y.data}, y.stride | n);

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH((wide ? activate_kernel<4, S> : activate_kernel<1, S>),
            TrsCudaBlocks(batch * n / (wide ? 4 : 1), TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
            TrsCudaStream(stream), batch, n, activation, static_cast<S *>(y.data), y.stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsActivateCuda(TrsStream stream, int64_t batch, int64_t n, TrsActivation activation,
                               TrsMatrix y)
{
  PetscFunctionBegin;
  if (y.type == TRS_BF16)
    PetscCall(activate<Bf16>(stream, batch, n, activation, y));
  else
    PetscCall(activate<float>(stream, batch, n, activation, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <int COLUMNS, class S>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    activate_backward_kernel(int64_t batch, int64_t n, TrsActivation activation, const S *y, int64_t y_stride,
                             S *dy, int64_t dy_stride)
{
  const int64_t shares = n / COLUMNS;

  for (int64_t i = TrsCudaFirst(); i < batch * shares; i += TrsCudaStep()) {
    const int64_t row = i / shares, col = i % shares * COLUMNS;
    float out[COLUMNS], g[COLUMNS];

    load_numbers<COLUMNS>(y + row * y_stride + col, out);
    load_numbers<COLUMNS>(dy + row * dy_stride + col, g);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) g[j] = activated_backward(activation, out[j], g[j]);
    keep_numbers<COLUMNS>(dy + row * dy_stride + col, g);
  }
}

template <class S>
static PetscErrorCode activate_backward(TrsStream stream, int64_t batch, int64_t n, TrsActivation activation,
                                        TrsMatrix y, TrsMatrix dy)
{
  const bool wide = is_wide({y.data, dy.data}, y.stride | dy.stride | n);

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH((wide ? activate_backward_kernel<4, S> : activate_backward_kernel<1, S>),
            TrsCudaBlocks(batch * n / (wide ? 4 : 1), TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
            TrsCudaStream(stream), batch, n, activation, static_cast<const S *>(y.data), y.stride,
            static_cast<S *>(dy.data), dy.stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsActivateBackwardCuda(TrsStream stream, int64_t batch, int64_t n, TrsActivation activation,
                                       TrsMatrix y, TrsMatrix dy)
{
  PetscFunctionBegin;
  if (y.type == TRS_BF16)
    PetscCall(activate_backward<Bf16>(stream, batch, n, activation, y, dy));
  else
    PetscCall(activate_backward<float>(stream, batch, n, activation, y, dy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- layer norm --- */

/*
  The arrays that the backward kernels of layer norm read: the input, and the gradients of the
  output.
*/
struct Norm {
  int64_t batch, n;
  TrsLayerNorm norm;
  const float *x;
  int64_t x_stride;
  float *dy;
  int64_t dy_stride;

  __device__ __forceinline__ float standard(int64_t b, int64_t c) const
  {
    return (x[b * x_stride + c] - norm.rows[2 * b]) * norm.rows[2 * b + 1];
  }
  __device__ __forceinline__ float gate(int64_t c, float xhat) const
  {
    return sigmoid(xhat * norm.weight[c] + norm.bias[c]);
  }
  /* The gradient of the normalised number. */
  __device__ __forceinline__ float gradient(int64_t b, int64_t c, float xhat) const
  {
    const float g = dy[b * dy_stride + c];

    if (!norm.swish) return g;
    const float s = gate(c, xhat);
    return g * x[b * x_stride + c] * s * (1.0f - s);
  }
};

static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    norm_forward_kernel(Norm s, float *y, int64_t y_stride)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const unsigned mask = group_mask(32);

  for (int64_t b = TrsCudaFirst() >> 5; b < s.batch; b += TrsCudaStep() >> 5) {
    const float *const x = s.x + b * s.x_stride;
    float *const to = y + b * y_stride;
    float sum = 0.0f, squares = 0.0f;

    for (int64_t c = lane; c < s.n; c += 32) sum += x[c];
    const float mean = group_sum(sum, 32, mask) / static_cast<float>(s.n);
    for (int64_t c = lane; c < s.n; c += 32) squares += (x[c] - mean) * (x[c] - mean);
    const float inverse = 1.0f / sqrtf(group_sum(squares, 32, mask) / static_cast<float>(s.n) + s.norm.eps);
    for (int64_t c = lane; c < s.n; c += 32) {
      const float z = (x[c] - mean) * inverse * s.norm.weight[c] + s.norm.bias[c];

      to[c] = s.norm.swish ? x[c] * sigmoid(z) : z;
    }
    if (lane == 0) {
      s.norm.rows[2 * b] = mean;
      s.norm.rows[2 * b + 1] = inverse;
    }
  }
}

PetscErrorCode TrsLayerNormForwardCuda(TrsStream stream, int64_t batch, int64_t n, const TrsLayerNorm *norm,
                                       const float *x, int64_t x_stride, float *y, int64_t y_stride)
{
  const Norm s = {batch, n, *norm, x, x_stride, NULL, 0};

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(norm_forward_kernel, TrsCudaBlocks(batch * 32, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
            TrsCudaStream(stream), s, y, y_stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The gradients of the weight and of the bias are column sums. No array holds the summands, so
  load() computes them.
*/
struct ColumnSummand {
  typedef float Type, Loaded;
  enum { ROWS = 4 };
  Norm s;
  __device__ __forceinline__ float use(int64_t, int64_t, float summand) const
  {
    return summand;
  }
};

struct WeightGradient : ColumnSummand {
  __device__ __forceinline__ float load(int64_t b, int64_t c) const
  {
    const float xhat = s.standard(b, c);
    return s.gradient(b, c, xhat) * xhat;
  }
};

struct BiasGradient : ColumnSummand {
  __device__ __forceinline__ float load(int64_t b, int64_t c) const
  {
    return s.gradient(b, c, s.standard(b, c));
  }
};

static __global__ void __launch_bounds__(TRS_DENSE_THREADS) norm_backward_kernel(Norm s)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const unsigned mask = group_mask(32);

  for (int64_t b = TrsCudaFirst() >> 5; b < s.batch; b += TrsCudaStep() >> 5) {
    float *const g = s.dy + b * s.dy_stride;
    float sum = 0.0f, products = 0.0f;

    for (int64_t c = lane; c < s.n; c += 32) {
      const float xhat = s.standard(b, c), d = s.gradient(b, c, xhat) * s.norm.weight[c];

      sum += d;
      products += d * xhat;
    }
    const float mean = group_sum(sum, 32, mask) / static_cast<float>(s.n),
                product = group_sum(products, 32, mask) / static_cast<float>(s.n);
    for (int64_t c = lane; c < s.n; c += 32) {
      const float xhat = s.standard(b, c), d = s.gradient(b, c, xhat) * s.norm.weight[c];
      const float direct = s.norm.swish ? g[c] * s.gate(c, xhat) : 0.0f;

      g[c] = direct + s.norm.rows[2 * b + 1] * (d - mean - xhat * product);
    }
  }
}

PetscErrorCode TrsLayerNormBackwardCuda(TrsStream stream, int64_t batch, int64_t n, const TrsLayerNorm *norm,
                                        const float *x, int64_t x_stride, float *dy, int64_t dy_stride)
{
  const Norm s = {batch, n, *norm, x, x_stride, dy, dy_stride};

  PetscFunctionBegin;
  PetscCall(visit_and_sum(stream, batch, n, (WeightGradient{{s}}), norm->grad_weight));
  PetscCall(visit_and_sum(stream, batch, n, (BiasGradient{{s}}), norm->grad_bias));
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(norm_backward_kernel, TrsCudaBlocks(batch * 32, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
            TrsCudaStream(stream), s);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- dropout: a thread handles four columns, which share one block of random numbers --- */

static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    drop_out_kernel(int64_t batch, int64_t n, TrsDropout dropout, const float *x, int64_t x_stride, float *y,
                    int64_t y_stride)
{
  const int64_t blocks = (n + 3) / 4, first = dropout.now ? dropout.now->first : dropout.first;
  const uint64_t step = dropout.now ? static_cast<uint64_t>(dropout.now->step) : dropout.step;

  for (int64_t i = TrsCudaFirst(); i < batch * blocks; i += TrsCudaStep()) {
    const int64_t b = i / blocks, c = i % blocks * 4;
    uint32_t word[4] = {};

    if (dropout.kept <= UINT32_MAX)
      TrsPhilox(dropout.key, step, static_cast<uint64_t>(first * blocks + i), word);
    for (int64_t k = 0; k < 4 && c + k < n; k++)
      y[b * y_stride + c + k] = word[k] < dropout.kept ? dropout.scale * x[b * x_stride + c + k] : 0.0f;
  }
}

PetscErrorCode TrsDropOutCuda(TrsStream stream, int64_t batch, int64_t n, const TrsDropout *dropout,
                              const float *x, int64_t x_stride, float *y, int64_t y_stride)
{
  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(drop_out_kernel, TrsCudaBlocks(batch * ((n + 3) / 4), TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
            TrsCudaStream(stream), batch, n, *dropout, x, x_stride, y, y_stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- rows of length 1: a warp handles a row, which it reads twice and writes once --- */

#define TRS_LEAST_LENGTH 1e-12f /* as in torch.nn.functional.normalize */

static __device__ __forceinline__ float inverse_length(int64_t n, const float *x, int lane, unsigned mask)
{
  float squares = 0.0f;

  for (int64_t c = lane; c < n; c += 32) squares += x[c] * x[c];
  return 1.0f / fmaxf(sqrtf(group_sum(squares, 32, mask)), TRS_LEAST_LENGTH);
}

static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    unit_rows_kernel(int64_t batch, int64_t n, const float *x, int64_t x_stride, float *y, int64_t y_stride)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const unsigned mask = group_mask(32);

  for (int64_t b = TrsCudaFirst() >> 5; b < batch; b += TrsCudaStep() >> 5) {
    const float inverse = inverse_length(n, x + b * x_stride, lane, mask);

    for (int64_t c = lane; c < n; c += 32) y[b * y_stride + c] = x[b * x_stride + c] * inverse;
  }
}

PetscErrorCode TrsUnitRowsCuda(TrsStream stream, int64_t batch, int64_t n, const float *x, int64_t x_stride,
                               float *y, int64_t y_stride)
{
  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(unit_rows_kernel, TrsCudaBlocks(batch * 32, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
            TrsCudaStream(stream), batch, n, x, x_stride, y, y_stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    unit_rows_backward_kernel(int64_t batch, int64_t n, const float *x, int64_t x_stride, float *dy,
                              int64_t dy_stride)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const unsigned mask = group_mask(32);

  for (int64_t b = TrsCudaFirst() >> 5; b < batch; b += TrsCudaStep() >> 5) {
    const float *const from = x + b * x_stride;
    float *const g = dy + b * dy_stride;
    const float inverse = inverse_length(n, from, lane, mask);
    float product = 0.0f;

    for (int64_t c = lane; c < n; c += 32) product += from[c] * g[c];
    product = group_sum(product, 32, mask);
    const float along = inverse * TRS_LEAST_LENGTH < 1.0f ? product * inverse * inverse : 0.0f;
    for (int64_t c = lane; c < n; c += 32) g[c] = (g[c] - along * from[c]) * inverse;
  }
}

PetscErrorCode TrsUnitRowsBackwardCuda(TrsStream stream, int64_t batch, int64_t n, const float *x,
                                       int64_t x_stride, float *dy, int64_t dy_stride)
{
  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(unit_rows_backward_kernel, TrsCudaBlocks(batch * 32, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
            TrsCudaStream(stream), batch, n, x, x_stride, dy, dy_stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
