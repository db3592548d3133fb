/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Linear layers with one unit on the GPU. loss_cuda.cu has the forward that also computes a loss.
*/
#include "gpu/column_sums_cuda.h"
#include "gpu/compute_cuda.h"
#include "gpu/device/device_cuda.h"
#include "gpu/one_unit_cuda.h"

static bool is_aligned(const void *address, int64_t stride)
{
  return reinterpret_cast<uintptr_t>(address) % 16 == 0 && stride % TRS_UNIT_COLUMNS == 0;
}

bool TrsUnitTakes(const TrsLinear *l)
{
  return l->masks && l->out == 1 && l->activation == TRS_ACTIVATION_NONE && l->x.type == TRS_BF16 &&
         l->weight.type == TRS_BF16 && l->y.type == TRS_FP32 && l->in % TRS_UNIT_COLUMNS == 0 && l->in > 0 &&
         is_aligned(l->x.data, l->x.stride) && is_aligned(l->weight.data, 0);
}

/* A thread block computes TRS_UNIT_SAMPLES samples. Reads x once. */
static __global__ void __launch_bounds__(TRS_UNIT_THREADS)
    unit_forward_kernel(UnitLayer layer, float *y, int64_t y_stride)
{
  const int64_t first = static_cast<int64_t>(blockIdx.x) * TRS_UNIT_SAMPLES +
                        threadIdx.x / 32 * TRS_UNIT_ROWS;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const float z = unit_rows(layer, first);

  if (lane < TRS_UNIT_ROWS && first + lane < layer.rows) y[(first + lane) * y_stride] = z;
}

