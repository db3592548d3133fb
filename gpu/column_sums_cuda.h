/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Column sums over samples. The rows are cut into runs. Each thread block adds the rows of one run,
  and the last thread block to finish adds the sums of the runs. Both orders of addition depend only
  on the shape. Internal to gpu/.
*/
#pragma once

#include "gpu/compute_cuda.h"
#include "gpu/device/device_cuda.h"

enum {
  TRS_DENSE_THREADS = 256,
  /* columns of a thread block: one warp reads 32 adjacent columns of a row */
  TRS_SUM_COLUMNS = 32,
  TRS_SUM_LANES = 8,       /* rows that a thread block reads at a time */
  TRS_SUM_MOST_RUNS = 128, /* largest number of runs, whose sums the last thread block adds */
  TRS_SUM_LEAST_ROWS = 64
};

/* Add the partial sums of the lanes in order. Lane 0 gets the result. */
template <class T> static __device__ __forceinline__ T add_lanes(T sum, T part[][TRS_SUM_COLUMNS + 1])
{
  __syncthreads(); /* wait until all threads have read part */
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (int lane = 1; threadIdx.y == 0 && lane < TRS_SUM_LANES; lane++) sum = sum + part[lane][threadIdx.x];
  return sum;
}

/*
  Returns true in the last of n thread blocks to arrive. All threads must call it. counter must be 0
  before the launch, and the last thread block sets it to 0 again. The last thread block may then
  use __ldcg to read the data that the other thread blocks wrote.
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
  Sum a thread's elements of column c in order: rows first, first + TRS_SUM_LANES and so on, below
  end. visit.load() reads an element's numbers; visit.use() stores its results and returns the
  summand. Visit::ROWS rows are read before the first of them is stored, because the compiler must
  not move a load before a store.
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
  Thread block (x, y) handles columns 32 x to 32 x + 31, in units of T, and the rows of run y. It
  visits every element once. The shapes are sums [runs, cols] and to [cols].
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

/* The unit of cols is Visit::Type. */
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
