/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The dot interaction of bf16 vectors on tensor cores. A warp works on a sample at a time. It copies
  the vectors to shared memory, as rows of a matrix with 16 or 32 rows, whose last rows are zeros.
  The forward multiplies this matrix by its transpose, and computes only tiles that reach the upper
  triangle. The backward multiplies the symmetric matrix of the products' gradients by the vectors;
  each gradient first overwrites its vector in shared memory, and then all are copied out. Sums are
  floats. Bytes moved: x and the result once, dout once.
*/
#include "gpu/compute_cuda.h"
#include "gpu/dot_cuda.h"
#include "gpu/tensor_cuda.h"

enum {
  TRS_TENSOR_WARPS = 4,
  TRS_TENSOR_VECTORS = 32,
  TRS_TENSOR_D = 256, /* so that 32 lanes load a vector, 16 bytes each */
  TRS_TENSOR_FLIGHT = 8,
  TRS_TENSOR_SHARED_BYTES = 48 << 10
};

/* Sizes of a call. */
struct TensorDot {
  int64_t batch;
  int n, D, copied, n_products, n_zeros;
  /*
    Distance of two vectors in shared memory. It has an odd number of 16 bytes, so that 8
    neighbouring vectors are in different banks.
  */
  int pitch;
  int each; /* numbers in shared memory for a warp: the vectors, and a row of the result */
  int wide; /* true if rows of the result are aligned to 16 bytes */
};

/*
  Copy groups of eight numbers between vectors in global and in shared memory. A lane has the same
  columns in each of its vectors. Several loads are in flight at a time. The whole warp must call
  these functions.
*/
template <class X>
static __device__ __forceinline__ void load_vectors(const TensorDot &s, const X &from, int64_t b, Bf16 *to)
{
  const int lane = static_cast<int>(threadIdx.x) & 31, lanes = s.D / 8, together = 32 / lanes,
            col = lane % lanes * 8;

  if (lane >= together * lanes) return;
  for (int i = lane / lanes; i < s.n; i += TRS_TENSOR_FLIGHT * together) {
    uint4 part[TRS_TENSOR_FLIGHT];

#pragma unroll
    for (int u = 0; u < TRS_TENSOR_FLIGHT; u++)
      if (i + u * together < s.n)
        part[u] = *reinterpret_cast<const uint4 *>(from.at(b, i + u * together) + col);
#pragma unroll
    for (int u = 0; u < TRS_TENSOR_FLIGHT; u++)
      if (i + u * together < s.n)
        *reinterpret_cast<uint4 *>(to + (i + u * together) * s.pitch + col) = part[u];
  }
}

template <class X>
static __device__ __forceinline__ void keep_vectors(const TensorDot &s, const Bf16 *from, int64_t b,
                                                    const X &to)
{
  const int lane = static_cast<int>(threadIdx.x) & 31, lanes = s.D / 8, together = 32 / lanes,
            col = lane % lanes * 8;

  if (lane >= together * lanes) return;
#pragma unroll 4
  for (int i = lane / lanes; i < s.n; i += together)
    __stcg(reinterpret_cast<uint4 *>(to.at(b, i) + col),
           *reinterpret_cast<const uint4 *>(from + i * s.pitch + col));
}

/* The warp's shared memory, with zeros in the rows after the last vector. */
template <int GROUPS> static __device__ __forceinline__ Bf16 *clear_rows(const TensorDot &s, Bf16 *shared)
{
  Bf16 *const own = shared + static_cast<int>(threadIdx.x) / 32 * s.each;

  for (int k = s.n * s.pitch + (static_cast<int>(threadIdx.x) & 31); k < 8 * GROUPS * s.pitch; k += 32)
    own[k].bits = 0;
  return own;
}

