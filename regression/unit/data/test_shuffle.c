/* SPDX-License-Identifier: BSD-3-Clause */
/* The shuffle is a permutation, differs by seed and epoch, and looks like one drawn at random. */
#include "data/shuffle.h"
#include "trs_test.h"

#include <string.h>

static void test_permutation(void **state)
{
  const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4097, 65536};

  (void)state;
  for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
    for (int64_t epoch = 0; epoch < 3; epoch++) {
      char *seen = calloc((size_t)sizes[k], 1);
      TrsShuffle shuffle;

      TrsShuffleInit(&shuffle, 1, epoch, sizes[k]);
      for (int64_t i = 0; i < sizes[k]; i++) {
        int64_t at = TrsShuffleAt(&shuffle, i);

        assert_in_range(at, 0, sizes[k] - 1);
        assert_false(seen[at]++);
      }
      free(seen);
    }
  }
}

/* Two random permutations of 10,000 share a fixed place with probability 1/10,000 each: 1 on average, above 12 less than once in 1e9. */
static void test_orders_differ(void **state)
{
  const struct {
    uint64_t seed;
    int64_t epoch;
  } order[4] = {{1, 0}, {1, 1}, {2, 0}, {2, 1}};
  TrsShuffle shuffle[4];

  (void)state;
  for (int k = 0; k < 4; k++) TrsShuffleInit(&shuffle[k], order[k].seed, order[k].epoch, 10000);
  for (int a = 0; a < 4; a++) {
    int fixed = 0;

    for (int64_t i = 0; i < 10000; i++) fixed += TrsShuffleAt(&shuffle[a], i) == i;
    assert_true(fixed <= 12);
    for (int b = 0; b < a; b++) {
      int same = 0;

      for (int64_t i = 0; i < 10000; i++)
        same += TrsShuffleAt(&shuffle[a], i) == TrsShuffleAt(&shuffle[b], i);
      assert_true(same <= 12);
    }
  }
}

/* Where samples of each tenth go: 100 cells of 1000 expected; chi-square with 81 degrees of freedom exceeds 160 about once in 1e6 times. */
static void test_mixing(void **state)
{
  int count[10][10] = {{0}};
  double chi_square = 0;
  TrsShuffle shuffle;

  (void)state;
  TrsShuffleInit(&shuffle, 0, 0, 100000);
  for (int64_t i = 0; i < 100000; i++) count[i / 10000][TrsShuffleAt(&shuffle, i) / 10000]++;
  for (int a = 0; a < 10; a++)
    for (int b = 0; b < 10; b++) chi_square += (count[a][b] - 1000.0) * (count[a][b] - 1000.0) / 1000.0;
  assert_true(chi_square < 160);
}

TRS_TEST_MAIN(cmocka_unit_test(test_permutation), cmocka_unit_test(test_orders_differ),
              cmocka_unit_test(test_mixing))
