/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The functions exp, sigmoid and tanh without tables, branches or calls, so that the compiler can
  vectorise loops that use them. A NaN stays a NaN. Internal to cpu/.

  Source: the polynomials of expf and tanhf in Cephes (S. Moshier)
*/
#pragma once

#include "compute/half.h"

/*
  Return e^x with an error below 2 ulp. For x above 88.3 the result is TrsExp(88.3), for x below
  -87.3 it is 0.
*/
static inline float TrsExp(float x)
{
  const float highest = 88.3F, lowest = -87.3F,
              /* adding this rounds to a whole number, in the last bits of the sum */
      round = 0x1.8p23F;
  const float y = x > highest ? highest : x < lowest ? lowest : x;
  const float sum = y * 1.44269504F + round, n = sum - round;
  /* y - n log 2, where log 2 is the sum of two constants */
  const float r = (y - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;

  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  /* multiplies by 2^n */
  p = (p * (r * r) + r + 1.0F) * TrsBitsFloat((TrsFloatBits(sum) + 127U) << 23);
  return x < lowest ? 0.0F : p;
}

static inline float TrsSigmoid(float x)
{
  return 1.0F / (1.0F + TrsExp(-x));
}

static inline float TrsTanh(float x)
{
  const float size = x < 0.0F ? -x : x, z = x * x, rest = 1.0F - 2.0F / (TrsExp(2.0F * size) + 1.0F);
  float p = -5.70498872745e-3F;

  p = p * z + 2.06390887954e-2F;
  p = p * z - 5.37397155531e-2F;
  p = p * z + 1.33314422036e-1F;
  p = p * z - 3.33332819422e-1F;
  p = p * z * x + x;
  return size < 0.625F ? p : x < 0.0F ? -rest : rest;
}
