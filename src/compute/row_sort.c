/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/row_sort.h"

#include <string.h>

/* 2^11 counters are 8 KiB, so two thirds of the first-level cache stay free for the data. */
enum { TRS_DIGIT_BITS = 11, TRS_INSERTION_SORT = 48 };

/*
  Rows of a table with more rows for each key lie so far apart that reading them in their order
  saves more than reading gradients in order of positions.
*/
enum { TRS_ROWS_A_KEY = 8, TRS_ROWS_A_WORD = 16 };
_Static_assert(TRS_ROWS_A_KEY <= TRS_ROWS_A_WORD, "`seen` has a word for each key");

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

/* --- rows with one key --- */

/* Two bits for each row: was there a key, was there another one? */

static void mark(uint32_t *seen, uint64_t row)
{
  uint32_t *word = seen + row / TRS_ROWS_A_WORD;
  const int shift = (int)(row % TRS_ROWS_A_WORD * 2);

  *word |= (uint32_t)1 << shift | (*word >> shift & 1) << (shift + 1);
}

static int has_another(const uint32_t *seen, uint64_t row)
{
  return (int)(seen[row / TRS_ROWS_A_WORD] >> (row % TRS_ROWS_A_WORD * 2 + 1) & 1);
}

/*
  Move the keys of rows with one key to the front of key, and the others to `more`. Returns how many
  are in front.
*/
static int64_t set_apart(int64_t n, int low_bit, int64_t rows, uint64_t *key, uint64_t *more, uint32_t *seen)
{
  int64_t n_single = 0, n_more = 0;

  memset(seen, 0, ((size_t)rows / TRS_ROWS_A_WORD + 1) * sizeof(*seen));
  for (int64_t i = 0; i < n; i++) mark(seen, key[i] >> low_bit);
  for (int64_t i = 0; i < n; i++) {
    const uint64_t moving = key[i];
    const int another = has_another(seen, moving >> low_bit);

    key[n_single] = more[n_more] = moving;
    n_single += !another;
    n_more += another;
  }
  return n_single;
}

void TrsRowGroup(int64_t n, int low_bit, int64_t rows, int sorted, uint64_t *key, uint64_t *scratch,
                 uint32_t *seen)
{
  const int high_bit = low_bit + TrsBitsFor((uint64_t)(rows > 0 ? rows - 1 : 0));
  const int sets_apart = !sorted && n > TRS_INSERTION_SORT && rows <= n * TRS_ROWS_A_KEY;
  const int64_t single = sets_apart ? set_apart(n, low_bit, rows, key, scratch, seen) : 0;
  uint64_t *rest = key + single, *from = sets_apart ? scratch : rest;

  from = TrsRowSort(n - single, low_bit, high_bit, from, from == rest ? scratch : rest);
  if (from != rest) memcpy(rest, from, (size_t)(n - single) * sizeof(*key));
}
