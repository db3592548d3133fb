/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/weight_sum.h"

#include <math.h>

/*
  A float reaches 33 bits above the unit of its digit. With 2^16 floats, a digit stays below 2^50.
*/
enum { TRS_DIGIT_BITS = 10, TRS_SMALLEST = -149, TRS_MANTISSA_BITS = 24, TRS_AT_ONCE = 1 << 16 };

/* Convert the digits to their unique form, in which every digit except the last is in [0, 2^10). */
static void carry(double *digits)
{
  const double radix = (double)(1 << TRS_DIGIT_BITS);

  for (int k = 0; k + 1 < TRS_WEIGHT_DIGITS; k++) {
    const double over = floor(digits[k] / radix);

    digits[k] -= over * radix;
    digits[k + 1] += over;
  }
}

void TrsWeightSumAdd(double *digits, int64_t n, const float *weights)
{
  for (int64_t i = 0; i < n; i++) {
    const float w = weights[i];
    int exponent, k = TRS_WEIGHT_DIGITS - 1;

    if (isfinite(w)) {
      (void)frexpf(w, &exponent);
      exponent = exponent - TRS_MANTISSA_BITS < TRS_SMALLEST ? TRS_SMALLEST : exponent - TRS_MANTISSA_BITS;
      k = (exponent - TRS_SMALLEST) / TRS_DIGIT_BITS;
    }
    digits[k] += ldexp((double)w, -TRS_SMALLEST - TRS_DIGIT_BITS * k);
    if (i % TRS_AT_ONCE == TRS_AT_ONCE - 1) carry(digits);
  }
  carry(digits);
}

double TrsWeightSumTotal(double *digits)
{
  double total = 0.0;

  carry(digits);
  for (int k = TRS_WEIGHT_DIGITS - 1; k >= 0; k--)
    total += ldexp(digits[k], TRS_SMALLEST + TRS_DIGIT_BITS * k);
  return total;
}
