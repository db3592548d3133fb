/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Dense layers on the GPU: products by gemm_cuda.cu, the rest by kernels that memory bounds. If
  memory is aligned to 16 bytes, a thread has four columns, with the same sums in the same order.
*/
#include "gpu/column_sums_cuda.h"
#include "gpu/compute_cuda.h"
#include "gpu/device_cuda.h"
#include "gpu/gemm_cuda.h"
#include "gpu/wide_cuda.h"

#include <math.h>

#define TRS_LOSS_SAMPLE static __device__ __forceinline__
#include "compute/loss_sample.h"

enum { TRS_SQUARES_A_BLOCK = 16384 };

/* --- one or four floats --- */

static __device__ __forceinline__ float4 operator+(float4 a, float4 b)
{
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

static __device__ __forceinline__ float4 operator*(float4 a, float4 b)
{
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

static __device__ __forceinline__ float masked(float y, float dy)
{
  return y <= 0.0f ? 0.0f : dy;
}

static __device__ __forceinline__ float4 masked(float4 y, float4 dy)
{
  return make_float4(masked(y.x, dy.x), masked(y.y, dy.y), masked(y.z, dy.z), masked(y.w, dy.w));
}

/* --- column sums --- */

/* T is float or float4, and S the type in memory: float or Bf16. */
static __device__ __forceinline__ void load_as(const float *from, float *x)
{
  *x = *from;
}

static __device__ __forceinline__ void load_as(const Bf16 *from, float *x)
{
  *x = to_float(*from);
}

template <class S> static __device__ __forceinline__ void load_as(const S *from, float4 *x)
{
  float v[4];

  load_numbers<4>(from, v);
  *x = make_float4(v[0], v[1], v[2], v[3]);
}

template <class S> static __device__ __forceinline__ void keep_as(S *to, float x)
{
  keep_numbers<1>(to, &x);
}

template <class S> static __device__ __forceinline__ void keep_as(S *to, float4 x)
{
  const float v[4] = {x.x, x.y, x.z, x.w};

  keep_numbers<4>(to, v);
}

/* dy = y > 0 ? dy : 0; its columns are summed. Strides are in numbers. */
template <class T, class S> struct Masked {
  typedef T Type;
  enum { ROWS = 4, COLUMNS = sizeof(T) / sizeof(float) };
  struct Loaded {
    T y, dy;
  };
  const S *y; /* NULL: no mask */
  int64_t y_stride;
  S *dy;
  int64_t dy_stride;
  __device__ __forceinline__ Loaded load(int64_t r, int64_t c) const
  {
    Loaded of = {};

    load_as(dy + r * dy_stride + COLUMNS * c, &of.dy);
    if (y) load_as(y + r * y_stride + COLUMNS * c, &of.y);
    return of;
  }
  __device__ __forceinline__ T use(int64_t r, int64_t c, const Loaded &of) const
  {
    if (!y) return of.dy;
    const T value = masked(of.y, of.dy);
    keep_as(dy + r * dy_stride + COLUMNS * c, value);
    return value;
  }
};

/* dx0 (+)= g * (u + bias) (+ g); h = g * x0; columns of h are summed */
template <class T, class S> struct Crossed {
  typedef T Type;
  enum { ROWS = 2, COLUMNS = sizeof(T) / sizeof(float) };
  struct Loaded {
    T x0, u, g, bias, dx0;
  };
  int64_t n;
  int place;
  const S *x0, *u;
  const float *bias;
  const S *g;
  float *dx0;
  S *h;
  __device__ __forceinline__ Loaded load(int64_t r, int64_t c) const
  {
    const int64_t i = r * n + COLUMNS * c;
    Loaded of = {};

    load_as(x0 + i, &of.x0);
    load_as(u + i, &of.u);
    load_as(g + i, &of.g);
    load_as(bias + COLUMNS * c, &of.bias);
    if (!(place & TRS_CROSS_FIRST)) load_as(dx0 + i, &of.dx0);
    return of;
  }
  __device__ __forceinline__ T use(int64_t r, int64_t c, const Loaded &of) const
  {
    const int64_t i = r * n + COLUMNS * c;
    const T product = of.g * of.x0;
    T sum = of.g * (of.u + of.bias);

    if (!(place & TRS_CROSS_FIRST)) sum = of.dx0 + sum;
    if (place & TRS_CROSS_LAST) sum = sum + of.g;
    keep_as(dx0 + i, sum);
    keep_as(h + i, product);
    return product;
  }
};

/*
  dx0 (+)= g * s (+ g), with s of the row; columns of g are summed
*/
template <class S> struct VectorCrossed {
  typedef float Type;
  enum { ROWS = 4 };
  struct Loaded {
    float s, g, dx0;
  };
  int64_t n;
  int place;
  const float *s;
  const S *g;
  float *dx0;
  __device__ __forceinline__ Loaded load(int64_t r, int64_t c) const
  {
    const int64_t i = r * n + c;

    return {s[r], to_float(g[i]), place & TRS_CROSS_FIRST ? 0.0f : dx0[i]};
  }
  __device__ __forceinline__ float use(int64_t r, int64_t c, const Loaded &of) const
  {
    float sum = of.g * of.s;

    if (!(place & TRS_CROSS_FIRST)) sum = of.dx0 + sum;
    if (place & TRS_CROSS_LAST) sum = sum + of.g;
    dx0[r * n + c] = sum;
    return of.g;
  }
};

/* --- linear layers --- */

/* A thread makes a byte of the mask, of eight numbers y. */
template <class S>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    make_mask_kernel(int64_t rows, int64_t cols, const S *y, int64_t y_stride, uint8_t *mask,
                     int64_t row_bytes)
{
  const int64_t bytes = (cols + 7) / 8;

  for (int64_t i = TrsCudaFirst(); i < rows * bytes; i += TrsCudaStep()) {
    const int64_t r = i / bytes, c = i % bytes * 8;
    unsigned bits = 0;

    for (int k = 0; k < 8 && c + k < cols; k++)
      bits |= to_float(y[r * y_stride + c + k]) > 0.0f ? 1u << k : 0u;
    mask[r * row_bytes + c / 8] = static_cast<uint8_t>(bits);
  }
}

/* A thread has some numbers of dx, and writes zeros where the mask says so. */
template <class S>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    apply_mask_kernel(int64_t rows, int64_t cols, const uint8_t *mask, int64_t row_bytes, S *dx,
                      int64_t dx_stride)
{
  for (int64_t i = TrsCudaFirst(); i < rows * cols; i += TrsCudaStep()) {
    const int64_t r = i / cols, c = i % cols;

    if (!(mask[r * row_bytes + c / 8] >> c % 8 & 1)) from_float(0.0f, &dx[r * dx_stride + c]);
  }
}

/* Make the mask of y, or apply it to dx, where cuBLASLt does not. */
template <class S>
static PetscErrorCode mask_apart(TrsStream stream, int64_t rows, int64_t cols, bool make, TrsMatrix matrix,
                                 TrsReluMask mask)
{
  uint8_t *const bits = static_cast<uint8_t *>(mask.data);
  S *const data = static_cast<S *>(matrix.data);

  PetscFunctionBegin;
  if (rows <= 0 || cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (make)
    CU_LAUNCH((make_mask_kernel<S>), TrsCudaBlocks(rows * ((cols + 7) / 8), TRS_DENSE_THREADS),
              TRS_DENSE_THREADS, 0, TrsCudaStream(stream), rows, cols, data, matrix.stride, bits,
              mask.row_bytes);
  else
    CU_LAUNCH((apply_mask_kernel<S>), TrsCudaBlocks(rows * cols, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
              TrsCudaStream(stream), rows, cols, bits, mask.row_bytes, data, matrix.stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make a product whose mask is written or applied, by cuBLASLt or behind it. */
static PetscErrorCode masked_product(TrsStream stream, const TrsProduct *p)
{
  const bool make = p->activation == TRS_ACTIVATION_RELU;
  bool fused = false;

  PetscFunctionBegin;
  PetscCall(TrsProductCuda(stream, p, p->mask.data ? &fused : NULL));
  if (!p->mask.data || fused) PetscFunctionReturn(PETSC_SUCCESS);
  if (p->c.type == TRS_BF16)
    PetscCall(mask_apart<Bf16>(stream, p->m, p->n, make, p->c, p->mask));
  else
    PetscCall(mask_apart<float>(stream, p->m, p->n, make, p->c, p->mask));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLinearForwardCuda(TrsStream stream, int64_t batch, int64_t in, int64_t out, TrsMatrix x,
                                    TrsMatrix weight, const void *bias, TrsActivation activation, TrsMatrix y,
                                    const TrsReluMasks *masks)
{
  TrsProduct product = {
      {PETSC_FALSE, PETSC_TRUE, batch, out, in, 1.0f, x, weight, 0.0f, y}, bias, activation, NULL};

  PetscFunctionBegin;
  if (masks) product.mask = masks->y;
  PetscCall(masked_product(stream, &product));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <class S>
static PetscErrorCode mask_and_sum_of(TrsStream stream, int64_t rows, int64_t cols, const TrsMatrix *y,
                                      const TrsMatrix *dy, float *sums)
{
  const S *const mask = y ? static_cast<const S *>(y->data) : NULL;
  const int64_t y_stride = y ? y->stride : 0;
  S *const to = static_cast<S *>(dy->data);

  PetscFunctionBegin;
  if (is_wide({sums}, y_stride | dy->stride | cols) &&
      (reinterpret_cast<uintptr_t>(mask) | reinterpret_cast<uintptr_t>(to)) % (4 * sizeof(S)) == 0)
    PetscCall(
        visit_and_sum(stream, rows, cols / 4, (Masked<float4, S>{mask, y_stride, to, dy->stride}), sums));
  else
    PetscCall(visit_and_sum(stream, rows, cols, (Masked<float, S>{mask, y_stride, to, dy->stride}), sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode mask_and_sum(TrsStream stream, int64_t rows, int64_t cols, const TrsMatrix *y,
                                   const TrsMatrix *dy, float *sums)
{
  PetscFunctionBegin;
  PetscCheck(!y || y->type == dy->type, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a gradient in %s of %s",
             TrsDTypeName(dy->type), TrsDTypeName(y->type));
  if (dy->type == TRS_BF16)
    PetscCall(mask_and_sum_of<Bf16>(stream, rows, cols, y, dy, sums));
  else
    PetscCall(mask_and_sum_of<float>(stream, rows, cols, y, dy, sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Where dy is to be masked, the mask and the bias' gradient are one pass over dy. Else the product
  that makes the weight's gradient sums dy, too. It would sum rounded numbers where dy is of floats
  and products round them to bf16: there the pass remains.
*/
PetscErrorCode TrsLinearBackwardCuda(TrsStream stream, int64_t batch, int64_t in, int64_t out, TrsMatrix x,
                                     TrsMatrix weight, TrsMatrix y, TrsActivation activation, TrsMatrix dy,
                                     float *grad_weight, float *grad_bias, TrsMatrix dx,
                                     const TrsReluMasks *masks)
{
  const bool relu = activation == TRS_ACTIVATION_RELU && !(masks && masks->y.data);
  const bool sums = masks && !relu && (dy.type == TRS_BF16 || TrsOperandTypeCuda() == TRS_FP32);
  TrsProduct to_weight =
                 {{PETSC_TRUE, PETSC_FALSE, out, in, batch, 1.0f, dy, x, 0.0f, {TRS_FP32, in, grad_weight}},
                  NULL,
                  TRS_ACTIVATION_NONE,
                  NULL},
             to_input = {{PETSC_FALSE, PETSC_FALSE, batch, in, out, 1.0f, dy, weight, 0.0f, dx},
                         NULL,
                         TRS_ACTIVATION_NONE,
                         NULL};
  bool summed = false;

  PetscFunctionBegin;
  if (relu) PetscCall(mask_and_sum(stream, batch, out, &y, &dy, grad_bias));
  if (sums) to_weight.sums = grad_bias;
  PetscCall(TrsProductCuda(stream, &to_weight, sums ? &summed : NULL));
  if (!relu && !summed) PetscCall(mask_and_sum(stream, batch, out, NULL, &dy, grad_bias));
  if (masks) to_input.mask = masks->x;
  if (dx.data) PetscCall(masked_product(stream, &to_input));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- cross layers --- */

/* Rows whose reads a thread of the next kernel has under way at a time. */
enum { TRS_CROSS_ROWS = 2 };

/*
  cols is in units of T. A thread has a column of some rows, gridDim.y apart. Reads x0, u, x and
  writes y once, with the reads of two rows before the first write.
*/
template <class T, class S>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    cross_forward_kernel(int64_t rows, int64_t cols, const S *__restrict__ x0, const S *__restrict__ u,
                         const float *__restrict__ bias, const S *__restrict__ x, S *__restrict__ y)
{
  const int columns = sizeof(T) / sizeof(float);
  const int64_t c = TrsCudaFirst(), end = rows * cols, step = gridDim.y * cols;
  T b;

  if (c >= cols) return;
  load_as(bias + columns * c, &b);
  for (int64_t i = blockIdx.y * cols + c; i < end; i += TRS_CROSS_ROWS * step) {
    T from0[TRS_CROSS_ROWS], product[TRS_CROSS_ROWS], from[TRS_CROSS_ROWS];

#pragma unroll
    for (int k = 0; k < TRS_CROSS_ROWS; k++) {
      /* a load without a branch */
      const int64_t at = columns * (i + k * step < end ? i + k * step : i);

      load_as(x0 + at, &from0[k]);
      load_as(u + at, &product[k]);
      load_as(x + at, &from[k]);
    }
#pragma unroll
    for (int k = 0; k < TRS_CROSS_ROWS; k++)
      if (i + k * step < end) keep_as(y + columns * (i + k * step), from0[k] * (product[k] + b) + from[k]);
  }
}

template <class T, class S>
static PetscErrorCode cross_forward(TrsStream stream, int64_t rows, int64_t cols, const void *x0,
                                    const void *u, const float *bias, const void *x, void *y)
{
  const int64_t blocks = (cols + TRS_DENSE_THREADS - 1) / TRS_DENSE_THREADS, most = 65535;
  /* few rows are spread over as many threads as there are */
  const int64_t strips = rows < 1024 ? rows : (rows + TRS_CROSS_ROWS - 1) / TRS_CROSS_ROWS;

  PetscFunctionBegin;
  CU_LAUNCH((cross_forward_kernel<T, S>),
            dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(PetscMin(strips, most))),
            TRS_DENSE_THREADS, 0, TrsCudaStream(stream), rows, cols, static_cast<const S *>(x0),
            static_cast<const S *>(u), bias, static_cast<const S *>(x), static_cast<S *>(y));
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCrossForwardCuda(TrsStream stream, int64_t batch, int64_t n, TrsDType type, const void *x0,
                                   const void *u, const float *bias, const void *x, void *y)
{
  const bool wide = is_wide({x0, u, bias, x, y}, n);

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (type == TRS_BF16 && wide)
    PetscCall((cross_forward<float4, Bf16>(stream, batch, n / 4, x0, u, bias, x, y)));
  else if (type == TRS_BF16)
    PetscCall((cross_forward<float, Bf16>(stream, batch, n, x0, u, bias, x, y)));
  else if (wide)
    PetscCall((cross_forward<float4, float>(stream, batch, n / 4, x0, u, bias, x, y)));
  else
    PetscCall((cross_forward<float, float>(stream, batch, n, x0, u, bias, x, y)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <class S>
static PetscErrorCode cross_backward(TrsStream stream, int64_t rows, int64_t n, int place,
                                     const TrsCrossBackward *layer)
{
  const S *const x0 = static_cast<const S *>(layer->x0), *const u = static_cast<const S *>(layer->u),
                 *const g = static_cast<const S *>(layer->g);
  S *const h = static_cast<S *>(layer->h);

  PetscFunctionBegin;
  if (is_wide({x0, u, layer->bias, g, layer->dx0, h, layer->grad_bias}, n))
    PetscCall(visit_and_sum(stream, rows, n / 4,
                            (Crossed<float4, S>{n, place, x0, u, layer->bias, g, layer->dx0, h}),
                            layer->grad_bias));
  else
    PetscCall(visit_and_sum(stream, rows, n,
                            (Crossed<float, S>{n, place, x0, u, layer->bias, g, layer->dx0, h}),
                            layer->grad_bias));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Reads g, x0, u and, except in the first call, dx0; writes dx0 and h. */
PetscErrorCode TrsCrossBackwardCuda(TrsStream stream, int64_t batch, int64_t n, int place,
                                    const TrsCrossBackward *layer)
{
  PetscFunctionBegin;
  if (layer->type == TRS_BF16)
    PetscCall(cross_backward<Bf16>(stream, batch, n, place, layer));
  else
    PetscCall(cross_backward<float>(stream, batch, n, place, layer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A thread has some elements. Reads x0 and x and writes y once. */
template <class S>
static __global__ void vector_cross_kernel(int64_t rows, int64_t cols, const S *x0, const float *s,
                                           const float *bias, const S *x, S *y)
{
  for (int64_t i = TrsCudaFirst(); i < rows * cols; i += TrsCudaStep())
    from_float(to_float(x0[i]) * s[i / cols] + bias[i % cols] + to_float(x[i]), &y[i]);
}

template <class S>
static PetscErrorCode vector_cross(TrsStream stream, int64_t rows, int64_t cols, const void *x0,
                                   const float *s, const float *bias, const void *x, void *y)
{
  PetscFunctionBegin;
  if (rows <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH((vector_cross_kernel<S>), TrsCudaBlocks(rows * cols, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
            TrsCudaStream(stream), rows, cols, static_cast<const S *>(x0), s, bias, static_cast<const S *>(x),
            static_cast<S *>(y));
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVectorCrossForwardCuda(TrsStream stream, int64_t batch, int64_t n, TrsDType type,
                                         const void *x0, const float *s, const float *bias, const void *x,
                                         void *y)
{
  PetscFunctionBegin;
  if (type == TRS_BF16)
    PetscCall(vector_cross<Bf16>(stream, batch, n, x0, s, bias, x, y));
  else
    PetscCall(vector_cross<float>(stream, batch, n, x0, s, bias, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* h[r] = g . x0 of a row. A warp has a row: its sum runs lane by lane, then over the lanes. */
template <class S>
static __global__ void row_products_kernel(int64_t rows, int64_t cols, const S *g, const S *x0, float *h)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;

  for (int64_t r = TrsCudaFirst() >> 5; r < rows; r += TrsCudaStep() >> 5) {
    float sum = 0.0f;

    for (int64_t c = lane; c < cols; c += 32) sum += to_float(g[r * cols + c]) * to_float(x0[r * cols + c]);
    for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
    if (lane == 0) h[r] = sum;
  }
}

template <class S>
static PetscErrorCode vector_cross_backward(TrsStream stream, int64_t batch, int64_t n, int place,
                                            const TrsCrossBackward *layer)
{
  const S *const g = static_cast<const S *>(layer->g);
  const VectorCrossed<S> crossed = {n, place, static_cast<const float *>(layer->u), g, layer->dx0};

  PetscFunctionBegin;
  if (batch > 0) {
    CU_LAUNCH((row_products_kernel<S>), TrsCudaBlocks(batch * 32, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
              TrsCudaStream(stream), batch, n, g, static_cast<const S *>(layer->x0),
              static_cast<float *>(layer->h));
    TrsCheckLaunch();
  }
  PetscCall(visit_and_sum(stream, batch, n, crossed, layer->grad_bias));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVectorCrossBackwardCuda(TrsStream stream, int64_t batch, int64_t n, int place,
                                          const TrsCrossBackward *layer)
{
  PetscFunctionBegin;
  if (layer->type == TRS_BF16)
    PetscCall(vector_cross_backward<Bf16>(stream, batch, n, place, layer));
  else
    PetscCall(vector_cross_backward<float>(stream, batch, n, place, layer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* dx0 contains g already. The product adds dx0 on its way to dx. */
PetscErrorCode TrsCrossInputCuda(TrsStream stream, int64_t batch, int64_t n, int64_t rank, TrsMatrix q,
                                 TrsMatrix V, TrsMatrix g, const float *dx0, float *dx)
{
  const TrsProduct product = {{PETSC_FALSE, PETSC_FALSE, batch, n, rank, 1.0f, q, V, 1.0f, {TRS_FP32, n, dx}},
                              NULL,
                              TRS_ACTIVATION_NONE,
                              dx0};

  PetscFunctionBegin;
  (void)g;
  PetscCall(TrsProductCuda(stream, &product, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- loss --- */

/*
  Sum a thread block's values in double, in a fixed order, in thread 0. part: shared, one double a
  thread.
*/
static __device__ __forceinline__ double block_sum(double value, double *part)
{
  const unsigned thread = threadIdx.x;

  __syncthreads(); /* all threads that read part are done */
  part[thread] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (thread < half) part[thread] += part[thread + half];
    __syncthreads();
  }
  return part[0];
}

/*
  Add the sums of all thread blocks to *loss, in a fixed order. The last thread block to finish does
  this. Sums are in double, as on the CPU.
*/
static __device__ void add_loss(double sum, double *sums, unsigned *counter, double *loss)
{
  __shared__ double part[TRS_DENSE_THREADS];

  sum = block_sum(sum, part);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    if (!is_last(counter, gridDim.x)) return;
    sum = 0.0;
    for (unsigned k = threadIdx.x; k < gridDim.x; k += blockDim.x) sum += __ldcg(&sums[k]);
    sum = block_sum(sum, part);
  }
  if (threadIdx.x == 0) *loss += sum;
}

/* The losses of one output. They are types, because a kernel takes no pointer to a function. */
struct Bce {
  static __device__ double of(double z, double y, double q, double *g, double *p)
  {
    return TrsBceSample(z, y, q, g, p);
  }
};
struct Mse {
  static __device__ double of(double z, double y, double q, double *g, double *p)
  {
    return TrsMseSample(z, y, q, g, p);
  }
};
struct Huber {
  static __device__ double of(double z, double y, double q, double *g, double *p)
  {
    return TrsHuberSample(z, y, q, g, p);
  }
};

static __device__ __forceinline__ float loss_scale(const TrsLossArgs &a)
{
  return a.now ? a.now->loss_scale * a.scale : a.scale;
}

/* A thread has one sample at a time. */
template <class Loss>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    loss_kernel(TrsLossArgs a, double *sums, unsigned *counter)
{
  const double q = static_cast<double>(a.parameter);
  const float of_all = loss_scale(a);
  double sum = 0.0;

  for (int64_t b = TrsCudaFirst(); b < a.batch; b += TrsCudaStep()) {
    const double y = a.y ? static_cast<double>(a.y[b * a.y_stride]) : nan("");
    const double weight = a.w ? static_cast<double>(a.w[b]) : 1.0;
    double g, p, loss = Loss::of(static_cast<double>(a.z[b * a.z_stride]), y, q, &g, &p);

    if (a.p) a.p[b * a.p_stride] = static_cast<float>(p);
    if (!a.y) continue;
    if (!a.missing && isnan(y)) g = loss = y;
    sum += weight * loss;
    if (a.dz) a.dz[b * a.z_stride] = static_cast<float>(g) * (of_all * static_cast<float>(weight));
  }
  if (a.y) add_loss(sum, sums, counter, a.loss);
}

/* A thread has one sample at a time, with all of its classes. */
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    softmax_kernel(TrsLossArgs a, double *sums, unsigned *counter)
{
  const float of_all = loss_scale(a);
  double total = 0.0;

  for (int64_t b = TrsCudaFirst(); b < a.batch; b += TrsCudaStep()) {
    const float *const z = a.z + b * a.z_stride;
    const double y = a.y ? static_cast<double>(a.y[b * a.y_stride]) : nan("");
    const double weight = a.w ? static_cast<double>(a.w[b]) : 1.0;
    const float scale = of_all * static_cast<float>(weight);
    const bool has_label = y >= 0.0 && y < static_cast<double>(a.classes);
    const int label = has_label ? static_cast<int>(y) : -1;
    double most = static_cast<double>(z[0]), sum = 0.0;

    for (int c = 1; c < a.classes; c++) most = fmax(most, static_cast<double>(z[c]));
    for (int c = 0; c < a.classes; c++) sum += exp(static_cast<double>(z[c]) - most);
    for (int c = 0; c < a.classes; c++) {
      const double share = exp(static_cast<double>(z[c]) - most) / sum;

      if (a.p) a.p[b * a.p_stride + c] = static_cast<float>(share);
      if (a.y && a.dz)
        a.dz[b * a.z_stride + c] = has_label ? static_cast<float>(share - (c == label ? 1.0 : 0.0)) * scale
                                             : 0.0f;
    }
    if (has_label) total += weight * (log(sum) + most - static_cast<double>(z[label]));
  }
  if (a.y) add_loss(total, sums, counter, a.loss);
}

/* Launch a kernel of a loss. A thread has a sample; each array is read or written once. */
static PetscErrorCode run_loss(TrsStream stream, const TrsLossArgs *args,
                               void (*kernel)(TrsLossArgs, double *, unsigned *))
{
  const dim3 blocks = TrsCudaBlocks(args->batch, TRS_DENSE_THREADS);
  unsigned *counter = NULL, threads = 32;
  void *sums = NULL;

  PetscFunctionBegin;
  if (args->batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  while (threads < TRS_DENSE_THREADS && threads < args->batch) threads *= 2;
  if (blocks.x > 1) {
    PetscCall(TrsCudaStreamScratch(stream, blocks.x * (int64_t)sizeof(double), &sums));
    PetscCall(TrsCudaStreamCounters(stream, 1, &counter));
  }
  CU_LAUNCH(kernel, blocks, threads, 0, TrsCudaStream(stream), *args, static_cast<double *>(sums), counter);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBceCuda(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  PetscCall(run_loss(stream, args, loss_kernel<Bce>));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMseCuda(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  PetscCall(run_loss(stream, args, loss_kernel<Mse>));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHuberCuda(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  PetscCall(run_loss(stream, args, loss_kernel<Huber>));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSoftmaxCuda(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  PetscCall(run_loss(stream, args, softmax_kernel));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- optimizers --- */

static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    squares_kernel(int64_t n, const float *x, double *sums, unsigned *counter, double *to)
{
  __shared__ double part[TRS_DENSE_THREADS];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * TRS_SQUARES_A_BLOCK;
  const int64_t end = first + TRS_SQUARES_A_BLOCK < n ? first + TRS_SQUARES_A_BLOCK : n;
  double sum = 0.0;

  for (int64_t i = first + threadIdx.x; i < end; i += TRS_DENSE_THREADS)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sum = block_sum(sum, part);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    if (!is_last(counter, gridDim.x)) return;
    sum = 0.0;
    for (unsigned k = threadIdx.x; k < gridDim.x; k += TRS_DENSE_THREADS) sum += __ldcg(&sums[k]);
    sum = block_sum(sum, part);
  }
  if (threadIdx.x == 0) *to = sum;
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
  const double *squares;       /* NULL: no clipping */
  const TrsUpdateNumbers *now; /* NULL: lr, adam_lr, root and kept are below */
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

/* The factor of the gradient. All threads of the thread block call it. */
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

/* Clamp to +- limit. A NaN stays a NaN. */
static __device__ __forceinline__ float clamped(float g, float limit)
{
  return g > limit ? limit : g < -limit ? -limit : g;
}

/* Which of an element's numbers a kind of optimizer has. */
template <TrsDenseOptimizerKind kind> struct Has {
  static constexpr bool MOMENTS = kind == TRS_DENSE_ADAM || kind == TRS_DENSE_ADAMW || kind == TRS_DENSE_LAMB;
  static constexpr bool STATE1 = MOMENTS || kind == TRS_DENSE_ADAGRAD, STATE2 = MOMENTS;
  static constexpr bool NEW_WEIGHT = kind != TRS_DENSE_LAMB;
};

/*
  One element, in registers. The formulas are those of dense_kernels_template.h, but 0 / 0 (no
  gradient yet and eps 0) is 0 here: the zeros that fill a weight up stay zeros.
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

/* The arrays of an optimizer, which do not overlap. */
struct Updated {
  const float *grad;
  float *weight, *state1, *state2;
};

/* COLUMNS elements from i on: all reads go before the first write. */
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
}

/*
  Reads grad once, and reads and writes weight and states once. A thread has COLUMNS elements at a
  time, and some have one of the last n % COLUMNS.
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
static void launch_update(TrsStream stream, int64_t n, const Update &a, const Updated &of)
{
  /* a state that the optimizer has not is NULL, and NULL is aligned */
  if (is_wide({of.grad, of.weight, of.state1, of.state2}, 0))
    CU_LAUNCH((update_kernel<kind, 4>), TrsCudaBlocks((n + 3) / 4, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
              TrsCudaStream(stream), n, a, of);
  else
    CU_LAUNCH((update_kernel<kind, 1>), TrsCudaBlocks(n, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
              TrsCudaStream(stream), n, a, of);
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

  PetscFunctionBegin;
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  set_numbers(TrsUpdateNumbersOf(args), &a);
#define LAUNCH_UPDATE(KIND, ...) \
  case TRS_DENSE_##KIND: launch_update<TRS_DENSE_##KIND>(stream, n, a, {grad, weight, state1, state2}); break;
  switch (args->kind) {
    TRS_DENSE_OPTIMIZERS(LAUNCH_UPDATE)
  }
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct Lamb {
  float eps, decay;
  TrsUpdateNumbers numbers;
  const TrsUpdateNumbers *now; /* NULL: they are above */
};

static __device__ __forceinline__ void take_numbers(Lamb *a)
{
  if (a->now) a->numbers = *a->now;
}

/* Adam's direction, 0 where no gradient has come yet. */
static __device__ __forceinline__ float lamb_direction(const Lamb &a, float mean, float square, float w)
{
  const float adam = mean == 0.0f
                         ? 0.0f
                         : (mean / a.numbers.correction1) / (sqrtf(square / a.numbers.correction2) + a.eps);

  return adam + a.decay * w;
}

/*
  A thread block sums TRS_SQUARES_A_BLOCK elements of the squares of the weights and directions; the
  last block adds up the blocks' sums in their order. Reads weight and both states once.
*/
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    lamb_squares_kernel(int64_t n, Lamb a, const float *mean, const float *square, const float *weight,
                        double *sums, unsigned *counter, double *to)
{
  __shared__ double part[TRS_DENSE_THREADS];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * TRS_SQUARES_A_BLOCK;
  const int64_t end = first + TRS_SQUARES_A_BLOCK < n ? first + TRS_SQUARES_A_BLOCK : n;
  double ww = 0.0, rr = 0.0;

  take_numbers(&a);
  for (int64_t i = first + threadIdx.x; i < end; i += TRS_DENSE_THREADS) {
    const double w = weight[i], r = lamb_direction(a, mean[i], square[i], weight[i]);
    ww += w * w;
    rr += r * r;
  }
  ww = block_sum(ww, part);
  rr = block_sum(rr, part);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) {
      sums[2 * blockIdx.x] = ww;
      sums[2 * blockIdx.x + 1] = rr;
    }
    if (!is_last(counter, gridDim.x)) return;
    ww = rr = 0.0;
    for (unsigned k = threadIdx.x; k < gridDim.x; k += TRS_DENSE_THREADS) {
      ww += __ldcg(&sums[2 * k]);
      rr += __ldcg(&sums[2 * k + 1]);
    }
    ww = block_sum(ww, part);
    rr = block_sum(rr, part);
  }
  if (threadIdx.x == 0) {
    to[0] = ww;
    to[1] = rr;
  }
}

/* COLUMNS elements from i on: all reads go before the first write. */
template <int COLUMNS>
static __device__ __forceinline__ void lamb_columns(const Lamb &a, float rate, const float *mean,
                                                    const float *square, float *weight)
{
  float m[COLUMNS], s[COLUMNS], w[COLUMNS];

  load_floats<COLUMNS>(mean, m);
  load_floats<COLUMNS>(square, s);
  load_floats<COLUMNS>(weight, w);
#pragma unroll
  for (int j = 0; j < COLUMNS; j++) w[j] -= rate * lamb_direction(a, m[j], s[j], w[j]);
  keep_floats<COLUMNS>(weight, w);
}

/* Reads both states, reads and writes weight once. Shares are those of update_kernel(). */
template <int COLUMNS>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    lamb_apply_kernel(int64_t n, Lamb a, const float *mean, const float *square, const double *squares,
                      float *weight)
{
  const double ww = squares[0], rr = squares[1];
  const float lr = a.now ? a.now->learning_rate : a.numbers.learning_rate;
  const float rate = ww != 0.0 && rr != 0.0 ? lr * static_cast<float>(sqrt(ww / rr)) : lr;
  const int64_t whole = n / COLUMNS * COLUMNS;

  take_numbers(&a);
  for (int64_t i = COLUMNS * TrsCudaFirst(); i < whole; i += COLUMNS * TrsCudaStep())
    lamb_columns<COLUMNS>(a, rate, mean + i, square + i, weight + i);
  if (COLUMNS > 1)
    for (int64_t i = whole + TrsCudaFirst(); i < n; i += TrsCudaStep())
      lamb_columns<1>(a, rate, mean + i, square + i, weight + i);
}

PetscErrorCode TrsLambApplyCuda(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                const float *exp_avg, const float *exp_avg_sq, double *squares, float *weight)
{
  const Lamb a = {args->eps, args->weight_decay, TrsUpdateNumbersOf(args), args->now};
  const int64_t blocks = (n + TRS_SQUARES_A_BLOCK - 1) / TRS_SQUARES_A_BLOCK;
  unsigned *counter = NULL;
  void *sums = NULL;

  PetscFunctionBegin;
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCudaStreamScratch(stream, 2 * blocks * (int64_t)sizeof(double), &sums));
  PetscCall(TrsCudaStreamCounters(stream, 1, &counter));
  CU_LAUNCH(lamb_squares_kernel, static_cast<unsigned>(blocks), TRS_DENSE_THREADS, 0, TrsCudaStream(stream),
            n, a, exp_avg, exp_avg_sq, weight, static_cast<double *>(sums), counter, squares);
  TrsCheckLaunch();
  if (is_wide({exp_avg, exp_avg_sq, weight}, 0))
    CU_LAUNCH((lamb_apply_kernel<4>), TrsCudaBlocks((n + 3) / 4, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
              TrsCudaStream(stream), n, a, exp_avg, exp_avg_sq, squares, weight);
  else
    CU_LAUNCH((lamb_apply_kernel<1>), TrsCudaBlocks(n, TRS_DENSE_THREADS), TRS_DENSE_THREADS, 0,
              TrsCudaStream(stream), n, a, exp_avg, exp_avg_sq, squares, weight);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
