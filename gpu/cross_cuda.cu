/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The cross networks on the GPU. gemm_cuda.cu multiplies matrices, and the memory-bound kernels of
  this file do the rest. If memory is aligned to 16 bytes, a thread handles four columns, with the
  same sums in the same order.
*/
#include "gpu/column_sums_cuda.h"
#include "gpu/compute_cuda.h"
#include "gpu/cross_tensor_cuda.h"
#include "gpu/device/device_cuda.h"
#include "gpu/elements_cuda.h"
#include "gpu/gemm/gemm_cuda.h"
#include "gpu/gemm/ways_cuda.h"

/* --- the backward's sums --- */

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

/* Store h = g * x0 and sum the columns of h. */
template <class T, class S> struct CrossedAlone {
  typedef T Type;
  enum { ROWS = 4, COLUMNS = sizeof(T) / sizeof(float) };
  struct Loaded {
    T x0, g;
  };
  int64_t n;
  const S *x0, *g;
  S *h;
  __device__ __forceinline__ Loaded load(int64_t r, int64_t c) const
  {
    const int64_t i = r * n + COLUMNS * c;
    Loaded of = {};

    load_as(x0 + i, &of.x0);
    load_as(g + i, &of.g);
    return of;
  }
  __device__ __forceinline__ T use(int64_t r, int64_t c, const Loaded &of) const
  {
    const T product = of.g * of.x0;

    keep_as(h + r * n + COLUMNS * c, product);
    return product;
  }
};