/* GROUPS is the number of groups of eight vectors, 2 or 4. */
template <int GROUPS, class X>
static __global__ void __launch_bounds__(32 * TRS_TENSOR_WARPS, 4)
    dot_tensor_forward_kernel(TensorDot s, X x, Bf16 *out, int64_t out_stride)
{
  CU_DYN_SHARED(Bf16, shared);
  const int lane = static_cast<int>(threadIdx.x) & 31, row = lane / 4, pair = lane % 4 * 2,
            total = s.copied + s.n_products + s.n_zeros;
  Bf16 *const v = clear_rows<GROUPS>(s, shared), *const result = v + 8 * GROUPS * s.pitch;

  for (int64_t b = TrsCudaFirst() >> 5; b < s.batch; b += TrsCudaStep() >> 5) {
    float sum[GROUPS / 2][GROUPS][4] = {};
    Bf16 *const to = out + b * out_stride;

    load_vectors(s, x, b, v);
    __syncwarp();
#pragma unroll 2
    for (int d = 0; d < s.D; d += 16) {
      unsigned word[GROUPS][2];

#pragma unroll
      for (int q = 0; q < GROUPS; q++)
        for (int h = 0; h < 2; h++)
          word[q][h] = *reinterpret_cast<const unsigned *>(v + (8 * q + row) * s.pitch + d + pair + 8 * h);
#pragma unroll
      for (int r = 0; r < GROUPS / 2; r++) {
        const unsigned a[4] = {word[2 * r][0], word[2 * r + 1][0], word[2 * r][1], word[2 * r + 1][1]};
#pragma unroll
        for (int q = 2 * r; q < GROUPS; q++) multiply_tile_bf16(a, word[q], sum[r][q]);
      }
    }
#pragma unroll
    for (int r = 0; r < GROUPS / 2; r++)
      for (int q = 2 * r; q < GROUPS; q++)
        for (int h = 0; h < 2; h++) {
          const int i = 16 * r + row + 8 * h, j = 8 * q + pair, at = s.copied + pair_at(s.n, i, j);
          unsigned both;

          narrow_numbers<2>(sum[r][q] + 2 * h, &both);
          if (i < j && j < s.n) result[at].bits = static_cast<uint16_t>(both);
          if (i <= j && j + 1 < s.n) result[at + 1].bits = static_cast<uint16_t>(both >> 16);
        }
    for (int c = lane; c < s.copied; c += 32) result[c] = v[c];
    for (int c = s.copied + s.n_products + lane; c < total; c += 32) result[c].bits = 0;
    __syncwarp();
    if (s.wide)
      for (int c = 8 * lane; c < total; c += 8 * 32)
        __stcg(reinterpret_cast<uint4 *>(to + c), *reinterpret_cast<const uint4 *>(result + c));
    else
      for (int c = lane; c < total; c += 32) to[c] = result[c];
    __syncwarp(); /* wait, because the next sample uses the same memory */
  }
}

/* The bits of the gradient of x_i's product with x_j: 0 if i = j, or if a vector does not exist. */
static __device__ __forceinline__ unsigned pair_bits(int n, const Bf16 *products, int i, int j)
{
  const int first = PetscMin(i, j), last = PetscMax(i, j);
  return i == j || last >= n ? 0u : products[pair_at(n, first, last)].bits;
}

template <int GROUPS, class X>
static __global__ void __launch_bounds__(32 * TRS_TENSOR_WARPS, 4)
    dot_tensor_backward_kernel(TensorDot s, X x, const Bf16 *dout, int64_t dout_stride, X dx)
{
  CU_DYN_SHARED(Bf16, shared);
  const int lane = static_cast<int>(threadIdx.x) & 31, row = lane / 4, pair = lane % 4 * 2,
            total = s.copied + s.n_products;
  Bf16 *const v = clear_rows<GROUPS>(s, shared), *const gradient = v + 8 * GROUPS * s.pitch;

  for (int64_t b = TrsCudaFirst() >> 5; b < s.batch; b += TrsCudaStep() >> 5) {
    const Bf16 *const from = dout + b * dout_stride;
    unsigned a[GROUPS / 2][GROUPS / 2][4];
    int done = 0;

    if (s.wide) {
      done = total / 8 * 8;
      for (int c = 8 * lane; c < done; c += 8 * 32)
        *reinterpret_cast<uint4 *>(gradient + c) = __ldg(reinterpret_cast<const uint4 *>(from + c));
    }
    for (int c = done + lane; c < total; c += 32) gradient[c] = from[c];
    load_vectors(s, x, b, v);
    __syncwarp();
#pragma unroll
    for (int r = 0; r < GROUPS / 2; r++)
      for (int k = 0; k < GROUPS / 2; k++)
        for (int w = 0; w < 4; w++) {
          const int i = 16 * r + row + w % 2 * 8, j = 16 * k + pair + w / 2 * 8;
          a[r][k][w] = pair_bits(s.n, gradient + s.copied, i, j) |
                       pair_bits(s.n, gradient + s.copied, i, j + 1) << 16;
        }
    for (int d = 0; d < s.D; d += 8) {
      float sum[GROUPS / 2][4] = {};
      unsigned word[GROUPS];

      load_transposed<GROUPS>(v + d + lane % (8 * GROUPS) * s.pitch, word);
#pragma unroll
      for (int r = 0; r < GROUPS / 2; r++)
        for (int k = 0; k < GROUPS / 2; k++) multiply_tile_bf16(a[r][k], word + 2 * k, sum[r]);
      __syncwarp(); /* all lanes have read these columns, which are overwritten now */
#pragma unroll
      for (int r = 0; r < GROUPS / 2; r++)
        for (int h = 0; h < 2; h++) {
          const int i = 16 * r + row + 8 * h, c = d + pair;
          float *const two = sum[r] + 2 * h;
          unsigned both;

          if (i >= s.n) continue;
          if (i == 0 && c < s.copied) two[0] += to_float(gradient[c]);
          if (i == 0 && c + 1 < s.copied) two[1] += to_float(gradient[c + 1]);
          narrow_numbers<2>(two, &both);
          *reinterpret_cast<unsigned *>(v + i * s.pitch + c) = both;
        }
    }
    __syncwarp();
    keep_vectors(s, v, b, dx);
    __syncwarp(); /* wait, because the next sample uses the same memory */
  }
}

