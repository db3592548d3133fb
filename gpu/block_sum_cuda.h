/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sums in double over all threads of a launch. The order of additions depends only on the launch's
  grid.
*/
#pragma once

#include "gpu/column_sums_cuda.h"

/*
  Sum a thread block's values in double, in a fixed order. Thread 0 gets the sum. part: shared
  memory with one double per thread.
*/
static __device__ __forceinline__ double block_sum(double value, double *part)
{
  const unsigned thread = threadIdx.x;

  __syncthreads(); /* wait until all threads have read part */
  part[thread] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (thread < half) part[thread] += part[thread + half];
    __syncthreads();
  }
  return part[0];
}

/*
  Sum N numbers of every thread over all thread blocks, which must have at most TRS_DENSE_THREADS
  threads. Each thread block adds its own numbers; the last thread block to arrive adds the blocks'
  sums. All threads must call it. Returns true in the thread that has the sums. If there are several
  thread blocks, sums [blocks, N] and counter are used.
*/
template <int N>
static __device__ __forceinline__ bool sum_of_blocks(double (&sum)[N], double *sums, unsigned *counter)
{
  __shared__ double part[TRS_DENSE_THREADS];

  for (int k = 0; k < N; k++) {
    sum[k] = block_sum(sum[k], part);
    if (gridDim.x > 1 && threadIdx.x == 0) sums[N * blockIdx.x + k] = sum[k];
  }
  if (gridDim.x == 1) return threadIdx.x == 0;
  if (!is_last(counter, gridDim.x)) return false;
  for (int k = 0; k < N; k++) {
    double of_blocks = 0.0;

    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) of_blocks += __ldcg(&sums[N * i + k]);
    sum[k] = block_sum(of_blocks, part);
  }
  return threadIdx.x == 0;
}
