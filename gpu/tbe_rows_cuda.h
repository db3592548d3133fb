/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Rows of embedding tables on the GPU: who has which columns, loads that widen and stores that round.

  A group of 1 to 32 neighbouring lanes of a warp has a row: lane l takes COLUMNS columns from l * COLUMNS on, then those a whole group further. Where
  rows are aligned COLUMNS are 16 bytes of a row in a lookup (4 bytes of a quantised one, whose values begin behind 4 bytes of parameters).
*/
#pragma once

#include "gpu/wide_cuda.h"

/* Else its rows are quantised. */
template <TrsDType DTYPE>
constexpr bool is_float = DTYPE == TRS_FP32 || DTYPE == TRS_FP16 || DTYPE == TRS_BF16;

template <TrsDType DTYPE> static __device__ __forceinline__ float widen_16(uint16_t h)
{
  return DTYPE == TRS_FP16 ? half_to_float(h) : TrsBf16ToFloat(h);
}

/* x[COLUMNS] = columns col .. of a row; all of them exist or, of a quantised row, lie in its padding. */
template <TrsDType DTYPE, int COLUMNS>
static __device__ __forceinline__ void load_columns(const char *row, int col, float *x)
{
  if constexpr (DTYPE == TRS_FP32) {
    load_floats<COLUMNS>(reinterpret_cast<const float *>(row) + col, x);
  } else if constexpr (DTYPE == TRS_FP16 || DTYPE == TRS_BF16) {
    const uint16_t *from = reinterpret_cast<const uint16_t *>(row) + col;
    unsigned word[COLUMNS / 2 + 1];

    if (COLUMNS == 8) {
      const uint4 v = *reinterpret_cast<const uint4 *>(from);
      word[0] = v.x;
      word[1 % (COLUMNS / 2 + 1)] = v.y;
      word[2 % (COLUMNS / 2 + 1)] = v.z;
      word[3 % (COLUMNS / 2 + 1)] = v.w;
    } else if (COLUMNS == 4) {
      const uint2 v = *reinterpret_cast<const uint2 *>(from);
      word[0] = v.x;
      word[1 % (COLUMNS / 2 + 1)] = v.y;
    } else {
      word[0] = from[0];
    }
    for (int j = 0; j < COLUMNS; j++)
      x[j] = widen_16<DTYPE>(static_cast<uint16_t>(word[j / 2] >> 16 * (j % 2)));
  } else {
    constexpr int bits = DTYPE == TRS_INT8 ? 8 : DTYPE == TRS_INT4 ? 4 : 2;
    const unsigned parameters = *reinterpret_cast<const unsigned *>(row),
                   word = *reinterpret_cast<const unsigned *>(row + 4 + col * bits / 8);
    const float scale = half_to_float(static_cast<uint16_t>(parameters)),
                bias = half_to_float(static_cast<uint16_t>(parameters >> 16));

    for (int j = 0; j < COLUMNS; j++)
      x[j] = fmaf(static_cast<float>(word >> bits * j & ((1u << bits) - 1)), scale, bias);
  }
}

/* Sum over the group's lanes, the same bits in all. A group is the `lanes` (a power of 2) lanes around this one; all of them call. */
static __device__ __forceinline__ unsigned group_mask(int lanes)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  return lanes == 32 ? 0xffffffffu : ((1u << lanes) - 1) << (lane & ~(lanes - 1));
}

static __device__ __forceinline__ float group_sum(float x, int lanes, unsigned mask)
{
  for (int with = lanes / 2; with > 0; with /= 2) x += __shfl_xor_sync(mask, x, with);
  return x;
}

/* Lanes of a group for D columns. */
static inline int TrsCudaLanesLog2(int D, int columns)
{
  int log2 = 0;

  while (log2 < 5 && (columns << log2) < D) log2++;
  return log2;
}

static inline bool TrsCudaIsAligned(const void *pointer, int64_t stride_bytes, int bytes)
{
  return (reinterpret_cast<uintptr_t>(pointer) | static_cast<uintptr_t>(stride_bytes)) %
             static_cast<uintptr_t>(bytes) ==
         0;
}
