/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests sums whose bits do not depend on the order: sums by hand, and random sums in any order and
  on any ranks.
*/
#include "core/random/random.h"
#include "train/metrics/exact_sum.h"
#include "trs_test.h"

#include <float.h>
#include <math.h>
#include <string.h>

static double sum_of(int n, const double *values)
{
  TrsExactSum sum = {0};

  for (int i = 0; i < n; i++) TrsExactSumAdd(&sum, values[i]);
  return TrsExactSumValue(&sum);
}

/*
  Every finite number is its own sum. If large values cancel, the rest remains. Values that are too
  small in comparison with the largest value are dropped.
*/
static void test_by_hand(void **state)
{
  const double alone[] = {0.0,
                          1.0,
                          -1.0,
                          0.1,
                          -1e300,
                          DBL_MAX,
                          -DBL_MIN,
                          0x1p-20,
                          0x1p-1074,
                          -0x1p-1074,
                          0x1.8p-1050,
                          1e-310,
                          0x1.fffffffffffffp+23,
                          3e-5};
  const double cancel[] = {1e16, 1.0, -1e16}, small[] = {1.0, 0x1p-60, -1.0}, tiny[] = {1e30, 1.0, -1e30};
  const double none[] = {1.0, (double)NAN, 2.0}, infinite[] = {(double)INFINITY, 1.0};

  (void)state;
  for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++) assert_true(sum_of(1, &alone[i]) == alone[i]);
  assert_true(sum_of(3, cancel) == 1.0);
  assert_true(sum_of(3, small) == 0x1p-60);
  assert_true(sum_of(3, tiny) == 0.0);
  assert_true(isnan(sum_of(3, none)));
  assert_true(isnan(sum_of(2, infinite)));
}

/*
  Sums of positive and negative values over 12 decades have the same bits in both orders, if parts
  are merged, and over the ranks. They are close to a sum in long double.
*/
static void test_orders(void **state)
{
  enum { N = 20000 };
  TrsExactSum forth = {0}, back = {0}, parts[7] = {{0}}, merged = {0}, mine = {0}, total;
  static float mantissa[N], decade[N];
  static double value[N];
  long double expected = 0.0L;

  (void)state;
  TrsRandomUniformFill(5, TRS_RANDOM_TEST, 1, 0, N, -1.0f, 1.0f, mantissa);
  TrsRandomUniformFill(5, TRS_RANDOM_TEST, 2, 0, N, -6.0f, 6.0f, decade);
  for (int i = 0; i < N; i++) {
    value[i] = (double)mantissa[i] * pow(10.0, (double)decade[i]);
    expected += (long double)value[i];
  }
  for (int i = 0; i < N; i++) {
    TrsExactSumAdd(&forth, value[i]);
    TrsExactSumAdd(&back, value[N - 1 - i]);
    TrsExactSumAdd(&parts[i * 7 / N], value[i]);
    if (i * trs_size() / N == trs_rank()) TrsExactSumAdd(&mine, value[i]);
  }
  for (int k = 0; k < 7; k++) TrsExactSumMerge(&merged, &parts[(k * 3) % 7]);
  assert_petsc_ok(TrsExactSumsReduce(MPI_COMM_WORLD, 1, &mine, &total));
  assert_memory_equal(&back, &forth, sizeof(forth));
  assert_memory_equal(&merged, &forth, sizeof(forth));
  assert_memory_equal(&total, &forth, sizeof(forth));
  assert_close(TrsExactSumValue(&forth), (double)expected, 0.0, 1e-13);
}

/* Ten million times 0.1 gives the correctly rounded product. A sum of doubles does not. */
static void test_many(void **state)
{
  TrsExactSum sum = {0}, twice = {0};

  (void)state;
  for (int i = 0; i < 10000000; i++) TrsExactSumAdd(&sum, 0.1);
  assert_true(TrsExactSumValue(&sum) == 1000000.0000000000555);
  for (int i = 0; i < 3; i++) TrsExactSumMerge(&twice, &sum);
  assert_true(TrsExactSumValue(&twice) == 3000000.0000000001665);
}

static void test_validity(void **state)
{
  TrsExactSum sum = {0}, wrong;

  (void)state;
  assert_true(TrsExactSumIsValid(&sum));
  TrsExactSumAdd(&sum, -1e300);
  assert_true(TrsExactSumIsValid(&sum));
  wrong = sum;
  wrong.first = -1;
  assert_false(TrsExactSumIsValid(&wrong));
  wrong = sum;
  wrong.digit[1] = INT64_MIN;
  assert_false(TrsExactSumIsValid(&wrong));
  wrong = sum;
  wrong.first = 500;
  assert_false(TrsExactSumIsValid(&wrong));
  TrsExactSumAdd(&sum, (double)NAN);
  assert_false(TrsExactSumIsValid(&sum));
}

TRS_TEST_MAIN(cmocka_unit_test(test_by_hand), cmocka_unit_test(test_orders), cmocka_unit_test(test_many),
              cmocka_unit_test(test_validity))
