/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The vectors of the dot interaction (interact_cuda.cu), and its kernels on tensor cores
  (dot_tensor_cuda.cu).
*/
#pragma once

#include "gpu/wide_cuda.h"

enum {
  /* largest number of vectors at any addresses: a kernel's arguments have 4 KiB */
  TRS_DOT_PLACES = 96
};

/* The vectors lie in a matrix [batch, n * D] of type T. */
template <class T> struct Rows {
  template <class S> using Of = Rows<S>;
  static constexpr bool in_matrix = true;
  T *data;
  int64_t stride;
  int D;

  __device__ __forceinline__ T *at(int64_t b, int i) const
  {
    return data + b * stride + static_cast<int64_t>(i) * D;
  }
};

/* The vectors lie at any addresses. */
template <class T> struct Places {
  template <class S> using Of = Places<S>;
  static constexpr bool in_matrix = false;
  T *data[TRS_DOT_PLACES];
  int64_t stride[TRS_DOT_PLACES];

  __device__ __forceinline__ T *at(int64_t b, int i) const
  {
    return data[i] + b * stride[i];
  }
};

/* The index of the dot product of x_i and x_j, i < j. The upper triangle is stored row by row. */
static __device__ __forceinline__ int pair_at(int n, int i, int j)
{
  return i * (n - 1) - i * (i - 1) / 2 + (j - i - 1);
}

/*
  TrsDotTakesTensorCores - True if the kernels on tensor cores take n vectors of D numbers at these
  addresses: at most 32 vectors of at most 256 numbers, a multiple of 16, aligned to 16 bytes.
*/
bool TrsDotTakesTensorCores(const Rows<Bf16> &x, int n, int D);
bool TrsDotTakesTensorCores(const Places<Bf16> &x, int n, int D);

/*
  TrsDotTensorForward - The dot interaction of vectors that TrsDotTakesTensorCores() accepts.
  Arguments as for TrsDotForwardCuda(); out is bf16.

  Not collective; enqueued on the stream.
*/
template <class X>
PetscErrorCode TrsDotTensorForward(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                   const X &x, TrsMatrix out);

/*
  TrsDotTensorBackward - Its backward. A gradient may overwrite its vector.

  Not collective; enqueued on the stream.
*/
template <class X>
PetscErrorCode TrsDotTensorBackward(TrsStream stream, int64_t batch, int n, int D, int copied, const X &x,
                                    TrsMatrix dout, const X &dx);