/*
  The same, and store the total: g * (u + bias) of all layers, KEPT of them before this layer, plus
  g. The order of additions is that of Crossed.
*/
template <class T, class S, int KEPT> struct CrossedTotal {
  typedef T Type;
  enum { ROWS = 2, COLUMNS = sizeof(T) / sizeof(float) };
  struct Layer {
    T g, u, bias;
  };
  struct Loaded {
    T x0;
    Layer layer[KEPT + 1];
  };
  int64_t n;
  const S *x0;
  struct {
    const S *g, *u;
    const float *bias;
  } layer[KEPT + 1]; /* this layer is the last one */
  S *h, *total;
  __device__ __forceinline__ Loaded load(int64_t r, int64_t c) const
  {
    const int64_t i = r * n + COLUMNS * c;
    Loaded of = {};

    load_as(x0 + i, &of.x0);
#pragma unroll
    for (int k = 0; k <= KEPT; k++) {
      load_as(layer[k].g + i, &of.layer[k].g);
      load_as(layer[k].u + i, &of.layer[k].u);
      load_as(layer[k].bias + COLUMNS * c, &of.layer[k].bias);
    }
    return of;
  }
  __device__ __forceinline__ T use(int64_t r, int64_t c, const Loaded &of) const
  {
    const int64_t i = r * n + COLUMNS * c;
    const T g = of.layer[KEPT].g, product = g * of.x0;
    T sum = of.layer[0].g * (of.layer[0].u + of.layer[0].bias);

#pragma unroll
    for (int k = 1; k <= KEPT; k++) sum = sum + of.layer[k].g * (of.layer[k].u + of.layer[k].bias);
    keep_as(total + i, sum + g);
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

/* --- layers --- */

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

/* A way of TrsWays whose layers are of type L. */
template <class L, PetscErrorCode COMPUTE(TrsStream, const L *)>
static PetscErrorCode way(TrsStream stream, const void *layer)
{
  return COMPUTE(stream, static_cast<const L *>(layer));
}

static PetscErrorCode forward_apart(TrsStream stream, const TrsCrossProduct *l)
{
  const TrsMatrixProduct *p = &l->product;

  PetscFunctionBegin;
  PetscCall(TrsMultiplyCuda(stream, p));
  PetscCall(TrsCrossForwardCuda(stream, p->m, p->n, p->c.type, l->x0, p->c.data, l->bias, l->x, l->y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCrossProductCuda(TrsStream stream, const TrsCrossProduct *l)
{
  const TrsMatrixProduct *p = &l->product;
  const TrsWays ways = {"cross layer",
                        p->m,
                        p->n,
                        p->k,
                        way<TrsCrossProduct, forward_apart>,
                        way<TrsCrossProduct, TrsCrossTensorForward>,
                        l,
                        {{p->c.data, p->m * p->n, p->c.type}, {l->y, p->m * p->n, p->c.type}, {}}};

  PetscFunctionBegin;
  if (l->fused && TrsCrossTakesTensorCores(l))
    PetscCall(TrsWaysRun(stream, &ways));
  else
    PetscCall(forward_apart(stream, l));
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

/* Reads g and x0, and writes h. */
template <class T>
static PetscErrorCode cross_alone(TrsStream stream, int64_t rows, int64_t n, const TrsCrossBackward *layer)
{
  const CrossedAlone<T, Bf16> visit = {n, static_cast<const Bf16 *>(layer->x0),
                                       static_cast<const Bf16 *>(layer->g), static_cast<Bf16 *>(layer->h)};

  PetscFunctionBegin;
  PetscCall(visit_and_sum(stream, rows, n / visit.COLUMNS, visit, layer->grad_bias));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Reads x0, and g and u of all layers. Writes h and the total. */
template <class T, int KEPT>
static PetscErrorCode cross_total(TrsStream stream, int64_t rows, int64_t n, const TrsCrossBackward *layer)
{
  CrossedTotal<T, Bf16, KEPT> visit = {n, static_cast<const Bf16 *>(layer->x0), {}, NULL, NULL};

  PetscFunctionBegin;
  for (int k = 0; k < KEPT; k++)
    visit.layer[k] = {static_cast<const Bf16 *>(layer->kept[k].g),
                      static_cast<const Bf16 *>(layer->kept[k].u), layer->kept[k].bias};
  visit.layer[KEPT] = {static_cast<const Bf16 *>(layer->g), static_cast<const Bf16 *>(layer->u), layer->bias};
  visit.h = static_cast<Bf16 *>(layer->h);
  visit.total = static_cast<Bf16 *>(layer->total);
  PetscCall(visit_and_sum(stream, rows, n / visit.COLUMNS, visit, layer->grad_bias));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  A backward whose LAST call computes the parts of all layers. T is float4 if all arrays are wide.
*/
template <class T>
static PetscErrorCode cross_kept(TrsStream stream, int64_t rows, int64_t n, int place,
                                 const TrsCrossBackward *layer)
{
  PetscFunctionBegin;
  if (place & TRS_CROSS_KEPT)
    PetscCall(cross_alone<T>(stream, rows, n, layer));
  else if (layer->n_kept == 1)
    PetscCall((cross_total<T, 1>(stream, rows, n, layer)));
  else if (layer->n_kept == 2)
    PetscCall((cross_total<T, 2>(stream, rows, n, layer)));
  else
    PetscCall((cross_total<T, TRS_CROSS_MOST_KEPT>(stream, rows, n, layer)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static bool is_wide_cross(int64_t n, int place, const TrsCrossBackward *layer)
{
  bool wide = is_wide({layer->x0, layer->g, layer->h, layer->grad_bias}, n);

  if (place & TRS_CROSS_KEPT) return wide;
  for (int k = 0; k < layer->n_kept; k++)
    wide = wide && is_wide({layer->kept[k].g, layer->kept[k].u, layer->kept[k].bias}, n);
  return wide && is_wide({layer->u, layer->bias, layer->total}, n);
}

/* Reads g, x0, u and, except in the first call, dx0. Writes dx0 and h. */
PetscErrorCode TrsCrossBackwardCuda(TrsStream stream, int64_t batch, int64_t n, int place,
                                    const TrsCrossBackward *layer)
{
  const bool kept = place & TRS_CROSS_KEPT || layer->n_kept > 0;

  PetscFunctionBegin;
  PetscCheck(!kept || (layer->type == TRS_BF16 && layer->n_kept <= TRS_CROSS_MOST_KEPT), PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "%d kept layers of %s", layer->n_kept, TrsDTypeName(layer->type));
  if (kept && is_wide_cross(n, place, layer))
    PetscCall(cross_kept<float4>(stream, batch, n, place, layer));
  else if (kept)
    PetscCall(cross_kept<float>(stream, batch, n, place, layer));
  else if (layer->type == TRS_BF16)
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
  dx0, or g if dx is bf16, already holds all that is added. The matrix product adds it while it
  writes dx.
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

static PetscErrorCode backward_apart(TrsStream stream, const TrsCrossInputBackward *l)
{
  PetscFunctionBegin;
  PetscCall(TrsCrossInputCuda(stream, l->batch, l->n, l->rank, l->q, l->V, l->g, NULL, l->dx));
  PetscCall(TrsCrossBackwardCuda(stream, l->batch, l->n, l->place, &l->lower));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCrossInputBackwardCuda(TrsStream stream, const TrsCrossInputBackward *l)
{
  const bool last = (l->place & TRS_CROSS_LAST) != 0;
  const TrsWays ways = {last ? "first cross layer's backward" : "cross layer's backward",
                        l->batch,
                        l->n,
                        l->rank,
                        way<TrsCrossInputBackward, backward_apart>,
                        way<TrsCrossInputBackward, TrsCrossTensorLower>,
                        l,
                        {{last ? l->lower.total : l->dx.data, l->batch * l->n, TRS_BF16},
                         {l->lower.h, l->batch * l->n, TRS_BF16},
                         {l->lower.grad_bias, l->n, TRS_FP32}}};

  PetscFunctionBegin;
  if (l->fused && TrsCrossLowerTakesTensorCores(l))
    PetscCall(TrsWaysRun(stream, &ways));
  else
    PetscCall(backward_apart(stream, l));
  PetscFunctionReturn(PETSC_SUCCESS);
}
