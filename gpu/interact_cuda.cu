/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The dot interaction and the factorization machine on the GPU. A thread block works on a few
  samples at a time and copies their vectors to shared memory once. Each thread computes 4 x 4
  results in registers: the dot products of 4 vectors with 4 other vectors, or 4 columns of the
  gradients of 4 vectors. So each number that it reads is used in four results.

  Each dot product is summed by one thread, over columns in ascending order. Each element of a
  gradient is summed by one thread, over vectors in ascending order, including the vector itself
  with factor 0. So a sample's bits do not depend on the rest of the batch. Bytes moved: x and the
  result once, dout once. A sample that does not fit in shared memory is read from global memory, in
  the same order.

  Tensor cores do the work of bf16 vectors where they can (dot_tensor_cuda.cu).

  The vectors of a sample lie in a row of a matrix, or at any addresses. A gradient may overwrite
  its vector, because all vectors of a sample are in shared memory before the first gradient is
  written.
*/
#include "gpu/compute_cuda.h"
#include "gpu/dot_cuda.h"
#include "gpu/tbe/tbe_rows_cuda.h"

#include <type_traits>

enum {
  TRS_DOT_THREADS = 128,
  TRS_DOT_SIDE = 4,               /* side of the square of results of a thread */
  TRS_DOT_SHARED_BYTES = 48 << 10 /* available on every GPU without an opt-in */
};

/* Sizes of a call of the dot interaction. */
struct Dot {
  int64_t batch;
  int n, D, copied, n_zeros;
  /*
    Distance of two vectors in shared memory, in floats. It is an odd number of float4, so that 8
    adjacent vectors are in different banks.
  */
  int pitch;
  int tiles;   /* number of tiles along a side: n / 4, rounded up */
  int samples; /* number of samples on which a thread block works at a time */
  int aligned; /* true if all vectors consist of aligned groups of four numbers */
};

/*
  Copy the vectors of `here` samples to shared memory, with zeros up to a whole float4. All threads
  of the thread block must call it.
*/
template <class X>
static __device__ __forceinline__ void stage_vectors(const Dot &s, const X &from, int64_t first, int here,
                                                     float *to)
{
  constexpr int IN_FLIGHT = 4;
  const int columns = s.aligned ? 4 : 1, width = s.aligned ? s.D : (s.D + 3) / 4 * 4, end = s.n * width,
            step = TRS_DOT_THREADS * columns;

  for (int m = 0; m < here; m++) {
    float *const own = to + m * s.n * s.pitch;
    int k = static_cast<int>(threadIdx.x) * columns;

    if (!s.aligned) {
      for (; k < end; k += step)
        own[k / width * s.pitch + k % width] = k % width < s.D
                                                   ? to_float(from.at(first + m, k / width)[k % width])
                                                   : 0.0f;
      continue;
    }
    for (; k < end; k += IN_FLIGHT * step) {
      float x[IN_FLIGHT][4];

#pragma unroll
      for (int u = 0; u < IN_FLIGHT; u++) {
        const int at = k + u * step;
        if (at < end) load_numbers<4>(from.at(first + m, at / width) + at % width, x[u]);
      }
#pragma unroll
      for (int u = 0; u < IN_FLIGHT; u++) {
        const int at = k + u * step;
        if (at < end) store_floats<4>(own + at / width * s.pitch + at % width, x[u]);
      }
    }
  }
}

/*
  Load four columns of a vector. In shared memory all four exist, because zeros follow the last
  column.
*/
template <bool SHARED, class T>
static __device__ __forceinline__ void load_four(const T *from, int left, float *x)
{
  if constexpr (SHARED)
    load_floats<4>(from, x);
  else
    for (int e = 0; e < 4; e++) x[e] = e < left ? to_float(from[e]) : 0.0f;
}

