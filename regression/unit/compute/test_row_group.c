/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests how keys are grouped by row. The result has the same keys, and the keys of a row are
  adjacent and keep their order. If rows are close together, rows with only one key come first, in
  the order of keys. The result does not depend on the width of positions. Sorted results are in the
  order of rows.
*/
#include "cpu/row_sort.h"
#include "trs_test.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3000, LONG = 20000 };

static uint64_t next_random(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

/*
  Draw a row for each key, uniformly from `rows` rows. If skewed is set, half of the keys get one of
  the first few rows.
*/
static void draw(int64_t n, int64_t rows, int skewed, uint64_t seed, uint64_t *row)
{
  for (int64_t i = 0; i < n; i++) {
    const uint64_t any = next_random(&seed) << 31 | next_random(&seed);

    row[i] = any % (uint64_t)(skewed && i % 2 && rows > 5 ? 5 : rows);
  }
}

static void group(int64_t n, int bits, int64_t rows, TrsRowOrder order, const uint64_t *row, uint64_t *key)
{
  static uint64_t scratch[LONG];
  static uint32_t seen[LONG];

  for (int64_t i = 0; i < n; i++) key[i] = row[i] << bits | (uint64_t)i;
  memset(scratch, 0xab, sizeof(scratch));
  memset(seen, 0xab, sizeof(seen));
  TrsRowGroup(n, bits, rows, order, key, scratch, seen);
}

static int ascending(const void *a, const void *b)
{
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

  return (x > y) - (x < y);
}

static void check_list(int64_t n, int bits, const uint64_t *row, int sorted, const uint64_t *key)
{
  static uint64_t expected[LONG];
  static unsigned char placed[LONG];
  int64_t at = 0;

  /* The result by another sorting method. Positions keep keys with equal rows in order. */
  for (int64_t i = 0; i < n; i++) expected[i] = row[i] << bits | (uint64_t)i;
  qsort(expected, (size_t)n, sizeof(*expected), ascending);
  memset(placed, 0, sizeof(placed));
  while (at < n) {
    const uint64_t first = key[at] >> bits << bits;
    int64_t low = 0, high = n, end;

    if (sorted) {
      assert_int_equal(key[at], expected[at]);
      at++;
      continue;
    }
    while (low < high) { /* find the row's first key */
      const int64_t middle = (low + high) / 2;

      if (expected[middle] < first)
        low = middle + 1;
      else
        high = middle;
    }
    assert_true(low < n && !placed[low]); /* each row occurs once */
    for (end = low; end < n && expected[end] >> bits == first >> bits; end++) {
      assert_int_equal(key[at], expected[end]);
      placed[end] = 1;
      at++;
    }
  }
}

static void test_lists(void **state)
{
  static uint64_t row[MOST], key[MOST], other[MOST];
  static const int64_t sizes[] = {0, 1, 2, 48, 49, 100, 1000, MOST},
                       rows[] = {1, 2, 7, 100, 4096, 20000, 100000, (int64_t)1 << 33};

  (void)state;
  for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
      for (int skewed = 0; skewed < 2; skewed++)
        for (int sorted = 0; sorted < 2; sorted++) {
          const int64_t n = sizes[s];
          const int bits = TrsBitsFor((uint64_t)n);

          draw(n, rows[r], skewed, s * 100 + r, row);
          group(n, bits, rows[r], sorted ? TRS_ROWS_SORTED : TRS_ROWS_LISTED, row, key);
          check_list(n, bits, row, sorted, key);
          group(n, bits + 9, rows[r], sorted ? TRS_ROWS_SORTED : TRS_ROWS_LISTED, row, other);
          for (int64_t i = 0; i < n; i++) assert_int_equal(other[i] >> (bits + 9), key[i] >> bits);
        }
}

/* The number of keys at the front of the result that are in the order of positions. */
static int64_t count_in_order(int64_t rows)
{
  static uint64_t row[MOST], key[MOST];
  const int bits = TrsBitsFor(MOST);
  const uint64_t mask = ((uint64_t)1 << bits) - 1;
  int64_t n = 1;

  draw(MOST, rows, 0, 1, row);
  group(MOST, bits, rows, TRS_ROWS_LISTED, row, key);
  while (n < MOST && (key[n - 1] & mask) < (key[n] & mask)) n++;
  return n;
}

/*
  If there are 7 rows for each key, most rows have only one key, and these keys stay in order. Rows
  that are far apart are sorted.
*/
static void test_singles_in_front(void **state)
{
  (void)state;
  assert_true(count_in_order(7 * MOST) > MOST * 3 / 4);
  assert_true(count_in_order(900 * MOST) < 50);
}

/*
  Group keys with several threads, for few and many rows. With TRS_ROWS_LISTED, ranks with different
  numbers of threads get the same order.
*/
static void test_threads(void **state)
{
  static uint64_t row[LONG], key[LONG], listed[LONG];
  static const int64_t rows[] = {1, 7, 63, 64, 65, 1000, 100000, (int64_t)1 << 33};
  const int bits = TrsBitsFor(LONG), threads = omp_get_max_threads();

  (void)state;
  for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
    for (int skewed = 0; skewed < 2; skewed++) {
      draw(LONG, rows[r], skewed, r, row);
      for (int n = 1; n <= 7; n += 2) {
        omp_set_num_threads(n);
        group(LONG, bits, rows[r], TRS_ROWS_TOGETHER, row, key);
        check_list(LONG, bits, row, 0, key);
        group(LONG, bits, rows[r], TRS_ROWS_LISTED, row, key);
        if (n > 1) assert_memory_equal(key, listed, sizeof(key));
        memcpy(listed, key, sizeof(key));
      }
    }
  omp_set_num_threads(threads);
}

TRS_TEST_MAIN(cmocka_unit_test(test_lists), cmocka_unit_test(test_threads),
              cmocka_unit_test(test_singles_in_front))
