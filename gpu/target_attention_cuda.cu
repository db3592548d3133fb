/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Target attention on the GPU, twin of src/cpu/target_attention.c up to rounding in sums. A warp
  handles a bag, and each of its lanes handles every 32nd column. All lanes read a bag's scores and
  weights, which stay in the L1 cache.
*/
#include "gpu/compute_cuda.h"
#include "gpu/tbe/tbe_rows_cuda.h"
#include "gpu/wide_cuda.h"

#include <math.h>

enum { TRS_TARGET_THREADS = 128 };

template <class S>
static __global__ void __launch_bounds__(TRS_TARGET_THREADS) target_parts_kernel(TrsTargetAttention a)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t D = a.D;

  for (int64_t b = TrsCudaFirst() >> 5; b < a.n_bags; b += TrsCudaStep() >> 5) {
    const float *const q = a.q + b * a.q_stride;

    for (int64_t i = a.offsets[b]; i < a.offsets[b + 1]; i++) {
      S *const parts = static_cast<S *>(a.parts) + 4 * (i - a.first) * D;

      for (int64_t d = lane; d < D; d += 32) {
        const float of_q = q[d], of_k = a.rows[i * D + d];

        from_float(of_q, &parts[d]);
        from_float(of_k, &parts[D + d]);
        from_float(of_q - of_k, &parts[2 * D + d]);
        from_float(of_q * of_k, &parts[3 * D + d]);
      }
    }
  }
}

/*
  Compute a bag's n weights from its scores. Each lane reads all scores and writes every 32nd
  weight.
*/
static __device__ void make_weights(bool softmax, int64_t n, const float *score, float *weight, int lane)
{
  float most = -INFINITY, sum = 0.0f;

  if (!softmax) {
    for (int64_t i = lane; i < n; i += 32) weight[i] = score[i];
    return;
  }
  for (int64_t i = 0; i < n; i++) most = fmaxf(most, score[i]);
  for (int64_t i = 0; i < n; i++) sum += expf(score[i] - most);
  for (int64_t i = lane; i < n; i += 32) weight[i] = expf(score[i] - most) / sum;
}

static __global__ void __launch_bounds__(TRS_TARGET_THREADS) target_pool_kernel(TrsTargetAttention a)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t D = a.D;

  for (int64_t b = TrsCudaFirst() >> 5; b < a.n_bags; b += TrsCudaStep() >> 5) {
    const int64_t begin = a.offsets[b], n = a.offsets[b + 1] - begin, at = begin - a.first;

    make_weights(a.softmax, n, a.score + at, a.weight + at, lane);
    __syncwarp(group_mask(32)); /* wait until all weights are written */
    for (int64_t d = lane; d < D; d += 32) {
      float sum = 0.0f;

      for (int64_t i = 0; i < n; i++) sum += a.weight[at + i] * a.rows[(begin + i) * D + d];
      a.out[b * a.out_stride + d] = sum;
    }
  }
}

static __global__ void __launch_bounds__(TRS_TARGET_THREADS) target_pool_backward_kernel(TrsTargetAttention a)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t D = a.D;

  for (int64_t b = TrsCudaFirst() >> 5; b < a.n_bags; b += TrsCudaStep() >> 5) {
    const int64_t begin = a.offsets[b], n = a.offsets[b + 1] - begin, at = begin - a.first;
    const float *const dout = a.out + b * a.out_stride, *const weight = a.weight + at;
    float *const score = a.score + at;
    float mean = 0.0f;

    for (int64_t i = 0; i < n; i++) {
      float product = 0.0f;

      for (int64_t d = lane; d < D; d += 32) {
        product += dout[d] * a.rows[(begin + i) * D + d];
        a.grads[(begin + i) * D + d] = weight[i] * dout[d];
      }
      product = group_sum(product, 32, group_mask(32));
      mean += weight[i] * product;
      if (lane == 0) score[i] = product;
    }
    __syncwarp(group_mask(32)); /* wait until all scores are written */
    for (int64_t i = lane; a.softmax && i < n; i += 32) score[i] = weight[i] * (score[i] - mean);
  }
}

static __global__ void __launch_bounds__(TRS_TARGET_THREADS)
    target_parts_backward_kernel(TrsTargetAttention a)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t D = a.D;

  for (int64_t b = TrsCudaFirst() >> 5; b < a.n_bags; b += TrsCudaStep() >> 5) {
    const float *const q = a.q + b * a.q_stride;
    float *const dq = a.dq + b * a.dq_stride;

    for (int64_t d = lane; d < D; d += 32) {
      float sum = dq[d];

      for (int64_t i = a.offsets[b]; i < a.offsets[b + 1]; i++) {
        const float *const parts = static_cast<const float *>(a.parts) + 4 * (i - a.first) * D;

        sum += parts[d] + parts[2 * D + d] + parts[3 * D + d] * a.rows[i * D + d];
        a.grads[i * D + d] += parts[D + d] - parts[2 * D + d] + parts[3 * D + d] * q[d];
      }
      dq[d] = sum;
    }
  }
}

/* One warp per bag. */
#define LAUNCH(kernel) \
  PetscFunctionBegin; \
  if (attention->n_bags <= 0) PetscFunctionReturn(PETSC_SUCCESS); \
  CU_LAUNCH(kernel, TrsCudaBlocks(attention->n_bags * 32, TRS_TARGET_THREADS), TRS_TARGET_THREADS, 0, \
            TrsCudaStream(stream), *attention); \
  TrsCheckLaunch(); \
  PetscFunctionReturn(PETSC_SUCCESS)

/* Rows are read once, and parts are written once. */
PetscErrorCode TrsTargetPartsCuda(TrsStream stream, const TrsTargetAttention *attention)
{
  LAUNCH((attention->type == TRS_BF16 ? target_parts_kernel<Bf16> : target_parts_kernel<float>));
}

/* Rows are read once. */
PetscErrorCode TrsTargetPoolCuda(TrsStream stream, const TrsTargetAttention *attention)
{
  LAUNCH(target_pool_kernel);
}

/* Rows are read once, and their gradients are written once. */
PetscErrorCode TrsTargetPoolBackwardCuda(TrsStream stream, const TrsTargetAttention *attention)
{
  LAUNCH(target_pool_backward_kernel);
}

/* Parts and rows are read once. Gradients of rows are read and written once. */
PetscErrorCode TrsTargetPartsBackwardCuda(TrsStream stream, const TrsTargetAttention *attention)
{
  LAUNCH(target_parts_backward_kernel);
}