/*
  Compute the dot products of vectors row, row + tiles and so on with vectors column, column + tiles
  and so on of sample v, and store each at its index.
*/
template <bool SHARED, class T, class R>
static __device__ __forceinline__ void multiply_tile(const Dot &s, const T *v, int row, int column, R *to)
{
  const int pitch = SHARED ? s.pitch : s.D, last = s.n - 1;
  float sum[TRS_DOT_SIDE][TRS_DOT_SIDE] = {};

  for (int d = 0; d < s.D; d += 4) {
    float left[TRS_DOT_SIDE][4], right[TRS_DOT_SIDE][4];

#pragma unroll
    for (int a = 0; a < TRS_DOT_SIDE; a++) {
      load_four<SHARED>(v + PetscMin(row + a * s.tiles, last) * pitch + d, s.D - d, left[a]);
      load_four<SHARED>(v + PetscMin(column + a * s.tiles, last) * pitch + d, s.D - d, right[a]);
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
      for (int a = 0; a < TRS_DOT_SIDE; a++)
        for (int b = 0; b < TRS_DOT_SIDE; b++) sum[a][b] += left[a][e] * right[b][e];
  }
#pragma unroll
  for (int a = 0; a < TRS_DOT_SIDE; a++)
    for (int b = 0; b < TRS_DOT_SIDE; b++) {
      const int i = row + a * s.tiles, j = column + b * s.tiles;
      if (i < s.n && j < s.n && (row != column || i < j))
        from_float(sum[a][b], &to[pair_at(s.n, PetscMin(i, j), PetscMax(i, j))]);
    }
}

/*
  The tiles of the triangle are distributed to the threads, sample after sample. The dot products go
  through shared memory, so that adjacent products are written together.
*/
template <bool SHARED, class X, class R>
static __global__ void __launch_bounds__(TRS_DOT_THREADS, 4)
    dot_forward_kernel(Dot s, X x, R *out, int64_t out_stride)
{
  CU_DYN_SHARED(float, vectors);
  const int n_tiles = s.tiles * (s.tiles + 1) / 2, n_products = s.n * (s.n - 1) / 2;
  float *const products = vectors + s.samples * s.n * s.pitch;

  for (int64_t first = static_cast<int64_t>(blockIdx.x) * s.samples; first < s.batch;
       first += static_cast<int64_t>(gridDim.x) * s.samples) {
    const int here = static_cast<int>(PetscMin(static_cast<int64_t>(s.samples), s.batch - first));

    if (SHARED) stage_vectors(s, x, first, here, vectors);
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.x); k < here * n_tiles; k += TRS_DOT_THREADS) {
      const int m = k / n_tiles;
      int row = 0, column = k % n_tiles;

      while (column >= s.tiles - row) column -= s.tiles - row++;
      if constexpr (SHARED)
        multiply_tile<true>(s, vectors + m * s.n * s.pitch, row, row + column, products + m * n_products);
      else
        multiply_tile<false>(s, x.at(first + m, 0), row, row + column,
                             out + (first + m) * out_stride + s.copied);
    }
    __syncthreads();
    for (int m = 0; m < here; m++) {
      R *const to = out + (first + m) * out_stride;

      for (int c = static_cast<int>(threadIdx.x); c < s.copied; c += TRS_DOT_THREADS)
        from_float(SHARED ? vectors[m * s.n * s.pitch + c] : to_float(x.at(first + m, 0)[c]), &to[c]);
      for (int k = static_cast<int>(threadIdx.x); SHARED && k < n_products; k += TRS_DOT_THREADS)
        from_float(products[m * n_products + k], &to[s.copied + k]);
      for (int k = static_cast<int>(threadIdx.x); k < s.n_zeros; k += TRS_DOT_THREADS)
        from_float(0.0f, &to[s.copied + n_products + k]);
    }
    __syncthreads(); /* wait, because the next samples use the same memory */
  }
}

/*
  The gradient of the dot product of x_i and x_j. It is 0 if i = j, and for rows after the last
  vector.
*/
template <class R>
static __device__ __forceinline__ float pair_gradient(int n, const R *products, int i, int j)
{
  return i == j || i >= n ? 0.0f : to_float(products[pair_at(n, PetscMin(i, j), PetscMax(i, j))]);
}

/*
  Store the gradients of the products of `here` samples as square matrices with rows of 4 * tiles.
  All threads of the thread block must call it.
*/
template <class R>
static __device__ __forceinline__ void stage_gradients(const Dot &s, int64_t first, int here, const R *dout,
                                                       int64_t dout_stride, float *to)
{
  const int width = 4 * s.tiles;

  for (int m = 0; m < here; m++)
    for (int k = static_cast<int>(threadIdx.x); k < s.n * width; k += TRS_DOT_THREADS)
      to[m * s.n * width + k] = pair_gradient(s.n, dout + (first + m) * dout_stride + s.copied, k % width,
                                              k / width);
}

