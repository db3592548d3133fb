/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Dense layers on the GPU. gemm_cuda.cu multiplies matrices, and the memory-bound kernels of this
  file do the rest. If memory is aligned to 16 bytes, a thread handles four columns, with the same
  sums in the same order.
*/
#include "gpu/column_sums_cuda.h"
#include "gpu/compute_cuda.h"
#include "gpu/device/device_cuda.h"
#include "gpu/gemm/gemm_cuda.h"
#include "gpu/wide_cuda.h"

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

/* T is float or float4. S is the type in memory: float or Bf16. */
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

/* Compute dy = y > 0 ? dy : 0 and sum the columns of dy. Strides are in numbers. */
template <class T, class S> struct Masked {
  typedef T Type;
  enum { ROWS = 4, COLUMNS = sizeof(T) / sizeof(float) };
  struct Loaded {
    T y, dy;
  };
  const S *y; /* NULL if there is no mask */
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

/*
  Compute g * (u + bias), plus dx0 unless this call is the first, plus g if this call is the last.
  Store the sum in total, or in dx0 if total is NULL. Store h = g * x0 and sum the columns of h.
*/
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
  S *h, *total;
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
    if (total)
      keep_as(total + i, sum);
    else
      keep_as(dx0 + i, sum);
    keep_as(h + i, product);
    return product;
  }
};

/*
  Compute g * s, where s is a number of the row, plus dx0 unless this call is the first, plus g if
  this call is the last. Store the sum in total, or in dx0 if total is NULL. Sum the columns of g.
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
  S *total;
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
    if (total)
      from_float(sum, &total[r * n + c]);
    else
      dx0[r * n + c] = sum;
    return of.g;
  }
};

/* --- linear layers --- */

/* Make the mask of y. A thread makes one byte of the mask from eight numbers of y. */
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
      bits |= to_float(y[r * y_stride + c + k]) <= 0.0f ? 0u : 1u << k; /* the bit is 1 for NaN */
    mask[r * row_bytes + c / 8] = static_cast<uint8_t>(bits);
  }
}

/*
  Set numbers of dx to 0 where the mask's bit is 0. A thread handles one byte of the mask. WIDE
  means that each byte has eight numbers, which are aligned to four.
*/
template <class S, bool WIDE>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    apply_mask_kernel(int64_t rows, int64_t cols, const uint8_t *mask, int64_t row_bytes, S *dx,
                      int64_t dx_stride)
{
  const int64_t bytes = (cols + 7) / 8;

  for (int64_t i = TrsCudaFirst(); i < rows * bytes; i += TrsCudaStep()) {
    const int64_t r = i / bytes, c = i % bytes * 8;
    const unsigned bits = mask[r * row_bytes + c / 8];
    S *const to = dx + r * dx_stride + c;
    float x[8];

    if (bits == 0xffu) continue;
    if constexpr (WIDE) {
      load_numbers<8>(to, x);
      for (int k = 0; k < 8; k++) x[k] = bits >> k & 1 ? x[k] : 0.0f;
      keep_numbers<4>(to, x);
      keep_numbers<4>(to + 4, x + 4);
    } else {
      for (int k = 0; k < 8 && c + k < cols; k++)
        if (!(bits >> k & 1)) from_float(0.0f, &to[k]);
    }
  }
}

