/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Attention of ragged bags on the GPU, twin of src/cpu/attention_cpu.c within the rounding of sums.
  A thread block works on one bag at a time. Each of its warps works on one pair of a row and a head
  at a time. Each lane computes the scores of every 32nd row of the bag. For the weighted sums,
  lanes work on columns and exchange the weights. The forward stores one number for each row and
  head (log_sums) instead of the scores. So the backward computes the scores again: once for the
  queries, and once for the keys and values.
*/
#include "gpu/compute_cuda.h"

#include <math.h>

enum {
  TRS_ATTENTION_THREADS = 128,
  TRS_ATTENTION_WARPS = TRS_ATTENTION_THREADS / 32,
  TRS_ATTENTION_COLUMNS = 4, /* columns, 32 apart, that a lane sums at a time */
  /* number of thread blocks per multiprocessor with which the compiler spills no registers */
  TRS_ATTENTION_FORWARDS = 8,
  TRS_ATTENTION_BACKWARDS = 5
};

/* Dot product of two rows' numbers in one head. */
static __device__ __forceinline__ float dot(const float *__restrict__ a, const float *__restrict__ b,
                                            int64_t d)
{
  float sum = 0.0f;

  for (int64_t c = 0; c < d; c++) sum += a[c] * b[c];
  return sum;
}

/* The rows of one bag, restricted to one head. */
struct Head {
  /* index of the bag's first row, its number of rows; number of floats in a head and in a row */
  int64_t first, n, d, stride;
  const float *query, *key, *value;
  float scale;
};

static __device__ __forceinline__ Head head_of(const TrsAttention &a, int64_t bag, int64_t h)
{
  Head head;

  head.first = a.offsets[bag] - a.first;
  head.n = a.offsets[bag + 1] - a.offsets[bag];
  head.d = a.dim / a.heads;
  head.stride = 3 * a.dim;
  head.query = a.qkv + head.first * head.stride + h * head.d;
  head.key = head.query + a.dim;
  head.value = head.key + a.dim;
  head.scale = 1.0f / sqrtf(static_cast<float>(head.d));
  return head;
}

/*
  Add weight_j * rows[j] of the next n <= 32 rows j to the lane's column sums. Lane j holds
  weight_j.
*/
static __device__ __forceinline__ void add_weighted(const float *__restrict__ rows, int64_t stride, int64_t n,
                                                    float weight, int64_t column, int64_t d, float *sum)
{
  for (int j = 0; j < n; j++) {
    const float w = __shfl_sync(0xffffffffu, weight, j);

    for (int k = 0; k < TRS_ATTENTION_COLUMNS; k++)
      if (column + 32 * k < d) sum[k] += w * rows[j * stride + column + 32 * k];
  }
}

static __device__ __forceinline__ int64_t at_most_32(int64_t n)
{
  return n < 32 ? n : 32;
}

static __global__ void __launch_bounds__(TRS_ATTENTION_THREADS, TRS_ATTENTION_FORWARDS)
    attention_forward_kernel(TrsAttention a)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;

  for (int64_t bag = blockIdx.x; bag < a.n; bag += gridDim.x) {
    const int64_t rows = a.offsets[bag + 1] - a.offsets[bag];

    for (int64_t task = threadIdx.x / 32; task < rows * a.heads; task += TRS_ATTENTION_WARPS) {
      const int64_t i = task / a.heads, h = task - i * a.heads;
      const Head head = head_of(a, bag, h);
      const int64_t m = a.causal ? i + 1 : head.n;
      const float *const q = head.query + i * head.stride;
      float most = -INFINITY, total = 0.0f;

      for (int64_t j = lane; j < m; j += 32) {
        const float s = head.scale * dot(q, head.key + j * head.stride, head.d);
        const float next = fmaxf(most, s);

        total = total * expf(most - next) + expf(s - next);
        most = next;
      }
      for (int with = 16; with > 0; with /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, most, with),
                    sum = __shfl_xor_sync(0xffffffffu, total, with), next = fmaxf(most, other);

        total = (most == -INFINITY ? 0.0f : total * expf(most - next)) +
                (other == -INFINITY ? 0.0f : sum * expf(other - next));
        most = next;
      }
      const float log_sum = most + logf(total);
      for (int64_t column = lane; column - lane < head.d; column += 32 * TRS_ATTENTION_COLUMNS) {
        float sum[TRS_ATTENTION_COLUMNS] = {0.0f};

        for (int64_t j = 0; j < m; j += 32) {
          const float weight = j + lane < m
                                   ? expf(head.scale * dot(q, head.key + (j + lane) * head.stride, head.d) -
                                          log_sum)
                                   : 0.0f;

          add_weighted(head.value + j * head.stride, head.stride, at_most_32(m - j), weight, column, head.d,
                       sum);
        }
        for (int k = 0; k < TRS_ATTENTION_COLUMNS; k++)
          if (column + 32 * k < head.d)
            a.out[(head.first + i) * a.dim + h * head.d + column + 32 * k] = sum[k];
      }
      if (lane == 0) a.log_sums[(head.first + i) * a.heads + h] = log_sum;
    }
  }
}

