/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Linear layers with one unit, such as the layer of the logit, in bf16. A library's product has
  little work for its tiles here, so kernels of ours read each matrix once: x in the forward, and x
  in the backward, which also writes dx. Internal to gpu/.
*/
#pragma once

#include "gpu/cuda_language.h"
#include "gpu/wide_cuda.h"

enum {
  TRS_UNIT_COLUMNS = 8, /* columns of a lane: one access of 16 bytes */
  TRS_UNIT_WARPS = 8,
  TRS_UNIT_THREADS = 32 * TRS_UNIT_WARPS,
  /* rows that a warp of a forward reads at a time, and samples of its thread block */
  TRS_UNIT_ROWS = 4,
  TRS_UNIT_SAMPLES = TRS_UNIT_WARPS * TRS_UNIT_ROWS
};

/* A layer of one unit: z = x w^T + bias, with bf16 x [rows, in] and w [in]. */
struct UnitLayer {
  int64_t rows, in, stride; /* stride: elements from row to row of x */
  const Bf16 *x, *w;
  const float *bias;
};

/*
  True if the layer has one unit, and its matrices are aligned bf16. The layer must have masks:
  without them the order of all sums is prescribed (-reproducible).
*/
bool TrsUnitTakes(const TrsLinear *l);

static inline UnitLayer unit_of(const TrsLinear *l)
{
  return {l->batch,
          l->in,
          l->x.stride,
          static_cast<const Bf16 *>(l->x.data),
          static_cast<const Bf16 *>(l->weight.data),
          static_cast<const float *>(l->bias)};
}

/* Compute y. TrsUnitTakes() must be true. */
PetscErrorCode TrsUnitForwardCuda(TrsStream stream, const TrsLinear *l);

/*
  Compute all gradients, and apply the mask of x. dy must be float, and dx bf16, aligned like x. dx
  may be x. TrsUnitTakes() must be true. *done is false if the gradients' matrices do not fit.
*/
PetscErrorCode TrsUnitBackwardCuda(TrsStream stream, const TrsLinear *l, const TrsLinearGradients *gradients,
                                   bool *done);

/* Load eight aligned numbers with one access. */
static __device__ __forceinline__ void load_eight(const Bf16 *from, float *x)
{
  widen_eight(*reinterpret_cast<const uint4 *>(from), x);
}

/*
  Compute z for TRS_UNIT_ROWS rows from row `first` on. All lanes of the warp must call it. Lane k
  gets row k's z; the z of rows behind the last one are not valid. The order of a sum depends only
  on `in`.
*/
static __device__ __forceinline__ float unit_rows(const UnitLayer &l, int64_t first)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  float sum[TRS_UNIT_ROWS] = {}, z = 0.0f;

  for (int64_t c = TRS_UNIT_COLUMNS * lane; c < l.in; c += 32 * TRS_UNIT_COLUMNS) {
    float w[TRS_UNIT_COLUMNS], x[TRS_UNIT_ROWS][TRS_UNIT_COLUMNS];

    load_eight(l.w + c, w);
    /* a valid row in any case, so that loads need no branch */
#pragma unroll
    for (int k = 0; k < TRS_UNIT_ROWS; k++)
      load_eight(l.x + (first + k < l.rows ? first + k : l.rows - 1) * l.stride + c, x[k]);
#pragma unroll
    for (int k = 0; k < TRS_UNIT_ROWS; k++)
#pragma unroll
      for (int j = 0; j < TRS_UNIT_COLUMNS; j++) sum[k] += x[k][j] * w[j];
  }
#pragma unroll
  for (int k = 0; k < TRS_UNIT_ROWS; k++) {
#pragma unroll
    for (int half = 16; half > 0; half /= 2) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], half);
    if (lane == k) z = sum[k];
  }
  return z + *l.bias;
}
