/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sums of doubles whose bits do not depend on the order of the additions or on the ranks that make
  them. Internal to train/.

  A double is cut into digits of 24 bits at fixed places, and integers add up the digits of each
  place. A sum keeps four places, starting at the place of the largest value added. Lower digits are
  dropped, no matter when they are added, so the result depends only on the values. The error of a
  sum of n values is less than n 2^-72 of the largest value. Up to 2^38 values fit, and positive and
  negative values may cancel.

  Source: Demmel and Nguyen, "Parallel Reproducible Summation" (2015), with integers as the bins;
          data/weight_sum.h has whole sums of floats
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

enum { TRS_EXACT_DIGITS = 4 };

/* Starts as zeros. */
typedef struct {
  int64_t first; /* place of digit[0], whose unit is 2^(24 first - 1074) */
  int64_t digit[TRS_EXACT_DIGITS];
} TrsExactSum;
enum { TRS_EXACT_INTS = 1 + TRS_EXACT_DIGITS }; /* a TrsExactSum is that many int64_t */

/* Add a value. A value that is not finite makes the sum NaN. Not collective. */
void TrsExactSumAdd(TrsExactSum *sum, double value);

/* Add all values of another sum. Not collective. */
void TrsExactSumMerge(TrsExactSum *sum, const TrsExactSum *other);

/* Get the sum, rounded. Not collective. */
double TrsExactSumValue(const TrsExactSum *sum);

/* True if numbers from a file form a finite sum with room for many more values. */
PetscBool TrsExactSumIsValid(const TrsExactSum *sum);

/*
  Set total [n] to the sums [n] over all ranks, the same on each rank. Collective on comm. Errors:
  MEMORY
*/
PetscErrorCode TrsExactSumsReduce(MPI_Comm comm, int n, const TrsExactSum *sums, TrsExactSum *total);
