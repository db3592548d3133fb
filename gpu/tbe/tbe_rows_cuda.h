/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Rows of embedding tables on the GPU: the assignment of columns to lanes, loads that widen numbers
  to fp32, and stores that round.

  A group of 1 to 32 adjacent lanes of a warp handles a row. Lane l handles COLUMNS columns from l *
  COLUMNS on. Its next columns are lanes * COLUMNS further. If rows are aligned, COLUMNS columns
  have 16 bytes, or 4 bytes in a quantised row. A quantised row begins with 4 bytes of parameters.
*/
#pragma once

#include "gpu/wide_cuda.h"

/* True if the type holds floats. Other types are quantised rows. */
template <TrsDType DTYPE>
constexpr bool is_float = DTYPE == TRS_FP32 || DTYPE == TRS_FP16 || DTYPE == TRS_BF16;

template <TrsDType DTYPE> static __device__ __forceinline__ float widen_16(uint16_t h)
{
  return DTYPE == TRS_FP16 ? half_to_float(h) : TrsBf16ToFloat(h);
}

/*
  A row's columns in their memory format: 16 bytes or one number of a float row; or the parameters
  of a quantised row and 4 bytes of its values. In this form they need few registers until they are
  converted.
*/
template <TrsDType DTYPE, int COLUMNS> struct RawColumns {
  static constexpr int element = DTYPE == TRS_FP32 ? 4 : 2;
  static constexpr int bytes = is_float<DTYPE> ? COLUMNS * element : 8;
  static_assert(bytes == 16 || COLUMNS == 1 || !is_float<DTYPE>, "16 bytes a lane, or one number");
  unsigned word[(bytes + 3) / 4];
};

template <TrsDType DTYPE> constexpr int quantised_bits = DTYPE == TRS_INT8 ? 8 : DTYPE == TRS_INT4 ? 4 : 2;

/* READ_ONLY means that no other code writes the row while the kernel runs. */
template <bool READ_ONLY, class T> static __device__ __forceinline__ T load(const char *from)
{
  return READ_ONLY ? __ldg(reinterpret_cast<const T *>(from)) : *reinterpret_cast<const T *>(from);
}

template <TrsDType DTYPE, int COLUMNS, bool READ_ONLY = false>
static __device__ __forceinline__ RawColumns<DTYPE, COLUMNS> load_raw(const char *row, int col)
{
  RawColumns<DTYPE, COLUMNS> raw;
  [[maybe_unused]] const char *const from = row + col * raw.element;

  if constexpr (!is_float<DTYPE>) {
    raw.word[0] = load<READ_ONLY, unsigned>(row);
    raw.word[1] = load<READ_ONLY, unsigned>(row + 4 + col * quantised_bits<DTYPE> / 8);
  } else if constexpr (raw.bytes == 16) {
    const uint4 v = load<READ_ONLY, uint4>(from);
    raw.word[0] = v.x;
    raw.word[1] = v.y;
    raw.word[2] = v.z;
    raw.word[3] = v.w;
  } else if constexpr (raw.bytes == 4) {
    raw.word[0] = load<READ_ONLY, unsigned>(from);
  } else {
    raw.word[0] = load<READ_ONLY, uint16_t>(from);
  }
  return raw;
}

template <TrsDType DTYPE, int COLUMNS>
static __device__ __forceinline__ void widen(const RawColumns<DTYPE, COLUMNS> &raw, float *x)
{
  if constexpr (!is_float<DTYPE>) {
    constexpr int bits = quantised_bits<DTYPE>;
    const float scale = half_to_float(static_cast<uint16_t>(raw.word[0])),
                bias = half_to_float(static_cast<uint16_t>(raw.word[0] >> 16));

    for (int j = 0; j < COLUMNS; j++)
      x[j] = fmaf(static_cast<float>(raw.word[1] >> bits * j & ((1u << bits) - 1)), scale, bias);
  } else {
    for (int j = 0; j < COLUMNS; j++)
      x[j] = DTYPE == TRS_FP32 ? TrsBitsFloat(raw.word[j / (4 / raw.element)])
                               : widen_16<DTYPE>(static_cast<uint16_t>(raw.word[j / 2] >> 16 * (j % 2)));
  }
}

/*
  x[COLUMNS] gets the columns from col on of a row. All of these columns must exist or lie in a
  quantised row's padding.
*/
template <TrsDType DTYPE, int COLUMNS>
static __device__ __forceinline__ void load_columns(const char *row, int col, float *x)
{
  widen<DTYPE, COLUMNS>(load_raw<DTYPE, COLUMNS>(row, col), x);
}

/*
  The mask of this lane's group. A group is the aligned block of `lanes` (a power of 2) lanes that
  contains this lane.
*/
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

/* The number COLUMNS for the kernels of a table. */
static inline int TrsCudaColumns(TrsDType dtype, bool aligned)
{
  switch (dtype) {
  case TRS_FP32: return aligned ? 4 : 1;
  case TRS_FP16:
  case TRS_BF16: return aligned ? 8 : 1;
  case TRS_INT8: return 4;
  case TRS_INT4: return 8;
  default: return 16;
  }
}

/* Logarithm to base 2 of the number of lanes in a group for rows of D columns. */
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
