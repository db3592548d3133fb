/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sums of samples' weights that do not depend on the order. Floats are added exactly, as digits of a
  long fixed-point number. Ranks add up the digits like any doubles. So the sum of a global batch
  has the same bits for every distribution of the batch over ranks.

  Digit k counts units of 2^(10 k - 149), where 2^-149 is the smallest float. After
  TrsWeightSumAdd() every digit except the last is below 2^10, so sums over half a million ranks
  stay exact.

  Source: Kulisch's long accumulator, cut into digits that a sum of doubles over ranks keeps exact
*/
#pragma once

#include <stdint.h>

enum { TRS_WEIGHT_DIGITS = 26 };

/*
  Add n weights to the digits of a sum, which starts with zeros. A weight that is not finite makes
  the sum not finite. Not collective, any thread.
*/
void TrsWeightSumAdd(double *digits, int64_t n, const float *weights);

/*
  Return the sum of digits that were added up over ranks. Changes the digits, but not their value.
*/
double TrsWeightSumTotal(double *digits);
