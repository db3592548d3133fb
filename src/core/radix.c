/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/radix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  TRS_RADIX_BYTES = 8,
  TRS_RADIX_VALUES = 256,
  TRS_RADIX_DIGIT_BITS = 11, /* of the histograms that select a key, which fit the nearest cache */
  TRS_RADIX_DIGITS = 1 << TRS_RADIX_DIGIT_BITS,
  TRS_RADIX_SAMPLE = 256
};

/*
  Sort the pairs stably by one byte of their keys. begin [TRS_RADIX_VALUES] has the index in `to` of
  the first pair with each value of the byte.
*/
static void pass(int64_t n, const TrsRadixPair *from, TrsRadixPair *to, int byte, int64_t *begin)
{
  for (int64_t i = 0; i < n; i++) to[begin[from[i].key >> (8 * byte) & (TRS_RADIX_VALUES - 1)]++] = from[i];
}

void TrsRadixSort(int64_t n, TrsRadixPair *pairs, TrsRadixPair *spare)
{
  int64_t count[TRS_RADIX_BYTES][TRS_RADIX_VALUES] = {{0}};
  TrsRadixPair *from = pairs, *to = spare;

  for (int64_t i = 0; i < n; i++)
    for (int b = 0; b < TRS_RADIX_BYTES; b++) count[b][pairs[i].key >> (8 * b) & (TRS_RADIX_VALUES - 1)]++;
  for (int b = 0; b < TRS_RADIX_BYTES && n > 1; b++) {
    TrsRadixPair *swap = from;
    int64_t sum = 0;

    if (count[b][from[0].key >> (8 * b) & (TRS_RADIX_VALUES - 1)] == n) continue;
    for (int v = 0; v < TRS_RADIX_VALUES; v++) {
      const int64_t here = count[b][v];

      count[b][v] = sum;
      sum += here;
    }
    pass(n, from, to, b, count[b]);
    from = to;
    to = swap;
  }
  if (from != pairs) memcpy(pairs, from, (size_t)n * sizeof(*pairs));
}

/* Select by histograms of digits. */
static PetscErrorCode select_by_digits(int64_t n, const uint64_t *key, int64_t m, uint64_t *selected,
                                       int64_t *below)
{
  int64_t count[TRS_RADIX_DIGITS];
  uint64_t differ = 0, prefix = key[0], mask;

  PetscFunctionBegin;
  *below = 0;
  for (int64_t i = 0; i < n; i++) differ |= key[i] ^ key[0];
  mask = ~differ; /* the bits of `prefix` that are known: at first those that all keys share */
  for (int shift = TRS_RADIX_DIGIT_BITS * (63 / TRS_RADIX_DIGIT_BITS); shift >= 0;
       shift -= TRS_RADIX_DIGIT_BITS) {
    const uint64_t digits = (uint64_t)(TRS_RADIX_DIGITS - 1) << shift;
    uint64_t digit = 0;

    if (!(differ & digits)) continue;
    PetscCall(PetscArrayzero(count, TRS_RADIX_DIGITS));
    for (int64_t i = 0; i < n; i++)
      if ((key[i] & mask & ~digits) == (prefix & mask & ~digits)) count[(key[i] & digits) >> shift]++;
    for (; *below + count[digit] < m; digit++) *below += count[digit];
    prefix = (prefix & ~digits) | digit << shift;
    mask |= digits;
  }
  *selected = prefix;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int compare_keys(const void *a, const void *b)
{
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

  return (x > y) - (x < y);
}

/* Estimate the m-th smallest of n keys from a sample. The estimate is rather too large. */
static uint64_t estimate(int64_t n, const uint64_t *key, int64_t m)
{
  uint64_t sample[TRS_RADIX_SAMPLE];
  const double place = (double)m / (double)n * TRS_RADIX_SAMPLE;

  for (int64_t i = 0; i < TRS_RADIX_SAMPLE; i++) sample[i] = key[n / TRS_RADIX_SAMPLE * i];
  qsort(sample, TRS_RADIX_SAMPLE, sizeof(*sample), compare_keys);
  return sample[PetscMin((int64_t)(place + 3 * sqrt(place) + 3), (int64_t)TRS_RADIX_SAMPLE - 1)];
}

PetscErrorCode TrsRadixSelect(int64_t n, const uint64_t *key, int64_t m, uint64_t *selected, int64_t *below)
{
  int64_t n_below = 0, n_equal = 0, k = 0;
  uint64_t bound, *low;

  PetscFunctionBegin;
  bound = n < (int64_t)TRS_RADIX_SAMPLE * TRS_RADIX_SAMPLE ? UINT64_MAX : estimate(n, key, m);
  for (int64_t i = 0; i < n && bound < UINT64_MAX; i++) {
    n_below += key[i] < bound;
    n_equal += key[i] == bound;
  }
  if (n_below + n_equal < m) {
    PetscCall(select_by_digits(n, key, m, selected, below));
  } else if (n_below < m) {
    *selected = bound;
    *below = n_below;
  } else {
    PetscCall(PetscMalloc1((size_t)n_below, &low));
    for (int64_t i = 0; i < n && k < n_below; i++)
      if (key[i] < bound) low[k++] = key[i];
    PetscCall(select_by_digits(n_below, low, m, selected, below));
    PetscCall(PetscFree(low));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
