/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Loads and stores of several numbers at once on the GPU. The widest access has 16 bytes per lane.
  fp16 has its own conversion instructions.

  If nvcc knows that a pointer is global, then for sm_80 and sm_90 it splits a plain float4 store
  into four stores, and each of them fills only a quarter of its sectors. It does not split a store
  with a cache operator. So kernels store to global memory with keep_floats() or stream_floats(),
  and to shared memory with store_floats().
*/
#pragma once

#include "compute/gemm.h"
#include "compute/half.h"
#include "gpu/cuda_language.h"

#include <initializer_list>

/*
  True if all rows consist of whole float4 at aligned addresses. sizes: all strides and widths,
  combined by bitwise or.
*/
static inline bool is_wide(std::initializer_list<const void *> arrays, int64_t sizes)
{
  uintptr_t bits = static_cast<uintptr_t>(4 * sizes);

  for (const void *array : arrays) bits |= reinterpret_cast<uintptr_t>(array);
  return bits % sizeof(float4) == 0;
}

/* True if all rows begin at an address aligned to four numbers of the matrix's type. */
static inline bool has_fours(TrsMatrix matrix)
{
  const int64_t four = 4 * TrsDTypeBytes(matrix.type);

  return matrix.stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(matrix.data) % static_cast<uintptr_t>(four) == 0;
}

/*
  --- fp16: equal to TrsHalfToFloat() except for the bits of NaN, and to TrsFloatToHalf() in all
  bits ---
*/

static __device__ __forceinline__ float half_to_float(uint16_t h)
{
#if defined(__CUDA_ARCH__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
#else
  return TrsHalfToFloat(h);
#endif
}

static __device__ __forceinline__ uint16_t float_to_half(float x)
{
#if defined(__CUDA_ARCH__)
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return x == x ? h : static_cast<uint16_t>((TrsFloatBits(x) >> 16 & 0x8000u) | 0x7e00u);
#else
  return TrsFloatToHalf(x);
#endif
}

/*
  Two numbers, which are not negative, as fp16 in one word. They are rounded towards zero, and NaN
  becomes any NaN. The first one is in the lower half.
*/
static __device__ __forceinline__ unsigned cut_to_halves(float low, float high)
{
#if defined(__CUDA_ARCH__)
  unsigned both;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  const float x[2] = {low, high};
  unsigned both = 0;

  for (int k = 0; k < 2; k++) {
    const unsigned bits = TrsFloatBits(x[k]);
    both |= (bits >= 0x7f800000u   ? bits >> 13 & 0x7fffu
             : bits >= 0x47800000u ? 0x7bffu
             : bits >= 0x38800000u ? (bits - 0x38000000u) >> 13
                                   : static_cast<unsigned>(x[k] * 0x1p24f))
            << 16 * k;
  }
  return both;
#endif
}

/* The upper halves of two words, in one word. */
static __device__ __forceinline__ unsigned upper_halves(unsigned low, unsigned high)
{
  return low >> 16 | (high & 0xffff0000u);
}

/* --- COLUMNS floats: COLUMNS is 1, or a multiple of 4 with data aligned to 16 bytes --- */

template <int COLUMNS> static __device__ __forceinline__ void load_floats(const float *from, float *x)
{
  if constexpr (COLUMNS % 4 == 0) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 4) {
      const float4 v = *reinterpret_cast<const float4 *>(from + j);
      x[j] = v.x;
      x[j + 1] = v.y;
      x[j + 2] = v.z;
      x[j + 3] = v.w;
    }
  } else {
    for (int j = 0; j < COLUMNS; j++) x[j] = from[j];
  }
}

/* Store to shared memory, or to memory whose kind the compiler does not know. */
template <int COLUMNS> static __device__ __forceinline__ void store_floats(float *to, const float *x)
{
  if constexpr (COLUMNS % 4 == 0) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 4)
      *reinterpret_cast<float4 *>(to + j) = make_float4(x[j], x[j + 1], x[j + 2], x[j + 3]);
  } else {
    for (int j = 0; j < COLUMNS; j++) to[j] = x[j];
  }
}

/* Store to global memory. The data is read again soon and stays in L2. */
template <int COLUMNS> static __device__ __forceinline__ void keep_floats(float *to, const float *x)
{
  if constexpr (COLUMNS % 4 == 0) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 4)
      __stcg(reinterpret_cast<float4 *>(to + j), make_float4(x[j], x[j + 1], x[j + 2], x[j + 3]));
  } else {
    for (int j = 0; j < COLUMNS; j++) __stcg(to + j, x[j]);
  }
}

/* Store to global memory more data than L2 holds. This data is the first to leave L2. */
template <int COLUMNS> static __device__ __forceinline__ void stream_floats(float *to, const float *x)
{
  if constexpr (COLUMNS % 4 == 0) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 4)
      __stcs(reinterpret_cast<float4 *>(to + j), make_float4(x[j], x[j + 1], x[j + 2], x[j + 3]));
  } else {
    for (int j = 0; j < COLUMNS; j++) __stcs(to + j, x[j]);
  }
}

