/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/row_sort.h"

#include <omp.h>
#include <string.h>

/* 2^11 counters have 8 KiB, so two thirds of the first-level cache are left for the data. */
enum { TRS_DIGIT_BITS = 11, TRS_INSERTION_SORT = 48 };

/*
  If a table has more than TRS_ROWS_A_KEY rows for each key, the rows with keys are so scattered
  that updating rows in ascending order saves more time than reading gradients in the order of
  positions.
*/
enum { TRS_ROWS_A_KEY = 8, TRS_ROWS_A_WORD = 16 };
_Static_assert(TRS_ROWS_A_KEY <= TRS_ROWS_A_WORD, "`seen` has a word for each key");

/*
  A long list is divided into parts by the last bits of the rows, and a thread sorts whole parts. To
  divide the list, each thread processes pieces of it.
*/
enum { TRS_LONG_LIST = 1 << 13, TRS_PART_BITS = 6, TRS_PARTS = 1 << TRS_PART_BITS, TRS_PIECES = 16 };
_Static_assert(TRS_LONG_LIST *TRS_ROWS_A_KEY / TRS_ROWS_A_WORD + 2 * TRS_PARTS <= TRS_LONG_LIST,
               "`seen` has the words of all parts");

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

/*
  Set the bits of a row in `seen`. Each row has two bits: a key occurred, and a second key occurred.
*/

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
  Copy the keys of rows that have only one key to the front of `to`, and all other keys to `more`.
  from [n] may be `to` or `more`. Returns the number of keys at the front.
*/
static int64_t set_apart(int64_t n, int low_bit, int64_t rows, const uint64_t *from, uint64_t *to,
                         uint64_t *more, uint32_t *seen)
{
  int64_t n_single = 0, n_more = 0;

  memset(seen, 0, ((size_t)rows / TRS_ROWS_A_WORD + 1) * sizeof(*seen));
  for (int64_t i = 0; i < n; i++) mark(seen, from[i] >> low_bit);
  for (int64_t i = 0; i < n; i++) {
    const uint64_t moving = from[i];
    const int another = has_another(seen, moving >> low_bit);

    to[n_single] = more[n_more] = moving;
    n_single += !another;
    n_more += another;
  }
  return n_single;
}

/*
  Group the keys by row in `to`. The row is in the bits from low_bit on; `rows` must be greater than
  every row. from [n] must be `to` or `other`. If sets_apart is set, rows with a single key come
  first.
*/
static void group(int64_t n, int low_bit, int64_t rows, int sets_apart, uint64_t *from, uint64_t *to,
                  uint64_t *other, uint32_t *seen)
{
  const int high_bit = low_bit + TrsBitsFor((uint64_t)(rows > 0 ? rows - 1 : 0));
  const int64_t single = sets_apart ? set_apart(n, low_bit, rows, from, to, other, seen) : 0;
  uint64_t *rest = to + single, *more = sets_apart ? other : from, *sorted;

  sorted = TrsRowSort(n - single, low_bit, high_bit, more, more == rest ? other : rest);
  if (sorted != rest) memcpy(rest, sorted, (size_t)(n - single) * sizeof(*rest));
}

/* --- parts of a long list --- */

/*
  Move the keys from `key` to `to`, sorted stably by part. Part p is at [begin[p], begin[p + 1]).
*/
static void divide(int64_t n, int low_bit, const uint64_t *key, uint64_t *to, int64_t begin[TRS_PARTS + 1])
{
  int64_t at[TRS_PIECES][TRS_PARTS] = {{0}}, sum = 0;

#pragma omp parallel for schedule(static)
  for (int piece = 0; piece < TRS_PIECES; piece++)
    for (int64_t i = piece * n / TRS_PIECES; i < (piece + 1) * n / TRS_PIECES; i++)
      at[piece][key[i] >> low_bit & (TRS_PARTS - 1)]++;
  for (int p = 0; p < TRS_PARTS; p++) {
    begin[p] = sum;
    for (int piece = 0; piece < TRS_PIECES; piece++) {
      const int64_t here = at[piece][p];
      at[piece][p] = sum;
      sum += here;
    }
  }
  begin[TRS_PARTS] = sum;
#pragma omp parallel for schedule(static)
  for (int piece = 0; piece < TRS_PIECES; piece++)
    for (int64_t i = piece * n / TRS_PIECES; i < (piece + 1) * n / TRS_PIECES; i++)
      to[at[piece][key[i] >> low_bit & (TRS_PARTS - 1)]++] = key[i];
}

static void group_parts(int64_t n, int low_bit, int64_t rows, int sets_apart, uint64_t *key,
                        uint64_t *scratch, uint32_t *seen)
{
  const int64_t part_rows = (rows + TRS_PARTS - 1) / TRS_PARTS, words = part_rows / TRS_ROWS_A_WORD + 1;
  int64_t begin[TRS_PARTS + 1];

  divide(n, low_bit, key, scratch, begin);
#pragma omp parallel for schedule(dynamic, 1)
  for (int p = 0; p < TRS_PARTS; p++)
    group(begin[p + 1] - begin[p], low_bit + TRS_PART_BITS, part_rows, sets_apart, scratch + begin[p],
          key + begin[p], scratch + begin[p], seen + p * words);
}

void TrsRowGroup(int64_t n, int low_bit, int64_t rows, TrsRowOrder order, uint64_t *key, uint64_t *scratch,
                 uint32_t *seen)
{
  const int sets_apart = order != TRS_ROWS_SORTED && n > TRS_INSERTION_SORT && rows <= n * TRS_ROWS_A_KEY;

  if (order == TRS_ROWS_TOGETHER && n >= TRS_LONG_LIST && omp_get_max_threads() > 1 && !omp_in_parallel())
    group_parts(n, low_bit, rows, sets_apart, key, scratch, seen);
  else
    group(n, low_bit, rows, sets_apart, key, key, scratch, seen);
}
