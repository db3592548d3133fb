/* SPDX-License-Identifier: BSD-3-Clause */
/*
  fp16 and bf16 of one number, in portable C that is also CUDA, with the same bits everywhere.
  Internal to compute/ and gpu/.
*/
#pragma once

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
  Stochastic rounding: add 13 (fp16; 16 for bf16) random bits below the last bit kept, then cut.
  Exact values stay unchanged. Below fp16's normal range the last bit is 2^-24 for every exponent.
  The fp16 sum is one of floats, so that vectors need no branch for this range.
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
