/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Dense layers on the GPU: products by gemm_cuda.cu, the rest by kernels that memory bounds.

  Sums over samples: a block adds up a run of rows, a second kernel the runs, both in an order that depends on the shape alone.
*/
#include "gpu/dense_cuda.h"
#include "gpu/device_cuda.h"
#include "gpu/gemm_cuda.h"

#include <math.h>

enum {
  TRS_DENSE_THREADS = 256,
  TRS_SUM_COLUMNS = 32,    /* of a block: a warp reads a line of memory */
  TRS_SUM_LANES = 8,       /* rows that a block reads at a time */
  TRS_SUM_MOST_RUNS = 128, /* of rows, whose sums are added in the second kernel */
  TRS_SUM_LEAST_ROWS = 64,
  TRS_SQUARES_A_BLOCK = 16384,
  TRS_BCE_THREADS = 1024
};

/* --- column sums --- */

struct Masked {   /* dy = y > 0 ? dy : 0; its columns are summed */
  const float *y; /* NULL: no mask */
  int64_t y_stride;
  float *dy;
  int64_t dy_stride;
  __device__ __forceinline__ float operator()(int64_t r, int64_t c) const
  {
    float *place = dy + r * dy_stride + c;
    if (y && y[r * y_stride + c] <= 0.0f) *place = 0.0f;
    return *place;
  }
};

struct Crossed { /* dx0 += g * (u + bias); h = g * x0, whose columns are summed */
  int64_t n;
  const float *x0, *u, *bias, *g;
  float *dx0, *h;
  __device__ __forceinline__ float operator()(int64_t r, int64_t c) const
  {
    const int64_t i = r * n + c;
    dx0[i] += g[i] * (u[i] + bias[c]);
    h[i] = g[i] * x0[i];
    return h[i];
  }
};

/* Block (x, y): columns 32 x .., rows of run y. Visits every element once. sums [runs, cols]. */
template <class Visit>
static __global__ void visit_kernel(int64_t rows, int64_t cols, int64_t rows_a_run, Visit visit, float *sums)
{
  __shared__ float part[TRS_SUM_LANES][TRS_SUM_COLUMNS + 1];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * TRS_SUM_COLUMNS + threadIdx.x;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * rows_a_run;
  const int64_t end = first + rows_a_run < rows ? first + rows_a_run : rows;
  float sum = 0.0f;

  if (c < cols)
    for (int64_t r = first + threadIdx.y; r < end; r += TRS_SUM_LANES) sum += visit(r, c);
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && c < cols) {
    for (int lane = 1; lane < TRS_SUM_LANES; lane++) sum += part[lane][threadIdx.x];
    sums[static_cast<int64_t>(blockIdx.y) * cols + c] = sum;
  }
}

static __global__ void add_runs_kernel(int64_t cols, int n_runs, const float *sums, float *to)
{
  for (int64_t c = TrsCudaFirst(); c < cols; c += TrsCudaStep()) {
    float sum = 0.0f;
    for (int run = 0; run < n_runs; run++) sum += sums[run * cols + c];
    to[c] = sum;
  }
}