PetscErrorCode TrsUnitForwardCuda(TrsStream stream, const TrsLinear *l)
{
  const int64_t blocks = (l->batch + TRS_UNIT_SAMPLES - 1) / TRS_UNIT_SAMPLES;

  PetscFunctionBegin;
  if (l->batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(unit_forward_kernel, static_cast<unsigned>(blocks), TRS_UNIT_THREADS, 0, TrsCudaStream(stream),
            unit_of(l), static_cast<float *>(l->y.data), l->y.stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- backward --- */

enum {
  TRS_UNIT_RUN = 64,        /* smallest number of rows of a thread block */
  TRS_UNIT_MOST_RUNS = 256, /* largest number of runs, whose sums the last thread block adds */
  TRS_UNIT_BATCH = 4,       /* rows that a warp reads before it stores the first */
  TRS_UNIT_ALL = 32 * TRS_UNIT_COLUMNS
};

struct UnitGradients {
  const float *dy;
  int64_t dy_stride;
  Bf16 *dx; /* NULL: not computed */
  int64_t dx_stride;
  const uint8_t *mask; /* NULL: there is none */
  int64_t mask_bytes;  /* from row to row */
  float *weight, *bias;
};

/* A number rounded to bf16, as products round their operands. */
static __device__ __forceinline__ float rounded(float x)
{
  Bf16 narrow;

  from_float(x, &narrow);
  return to_float(narrow);
}

/* The sums of a lane: of its columns of dW, and of db, which is the same in all lanes of a warp. */
struct UnitSums {
  float dw[TRS_UNIT_COLUMNS], db;
};

/* Add rows first, first + TRS_UNIT_WARPS and so on, below end, and store their dx. */
static __device__ __forceinline__ void unit_sums(const UnitLayer &l, const UnitGradients &g, int64_t first,
                                                 int64_t end, int64_t c, UnitSums *sums)
{
  float w[TRS_UNIT_COLUMNS];

  load_eight(l.w + c, w);
  for (int64_t r0 = first; r0 < end; r0 += TRS_UNIT_BATCH * TRS_UNIT_WARPS) {
    float x[TRS_UNIT_BATCH][TRS_UNIT_COLUMNS], dy[TRS_UNIT_BATCH];
    unsigned bits[TRS_UNIT_BATCH];

#pragma unroll
    for (int k = 0; k < TRS_UNIT_BATCH; k++) {
      const int64_t r = r0 + k * TRS_UNIT_WARPS < end ? r0 + k * TRS_UNIT_WARPS : r0;

      dy[k] = g.dy[r * g.dy_stride];
      load_eight(l.x + r * l.stride + c, x[k]);
      bits[k] = g.mask ? g.mask[r * g.mask_bytes + c / 8] : 0xffu;
    }
#pragma unroll
    for (int k = 0; k < TRS_UNIT_BATCH; k++) {
      const int64_t r = r0 + k * TRS_UNIT_WARPS;
      const float d = rounded(dy[k]);
      float dx[TRS_UNIT_COLUMNS];

      if (r >= end) break;
      sums->db += dy[k];
#pragma unroll
      for (int j = 0; j < TRS_UNIT_COLUMNS; j++) {
        sums->dw[j] += d * x[k][j];
        dx[j] = bits[k] >> j & 1 ? d * w[j] : 0.0f;
      }
      if (g.dx) keep_eight(g.dx + r * g.dx_stride + c, dx);
    }
  }
}

/*
  Add the sums of the thread block's warps in order. Then thread t has column t's sum of dW in
  *dw, and thread 0 the sum of db in *db.
*/
static __device__ __forceinline__ void add_warps(const UnitSums &of, float (*part)[TRS_UNIT_ALL + 1],
                                                 float *dw, float *db)
{
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31;

  __syncthreads(); /* wait until all threads have read part */
#pragma unroll
  for (int j = 0; j < TRS_UNIT_COLUMNS; j++) part[warp][32 * j + lane] = of.dw[j];
  if (lane == 0) part[warp][TRS_UNIT_ALL] = of.db;
  __syncthreads();
  *dw = *db = 0.0f;
  for (int k = 0; k < TRS_UNIT_WARPS; k++) {
    *dw += part[k][threadIdx.x];
    if (threadIdx.x == 0) *db += part[k][TRS_UNIT_ALL];
  }
}

/*
  Thread block (x, y) handles columns 256 x to 256 x + 255 and the rows of run y. A lane handles
  eight neighbouring columns. Thread t adds up the column that is number t / 32 of lane t % 32, so
  that neighbouring threads use neighbouring words of shared memory. Reads x and writes dx once. dx
  may be x, because a thread reads its numbers before it writes them. sums [runs, blocks, 257]: the
  last thread block of a column block adds the runs' sums, in an order that depends only on the
  shape.
*/
static __global__ void __launch_bounds__(TRS_UNIT_THREADS)
    unit_backward_kernel(UnitLayer l, UnitGradients g, int64_t rows_a_run, float *sums, unsigned *counters)
{
  __shared__ float part[TRS_UNIT_WARPS][TRS_UNIT_ALL + 1];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread & 31;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * TRS_UNIT_ALL;
  const int64_t c = begin + TRS_UNIT_COLUMNS * lane, own = begin + TRS_UNIT_COLUMNS * lane + warp;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * rows_a_run;
  const int64_t end = first + rows_a_run < l.rows ? first + rows_a_run : l.rows;
  const int64_t of_run = static_cast<int64_t>(gridDim.x) * (TRS_UNIT_ALL + 1);
  UnitSums sum = {};
  float dw, db;

  if (c < l.in) unit_sums(l, g, first + warp, end, c, &sum);
  add_warps(sum, part, &dw, &db);
  if (gridDim.y > 1) {
    float *const of_block = sums + blockIdx.x * (TRS_UNIT_ALL + 1);

    of_block[blockIdx.y * of_run + thread] = dw;
    if (thread == 0) of_block[blockIdx.y * of_run + TRS_UNIT_ALL] = db;
    if (!is_last(&counters[blockIdx.x], gridDim.y)) return;
    sum = {};
    for (unsigned run = static_cast<unsigned>(warp); run < gridDim.y; run += TRS_UNIT_WARPS) {
#pragma unroll
      for (int j = 0; j < TRS_UNIT_COLUMNS; j++) sum.dw[j] += __ldcg(&of_block[run * of_run + 32 * j + lane]);
      sum.db += __ldcg(&of_block[run * of_run + TRS_UNIT_ALL]);
    }
    add_warps(sum, part, &dw, &db);
  }
  if (own < l.in) g.weight[own] = dw;
  if (blockIdx.x == 0 && thread == 0) *g.bias = db;
}

PetscErrorCode TrsUnitBackwardCuda(TrsStream stream, const TrsLinear *l, const TrsLinearGradients *gradients,
                                   bool *done)
{
  const TrsMatrix dy = gradients->dy, dx = gradients->dx;
  const UnitGradients g = {static_cast<const float *>(dy.data),
                           dy.stride,
                           static_cast<Bf16 *>(dx.data),
                           dx.stride,
                           static_cast<const uint8_t *>(l->masks->x.data),
                           l->masks->x.row_bytes,
                           gradients->grad_weight,
                           gradients->grad_bias};
  const int64_t wanted = (l->batch + TRS_UNIT_RUN - 1) / TRS_UNIT_RUN,
                n_runs = PetscMax(PetscMin(wanted, static_cast<int64_t>(TRS_UNIT_MOST_RUNS)), 1),
                blocks = (l->in + TRS_UNIT_ALL - 1) / TRS_UNIT_ALL;
  unsigned *counters = NULL;
  void *sums = NULL;

  PetscFunctionBegin;
  *done = dy.type == TRS_FP32 && (!dx.data || (dx.type == TRS_BF16 && is_aligned(dx.data, dx.stride)));
  if (!*done) PetscFunctionReturn(PETSC_SUCCESS);
  if (n_runs > 1) {
    PetscCall(
        TrsCudaStreamScratch(stream, n_runs * blocks * (TRS_UNIT_ALL + 1) * (int64_t)sizeof(float), &sums));
    PetscCall(TrsCudaStreamCounters(stream, blocks, &counters));
  }
  CU_LAUNCH(unit_backward_kernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(n_runs)),
            TRS_UNIT_THREADS, 0, TrsCudaStream(stream), unit_of(l), g, (l->batch + n_runs - 1) / n_runs,
            static_cast<float *>(sums), counters);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
