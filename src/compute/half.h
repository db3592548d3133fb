/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Conversions of one number to and from fp16 and bf16, in C that also compiles as CUDA. The bits are
  the same everywhere. Internal to compute/ and gpu/.
*/
#pragma once

#include "core/random/philox.h"
#include "core/random/random.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
  #define TRS_ANYWHERE static inline __host__ __device__
#else
  #define TRS_ANYWHERE static inline
#endif

TRS_ANYWHERE uint32_t TrsFloatBits(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

TRS_ANYWHERE float TrsBitsFloat(uint32_t bits)
{
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

TRS_ANYWHERE float TrsHalfToFloat(uint16_t h)
{
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu, mantissa = h & 0x3ffu;

  if (exponent == 0x1f) return TrsBitsFloat(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) { /* zero and denormals: mantissa * 2^-24 */
    const float magnitude = (float)mantissa * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return TrsBitsFloat(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Round to nearest even. Overflow gives infinity. */
TRS_ANYWHERE uint16_t TrsFloatToHalf(float x)
{
  const uint32_t bits = TrsFloatBits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;

  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
  if (magnitude < 0x38800000u) return (uint16_t)(sign | (uint32_t)lrintf(TrsBitsFloat(magnitude) * 0x1p24f));
  return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13);
}

TRS_ANYWHERE float TrsBf16ToFloat(uint16_t h)
{
  return TrsBitsFloat((uint32_t)h << 16);
}

TRS_ANYWHERE uint16_t TrsFloatToBf16(float x)
{
  const uint32_t bits = TrsFloatBits(x);

  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/*
  Random bits for stochastic rounding, 16 for each element. They depend on the seed, the step, the
  table, and the row and column in the whole table. So they do not depend on the plan or on the
  order of rows. Rounding needs uniform and independent bits, but no generator as strong as Philox,
  whose rounds would take as long as the update of the row.

  Source: splitmix64 for a row's 64 bits; MurmurHash3's 32-bit finaliser, with the row's upper half
  mixed in, for each word of two columns
*/
#define TRS_ROUNDING_BLOCK 32 /* columns whose bits vector code computes together */

TRS_ANYWHERE uint64_t TrsRoundingTable(uint64_t seed, uint64_t step, uint64_t table)
{
  return TrsMix64(TrsPhiloxKey(seed, TRS_RANDOM_ROUNDING) ^ (table + step * 0xD1B54A32D192ED03u));
}

TRS_ANYWHERE uint64_t TrsRoundingRow(uint64_t of_table, uint64_t row)
{
  return TrsMix64(of_table + row * 0x9E3779B97F4A7C15u);
}

/* The bits of columns 2 word (lower half) and 2 word + 1 (upper half). */
TRS_ANYWHERE uint32_t TrsRoundingWord(uint64_t of_row, uint32_t word)
{
  uint32_t x = (uint32_t)of_row + word * 0x9E3779B9u;

  x = (x ^ (x >> 16)) * 0x85EBCA6Bu ^ (uint32_t)(of_row >> 32);
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  return x ^ (x >> 16);
}

/*
  The bits of a row, beginning with column 2 * words. For this result, TrsRoundingWord() of a word w
  returns the bits of word `words` + w of the row.
*/
TRS_ANYWHERE uint64_t TrsRoundingFrom(uint64_t of_row, uint32_t words)
{
  return (of_row & 0xffffffff00000000u) | ((uint32_t)of_row + words * 0x9E3779B9u);
}

TRS_ANYWHERE uint32_t TrsRoundingBits(uint64_t of_row, uint32_t column)
{
  return TrsRoundingWord(of_row, column / 2) >> 16 * (column % 2) & 0xffffu;
}

/*
  Stochastic rounding: add random bits below the last bit kept (13 bits for fp16, 16 for bf16), then
  cut these bits. Values that the type represents exactly stay unchanged. Below fp16's normal range
  the last bit is 2^-24 for every exponent. For fp16 the random bits are added as floats, so that
  vector code needs no branch for this range.
*/
TRS_ANYWHERE uint16_t TrsFloatToHalfStochastic(float x, uint32_t random)
{
  const uint32_t bits = TrsFloatBits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  const uint32_t exponent = magnitude & 0x7f800000u, unit = exponent > 0x38800000u ? exponent : 0x38800000u;
  float sum;

  if (magnitude >= 0x477fe000u) return TrsFloatToHalf(x);
  sum = TrsBitsFloat(magnitude) + (TrsBitsFloat(unit | (random & 0x1fffu)) - TrsBitsFloat(unit));
  if (TrsFloatBits(sum) < 0x38800000u) return (uint16_t)(sign | (uint32_t)(sum * 0x1p24f));
  return (uint16_t)(sign | (TrsFloatBits(sum) - 0x38000000u) >> 13);
}

TRS_ANYWHERE uint16_t TrsFloatToBf16Stochastic(float x, uint32_t random)
{
  const uint32_t bits = TrsFloatBits(x);

  if ((bits & 0x7fffffffu) >= 0x7f7f0000u) return TrsFloatToBf16(x);
  return (uint16_t)((bits + (random & 0xffffu)) >> 16);
}