/*
  Compute columns d .. d + 3 of the gradients of vectors row .. row + 3 of a sample. If SHARED, g is
  the sample's square matrix in shared memory. If not, g is the sample's row of dout.
*/
template <bool SHARED, class T, class R>
static __device__ __forceinline__ void multiply_back(const Dot &s, const T *v, const R *g, int row, int d,
                                                     float sum[TRS_DOT_SIDE][4])
{
  for (int j = 0; j < s.n; j++) {
    float factor[TRS_DOT_SIDE], x[4];

    load_four<SHARED>(v + j * (SHARED ? s.pitch : s.D) + d, s.D - d, x);
    if constexpr (SHARED)
      load_floats<4>(g + j * 4 * s.tiles + row, factor);
    else
      for (int a = 0; a < TRS_DOT_SIDE; a++) factor[a] = pair_gradient(s.n, g + s.copied, row + a, j);
#pragma unroll
    for (int a = 0; a < TRS_DOT_SIDE; a++)
      for (int e = 0; e < 4; e++) sum[a][e] += factor[a] * x[e];
  }
}

/*
  Squares of the gradient are distributed to the threads. Adjacent threads handle adjacent columns.
*/
template <bool SHARED, class X, class R>
static __global__ void __launch_bounds__(TRS_DOT_THREADS, 4)
    dot_backward_kernel(Dot s, X x, const R *dout, int64_t dout_stride, X dx)
{
  CU_DYN_SHARED(float, vectors);
  const int wide = (s.D + 3) / 4, n_squares = s.tiles * wide;
  float *const gradients = vectors + s.samples * s.n * s.pitch;

  for (int64_t first = static_cast<int64_t>(blockIdx.x) * s.samples; first < s.batch;
       first += static_cast<int64_t>(gridDim.x) * s.samples) {
    const int here = static_cast<int>(PetscMin(static_cast<int64_t>(s.samples), s.batch - first));

    if (SHARED) {
      stage_vectors(s, x, first, here, vectors);
      stage_gradients(s, first, here, dout, dout_stride, gradients);
    }
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.x); k < here * n_squares; k += TRS_DOT_THREADS) {
      const int m = k / n_squares, row = k % n_squares / wide * 4, d = k % wide * 4;
      const R *const g = dout + (first + m) * dout_stride;
      float sum[TRS_DOT_SIDE][4] = {};

      if constexpr (SHARED)
        multiply_back<true>(s, vectors + m * s.n * s.pitch, gradients + m * s.n * 4 * s.tiles, row, d, sum);
      else
        multiply_back<false>(s, x.at(first + m, 0), g, row, d, sum);
        /*
        All loops are unrolled: the compiler then knows every index and keeps `sum` in registers.
      */
#pragma unroll
      for (int a = 0; a < TRS_DOT_SIDE; a++) {
        const int i = row + a;

        if (i >= s.n) break;
        auto *const to = dx.at(first + m, i) + d;
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (d + e < s.D && i * s.D + d + e < s.copied) sum[a][e] += to_float(g[i * s.D + d + e]);
        if (s.aligned) {
          keep_numbers<4>(to, sum[a]);
          continue;
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (d + e < s.D) from_float(sum[a][e], &to[e]);
      }
    }
    __syncthreads();
  }
}

