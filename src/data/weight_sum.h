/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sums of samples' weights that do not depend on the order of adding. Floats are added exactly, as
  digits of a long fixed-point number. The ranks' digits are added as doubles. So the sum over a
  global batch has the same bits for every distribution of the batch over ranks.

  Digit k counts units of 2^(10 k - 149), where 2^-149 is the smallest float. After
  TrsWeightSumAdd() every digit except the last is below 2^10, so sums over half a million ranks
  stay exact.

  Source: Kulisch's long accumulator, divided into digits so that sums of doubles over ranks are
          exact
*/
#pragma once

#include <stdint.h>

enum { TRS_WEIGHT_DIGITS = 26 };

/*
  Add n weights to the digits of a sum, which must be 0 at first. If a weight is not finite, the sum
  is not finite. Not collective, any thread.
*/
void TrsWeightSumAdd(double *digits, int64_t n, const float *weights);

/*
  Return the sum as a number, from digits that were added over ranks. The function changes the
  digits to their unique form.
*/
double TrsWeightSumTotal(double *digits);