template <class Visit>
static PetscErrorCode visit_and_sum(TrsStream stream, int64_t rows, int64_t cols, Visit visit, float *to)
{
  const int64_t wanted = (rows + TRS_SUM_LEAST_ROWS - 1) / TRS_SUM_LEAST_ROWS;
  const int n_runs = static_cast<int>(PetscMin(wanted, static_cast<int64_t>(TRS_SUM_MOST_RUNS)));
  const dim3 grid(static_cast<unsigned>((cols + TRS_SUM_COLUMNS - 1) / TRS_SUM_COLUMNS),
                  static_cast<unsigned>(n_runs));
  void *sums = NULL;

  PetscFunctionBegin;
  if (cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCudaStreamScratch(stream, n_runs * cols * (int64_t)sizeof(float), &sums));
  if (n_runs > 0) {
    CU_LAUNCH((visit_kernel<Visit>), grid, dim3(TRS_SUM_COLUMNS, TRS_SUM_LANES), 0, TrsCudaStream(stream),
              rows, cols, (rows + n_runs - 1) / n_runs, visit, static_cast<float *>(sums));
    TrsCheckLaunch();
  }
  CU_LAUNCH(add_runs_kernel, TrsCudaBlocks(cols, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
            TrsCudaStream(stream), cols, n_runs, static_cast<const float *>(sums), to);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- linear layers --- */

PetscErrorCode TrsLinearForwardCuda(TrsStream stream, int64_t batch, int64_t in, int64_t out, const float *x,
                                    int64_t x_stride, const float *weight, const float *bias,
                                    TrsActivation activation, float *y, int64_t y_stride)
{
  const TrsProduct product = {
      {PETSC_FALSE, PETSC_TRUE, batch, out, in, 1.0f, x, x_stride, weight, in, 0.0f, y, y_stride},
      bias,
      activation,
      NULL};

  PetscFunctionBegin;
  PetscCall(TrsProductCuda(stream, &product));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  ReLU's mask and the bias' gradient are one pass over dy. (cuBLASLt's DRELU_BGRAD would make them in the product of the layer above, from a bit mask that
  its forward keeps; here a layer's backward is whole, and its input dy what the slot says.)
*/
PetscErrorCode TrsLinearBackwardCuda(TrsStream stream, int64_t batch, int64_t in, int64_t out, const float *x,
                                     int64_t x_stride, const float *weight, const float *y, int64_t y_stride,
                                     TrsActivation activation, float *dy, int64_t dy_stride,
                                     float *grad_weight, float *grad_bias, float *dx, int64_t dx_stride)
{
  const Masked masked = {activation == TRS_ACTIVATION_RELU ? y : NULL, y_stride, dy, dy_stride};
  const TrsProduct to_weight = {
      {PETSC_TRUE, PETSC_FALSE, out, in, batch, 1.0f, dy, dy_stride, x, x_stride, 0.0f, grad_weight, in},
      NULL,
      TRS_ACTIVATION_NONE,
      NULL};
  const TrsProduct to_input = {
      {PETSC_FALSE, PETSC_FALSE, batch, in, out, 1.0f, dy, dy_stride, weight, in, 0.0f, dx, dx_stride},
      NULL,
      TRS_ACTIVATION_NONE,
      NULL};

  PetscFunctionBegin;
  PetscCall(visit_and_sum(stream, batch, out, masked, grad_bias));
  PetscCall(TrsProductCuda(stream, &to_weight));
  if (dx) PetscCall(TrsProductCuda(stream, &to_input));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- cross layers --- */

static __global__ void cross_forward_kernel(int64_t batch, int64_t n, const float *x0, const float *u,
                                            const float *bias, const float *x, float *y)
{
  for (int64_t i = TrsCudaFirst(); i < batch * n; i += TrsCudaStep())
    y[i] = x0[i] * (u[i] + bias[i % n]) + x[i];
}

/* Reads x0, u, x and writes y once. */
PetscErrorCode TrsCrossForwardCuda(TrsStream stream, int64_t batch, int64_t n, const float *x0,
                                   const float *u, const float *bias, const float *x, float *y)
{
  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(cross_forward_kernel, TrsCudaBlocks(batch * n, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
            TrsCudaStream(stream), batch, n, x0, u, bias, x, y);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCrossBackwardCuda(TrsStream stream, int64_t batch, int64_t n, const float *x0,
                                    const float *u, const float *bias, const float *g, float *dx0, float *h,
                                    float *grad_bias)
{
  const Crossed crossed = {n, x0, u, bias, g, dx0, h};

  PetscFunctionBegin;
  PetscCall(visit_and_sum(stream, batch, n, crossed, grad_bias));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- loss --- */

/* Sum of a block's values, in a fixed order, in thread 0. part: shared, one double a thread. */
static __device__ __forceinline__ double block_sum(double value, double *part)
{
  const unsigned thread = threadIdx.x;

  part[thread] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (thread < half) part[thread] += part[thread + half];
    __syncthreads();
  }
  return part[0];
}

/* One block: there are few samples, and their sum has one order. In double, as on the CPU. */
static __global__ void bce_kernel(int64_t batch, const float *z, int64_t z_stride, const float *y,
                                  float scale, double *loss, float *dz, int64_t dz_stride, float *p)
{
  __shared__ double part[TRS_BCE_THREADS];
  double sum = 0.0;

  for (int64_t b = threadIdx.x; b < batch; b += blockDim.x) {
    const double logit = static_cast<double>(z[b * z_stride]), e = exp(-fabs(logit));
    const double sigmoid = logit >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e);

    if (p) p[b] = static_cast<float>(sigmoid);
    if (!y) continue;
    sum += fmax(logit, 0.0) - logit * static_cast<double>(y[b]) + log1p(e);
    if (dz) dz[b * dz_stride] = static_cast<float>(sigmoid - static_cast<double>(y[b])) * scale;
  }
  sum = block_sum(sum, part);
  if (y && threadIdx.x == 0) *loss += sum;
}

PetscErrorCode TrsBceCuda(TrsStream stream, int64_t batch, const float *z, int64_t z_stride, const float *y,
                          float scale, double *loss, float *dz, int64_t dz_stride, float *p)
{
  unsigned threads = 32;

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  while (threads < TRS_BCE_THREADS && threads < batch) threads *= 2;
  CU_LAUNCH(bce_kernel, 1, threads, 0, TrsCudaStream(stream), batch, z, z_stride, y, scale, loss, dz,
            dz_stride, p);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- optimizers --- */

static __global__ void squares_kernel(int64_t n, const float *x, double *sums)
{
  __shared__ double part[TRS_DENSE_THREADS];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * TRS_SQUARES_A_BLOCK;
  const int64_t end = first + TRS_SQUARES_A_BLOCK < n ? first + TRS_SQUARES_A_BLOCK : n;
  double sum = 0.0;

  for (int64_t i = first + threadIdx.x; i < end; i += TRS_DENSE_THREADS)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sum = block_sum(sum, part);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

static __global__ void add_squares_kernel(int64_t n, const double *sums, double *to)
{
  __shared__ double part[TRS_DENSE_THREADS];
  double sum = 0.0;

  for (int64_t i = threadIdx.x; i < n; i += TRS_DENSE_THREADS) sum += sums[i];
  sum = block_sum(sum, part);
  if (threadIdx.x == 0) *to = sum;
}

PetscErrorCode TrsSumOfSquaresCuda(TrsStream stream, int64_t n, const float *x, double *sum)
{
  const int64_t blocks = (n + TRS_SQUARES_A_BLOCK - 1) / TRS_SQUARES_A_BLOCK;
  void *sums = NULL;

  PetscFunctionBegin;
  PetscCall(TrsCudaStreamScratch(stream, PetscMax(blocks, (int64_t)1) * (int64_t)sizeof(double), &sums));
  if (blocks > 0) {
    CU_LAUNCH(squares_kernel, static_cast<unsigned>(blocks), TRS_DENSE_THREADS, 0, TrsCudaStream(stream), n,
              x, static_cast<double *>(sums));
    TrsCheckLaunch();
  }
  CU_LAUNCH(add_squares_kernel, 1, TRS_DENSE_THREADS, 0, TrsCudaStream(stream), blocks,
            static_cast<const double *>(sums), sum);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct Update {
  float lr, eps, decay, scale, b1, b2, rest1, rest2, adam_lr, root;
};

/* Reads grad, reads and writes weight and states once. The formulas are dense_kernels_template.h's. */
template <TrsDenseOptimizerKind kind>
static __global__ void update_kernel(int64_t n, Update a, const float *grad, float *weight, float *state1,
                                     float *state2)
{
  for (int64_t i = TrsCudaFirst(); i < n; i += TrsCudaStep()) {
    const float w = weight[i], g = grad[i] * a.scale + a.decay * w;

    if (kind == TRS_DENSE_SGD) weight[i] = w - a.lr * g;
    if (kind == TRS_DENSE_ADAGRAD) {
      const float sum = state1[i] + g * g;
      state1[i] = sum;
      weight[i] = w - a.lr * g / (sqrtf(sum) + a.eps);
    }
    if (kind == TRS_DENSE_ADAM) {
      const float mean = a.b1 * state1[i] + a.rest1 * g, square = a.b2 * state2[i] + a.rest2 * g * g;
      state1[i] = mean;
      state2[i] = square;
      weight[i] = w - a.adam_lr * mean / (sqrtf(square) / a.root + a.eps);
    }
  }
}

PetscErrorCode TrsDenseUpdateCuda(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                  const float *grad, float *weight, float *state1, float *state2)
{
  const float correction1 = static_cast<float>(1.0 - pow(args->beta1, static_cast<double>(args->step)));
  const float correction2 = static_cast<float>(1.0 - pow(args->beta2, static_cast<double>(args->step)));
  const Update a = {args->learning_rate,
                    args->eps,
                    args->weight_decay,
                    args->grad_scale,
                    static_cast<float>(args->beta1),
                    static_cast<float>(args->beta2),
                    static_cast<float>(1.0 - args->beta1),
                    static_cast<float>(1.0 - args->beta2),
                    args->learning_rate / correction1,
                    sqrtf(correction2)};
  const dim3 blocks = TrsCudaBlocks(n, TRS_DENSE_THREADS);

  PetscFunctionBegin;
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  switch (args->kind) {
  case TRS_DENSE_SGD:
    CU_LAUNCH((update_kernel<TRS_DENSE_SGD>), blocks, TRS_DENSE_THREADS, 0, TrsCudaStream(stream), n, a, grad,
              weight, state1, state2);
    break;
  case TRS_DENSE_ADAGRAD:
    CU_LAUNCH((update_kernel<TRS_DENSE_ADAGRAD>), blocks, TRS_DENSE_THREADS, 0, TrsCudaStream(stream), n, a,
              grad, weight, state1, state2);
    break;
  case TRS_DENSE_ADAM:
    CU_LAUNCH((update_kernel<TRS_DENSE_ADAM>), blocks, TRS_DENSE_THREADS, 0, TrsCudaStream(stream), n, a,
              grad, weight, state1, state2);
    break;
  }
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