static bool fits(int n, int D)
{
  return n <= TRS_TENSOR_VECTORS && D % 16 == 0 && D <= TRS_TENSOR_D;
}

static bool is_aligned(const Bf16 *data, int64_t stride)
{
  return stride % 8 == 0 && reinterpret_cast<uintptr_t>(data) % sizeof(uint4) == 0;
}

bool TrsDotTakesTensorCores(const Rows<Bf16> &x, int n, int D)
{
  return fits(n, D) && is_aligned(x.data, x.stride);
}

bool TrsDotTakesTensorCores(const Places<Bf16> &x, int n, int D)
{
  bool takes = fits(n, D);

  for (int i = 0; takes && i < n; i++) takes = is_aligned(x.data[i], x.stride[i]);
  return takes;
}

/* The sizes of a call, its thread blocks, threads and bytes of shared memory. */
static TensorDot sizes_of(int64_t batch, int n, int D, int copied, int n_zeros, TrsMatrix result, int groups,
                          dim3 *blocks, unsigned *threads, size_t *bytes)
{
  const int n_products = n * (n - 1) / 2, pitch = D + 8, total = copied + n_products + n_zeros,
            each = 8 * groups * pitch + (total + 7) / 8 * 8;
  const int64_t bytes_each = each * static_cast<int64_t>(sizeof(Bf16));
  const int warps = static_cast<int>(PetscMin(static_cast<int64_t>(TRS_TENSOR_WARPS),
                                              PetscMax(TRS_TENSOR_SHARED_BYTES / bytes_each, INT64_C(1))));

  *threads = static_cast<unsigned>(32 * warps);
  *blocks = TrsCudaBlocks(batch * 32, 32 * warps);
  *bytes = static_cast<size_t>(warps * bytes_each);
  return {batch,  n,          D,
          copied, n_products, n_zeros,
          pitch,  each,       is_aligned(static_cast<const Bf16 *>(result.data), result.stride)};
}

template <class X>
PetscErrorCode TrsDotTensorForward(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                   const X &x, TrsMatrix out)
{
  const int groups = n <= 16 ? 2 : 4;
  Bf16 *const to = static_cast<Bf16 *>(out.data);
  unsigned threads;
  size_t bytes;
  dim3 blocks;
  TensorDot s = sizes_of(batch, n, D, copied, n_zeros, out, groups, &blocks, &threads, &bytes);

  PetscFunctionBegin;
  s.wide = s.wide && (copied + s.n_products + n_zeros) % 8 == 0;
  if (groups == 2)
    CU_LAUNCH((dot_tensor_forward_kernel<2, X>), blocks, threads, bytes, TrsCudaStream(stream), s, x, to,
              out.stride);
  else
    CU_LAUNCH((dot_tensor_forward_kernel<4, X>), blocks, threads, bytes, TrsCudaStream(stream), s, x, to,
              out.stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <class X>
PetscErrorCode TrsDotTensorBackward(TrsStream stream, int64_t batch, int n, int D, int copied, const X &x,
                                    TrsMatrix dout, const X &dx)
{
  const int groups = n <= 16 ? 2 : 4;
  const Bf16 *const from = static_cast<const Bf16 *>(dout.data);
  unsigned threads;
  size_t bytes;
  dim3 blocks;
  const TensorDot s = sizes_of(batch, n, D, copied, 0, dout, groups, &blocks, &threads, &bytes);

  PetscFunctionBegin;
  if (groups == 2)
    CU_LAUNCH((dot_tensor_backward_kernel<2, X>), blocks, threads, bytes, TrsCudaStream(stream), s, x, from,
              dout.stride, dx);
  else
    CU_LAUNCH((dot_tensor_backward_kernel<4, X>), blocks, threads, bytes, TrsCudaStream(stream), s, x, from,
              dout.stride, dx);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define INSTANTIATE(X) \
  template PetscErrorCode TrsDotTensorForward(TrsStream, int64_t, int, int, int, int, const X &, TrsMatrix); \
  template PetscErrorCode TrsDotTensorBackward(TrsStream, int64_t, int, int, int, const X &, TrsMatrix, \
                                               const X &);
INSTANTIATE(Rows<Bf16>)
INSTANTIATE(Places<Bf16>)
