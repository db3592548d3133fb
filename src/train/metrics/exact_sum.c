/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/exact_sum.h"

#include <math.h>
#include <string.h>

/* NOT_FINITE is a place above those of all finite doubles. Their highest place is 2045 / 24. */
enum { TRS_DIGIT_BITS = 24, TRS_LOWEST_BIT = -1074, TRS_MANTISSA = 52, TRS_NOT_FINITE = 1000 };
static const int64_t radix = INT64_C(1) << TRS_DIGIT_BITS;

/*
  Let the digits start at place `first`, which must not be lower than the current one. Digits below
  it are dropped.
*/
static void raise_to(TrsExactSum *sum, int64_t first)
{
  const int64_t by = first - sum->first;

  for (int64_t k = 0; k < TRS_EXACT_DIGITS; k++)
    sum->digit[k] = by < TRS_EXACT_DIGITS - k ? sum->digit[k + by] : 0;
  sum->first = first;
}

void TrsExactSumAdd(TrsExactSum *sum, double value)
{
  const uint64_t mask = (uint64_t)radix - 1;
  uint64_t bits, mantissa, rest;
  int64_t exponent, place, at;

  memcpy(&bits, &value, sizeof(bits));
  exponent = (int64_t)(bits >> TRS_MANTISSA & 0x7ff);
  mantissa = (bits & ((UINT64_C(1) << TRS_MANTISSA) - 1)) | (uint64_t)(exponent > 0) << TRS_MANTISSA;
  if (!mantissa) return;
  if (exponent) exponent--;
  place = exponent / TRS_DIGIT_BITS;
  if (!isfinite(value)) place = TRS_NOT_FINITE;
  if (place > sum->first) raise_to(sum, place);
  at = place - sum->first;
  exponent %= TRS_DIGIT_BITS;
  rest = mantissa >> (TRS_DIGIT_BITS - exponent);
  mantissa = mantissa << exponent & mask;
  for (; at < TRS_EXACT_DIGITS; at++) {
    if (at >= 0) sum->digit[at] += bits >> 63 ? -(int64_t)mantissa : (int64_t)mantissa;
    mantissa = rest & mask;
    rest >>= TRS_DIGIT_BITS;
  }
}

void TrsExactSumMerge(TrsExactSum *sum, const TrsExactSum *other)
{
  TrsExactSum raised = *other;

  if (raised.first > sum->first) raise_to(sum, raised.first);
  raise_to(&raised, sum->first);
  for (int k = 0; k < TRS_EXACT_DIGITS; k++) sum->digit[k] += raised.digit[k];
}

/* Convert the digits to their unique form, with every digit except the last in [0, 2^24). */
static void carry(int64_t digit[TRS_EXACT_DIGITS])
{
  for (int k = 0; k + 1 < TRS_EXACT_DIGITS; k++) {
    int64_t over = digit[k] / radix;

    if (digit[k] % radix < 0) over--;
    digit[k] -= over * radix;
    digit[k + 1] += over;
  }
}

double TrsExactSumValue(const TrsExactSum *sum)
{
  int64_t digit[TRS_EXACT_DIGITS];
  double total = 0.0, sign = 1.0;

  if (sum->first >= TRS_NOT_FINITE) return (double)NAN;
  memcpy(digit, sum->digit, sizeof(digit));
  carry(digit);
  if (digit[TRS_EXACT_DIGITS - 1] < 0) { /* digits of one sign add up without cancellation */
    for (int k = 0; k < TRS_EXACT_DIGITS; k++) digit[k] = -digit[k];
    carry(digit);
    sign = -1.0;
  }
  for (int k = 0; k < TRS_EXACT_DIGITS; k++) total += ldexp((double)digit[k], TRS_DIGIT_BITS * k);
  return sign * ldexp(total, (int)sum->first * TRS_DIGIT_BITS + TRS_LOWEST_BIT);
}

PetscBool TrsExactSumIsValid(const TrsExactSum *sum)
{
  const int64_t most = INT64_C(1) << 62;

  if (sum->first < 0 || sum->first >= TRS_NOT_FINITE) return PETSC_FALSE;
  for (int k = 0; k < TRS_EXACT_DIGITS; k++)
    if (sum->digit[k] > most || sum->digit[k] < -most) return PETSC_FALSE;
  return (PetscBool)isfinite(TrsExactSumValue(sum));
}

PetscErrorCode TrsExactSumsReduce(MPI_Comm comm, int n, const TrsExactSum *sums, TrsExactSum *total)
{
  int64_t *first;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)n, &first));
  for (int i = 0; i < n; i++) first[i] = sums[i].first;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, first, n, MPI_INT64_T, MPI_MAX, comm));
  for (int i = 0; i < n; i++) {
    total[i] = sums[i];
    raise_to(&total[i], first[i]);
  }
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, total, n * TRS_EXACT_INTS, MPI_INT64_T, MPI_SUM, comm));
  for (int i = 0; i < n; i++) total[i].first = first[i]; /* the places have been added, too */
  PetscCall(PetscFree(first));
  PetscFunctionReturn(PETSC_SUCCESS);
}