/*
  Find the number of samples on which a thread block works at a time, and the bytes of shared memory
  for them. *bytes is 0 if even one sample does not fit.
*/
static PetscErrorCode cut(Dot *s, int64_t floats_more, int squares, const void *kernel, size_t *bytes)
{
  const int64_t one = (static_cast<int64_t>(s->n) * s->pitch + floats_more) *
                      static_cast<int64_t>(sizeof(float));
  int device, most = TRS_DOT_SHARED_BYTES;

  PetscFunctionBegin;
  s->samples = static_cast<int>(PetscMin(PetscMax(TRS_DOT_SHARED_BYTES / one, static_cast<int64_t>(1)),
                                         static_cast<int64_t>(TRS_DOT_THREADS / squares + 1)));
  *bytes = static_cast<size_t>(s->samples * one);
  if (one > TRS_DOT_SHARED_BYTES) {
    TrsCallCUDA(cudaGetDevice(&device));
    TrsCallCUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    if (one > most)
      *bytes = 0;
    else
      TrsCallCUDA(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(one)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int pitch_of(int D)
{
  return ((D + 3) / 4 | 1) * 4;
}

static Dot dot_of(int64_t batch, int n, int D, int copied, int n_zeros)
{
  return {batch, n, D, copied, n_zeros, pitch_of(D), (n + 3) / 4, 1, D % 4 == 0};
}

template <class T> static Rows<T> rows_of(TrsMatrix matrix, int D)
{
  return {static_cast<T *>(matrix.data), matrix.stride, D};
}

template <class T> static Places<T> places_of(int n, const TrsVectorPlace *place)
{
  Places<T> places = {};

  for (int i = 0; i < n; i++) {
    places.data[i] = static_cast<T *>(place[i].data);
    places.stride[i] = place[i].stride;
  }
  return places;
}

/* True if all vectors begin at multiples of four numbers. */
static bool have_fours(TrsDType type, int n, const TrsVectorPlace *place)
{
  bool have = true;

  for (int i = 0; i < n; i++) have = have && has_fours({type, place[i].stride, place[i].data});
  return have;
}

static dim3 blocks_of(const Dot *s)
{
  return TrsCudaBlocks((s->batch + s->samples - 1) / s->samples * TRS_DOT_THREADS, TRS_DOT_THREADS);
}

/*
  Floats in shared memory for a sample's dot products, in addition to its vectors: for the forward
  here, for the backward below.
*/
static int64_t products_floats(int n)
{
  return static_cast<int64_t>(n) * (n - 1) / 2;
}

static int64_t square_floats(int n)
{
  return static_cast<int64_t>(n) * 4 * ((n + 3) / 4);
}

template <class R, class X>
static PetscErrorCode dot_forward(TrsStream stream, Dot s, const X &x, const TrsMatrix *out)
{
  R *const to = static_cast<R *>(out->data);
  size_t bytes;

  PetscFunctionBegin;
  if constexpr (std::is_same_v<X, typename X::template Of<Bf16>>) {
    if (TrsDotTakesTensorCores(x, s.n, s.D)) {
      PetscCall(TrsDotTensorForward(stream, s.batch, s.n, s.D, s.copied, s.n_zeros, x, *out));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  PetscCall(cut(&s, products_floats(s.n), s.tiles * (s.tiles + 1) / 2,
                reinterpret_cast<const void *>(dot_forward_kernel<true, X, R>), &bytes));
  if (bytes > 0)
    CU_LAUNCH((dot_forward_kernel<true, X, R>), blocks_of(&s), TRS_DOT_THREADS, bytes, TrsCudaStream(stream),
              s, x, to, out->stride);
  else if constexpr (X::in_matrix)
    CU_LAUNCH((dot_forward_kernel<false, X, R>), blocks_of(&s), TRS_DOT_THREADS, 0, TrsCudaStream(stream), s,
              x, to, out->stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDotForwardCuda(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                 TrsMatrix x, TrsMatrix out)
{
  Dot s = dot_of(batch, n, D, copied, n_zeros);

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(x.type == TRS_FP32 || out.type == x.type, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "products of %s as %s", TrsDTypeName(x.type), TrsDTypeName(out.type));
  if (!has_fours(x)) s.aligned = 0;
  if (x.type == TRS_BF16)
    PetscCall(dot_forward<Bf16>(stream, s, rows_of<Bf16>(x, D), &out));
  else if (out.type == TRS_BF16)
    PetscCall(dot_forward<Bf16>(stream, s, rows_of<float>(x, D), &out));
  else
    PetscCall(dot_forward<float>(stream, s, rows_of<float>(x, D), &out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <class R, class X>
static PetscErrorCode dot_backward(TrsStream stream, Dot s, const X &x, const TrsMatrix *dout, const X &dx)
{
  const R *const from = static_cast<const R *>(dout->data);
  size_t bytes;

  PetscFunctionBegin;
  if constexpr (std::is_same_v<X, typename X::template Of<Bf16>>) {
    if (TrsDotTakesTensorCores(x, s.n, s.D) && TrsDotTakesTensorCores(dx, s.n, s.D)) {
      PetscCall(TrsDotTensorBackward(stream, s.batch, s.n, s.D, s.copied, x, *dout, dx));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  PetscCall(cut(&s, square_floats(s.n), s.tiles * ((s.D + 3) / 4),
                reinterpret_cast<const void *>(dot_backward_kernel<true, X, R>), &bytes));
  if (bytes > 0)
    CU_LAUNCH((dot_backward_kernel<true, X, R>), blocks_of(&s), TRS_DOT_THREADS, bytes, TrsCudaStream(stream),
              s, x, from, dout->stride, dx);
  else if constexpr (X::in_matrix)
    CU_LAUNCH((dot_backward_kernel<false, X, R>), blocks_of(&s), TRS_DOT_THREADS, 0, TrsCudaStream(stream), s,
              x, from, dout->stride, dx);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDotBackwardCuda(TrsStream stream, int64_t batch, int n, int D, int copied, TrsMatrix x,
                                  TrsMatrix dout, TrsMatrix dx)
{
  Dot s = dot_of(batch, n, D, copied, 0);

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(x.type == dx.type && (x.type == TRS_FP32 || dout.type == x.type), PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "gradients of %s and %s of products of %s", TrsDTypeName(dout.type),
             TrsDTypeName(dx.type), TrsDTypeName(x.type));
  if (!has_fours(x) || !has_fours(dx)) s.aligned = 0;
  if (x.type == TRS_BF16)
    PetscCall(dot_backward<Bf16>(stream, s, rows_of<Bf16>(x, D), &dout, rows_of<Bf16>(dx, D)));
  else if (dout.type == TRS_BF16)
    PetscCall(dot_backward<Bf16>(stream, s, rows_of<float>(x, D), &dout, rows_of<float>(dx, D)));
  else
    PetscCall(dot_backward<float>(stream, s, rows_of<float>(x, D), &dout, rows_of<float>(dx, D)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if a sample fits in the shared memory that every GPU has, which is required of vectors at any
  addresses.
*/
PetscBool TrsDotTakesPlacesCuda(int n, int D)
{
  const int64_t floats = static_cast<int64_t>(n) * pitch_of(D) +
                         PetscMax(products_floats(n), square_floats(n));

  return (n <= TRS_DOT_PLACES && floats * static_cast<int64_t>(sizeof(float)) <= TRS_DOT_SHARED_BYTES)
             ? PETSC_TRUE
             : PETSC_FALSE;
}

PetscErrorCode TrsDotPlacesForwardCuda(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                       TrsDType type, const TrsVectorPlace *x, TrsMatrix out)
{
  Dot s = dot_of(batch, n, D, copied, n_zeros);

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck((type == TRS_FP32 || out.type == type) && TrsDotTakesPlacesCuda(n, D), PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "products of %d vectors of %d %s as %s", n, D, TrsDTypeName(type),
             TrsDTypeName(out.type));
  if (!have_fours(type, n, x)) s.aligned = 0;
  if (type == TRS_BF16)
    PetscCall(dot_forward<Bf16>(stream, s, places_of<Bf16>(n, x), &out));
  else if (out.type == TRS_BF16)
    PetscCall(dot_forward<Bf16>(stream, s, places_of<float>(n, x), &out));
  else
    PetscCall(dot_forward<float>(stream, s, places_of<float>(n, x), &out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDotPlacesBackwardCuda(TrsStream stream, int64_t batch, int n, int D, int copied,
                                        TrsDType type, const TrsVectorPlace *x, TrsMatrix dout,
                                        const TrsVectorPlace *dx)
{
  Dot s = dot_of(batch, n, D, copied, 0);

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck((type == TRS_FP32 || dout.type == type) && TrsDotTakesPlacesCuda(n, D), PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "gradients of %s of products of %d vectors of %d %s", TrsDTypeName(dout.type),
             n, D, TrsDTypeName(type));
  if (!have_fours(type, n, x) || !have_fours(type, n, dx)) s.aligned = 0;
  if (type == TRS_BF16)
    PetscCall(dot_backward<Bf16>(stream, s, places_of<Bf16>(n, x), &dout, places_of<Bf16>(n, dx)));
  else if (dout.type == TRS_BF16)
    PetscCall(dot_backward<Bf16>(stream, s, places_of<float>(n, x), &dout, places_of<float>(n, dx)));
  else
    PetscCall(dot_backward<float>(stream, s, places_of<float>(n, x), &dout, places_of<float>(n, dx)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  --- factorization machine: one warp per sample; each lane sums its columns, then all lanes' sums
  are added ---
*/

static __global__ void __launch_bounds__(TRS_DOT_THREADS)
    fm_forward_kernel(int64_t batch, TrsFm s, float *out, int64_t out_stride)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;

  for (int64_t b = TrsCudaFirst() >> 5; b < batch; b += TrsCudaStep() >> 5) {
    const float *const x = s.x + b * s.x_stride;
    float *const to = out + b * out_stride;
    float sum = 0.0f, squares = 0.0f;

    for (int64_t d = lane; d < s.n; d += 32) {
      sum += x[d];
      squares += x[d] * x[d];
      if (d < s.copied) to[d] = x[d];
    }
    sum = group_sum(sum, 32, group_mask(32));
    squares = group_sum(squares, 32, group_mask(32));
    if (lane == 0) to[s.at] = 0.5f * (sum * sum - squares);
    for (int k = lane; k < s.n_zeros; k += 32) to[s.at + 1 + k] = 0.0f;
  }
}

static __global__ void __launch_bounds__(TRS_DOT_THREADS)
    fm_backward_kernel(int64_t batch, TrsFm s, bool add, const float *dout, int64_t dout_stride, float *dx,
                       int64_t dx_stride)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;

  for (int64_t b = TrsCudaFirst() >> 5; b < batch; b += TrsCudaStep() >> 5) {
    const float *const x = s.x + b * s.x_stride, *const g = dout + b * dout_stride;
    float *const to = dx + b * dx_stride;
    float sum = 0.0f;

    for (int64_t d = lane; d < s.n; d += 32) sum += x[d];
    sum = group_sum(sum, 32, group_mask(32));
    for (int64_t d = lane; d < s.n; d += 32) {
      const float before = add ? to[d] : 0.0f, own = g[s.at] * (sum - x[d]);

      to[d] = before + own + (d < s.copied ? g[d] : 0.0f);
    }
  }
}

PetscErrorCode TrsFmForwardCuda(TrsStream stream, int64_t batch, const TrsFm *fm, float *out,
                                int64_t out_stride)
{
  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(fm_forward_kernel, TrsCudaBlocks(batch * 32, TRS_DOT_THREADS), TRS_DOT_THREADS, 0,
            TrsCudaStream(stream), batch, *fm, out, out_stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFmBackwardCuda(TrsStream stream, int64_t batch, const TrsFm *fm, PetscBool add,
                                 const float *dout, int64_t dout_stride, float *dx, int64_t dx_stride)
{
  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(fm_backward_kernel, TrsCudaBlocks(batch * 32, TRS_DOT_THREADS), TRS_DOT_THREADS, 0,
            TrsCudaStream(stream), batch, *fm, static_cast<bool>(add), dout, dout_stride, dx, dx_stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  --- a product of two small matrices of each sample: each thread computes one element of the result
  ---
*/

static __global__ void __launch_bounds__(TRS_DOT_THREADS)
    sample_gemm_kernel(int64_t batch, TrsMatrixProduct p)
{
  /* distance between rows and between columns, in floats */
  const int64_t a_row = p.trans_a ? 1 : p.k, a_col = p.trans_a ? p.m : 1;
  const int64_t b_row = p.trans_b ? 1 : p.n, b_col = p.trans_b ? p.k : 1;

  for (int64_t e = TrsCudaFirst(); e < batch * p.m * p.n; e += TrsCudaStep()) {
    const int64_t s = e / (p.m * p.n), i = e / p.n % p.m, j = e % p.n;
    const float *const a = static_cast<const float *>(p.a.data) + s * p.a.stride + i * a_row;
    const float *const b = static_cast<const float *>(p.b.data) + s * p.b.stride + j * b_col;
    float sum = 0.0f;

    for (int64_t l = 0; l < p.k; l++) sum += a[l * a_col] * b[l * b_row];
    static_cast<float *>(p.c.data)[s * p.c.stride + i * p.n + j] = sum;
  }
}

PetscErrorCode TrsSampleGemmCuda(TrsStream stream, int64_t batch, const TrsMatrixProduct *product)
{
  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(sample_gemm_kernel, TrsCudaBlocks(batch * product->m * product->n, TRS_DOT_THREADS),
            TRS_DOT_THREADS, 0, TrsCudaStream(stream), batch, *product);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
