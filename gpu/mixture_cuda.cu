/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/compute_cuda.h"
#include "gpu/tbe/tbe_rows_cuda.h"
#include "gpu/wide_cuda.h"

#define TRS_MIX_THREADS 128

/* A warp works on one sample at a time. Each lane handles every 32nd column. */

/* The gate's j-th expert. */
static __device__ __forceinline__ int expert_of(const TrsMixture &m, int j)
{
  const int n = m.end[0] - m.begin[0];

  return j < n ? m.begin[0] + j : m.begin[1] + j - n;
}

template <class S>
static __global__ void __launch_bounds__(TRS_MIX_THREADS) mix_forward_kernel(TrsMixture m, S *y)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const S *const experts = static_cast<const S *>(m.experts);

  for (int64_t b = TrsCudaFirst() >> 5; b < m.batch; b += TrsCudaStep() >> 5) {
    float *const gate = m.gate + b * m.n;
    S *const to = y + b * m.width;
    float most = gate[0], sum = 0.0f;

    for (int j = 1; j < m.n; j++) most = fmaxf(most, gate[j]);
    for (int j = 0; j < m.n; j++) sum += expf(gate[j] - most);
    __syncwarp(group_mask(32)); /* wait until every lane has read the logits */
    for (int j = lane; j < m.n; j += 32) gate[j] = expf(gate[j] - most) / sum;
    __syncwarp(group_mask(32));
    for (int64_t d = lane; d < m.width; d += 32) {
      float value = 0.0f;

      for (int j = 0; j < m.n; j++)
        value += gate[j] * to_float(experts[b * m.stride + expert_of(m, j) * m.width + d]);
      from_float(value, &to[d]);
    }
  }
}

template <class S>
static __global__ void __launch_bounds__(TRS_MIX_THREADS) mix_backward_kernel(TrsMixture m, const S *dy)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const S *const experts = static_cast<const S *>(m.experts);
  S *const dexperts = static_cast<S *>(m.dexperts);

  for (int64_t b = TrsCudaFirst() >> 5; b < m.batch; b += TrsCudaStep() >> 5) {
    float *const gate = m.gate + b * m.n;
    const S *const from = dy + b * m.width;
    float mean = 0.0f; /* weighted mean of the dot products of the experts with dy */

    for (int pass = 0; pass < 2; pass++) {
      for (int j = 0; j < m.n; j++) {
        const int64_t at = b * m.stride + expert_of(m, j) * m.width;
        const float weight = gate[j];
        float product = 0.0f;

        for (int64_t d = lane; d < m.width; d += 32) {
          const float g = to_float(from[d]);

          product += g * to_float(experts[at + d]);
          if (pass == 0) from_float(to_float(dexperts[at + d]) + weight * g, &dexperts[at + d]);
        }
        product = group_sum(product, 32, group_mask(32));
        if (pass == 0) mean += weight * product;
        __syncwarp(group_mask(32)); /* wait until every lane has read the weight */
        if (pass == 1 && lane == 0) gate[j] = weight * (product - mean);
      }
    }
  }
}

/* A warp handles one sample. Each expert of the gate is read once, and y is written once. */
PetscErrorCode TrsMixForwardCuda(TrsStream stream, const TrsMixture *mixture, void *y)
{
  const dim3 blocks = TrsCudaBlocks(mixture->batch * 32, TRS_MIX_THREADS);

  PetscFunctionBegin;
  if (mixture->batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (mixture->type == TRS_BF16)
    CU_LAUNCH((mix_forward_kernel<Bf16>), blocks, TRS_MIX_THREADS, 0, TrsCudaStream(stream), *mixture,
              static_cast<Bf16 *>(y));
  else
    CU_LAUNCH((mix_forward_kernel<float>), blocks, TRS_MIX_THREADS, 0, TrsCudaStream(stream), *mixture,
              static_cast<float *>(y));
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  A warp handles one sample. The experts and dy are read twice; dexperts is read and written once.
*/
PetscErrorCode TrsMixBackwardCuda(TrsStream stream, const TrsMixture *mixture, const void *dy)
{
  const dim3 blocks = TrsCudaBlocks(mixture->batch * 32, TRS_MIX_THREADS);

  PetscFunctionBegin;
  if (mixture->batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (mixture->type == TRS_BF16)
    CU_LAUNCH((mix_backward_kernel<Bf16>), blocks, TRS_MIX_THREADS, 0, TrsCudaStream(stream), *mixture,
              static_cast<const Bf16 *>(dy));
  else
    CU_LAUNCH((mix_backward_kernel<float>), blocks, TRS_MIX_THREADS, 0, TrsCudaStream(stream), *mixture,
              static_cast<const float *>(dy));
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
