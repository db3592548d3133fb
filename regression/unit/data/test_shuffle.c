/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests that the shuffle is a permutation, differs between seeds and epochs, and looks random. Sums
  of weights are exact in any order.
*/
#include "data/shuffle.h"
#include "data/weight_sum.h"
#include "trs_test.h"

#include <float.h>
#include <math.h>
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

/*
  Two random permutations of 10,000 samples have the same sample at a given position with
  probability 1/10,000. So they agree at 1 position on average, and at more than 12 less than once
  in 1e9.
*/
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

/*
  Count how many samples of each tenth of the order move to each tenth. Each of the 100 counts
  should be near 1000. chi-square with 81 degrees of freedom exceeds 160 about once in 1e6 times.
*/
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

/*
  By hand: the largest and the smallest floats together, carries, no weights, and weights that are
  not finite.
*/
static void test_weight_sums(void **state)
{
  const float extremes[] = {FLT_MAX, 0x1p-149f, 1.0f, FLT_MAX}, thirds[] = {0.1f, 0.2f, 0.3f};
  const float infinite[] = {1.0f, INFINITY}, nan[] = {NAN, 1.0f};
  double digits[TRS_WEIGHT_DIGITS] = {0};

  (void)state;
  TrsWeightSumAdd(digits, 0, NULL);
  assert_true(TrsWeightSumTotal(digits) == 0.0);
  TrsWeightSumAdd(digits, 4, extremes);
  assert_true(TrsWeightSumTotal(digits) == 2.0 * (double)FLT_MAX);
  memset(digits, 0, sizeof(digits));
  TrsWeightSumAdd(digits, 1, extremes + 1);
  assert_true(TrsWeightSumTotal(digits) == 0x1p-149);
  memset(digits, 0, sizeof(digits));
  for (int i = 0; i < 100000; i++) TrsWeightSumAdd(digits, 3, thirds);
  assert_close(TrsWeightSumTotal(digits), 100000 * ((double)0.1f + (double)0.2f + (double)0.3f), 0.0, 1e-15);
  memset(digits, 0, sizeof(digits));
  TrsWeightSumAdd(digits, 2, infinite);
  assert_true(!isfinite(TrsWeightSumTotal(digits)));
  memset(digits, 0, sizeof(digits));
  TrsWeightSumAdd(digits, 2, nan);
  assert_true(TrsWeightSumTotal(digits) != TrsWeightSumTotal(digits));
}

/*
  The sum of 200,000 weights over 40 decades has the same bits in both orders and from 7 ranks. A
  plain sum of doubles does not.
*/
static void test_weight_sums_in_any_order(void **state)
{
  enum { N = 200000, PARTS = 7 };
  float *weight = malloc(N * sizeof(*weight)), *backwards = malloc(N * sizeof(*weight));
  double forth[TRS_WEIGHT_DIGITS] = {0}, back[TRS_WEIGHT_DIGITS] = {0}, ranks[TRS_WEIGHT_DIGITS] = {0};
  double plain[2] = {0.0, 0.0}, total;
  TrsShuffle shuffle;

  (void)state;
  TrsShuffleInit(&shuffle, 3, 0, N);
  for (int64_t i = 0; i < N; i++) {
    const int64_t r = TrsShuffleAt(&shuffle, i);

    weight[i] = ldexpf(1.0f + (float)r / (float)N, (int)(r % 133) - 66);
    backwards[N - 1 - i] = weight[i];
    plain[0] += (double)weight[i];
  }
  for (int64_t i = 0; i < N; i++) plain[1] += (double)backwards[i];
  TrsWeightSumAdd(forth, N, weight);
  TrsWeightSumAdd(back, N, backwards);
  for (int p = 0; p < PARTS; p++) {
    const int64_t first = (int64_t)N * p / PARTS, end = (int64_t)N * (p + 1) / PARTS;
    double part[TRS_WEIGHT_DIGITS] = {0};

    TrsWeightSumAdd(part, end - first, weight + first);
    for (int k = 0; k < TRS_WEIGHT_DIGITS; k++) ranks[k] += part[k];
  }
  total = TrsWeightSumTotal(forth);
  assert_true(plain[0] != plain[1]);
  assert_close(total, plain[0], 0.0, 1e-10);
  assert_true(TrsWeightSumTotal(back) == total);
  assert_true(TrsWeightSumTotal(ranks) == total);
  free(weight);
  free(backwards);
}

TRS_TEST_MAIN(cmocka_unit_test(test_weight_sums), cmocka_unit_test(test_weight_sums_in_any_order),
              cmocka_unit_test(test_permutation), cmocka_unit_test(test_orders_differ),
              cmocka_unit_test(test_mixing))
