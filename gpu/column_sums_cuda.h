/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sums of columns over samples: a thread block adds a run of rows, and the last thread block to
  finish adds the runs. Both orders depend only on the shape. Internal to gpu/.
*/
#pragma once

#include "gpu/compute_cuda.h"
#include "gpu/device/device_cuda.h"

enum {
  TRS_DENSE_THREADS = 256,
  TRS_SUM_COLUMNS = 32,    /* columns of a thread block: a warp reads a line of memory */
  TRS_SUM_LANES = 8,       /* rows that a thread block reads at a time */
  TRS_SUM_MOST_RUNS = 128, /* most runs of rows, whose sums the last thread block adds */
  TRS_SUM_LEAST_ROWS = 64
};

/* Add the lanes' sums, in order. Lane 0 gets the result. */
template <class T> static __device__ __forceinline__ T add_lanes(T sum, T part[][TRS_SUM_COLUMNS + 1])
{
  __syncthreads(); /* all threads that read part are done */
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (int lane = 1; threadIdx.y == 0 && lane < TRS_SUM_LANES; lane++) sum = sum + part[lane][threadIdx.x];
  return sum;
}

/*
  Returns true in the last of n thread blocks to arrive. All threads must call it. counter must be 0
  before, and is 0 again after the last thread block. That block may then read (__ldcg) the data
  that the others wrote.
*/
static __device__ __forceinline__ bool is_last(unsigned *counter, unsigned n)
{
  __shared__ bool last;

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    last = atomicAdd(counter, 1u) == n - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  return last;
}

/*
  Sum a thread's elements of column c: rows first, first + TRS_SUM_LANES, ... below end, in order.
  visit.load() reads an element's numbers; visit.use() stores its results and returns the summand.
  Visit::ROWS rows are read before the first of them is stored, because the compiler may not move a
  load before a store.
*/
template <class Visit>
static __device__ __forceinline__ typename Visit::Type sum_of_rows(const Visit &visit, int64_t first,
                                                                   int64_t end, int64_t c)
{
  typename Visit::Type sum = {};
  int64_t r = first;

  for (; r + (Visit::ROWS - 1) * TRS_SUM_LANES < end; r += Visit::ROWS * TRS_SUM_LANES) {
    typename Visit::Loaded loaded[Visit::ROWS];

#pragma unroll
    for (int k = 0; k < Visit::ROWS; k++) loaded[k] = visit.load(r + k * TRS_SUM_LANES, c);
#pragma unroll
    for (int k = 0; k < Visit::ROWS; k++) sum = sum + visit.use(r + k * TRS_SUM_LANES, c, loaded[k]);
  }
  for (; r < end; r += TRS_SUM_LANES) sum = sum + visit.use(r, c, visit.load(r, c));
  return sum;
}

/*
  Thread block (x, y) has columns 32 x .., in units of T, and the rows of run y. Visits every
  element once. sums [runs, cols], to [cols].
*/
template <class Visit>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    visit_kernel(int64_t rows, int64_t cols, int64_t rows_a_run, Visit visit, typename Visit::Type *sums,
                 unsigned *counters, typename Visit::Type *to)
{
  typedef typename Visit::Type T;
  __shared__ T part[TRS_SUM_LANES][TRS_SUM_COLUMNS + 1];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * TRS_SUM_COLUMNS + threadIdx.x;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * rows_a_run;
  const int64_t end = first + rows_a_run < rows ? first + rows_a_run : rows;
  const bool writes = threadIdx.y == 0 && c < cols;
  T sum = {};

  if (c < cols) sum = sum_of_rows(visit, first + threadIdx.y, end, c);
  sum = add_lanes(sum, part);
  if (gridDim.y > 1) {
    if (writes) sums[static_cast<int64_t>(blockIdx.y) * cols + c] = sum;
    if (!is_last(&counters[blockIdx.x], gridDim.y)) return;
    sum = {};
    for (unsigned run = threadIdx.y; c < cols && run < gridDim.y; run += TRS_SUM_LANES)
      sum = sum + __ldcg(&sums[run * cols + c]);
    sum = add_lanes(sum, part);
  }
  if (writes) to[c] = sum;
}

/* cols is in units of Visit::Type. */
template <class Visit>
static PetscErrorCode visit_and_sum(TrsStream stream, int64_t rows, int64_t cols, Visit visit, float *to)
{
  typedef typename Visit::Type T;
  const int64_t wanted = PetscMax((rows + TRS_SUM_LEAST_ROWS - 1) / TRS_SUM_LEAST_ROWS,
                                  static_cast<int64_t>(1));
  const int64_t n_runs = PetscMin(wanted, static_cast<int64_t>(TRS_SUM_MOST_RUNS));
  const int64_t blocks = (cols + TRS_SUM_COLUMNS - 1) / TRS_SUM_COLUMNS;
  unsigned *counters = NULL;
  void *sums = NULL;

  PetscFunctionBegin;
  if (cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (n_runs > 1) {
    PetscCall(TrsCudaStreamScratch(stream, n_runs * cols * (int64_t)sizeof(T), &sums));
    PetscCall(TrsCudaStreamCounters(stream, blocks, &counters));
  }
  CU_LAUNCH((visit_kernel<Visit>), dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(n_runs)),
            dim3(TRS_SUM_COLUMNS, TRS_SUM_LANES), 0, TrsCudaStream(stream), rows, cols,
            (rows + n_runs - 1) / n_runs, visit, static_cast<T *>(sums), counters, reinterpret_cast<T *>(to));
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