/* Make the mask of y, or apply the mask to dx, in a kernel of ours if cuBLASLt does not do it. */
template <class S>
static PetscErrorCode mask_apart(TrsStream stream, int64_t rows, int64_t cols, bool make, TrsMatrix matrix,
                                 TrsReluMask mask)
{
  uint8_t *const bits = static_cast<uint8_t *>(mask.data);
  S *const data = static_cast<S *>(matrix.data);
  const dim3 blocks = TrsCudaBlocks(rows * ((cols + 7) / 8), TRS_DENSE_THREADS);

  PetscFunctionBegin;
  if (rows <= 0 || cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (make)
    CU_LAUNCH((make_mask_kernel<S>), blocks, TRS_DENSE_THREADS, 0, TrsCudaStream(stream), rows, cols, data,
              matrix.stride, bits, mask.row_bytes);
  else if (cols % 8 == 0 && has_fours(matrix))
    CU_LAUNCH((apply_mask_kernel<S, true>), blocks, TRS_DENSE_THREADS, 0, TrsCudaStream(stream), rows, cols,
              bits, mask.row_bytes, data, matrix.stride);
  else
    CU_LAUNCH((apply_mask_kernel<S, false>), blocks, TRS_DENSE_THREADS, 0, TrsCudaStream(stream), rows, cols,
              bits, mask.row_bytes, data, matrix.stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Multiply matrices, and write or apply the product's mask in cuBLASLt or in a kernel afterwards.
*/
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

PetscErrorCode TrsLinearForwardCuda(TrsStream stream, const TrsLinear *l)
{
  TrsProduct product = {{PETSC_FALSE, PETSC_TRUE, l->batch, l->out, l->in, 1.0f, l->x, l->weight, 0.0f, l->y},
                        l->bias,
                        l->activation,
                        NULL};

  PetscFunctionBegin;
  if (l->masks) product.mask = l->masks->y;
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

PetscErrorCode TrsColumnSumsCuda(TrsStream stream, int64_t rows, int64_t cols, const TrsMatrix *dy,
                                 float *sums)
{
  PetscFunctionBegin;
  PetscCall(mask_and_sum(stream, rows, cols, NULL, dy, sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If dy must be masked, one pass over dy masks it and sums the bias gradient. If not, the matrix
  product for the weight gradient also sums dy. There is one exception: if dy is float and products
  round it to bf16, the product would sum rounded numbers, so the pass over dy remains.
*/
PetscErrorCode TrsLinearBackwardCuda(TrsStream stream, const TrsLinear *l,
                                     const TrsLinearGradients *gradients)
{
  const TrsMatrix dy = gradients->dy, dx = gradients->dx;
  const TrsReluMasks *const masks = l->masks;
  const int64_t batch = l->batch, in = l->in, out = l->out;
  const bool relu = l->activation == TRS_ACTIVATION_RELU && !(masks && masks->y.data);
  const bool sums = masks && !relu && (dy.type == TRS_BF16 || TrsOperandTypeCuda() == TRS_FP32);
  float *const grad_bias = gradients->grad_bias;
  TrsProduct to_weight = {{PETSC_TRUE, PETSC_FALSE, out, in, batch, 1.0f, dy, l->x, 0.0f,
                           TrsFloats(gradients->grad_weight, in)},
                          NULL,
                          TRS_ACTIVATION_NONE,
                          NULL},
             to_input = {{PETSC_FALSE, PETSC_FALSE, batch, in, out, 1.0f, dy, l->weight, 0.0f, dx},
                         NULL,
                         TRS_ACTIVATION_NONE,
                         NULL};
  bool summed = false;

  PetscFunctionBegin;
  if (relu) PetscCall(mask_and_sum(stream, batch, out, &l->y, &dy, grad_bias));
  if (sums) to_weight.sums = grad_bias;
  PetscCall(TrsProductCuda(stream, &to_weight, sums ? &summed : NULL));
  if (!relu && !summed) PetscCall(mask_and_sum(stream, batch, out, NULL, &dy, grad_bias));
  if (masks) to_input.mask = masks->x;
  if (dx.data) PetscCall(masked_product(stream, &to_input));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- cross layers --- */

/* Number of rows that a thread of the next kernel reads before it writes the first. */
enum { TRS_CROSS_ROWS = 2 };

/*
  The unit of cols is T. A thread handles one column, in rows that are gridDim.y apart. It reads x0,
  u and x once and writes y once, and reads two rows before the first write.
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
      /* a valid index in any case, so that the load needs no branch */
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
  /* if there are few rows, each row has its own strip */
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
  S *const h = static_cast<S *>(layer->h), *const total = static_cast<S *>(layer->total);

  PetscFunctionBegin;
  if (is_wide({x0, u, layer->bias, g, layer->dx0, h, total, layer->grad_bias}, n))
    PetscCall(visit_and_sum(stream, rows, n / 4,
                            (Crossed<float4, S>{n, place, x0, u, layer->bias, g, layer->dx0, h, total}),
                            layer->grad_bias));
  else
    PetscCall(visit_and_sum(stream, rows, n,
                            (Crossed<float, S>{n, place, x0, u, layer->bias, g, layer->dx0, h, total}),
                            layer->grad_bias));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Reads g, x0, u and, except in the first call, dx0. Writes dx0 and h. */
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

/* Reads x0 and x and writes y once. */
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

/*
  h[r] is the dot product of g and x0 in row r. A warp sums a row: each lane sums its own columns,
  then the lanes' sums are added.
*/
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
  const VectorCrossed<S> crossed = {n, place,      static_cast<const float *>(layer->u),
                                    g, layer->dx0, static_cast<S *>(layer->total)};

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

/*
  dx0, or g used in its place, already holds the total. The matrix product adds it while it writes
  dx.
*/
PetscErrorCode TrsCrossInputCuda(TrsStream stream, int64_t batch, int64_t n, int64_t rank, TrsMatrix q,
                                 TrsMatrix V, TrsMatrix g, const float *dx0, TrsMatrix dx)
{
  const void *const total = dx.type == TRS_FP32 ? static_cast<const void *>(dx0) : g.data;
  const TrsProduct product = {
      {PETSC_FALSE, PETSC_FALSE, batch, n, rank, 1.0f, q, V, 1.0f, dx}, NULL, TRS_ACTIVATION_NONE, total};

  PetscFunctionBegin;
  PetscCall(TrsProductCuda(stream, &product, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
