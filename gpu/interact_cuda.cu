/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The dot interaction on the GPU: one block a sample. Its vectors are read from memory once, into shared memory where they fit, and every product and every
  element of the gradient is one thread's sum, in a fixed order.
*/
#include "gpu/dense_cuda.h"

enum { TRS_DOT_THREADS = 128, TRS_DOT_SHARED_BYTES = 48 << 10 /* every GPU has so much without asking */ };

/* Place of x_i . x_j, i < j, row by row of the upper triangle. */
static __device__ __forceinline__ int pair_at(int n, int i, int j)
{
  return i * (n - 1) - i * (i - 1) / 2 + (j - i - 1);
}

/* A vector's elements lie `pitch` apart from the next one's: odd, so that threads of a warp use different banks. */
static __device__ __forceinline__ int pitch_of(int D)
{
  return D | 1;
}

static __device__ __forceinline__ const float *stage(int n, int D, const float *x, float *shared)
{
  for (int i = static_cast<int>(threadIdx.x); i < n * D; i += TRS_DOT_THREADS)
    shared[i / D * pitch_of(D) + i % D] = x[i];
  __syncthreads();
  return shared;
}

/* Reads n * D and writes the products once a sample. Products are dealt to threads in the order of their places. */
static __global__ void __launch_bounds__(TRS_DOT_THREADS)
    dot_forward_kernel(int64_t batch, int n, int D, int copied, const float *x, int64_t x_stride, float *out,
                       int64_t out_stride, int in_shared)
{
  CU_DYN_SHARED(float, shared);

  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    const float *own = x + b * x_stride;
    const float *v = in_shared ? stage(n, D, own, shared) : own;
    const int pitch = in_shared ? pitch_of(D) : D;
    float *to = out + b * out_stride;
    int i = 0, row_end = n - 1; /* of the products of row i */

    for (int c = static_cast<int>(threadIdx.x); c < copied; c += TRS_DOT_THREADS) to[c] = v[c];
    for (int k = static_cast<int>(threadIdx.x); k < n * (n - 1) / 2; k += TRS_DOT_THREADS) {
      float sum = 0.0f;

      while (k >= row_end) row_end += n - 1 - ++i;
      const float *left = v + i * pitch, *right = v + (n - (row_end - k)) * pitch;
      for (int d = 0; d < D; d++) sum += left[d] * right[d];
      to[copied + k] = sum;
    }
    __syncthreads(); /* the next sample's vectors come to the same place */
  }
}

/* Reads x and dout, writes dx once a sample. */
static __global__ void __launch_bounds__(TRS_DOT_THREADS)
    dot_backward_kernel(int64_t batch, int n, int D, int copied, const float *x, int64_t x_stride,
                        const float *dout, int64_t dout_stride, float *dx, int64_t dx_stride, int in_shared)
{
  CU_DYN_SHARED(float, shared);

  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    const float *own = x + b * x_stride, *g = dout + b * dout_stride, *products = g + copied;
    const float *v = in_shared ? stage(n, D, own, shared) : own;
    const int pitch = in_shared ? pitch_of(D) : D;

    for (int k = static_cast<int>(threadIdx.x); k < n * D; k += TRS_DOT_THREADS) {
      const int i = k / D, d = k % D;
      float sum = 0.0f;

      for (int j = 0; j < i; j++) sum += products[pair_at(n, j, i)] * v[j * pitch + d];
      for (int j = i + 1; j < n; j++) sum += products[pair_at(n, i, j)] * v[j * pitch + d];
      dx[b * dx_stride + k] = k < copied ? sum + g[k] : sum;
    }
    __syncthreads();
  }
}

static int64_t staged_bytes(int n, int D)
{
  return static_cast<int64_t>(n) * (D | 1) * static_cast<int64_t>(sizeof(float));
}

/* A block a sample, up to what a grid can have. */
static dim3 blocks_of(int64_t batch)
{
  return dim3(static_cast<unsigned>(batch < (1 << 30) ? batch : 1 << 30));
}

PetscErrorCode TrsDotForwardCuda(TrsStream stream, int64_t batch, int n, int D, int copied, const float *x,
                                 int64_t x_stride, float *out, int64_t out_stride)
{
  const int in_shared = staged_bytes(n, D) <= TRS_DOT_SHARED_BYTES;

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(dot_forward_kernel, blocks_of(batch), TRS_DOT_THREADS,
            static_cast<size_t>(in_shared ? staged_bytes(n, D) : 0), TrsCudaStream(stream), batch, n, D,
            copied, x, x_stride, out, out_stride, in_shared);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDotBackwardCuda(TrsStream stream, int64_t batch, int n, int D, int copied, const float *x,
                                  int64_t x_stride, const float *dout, int64_t dout_stride, float *dx,
                                  int64_t dx_stride)
{
  const int in_shared = staged_bytes(n, D) <= TRS_DOT_SHARED_BYTES;

  PetscFunctionBegin;
  if (batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(dot_backward_kernel, blocks_of(batch), TRS_DOT_THREADS,
            static_cast<size_t>(in_shared ? staged_bytes(n, D) : 0), TrsCudaStream(stream), batch, n, D,
            copied, x, x_stride, dout, dout_stride, dx, dx_stride, in_shared);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
