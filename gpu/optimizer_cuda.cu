/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Optimizers of dense layers on the GPU. If memory is aligned to 16 bytes, a thread handles four
  elements.
*/
#include "gpu/block_sum_cuda.h"
#include "gpu/compute_cuda.h"
#include "gpu/device/device_cuda.h"
#include "gpu/wide_cuda.h"

#include <math.h>

enum { TRS_SQUARES_A_BLOCK = 16384 };

static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    squares_kernel(int64_t n, const float *x, double *sums, unsigned *counter, double *to)
{
  const int64_t first = static_cast<int64_t>(blockIdx.x) * TRS_SQUARES_A_BLOCK;
  const int64_t end = first + TRS_SQUARES_A_BLOCK < n ? first + TRS_SQUARES_A_BLOCK : n;
  double sum[1] = {0.0};

  for (int64_t i = first + threadIdx.x; i < end; i += TRS_DENSE_THREADS)
    sum[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  if (sum_of_blocks(sum, sums, counter)) *to = sum[0];
}

PetscErrorCode TrsSumOfSquaresCuda(TrsStream stream, int64_t n, const float *x, double *sum)
{
  const int64_t blocks = PetscMax((n + TRS_SQUARES_A_BLOCK - 1) / TRS_SQUARES_A_BLOCK,
                                  static_cast<int64_t>(1));
  unsigned *counter = NULL;
  void *sums = NULL;

  PetscFunctionBegin;
  PetscCall(TrsCudaStreamScratch(stream, blocks * (int64_t)sizeof(double), &sums));
  PetscCall(TrsCudaStreamCounters(stream, 1, &counter));
  CU_LAUNCH(squares_kernel, static_cast<unsigned>(blocks), TRS_DENSE_THREADS, 0, TrsCudaStream(stream), n, x,
            static_cast<double *>(sums), counter, sum);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct Update {
  const double *squares;       /* NULL if gradients are not clipped */
  const TrsUpdateNumbers *now; /* if NULL, the fields lr, adam_lr, root and kept are used */
  double max_norm;
  float lr, eps, decay, scale, b1, b2, rest1, rest2, adam_lr, root, kept, limit;
};

static __host__ __device__ __forceinline__ void set_numbers(const TrsUpdateNumbers &now, Update *a)
{
  a->lr = now.learning_rate;
  a->adam_lr = now.learning_rate / now.correction1;
  a->root = sqrtf(now.correction2);
  a->kept = now.kept;
}

/* The factor of the gradient. All threads of the thread block must call it. */
static __device__ __forceinline__ float gradient_scale(const Update &a)
{
  __shared__ float scale;

  if (!a.squares) return a.scale;
  if (threadIdx.x == 0) {
    const double factor = a.max_norm / (sqrt(*a.squares) + 1e-6);

    scale = factor < 1.0 ? a.scale * static_cast<float>(factor) : a.scale;
  }
  __syncthreads();
  return scale;
}

/* Clamp to the range from -limit to limit. A NaN stays a NaN. */
static __device__ __forceinline__ float clamped(float g, float limit)
{
  return g > limit ? limit : g < -limit ? -limit : g;
}

/* The states that a kind of optimizer has. */
template <TrsDenseOptimizerKind kind> struct Has {
  static constexpr bool MOMENTS = kind == TRS_DENSE_ADAM || kind == TRS_DENSE_ADAMW || kind == TRS_DENSE_LAMB;
  static constexpr bool STATE1 = MOMENTS || kind == TRS_DENSE_ADAGRAD, STATE2 = MOMENTS;
  static constexpr bool NEW_WEIGHT = kind != TRS_DENSE_LAMB;
};

/*
  One element, in registers. The formulas are in dense_kernels_template.h, except that 0 / 0 is 0
  here, so that a weight's padding stays zero. 0 / 0 occurs if there was no gradient yet and eps is
  0.
*/
template <TrsDenseOptimizerKind kind>
static __device__ __forceinline__ void update_element(const Update &a, float scale, float grad, float *weight,
                                                      float *state1, float *state2)
{
  const bool adds_decay = kind != TRS_DENSE_ADAMW && kind != TRS_DENSE_LAMB;
  const float w = *weight, g = clamped(grad * scale, a.limit) + (adds_decay ? a.decay * w : 0.0f);

  if (kind == TRS_DENSE_SGD) *weight = w - a.lr * g;
  if (kind == TRS_DENSE_ADAGRAD) {
    const float sum = *state1 + g * g;
    *state1 = sum;
    *weight = g == 0.0f ? w : w - a.lr * g / (sqrtf(sum) + a.eps);
  }
  if (Has<kind>::MOMENTS) {
    const float mean = a.b1 * *state1 + a.rest1 * g, square = a.b2 * *state2 + a.rest2 * g * g;
    const float base = kind == TRS_DENSE_ADAMW ? a.kept * w : w;
    *state1 = mean;
    *state2 = square;
    *weight = mean == 0.0f ? base : base - a.adam_lr * mean / (sqrtf(square) / a.root + a.eps);
  }
}

/*
  The arrays of an optimizer. They must not overlap. If operands is not NULL, the new weights are
  also written there.
*/
struct Updated {
  const float *grad;
  float *weight, *state1, *state2;
  Bf16 *operands;
};

/* True if four elements at a time are aligned in all arrays. NULL counts as aligned. */
static bool has_fours(std::initializer_list<const void *> floats, const void *operands)
{
  return is_wide(floats, 0) && reinterpret_cast<uintptr_t>(operands) % (4 * sizeof(Bf16)) == 0;
}

/* Update COLUMNS elements from index i on. All loads precede the first store. */
template <TrsDenseOptimizerKind kind, int COLUMNS>
static __device__ __forceinline__ void update_columns(const Update &a, float scale, const Updated &of,
                                                      int64_t i)
{
  float g[COLUMNS], w[COLUMNS], s1[COLUMNS] = {}, s2[COLUMNS] = {};

  load_floats<COLUMNS>(of.grad + i, g);
  load_floats<COLUMNS>(of.weight + i, w);
  if (Has<kind>::STATE1) load_floats<COLUMNS>(of.state1 + i, s1);
  if (Has<kind>::STATE2) load_floats<COLUMNS>(of.state2 + i, s2);
#pragma unroll
  for (int j = 0; j < COLUMNS; j++) update_element<kind>(a, scale, g[j], &w[j], &s1[j], &s2[j]);
  if (Has<kind>::STATE1) keep_floats<COLUMNS>(of.state1 + i, s1);
  if (Has<kind>::STATE2) keep_floats<COLUMNS>(of.state2 + i, s2);
  if (Has<kind>::NEW_WEIGHT) keep_floats<COLUMNS>(of.weight + i, w);
  if (Has<kind>::NEW_WEIGHT && of.operands) keep_numbers<COLUMNS>(of.operands + i, w);
}

/*
  Read the gradient once, read and write the weight and the states once, and write the operand once.
  A thread handles COLUMNS elements at a time. Some threads also handle one of the last n % COLUMNS
  elements.
*/
template <TrsDenseOptimizerKind kind, int COLUMNS>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS) update_kernel(int64_t n, Update a, Updated of)
{
  const float scale = gradient_scale(a);
  const int64_t whole = n / COLUMNS;

  if (a.now) set_numbers(*a.now, &a);

  for (int64_t i = TrsCudaFirst(); i < whole; i += TrsCudaStep())
    update_columns<kind, COLUMNS>(a, scale, of, COLUMNS * i);
  if (COLUMNS > 1)
    for (int64_t i = COLUMNS * whole + TrsCudaFirst(); i < n; i += TrsCudaStep())
      update_columns<kind, 1>(a, scale, of, i);
}

template <TrsDenseOptimizerKind kind>
static PetscErrorCode launch_update(TrsStream stream, int64_t n, const Update &a, const Updated &of)
{
  PetscFunctionBegin;
  /* a state that the optimizer does not have is NULL */
  if (has_fours({of.grad, of.weight, of.state1, of.state2}, of.operands))
    CU_LAUNCH((update_kernel<kind, 4>), TrsCudaBlocks((n + 3) / 4, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
              TrsCudaStream(stream), n, a, of);
  else
    CU_LAUNCH((update_kernel<kind, 1>), TrsCudaBlocks(n, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
              TrsCudaStream(stream), n, a, of);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseUpdateCuda(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                  const float *grad, float *weight, float *state1, float *state2)
{
  Update a = {args->squares,
              args->now,
              args->max_norm,
              0.0f,
              args->eps,
              args->weight_decay,
              args->grad_scale,
              static_cast<float>(args->beta1),
              static_cast<float>(args->beta2),
              static_cast<float>(1.0 - args->beta1),
              static_cast<float>(1.0 - args->beta2),
              0.0f,
              0.0f,
              0.0f,
              args->max_value > 0.0f ? args->max_value : INFINITY};
  const Updated of = {grad, weight, state1, state2, static_cast<Bf16 *>(args->operands)};

  PetscFunctionBegin;
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  set_numbers(TrsUpdateNumbersOf(args), &a);
#define LAUNCH_UPDATE(KIND, ...) \
  case TRS_DENSE_##KIND: PetscCall(launch_update<TRS_DENSE_##KIND>(stream, n, a, of)); break;
  switch (args->kind) {
    TRS_DENSE_OPTIMIZERS(LAUNCH_UPDATE)
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct Lamb {
  float eps, decay;
  TrsUpdateNumbers numbers;
  const TrsUpdateNumbers *now; /* if NULL, `numbers` is used */
};

static __device__ __forceinline__ void take_numbers(Lamb *a)
{
  if (a->now) a->numbers = *a->now;
}

/* Adam's direction. It is 0 before the first gradient. */
static __device__ __forceinline__ float lamb_direction(const Lamb &a, float mean, float square, float w)
{
  const float adam = mean == 0.0f
                         ? 0.0f
                         : (mean / a.numbers.correction1) / (sqrtf(square / a.numbers.correction2) + a.eps);

  return adam + a.decay * w;
}

/*
  Sum the squares of the weights and of the directions. Each thread block handles
  TRS_SQUARES_A_BLOCK elements. The last thread block adds the sums of all thread blocks in their
  order. Reads the weight and both states once.
*/
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    lamb_squares_kernel(int64_t n, Lamb a, const float *mean, const float *square, const float *weight,
                        double *sums, unsigned *counter, double *to)
{
  const int64_t first = static_cast<int64_t>(blockIdx.x) * TRS_SQUARES_A_BLOCK;
  const int64_t end = first + TRS_SQUARES_A_BLOCK < n ? first + TRS_SQUARES_A_BLOCK : n;
  double sum[2] = {0.0, 0.0}; /* sum of the squares of weights, and of directions */

  take_numbers(&a);
  for (int64_t i = first + threadIdx.x; i < end; i += TRS_DENSE_THREADS) {
    const double w = weight[i], r = lamb_direction(a, mean[i], square[i], weight[i]);

    sum[0] += w * w;
    sum[1] += r * r;
  }
  if (sum_of_blocks(sum, sums, counter))
    for (int k = 0; k < 2; k++) to[k] = sum[k];
}

/* Update COLUMNS elements from index i on. All loads precede the first store. */
template <int COLUMNS>
static __device__ __forceinline__ void lamb_columns(const Lamb &a, float rate, const float *mean,
                                                    const float *square, float *weight, Bf16 *operands)
{
  float m[COLUMNS], s[COLUMNS], w[COLUMNS];

  load_floats<COLUMNS>(mean, m);
  load_floats<COLUMNS>(square, s);
  load_floats<COLUMNS>(weight, w);
#pragma unroll
  for (int j = 0; j < COLUMNS; j++) w[j] -= rate * lamb_direction(a, m[j], s[j], w[j]);
  keep_floats<COLUMNS>(weight, w);
  if (operands) keep_numbers<COLUMNS>(operands, w);
}

/*
  Read both states, read and write the weight once, and write the operand once. Each thread handles
  the same elements as in update_kernel().
*/
template <int COLUMNS>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    lamb_apply_kernel(int64_t n, Lamb a, const float *mean, const float *square, const double *squares,
                      float *weight, Bf16 *operands)
{
  const double ww = squares[0], rr = squares[1];
  const float lr = a.now ? a.now->learning_rate : a.numbers.learning_rate;
  const float rate = ww != 0.0 && rr != 0.0 ? lr * static_cast<float>(sqrt(ww / rr)) : lr;
  const int64_t whole = n / COLUMNS * COLUMNS;

  take_numbers(&a);
  for (int64_t i = COLUMNS * TrsCudaFirst(); i < whole; i += COLUMNS * TrsCudaStep())
    lamb_columns<COLUMNS>(a, rate, mean + i, square + i, weight + i, operands ? operands + i : NULL);
  if (COLUMNS > 1)
    for (int64_t i = whole + TrsCudaFirst(); i < n; i += TrsCudaStep())
      lamb_columns<1>(a, rate, mean + i, square + i, weight + i, operands ? operands + i : NULL);
}

PetscErrorCode TrsLambApplyCuda(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                const float *exp_avg, const float *exp_avg_sq, double *squares, float *weight)
{
  const Lamb a = {args->eps, args->weight_decay, TrsUpdateNumbersOf(args), args->now};
  const int64_t blocks = (n + TRS_SQUARES_A_BLOCK - 1) / TRS_SQUARES_A_BLOCK;
  Bf16 *const operands = static_cast<Bf16 *>(args->operands);
  unsigned *counter = NULL;
  void *sums = NULL;

  PetscFunctionBegin;
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCudaStreamScratch(stream, 2 * blocks * (int64_t)sizeof(double), &sums));
  PetscCall(TrsCudaStreamCounters(stream, 1, &counter));
  CU_LAUNCH(lamb_squares_kernel, static_cast<unsigned>(blocks), TRS_DENSE_THREADS, 0, TrsCudaStream(stream),
            n, a, exp_avg, exp_avg_sq, weight, static_cast<double *>(sums), counter, squares);
  TrsCheckLaunch();
  if (has_fours({exp_avg, exp_avg_sq, weight}, operands))
    CU_LAUNCH((lamb_apply_kernel<4>), TrsCudaBlocks((n + 3) / 4, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
              TrsCudaStream(stream), n, a, exp_avg, exp_avg_sq, squares, weight, operands);
  else
    CU_LAUNCH((lamb_apply_kernel<1>), TrsCudaBlocks(n, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
              TrsCudaStream(stream), n, a, exp_avg, exp_avg_sq, squares, weight, operands);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