/* --- numbers of the dense layers: floats, or bf16 in the format that matrix products read --- */

struct Bf16 {
  uint16_t bits;
};

static __device__ __forceinline__ float to_float(float x)
{
  return x;
}

static __device__ __forceinline__ float to_float(Bf16 x)
{
  return TrsBf16ToFloat(x.bits);
}

static __device__ __forceinline__ void from_float(float x, float *to)
{
  *to = x;
}

/*
  N numbers as bf16, two in each word, with the bits of TrsFloatToBf16(). The first of two is in the
  lower half.
*/
template <int N> static __device__ __forceinline__ void narrow_numbers(const float *x, unsigned *word)
{
#if defined(__CUDA_ARCH__)
  bool numbers = true; /* the instruction has only one NaN */

  for (int j = 0; j < N; j += 2) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word[j / 2]) : "f"(x[j + 1]), "f"(x[j]));
    numbers = numbers && x[j] == x[j] && x[j + 1] == x[j + 1];
  }
  if (numbers) return;
#endif
  for (int j = 0; j < N; j += 2)
    word[j / 2] = static_cast<unsigned>(TrsFloatToBf16(x[j])) |
                  static_cast<unsigned>(TrsFloatToBf16(x[j + 1])) << 16;
}

static __device__ __forceinline__ void from_float(float x, Bf16 *to)
{
  const float two[2] = {x, 0.0f};
  unsigned word;

  narrow_numbers<2>(two, &word);
  to->bits = static_cast<uint16_t>(word);
}

/*
  Load COLUMNS numbers as floats. COLUMNS is 1 or a multiple of 4. If it is a multiple of 4, the
  data must be aligned to four numbers.
*/
template <int COLUMNS> static __device__ __forceinline__ void load_numbers(const float *from, float *x)
{
  load_floats<COLUMNS>(from, x);
}

template <int COLUMNS> static __device__ __forceinline__ void load_numbers(const Bf16 *from, float *x)
{
  if constexpr (COLUMNS % 4 == 0) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 4) {
      const uint2 v = *reinterpret_cast<const uint2 *>(from + j);
      x[j] = TrsBitsFloat(v.x << 16);
      x[j + 1] = TrsBitsFloat(v.x & 0xffff0000u);
      x[j + 2] = TrsBitsFloat(v.y << 16);
      x[j + 3] = TrsBitsFloat(v.y & 0xffff0000u);
    }
  } else {
    x[0] = to_float(*from);
  }
}

/* Eight numbers of bf16, which were loaded with one access, as floats. */
static __device__ __forceinline__ void widen_eight(uint4 from, float *x)
{
  const unsigned word[4] = {from.x, from.y, from.z, from.w};

#pragma unroll
  for (int j = 0; j < 4; j++) {
    x[2 * j] = TrsBitsFloat(word[j] << 16);
    x[2 * j + 1] = TrsBitsFloat(word[j] & 0xffff0000u);
  }
}

static __device__ __forceinline__ uint2 narrow_four(const float *x)
{
  unsigned word[2];

  narrow_numbers<4>(x, word);
  return uint2{word[0], word[1]};
}

static __device__ __forceinline__ uint4 narrow_eight(const float *x)
{
  unsigned word[4];

  narrow_numbers<8>(x, word);
  return uint4{word[0], word[1], word[2], word[3]};
}

/* Store eight aligned numbers to global memory with one access. */
static __device__ __forceinline__ void keep_eight(Bf16 *to, const float *x)
{
  __stcg(reinterpret_cast<uint4 *>(to), narrow_eight(x));
}

/* Store to global memory. The data is read again soon. */
template <int COLUMNS> static __device__ __forceinline__ void keep_numbers(float *to, const float *x)
{
  keep_floats<COLUMNS>(to, x);
}

template <int COLUMNS> static __device__ __forceinline__ void keep_numbers(Bf16 *to, const float *x)
{
  static_assert(COLUMNS == 1 || COLUMNS == 4, "a number, or four");
  if constexpr (COLUMNS == 4)
    __stcg(reinterpret_cast<uint2 *>(to), narrow_four(x));
  else
    from_float(x[0], to);
}

/* Store to global memory more data than L2 holds. COLUMNS is 1 or a multiple of 4. */
template <int COLUMNS> static __device__ __forceinline__ void stream_numbers(float *to, const float *x)
{
  stream_floats<COLUMNS>(to, x);
}

template <int COLUMNS> static __device__ __forceinline__ void stream_numbers(Bf16 *to, const float *x)
{
  if constexpr (COLUMNS % 4 == 0) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 4) __stcs(reinterpret_cast<uint2 *>(to + j), narrow_four(x + j));
  } else {
    from_float(x[0], to);
  }
}
