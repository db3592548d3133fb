/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sums of samples' weights that do not depend on order: floats are added exactly, as digits of a long fixed-point number, which ranks add up like any
  doubles. So the sum of a global batch has the same bits however it is shared out.

  Digit k counts units of 2^(10 k - 149), 2^-149 being the smallest float. After TrsWeightSumAdd() digits are below 2^10 (but the last), so sums over half
  a million ranks stay exact. Source: Kulisch's long accumulator, in pieces as wide as an exchange of counts takes.
*/
#pragma once

#include <stdint.h>

enum { TRS_WEIGHT_DIGITS = 26 };

/* Add n weights to the digits of a sum, from zeros on. What is not finite makes the sum so. Not collective, any thread. */
void TrsWeightSumAdd(double *digits, int64_t n, const float *weights);

/* The sum, from digits added up over ranks; changes the digits, not their value. */
double TrsWeightSumTotal(double *digits);