/* The weight of row j in row i's sum, and the gradient of the score of rows i and j. */
static __device__ __forceinline__ float gradient_of_score(const TrsAttention &a, const Head &head, int64_t h,
                                                          int64_t i, int64_t j, float *weight)
{
  const int64_t row = (head.first + i) * a.dim + h * head.d;
  const float *const g = a.dout + row;
  const float score = head.scale * dot(head.query + i * head.stride, head.key + j * head.stride, head.d);

  *weight = expf(score - a.log_sums[(head.first + i) * a.heads + h]);
  return *weight *
         (dot(g, head.value + j * head.stride, head.d) - a.scratch[(head.first + i) * a.heads + h]) *
         head.scale;
}

/* Gradient of row i's query: a sum over the rows j that the row attends to. */
static __device__ void backward_query(const TrsAttention &a, const Head &head, int64_t h, int64_t i, int lane)
{
  const int64_t m = a.causal ? i + 1 : head.n;

  for (int64_t column = lane; column - lane < head.d; column += 32 * TRS_ATTENTION_COLUMNS) {
    float sum[TRS_ATTENTION_COLUMNS] = {0.0f}, unused;

    for (int64_t j = 0; j < m; j += 32) {
      const float gradient = j + lane < m ? gradient_of_score(a, head, h, i, j + lane, &unused) : 0.0f;

      add_weighted(head.key + j * head.stride, head.stride, at_most_32(m - j), gradient, column, head.d, sum);
    }
    for (int k = 0; k < TRS_ATTENTION_COLUMNS; k++)
      if (column + 32 * k < head.d)
        a.dqkv[(head.first + i) * head.stride + h * head.d + column + 32 * k] = sum[k];
  }
}

/* Gradients of row j's key and value: sums over the rows i that attend to it. */
static __device__ void backward_key(const TrsAttention &a, const Head &head, int64_t h, int64_t j, int lane)
{
  const float *const dout = a.dout + head.first * a.dim + h * head.d;
  const int64_t from = a.causal ? j : 0;

  for (int64_t column = lane; column - lane < head.d; column += 32 * TRS_ATTENTION_COLUMNS) {
    float dkey[TRS_ATTENTION_COLUMNS] = {0.0f}, dvalue[TRS_ATTENTION_COLUMNS] = {0.0f};

    for (int64_t i = from; i < head.n; i += 32) {
      float weight = 0.0f, gradient = 0.0f;

      if (i + lane < head.n) gradient = gradient_of_score(a, head, h, i + lane, j, &weight);
      add_weighted(head.query + i * head.stride, head.stride, at_most_32(head.n - i), gradient, column,
                   head.d, dkey);
      add_weighted(dout + i * a.dim, a.dim, at_most_32(head.n - i), weight, column, head.d, dvalue);
    }
    for (int k = 0; k < TRS_ATTENTION_COLUMNS; k++) {
      float *const to = a.dqkv + (head.first + j) * head.stride + h * head.d + column + 32 * k;

      if (column + 32 * k >= head.d) continue;
      to[a.dim] = dkey[k];
      to[2 * a.dim] = dvalue[k];
    }
  }
}

static __global__ void __launch_bounds__(TRS_ATTENTION_THREADS, TRS_ATTENTION_BACKWARDS)
    attention_backward_kernel(TrsAttention a)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;

  for (int64_t bag = blockIdx.x; bag < a.n; bag += gridDim.x) {
    const int64_t rows = a.offsets[bag + 1] - a.offsets[bag], first = (a.offsets[bag] - a.first) * a.heads;
    const int64_t d = a.dim / a.heads;

    /*
      Compute the dot product of each row's gradient and its output. The code below reads it for all
      rows of the bag.
    */
    for (int64_t task = first + threadIdx.x; task < first + rows * a.heads; task += TRS_ATTENTION_THREADS)
      a.scratch[task] = dot(a.dout + task * d, a.out + task * d, d);
    __syncthreads();
    for (int64_t task = threadIdx.x / 32; task < rows * a.heads; task += TRS_ATTENTION_WARPS) {
      const int64_t i = task / a.heads, h = task - i * a.heads;
      const Head head = head_of(a, bag, h);

      backward_query(a, head, h, i, lane);
      backward_key(a, head, h, i, lane);
    }
  }
}

/* For each query of a bag, the kernel reads the bag's keys twice and its values once. */
PetscErrorCode TrsAttentionForwardCuda(TrsStream stream, const TrsAttention *attention)
{
  PetscFunctionBegin;
  if (attention->n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(attention_forward_kernel, TrsCudaBlocks(attention->n, 1), TRS_ATTENTION_THREADS, 0,
            TrsCudaStream(stream), *attention);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAttentionBackwardCuda(TrsStream stream, const TrsAttention *attention)
{
  PetscFunctionBegin;
  if (attention->n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(attention_backward_kernel, TrsCudaBlocks(attention->n, 1), TRS_ATTENTION_THREADS, 0,
            TrsCudaStream(stream), *attention);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
