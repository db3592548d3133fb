/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/row_sort.h"

#include <string.h>

/* 2^11 counters are 8 KiB, so two thirds of the first-level cache stay free for the data. */
enum { TRS_DIGIT_BITS = 11, TRS_MAX_DIGITS = 6, TRS_INSERTION_SORT = 48 };

static void insertion_sort(int64_t n, int low_bit, uint64_t *key)
{
  for (int64_t i = 1; i < n; i++) {
    const uint64_t moving = key[i];
    int64_t j = i;
    for (; j > 0 && (key[j - 1] >> low_bit) > (moving >> low_bit); j--) key[j] = key[j - 1];
    key[j] = moving;
  }
}

uint64_t *TrsRowSort(int64_t n, int low_bit, int high_bit, uint64_t *key, uint64_t *scratch)
{
  const int bits = high_bit - low_bit;
  const int n_digits = (bits + TRS_DIGIT_BITS - 1) / TRS_DIGIT_BITS;
  const int digit_bits = n_digits ? (bits + n_digits - 1) / n_digits : 0;
  const uint64_t mask = ((uint64_t)1 << digit_bits) - 1;

  if (n <= TRS_INSERTION_SORT) {
    insertion_sort(n, low_bit, key);
    return key;
  }
  for (int digit = 0; digit < n_digits; digit++) {
    const int shift = low_bit + digit * digit_bits;
    uint32_t count[1 << TRS_DIGIT_BITS];
    uint32_t sum = 0;

    memset(count, 0, ((size_t)mask + 1) * sizeof(*count));
    for (int64_t i = 0; i < n; i++) count[key[i] >> shift & mask]++;
    for (uint64_t c = 0; c <= mask; c++) {
      const uint32_t here = count[c];
      count[c] = sum;
      sum += here;
    }
    for (int64_t i = 0; i < n; i++) scratch[count[key[i] >> shift & mask]++] = key[i];
    uint64_t *swap = key;
    key = scratch;
    scratch = swap;
  }
  return key;
}
