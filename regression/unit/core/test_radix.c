/* SPDX-License-Identifier: BSD-3-Clause */
/* Sorting and selecting 64-bit keys against qsort(). */
#include "core/radix.h"
#include "core/random/random.h"
#include "trs_test.h"

enum { MOST = 70000 };

static int by_key(const void *a, const void *b)
{
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

  return (x > y) - (x < y);
}

/* Fill keys with numbers of some bits, of which the upper ones are `above`. */
static void draw(int64_t n, int bits, uint64_t above, uint64_t *key)
{
  for (int64_t i = 0; i < n; i++) {
    uint32_t words[4];
    uint64_t x;

    TrsRandom(3, TRS_RANDOM_TEST, (uint64_t)bits, (uint64_t)i, words);
    x = (uint64_t)words[0] << 32 | words[1];
    key[i] = bits == 64 ? x : (x & ((UINT64_C(1) << bits) - 1)) + above;
  }
}

static void check(int64_t n, const uint64_t *key)
{
  static TrsRadixPair pair[MOST], spare[MOST];
  static uint64_t sorted[MOST];

  for (int64_t i = 0; i < n; i++) {
    pair[i] = (TrsRadixPair){key[i], i};
    sorted[i] = key[i];
  }
  qsort(sorted, (size_t)n, sizeof(*sorted), by_key);
  TrsRadixSort(n, pair, spare);
  for (int64_t i = 0; i < n; i++) {
    assert_true(pair[i].key == sorted[i] && key[pair[i].value] == sorted[i]);
    if (i && pair[i].key == pair[i - 1].key) assert_true(pair[i].value > pair[i - 1].value);
  }
  for (int64_t m = 1; m <= n; m += 1 + n / 17) {
    int64_t below, expected = 0;
    uint64_t selected;

    while (sorted[expected] < sorted[m - 1]) expected++;
    assert_petsc_ok(TrsRadixSelect(n, key, m, &selected, &below));
    assert_true(selected == sorted[m - 1]);
    assert_int_equal(below, expected);
  }
}

static void test_keys(void **state)
{
  static const int bits[] = {0, 1, 5, 11, 12, 16, 33, 63, 64};
  static const int64_t sizes[] = {1, 2, 3, 100, 3000, MOST};
  static uint64_t key[MOST];

  (void)state;
  for (size_t b = 0; b < sizeof(bits) / sizeof(bits[0]); b++)
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
      for (int high = 0; high < 2; high++) {
        draw(sizes[s], bits[b], high ? UINT64_C(1) << 63 : 0, key);
        check(sizes[s], key);
      }
}

static void test_signed(void **state)
{
  static const int64_t ascending[] = {INT64_MIN, -5, -1, 0, 1, INT64_MAX};

  (void)state;
  for (int i = 1; i < 6; i++) assert_true(TrsRadixKey(ascending[i - 1]) < TrsRadixKey(ascending[i]));
}

TRS_TEST_MAIN(cmocka_unit_test(test_keys), cmocka_unit_test(test_signed))
