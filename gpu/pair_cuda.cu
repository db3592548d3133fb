/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The softmax of pairs on the GPU, twin of src/cpu/pair_softmax.c within the rounding of sums. A
  thread block works on one row of scores at a time. Each thread handles every TRS_PAIR_THREADS-th
  column. The order of sums depends only on the number of columns.
*/
#include "gpu/compute_cuda.h"

#include <math.h>

enum { TRS_PAIR_THREADS = 256, TRS_PAIR_LIST_THREADS = 128 };

static __global__ void __launch_bounds__(TRS_PAIR_LIST_THREADS)
    pair_list_kernel(int64_t batch, const int64_t *offsets, const int64_t *values, const float *labels,
                     const float *weights, TrsPair *pair)
{
  for (int64_t b = TrsCudaFirst(); b < batch; b += TrsCudaStep()) {
    const int64_t begin = offsets[b];
    TrsPair to = {-1, labels[b] * (weights ? weights[b] : 1.0f), 0.0f, 1, 0};

    if (offsets[b + 1] > begin) to.id = values[begin];
    pair[b] = to;
  }
}

/* True if the softmax of query q includes candidate c. */
static __device__ __forceinline__ bool takes_part(const TrsPair *__restrict__ pair, int64_t q, int64_t c,
                                                  int64_t id_of_q)
{
  return q == c || (pair[c].negative && (pair[c].id < 0 || pair[c].id != id_of_q));
}

/*
  The maximum of all threads' numbers; below, their sum. `to` is shared memory of the thread block.
*/
static __device__ float block_maximum(float x, float *to)
{
  float most;

  to[threadIdx.x] = x;
  __syncthreads();
  for (unsigned half = TRS_PAIR_THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) to[threadIdx.x] = fmaxf(to[threadIdx.x], to[threadIdx.x + half]);
    __syncthreads();
  }
  most = to[0];
  __syncthreads();
  return most;
}

static __device__ double block_sum(double x, double *to)
{
  double sum;

  to[threadIdx.x] = x;
  __syncthreads();
  for (unsigned half = TRS_PAIR_THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) to[threadIdx.x] += to[threadIdx.x + half];
    __syncthreads();
  }
  sum = to[0];
  __syncthreads();
  return sum;
}

static __global__ void __launch_bounds__(TRS_PAIR_THREADS) pair_queries_kernel(TrsPairTile tile)
{
  __shared__ float floats[TRS_PAIR_THREADS];
  __shared__ double doubles[TRS_PAIR_THREADS];

  for (int64_t row = blockIdx.x; row < tile.n; row += gridDim.x) {
    const int64_t own = tile.first + row, id = tile.pair[own].id;
    const float weight = tile.pair[own].weight, scale = tile.scale * weight;
    float *const z = tile.z + row * tile.m;
    float most = -INFINITY;
    double sum = 0.0;

    if (weight == 0.0f) { /* all threads read the same weight */
      for (int64_t c = threadIdx.x; c < tile.m; c += TRS_PAIR_THREADS) z[c] = 0.0f;
      if (threadIdx.x == 0) tile.log_sum[row] = tile.row_loss[row] = 0.0;
      continue;
    }
    for (int64_t c = threadIdx.x; c < tile.m; c += TRS_PAIR_THREADS) {
      z[c] = takes_part(tile.pair, own, c, id) ? z[c] - tile.pair[c].log_q : -INFINITY;
      most = fmaxf(most, z[c]);
    }
    most = block_maximum(most, floats); /* this call also waits until all of z is written */
    const float score = z[own];
    __syncthreads(); /* wait until all threads have read the score, because it is now replaced */
    for (int64_t c = threadIdx.x; c < tile.m; c += TRS_PAIR_THREADS) {
      z[c] = expf(z[c] - most);
      sum += static_cast<double>(z[c]);
    }
    sum = block_sum(sum, doubles);
    const double log_sum = static_cast<double>(most) + log(sum);
    const float share = static_cast<float>(1.0 / sum) * scale;
    for (int64_t c = threadIdx.x; c < tile.m; c += TRS_PAIR_THREADS)
      z[c] = c == own ? static_cast<float>(expm1(static_cast<double>(score) - log_sum)) * scale
                      : z[c] * share;
    if (threadIdx.x == 0) {
      tile.log_sum[row] = log_sum;
      tile.row_loss[row] = static_cast<double>(weight) * (log_sum - static_cast<double>(score));
    }
  }
}

/* One thread block adds the losses of all rows. */
static __global__ void __launch_bounds__(TRS_PAIR_THREADS)
    add_losses_kernel(int64_t n, const double *row_loss, double *loss)
{
  __shared__ double doubles[TRS_PAIR_THREADS];
  double sum = 0.0;

  for (int64_t i = threadIdx.x; i < n; i += TRS_PAIR_THREADS) sum += row_loss[i];
  sum = block_sum(sum, doubles);
  if (threadIdx.x == 0) *loss += sum;
}

static __global__ void __launch_bounds__(TRS_PAIR_THREADS) pair_candidates_kernel(TrsPairTile tile)
{
  for (int64_t i = TrsCudaFirst(); i < tile.n * tile.m; i += TrsCudaStep()) {
    const int64_t row = i / tile.m, q = i - row * tile.m, own = tile.first + row;
    const float weight = tile.pair[q].weight;
    float gradient = 0.0f;

    if (weight != 0.0f && takes_part(tile.pair, q, own, tile.pair[q].id)) {
      const float power = static_cast<float>(static_cast<double>(tile.z[i]) -
                                             static_cast<double>(tile.pair[own].log_q) - tile.log_sum[q]);

      gradient = q == own ? static_cast<float>(expm1(static_cast<double>(power))) : expf(power);
    }
    tile.z[i] = gradient * (tile.scale * weight);
  }
}

PetscErrorCode TrsPairListCuda(TrsStream stream, int64_t batch, const int64_t *offsets, const int64_t *values,
                               const float *labels, const float *weights, TrsPair *pair)
{
  PetscFunctionBegin;
  if (batch == 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(pair_list_kernel, TrsCudaBlocks(batch, TRS_PAIR_LIST_THREADS), TRS_PAIR_LIST_THREADS, 0,
            TrsCudaStream(stream), batch, offsets, values, labels, weights, pair);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairQueriesCuda(TrsStream stream, const TrsPairTile *tile, double *loss)
{
  PetscFunctionBegin;
  if (tile->n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(pair_queries_kernel, dim3(static_cast<unsigned>(tile->n)), TRS_PAIR_THREADS, 0,
            TrsCudaStream(stream), *tile);
  TrsCheckLaunch();
  CU_LAUNCH(add_losses_kernel, 1, TRS_PAIR_THREADS, 0, TrsCudaStream(stream), tile->n, tile->row_loss, loss);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairCandidatesCuda(TrsStream stream, const TrsPairTile *tile)
{
  PetscFunctionBegin;
  if (tile->n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(pair_candidates_kernel, TrsCudaBlocks(tile->n * tile->m, TRS_PAIR_THREADS), TRS_PAIR_THREADS, 0,
            TrsCudaStream(stream), *tile);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
