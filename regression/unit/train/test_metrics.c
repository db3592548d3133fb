/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Compares metrics with values by hand or by definition (all pairs for AUC). The values do not
  depend on how the samples are distributed over ranks.
*/
#include "core/random/random.h"
#include "train/metrics/metrics.h"
#include "trs_test.h"

#include <math.h>
#include <stddef.h>

enum { N = 500 };

/* Add the samples i for which owner(i) is this rank, in two calls. */
static void compute_kind(const TrsMetricKind *kind, int n, const float *p, const float *y, const float *w,
                         int spread, TrsMetricValues *values)
{
  const int size = trs_size(), rank = trs_rank();
  float mine[3][N];
  TrsMetrics metrics;
  int m = 0;

  for (int i = 0; i < n; i++) {
    if ((spread ? i % size : 0) != rank) continue;
    mine[0][m] = p[i];
    mine[1][m] = y[i];
    mine[2][m++] = w ? w[i] : 1.0f;
  }
  assert_petsc_ok(TrsMetricsCreate(MPI_COMM_WORLD, kind, PETSC_TRUE, &metrics));
  assert_petsc_ok(TrsMetricsAdd(metrics, m / 2, mine[0], mine[1], w ? mine[2] : NULL));
  assert_petsc_ok(
      TrsMetricsAdd(metrics, m - m / 2, mine[0] + m / 2, mine[1] + m / 2, w ? mine[2] + m / 2 : NULL));
  for (int i = 0; i < m; i++) { /* the losses of each task are a column */
    const double losses[] = {100.0, 0.5, 100.0, (double)mine[0][i] - 0.5 + 0.1 * (double)mine[2][i]};

    TrsMetricsAddLosses(metrics, kind->exact ? 2 : 1, losses + 1, 2);
  }
  assert_petsc_ok(TrsMetricsCompute(metrics, values));
  assert_petsc_ok(TrsMetricsDestroy(&metrics));
  assert_null(metrics);
}

static void compute(int n, const float *p, const float *y, const float *w, int spread,
                    TrsMetricValues *values)
{
  compute_kind(&(TrsMetricKind){0}, n, p, y, w, spread, values);
}

/*
  Four samples by hand: p .9 .6 .4 .1, y 1 0 1 0. 3 of 4 pairs are in order, and the prediction p >=
  0.5 is right twice.
*/
static void test_by_hand(void **state)
{
  static const float p[] = {0.75f, 0.625f, 0.375f, 0.125f}, y[] = {1.0f, 0.0f, 1.0f, 0.0f};
  TrsMetricValues values;

  (void)state;
  for (int spread = 0; spread < 2; spread++) {
    compute(4, p, y, NULL, spread, &values);
    assert_int_equal(values.n_samples, 4);
    assert_close(values.loss, 0.5, 1e-15, 0.0);
    assert_close(values.auc, 0.75, 1e-15, 0.0);
    assert_close(values.accuracy, 0.5, 1e-15, 0.0);
    assert_close(values.calibration, 1.875 / 2.0, 1e-15, 0.0);
    assert_close(values.ctr, 0.5, 1e-15, 0.0);
    assert_close(values.mse, (0.0625 + 0.390625 + 0.390625 + 0.015625) / 4.0, 1e-15, 0.0);
    assert_close(values.rmse, sqrt(values.mse), 1e-15, 0.0);
    assert_close(values.mae, (0.25 + 0.625 + 0.625 + 0.125) / 4.0, 1e-15, 0.0);
    assert_close(values.ne, -(log(0.75) + log(0.375) + log(0.375) + log(0.875)) / (4.0 * log(2.0)), 1e-14,
                 0.0);
    assert_close(values.auprc, 0.5 * 1.0 + 0.5 * 2.0 / 3.0, 1e-15, 0.0);
  }
}

/*
  AUC is the weighted fraction of pairs (positive, negative) that are in order. A pair with equal
  predictions counts as one half. Predictions on a grid of 1/64 have many such pairs. Predictions
  outside [0, 1] are ordered as well, and -0 equals 0.
*/
static void test_auc_by_pairs(void **state)
{
  float p[N], y[N], w[N];
  double pairs = 0.0, ordered = 0.0;
  TrsMetricValues values;

  (void)state;
  TrsRandomUniformFill(9, TRS_RANDOM_TEST, 1, 0, N, 0.0f, 1.0f, p);
  TrsRandomUniformFill(9, TRS_RANDOM_TEST, 2, 0, N, 0.0f, 1.0f, y);
  TrsRandomUniformFill(9, TRS_RANDOM_TEST, 3, 0, N, 0.0f, 2.0f, w);
  for (int i = 0; i < N; i++) {
    y[i] = y[i] < 0.2f + 0.5f * p[i] ? 1.0f : 0.0f;
    p[i] = floorf(p[i] * 64.0f) / 64.0f;
  }
  for (int i = 0; i < N; i++) {
    for (int j = 0; j < N; j++) {
      if (y[i] != 1.0f || y[j] != 0.0f) continue;
      pairs += (double)w[i] * (double)w[j];
      ordered += (double)w[i] * (double)w[j] * (p[i] > p[j] ? 1.0 : p[i] == p[j] ? 0.5 : 0.0);
    }
  }
  for (int spread = 0; spread < 2; spread++) {
    compute(N, p, y, w, spread, &values);
    assert_close(values.auc, ordered / pairs, 1e-12, 0.0);
  }
  for (int i = 0; i < N; i++) {
    p[i] = 4.0f * p[i] - 2.0f;
    if (p[i] == 0.0f && i % 2) p[i] = -0.0f;
  }
  compute(N, p, y, w, 0, &values);
  assert_close(values.auc, ordered / pairs, 1e-12, 0.0);
}

/*
  The sum over distinct predictions of the precision there times the fraction of positive samples
  with this prediction, as in scikit-learn's average_precision_score.
*/
static double average_precision(int n, const float *p, const float *y, const float *w)
{
  double area = 0.0, positives = 0.0;

  for (int i = 0; i < n; i++) {
    double tp = 0.0, all = 0.0;

    for (int j = 0; j < n; j++) {
      if (p[j] < p[i]) continue;
      tp += y[j] == 1.0f ? (double)w[j] : 0.0;
      all += (double)w[j];
    }
    if (y[i] != 1.0f) continue;
    area += (double)w[i] * tp / all;
    positives += (double)w[i];
  }
  return area / positives;
}

/*
  AUPRC by its definition, for predictions for which 1000 bins are inaccurate: few positive samples,
  and predictions that are close or equal. By hand, scikit-learn's example p .1 .4 .35 .8, y 0 0 1 1
  gives 0.8333. Without weights, all samples on one rank give the same bits.
*/
static void test_auprc_by_definition(void **state)
{
  static const float example[] = {0.1f, 0.4f, 0.35f, 0.8f}, labels[] = {0.0f, 0.0f, 1.0f, 1.0f};
  float p[N], y[N], w[N], ones[N];
  TrsMetricValues values, alone;
  TrsMetrics metrics;

  (void)state;
  compute(4, example, labels, NULL, 1, &values);
  assert_close(values.auprc, 5.0 / 6.0, 1e-15, 0.0);
  TrsRandomUniformFill(9, TRS_RANDOM_TEST, 1, 0, N, 0.0f, 1.0f, p);
  TrsRandomUniformFill(9, TRS_RANDOM_TEST, 2, 0, N, 0.0f, 1.0f, y);
  TrsRandomUniformFill(9, TRS_RANDOM_TEST, 3, 0, N, 0.0f, 2.0f, w);
  for (int i = 0; i < N; i++) {
    y[i] = y[i] < 0.1f * p[i] ? 1.0f : 0.0f;
    p[i] = 0.003f + floorf(p[i] * 256.0f) / 65536.0f;
    ones[i] = 1.0f;
  }
  assert_petsc_ok(TrsMetricsCreate(PETSC_COMM_SELF, &(TrsMetricKind){0}, PETSC_TRUE, &metrics));
  assert_petsc_ok(TrsMetricsAdd(metrics, N, p, y, NULL));
  assert_petsc_ok(TrsMetricsCompute(metrics, &alone));
  assert_petsc_ok(TrsMetricsDestroy(&metrics));
  for (int spread = 0; spread < 2; spread++) {
    compute(N, p, y, w, spread, &values);
    assert_close(values.auprc, average_precision(N, p, y, w), 1e-12, 0.0);
    compute(N, p, y, NULL, spread, &values);
    assert_close(values.auprc, average_precision(N, p, y, ones), 1e-12, 0.0);
    assert_memory_equal(&values.auprc, &alone.auprc, sizeof(values.auprc));
    assert_memory_equal(&values.auc, &alone.auc, sizeof(values.auc));
  }
}

/*
  Test samples of only one class, equal predictions, no samples at all, and weights that are all
  zero.
*/
static void test_degenerate(void **state)
{
  static const float p[] = {0.25f, 0.5f, 0.25f}, ones[] = {1.0f, 1.0f, 1.0f}, equal[] = {0.5f, 0.5f, 0.5f},
                     mixed[] = {1.0f, 0.0f, 1.0f}, zeros[] = {0.0f, 0.0f, 0.0f};
  TrsMetricValues values;

  (void)state;
  compute(3, p, ones, NULL, 1, &values);
  assert_close(values.auc, 0.5, 0.0, 0.0);
  assert_close(values.auprc, 1.0, 0.0, 0.0);
  assert_int_equal(values.lack, TRS_LACK_CLASS);
  TrsMetricsKeepMeasured(&values);
  assert_true(isnan(values.ne) && isnan(values.auc) && isnan(values.auprc));
  assert_close(values.calibration, 1.0 / 3.0, 1e-15, 0.0);
  compute(3, p, zeros, NULL, 1, &values);
  assert_close(values.calibration, 0.0, 0.0, 0.0);
  TrsMetricsKeepMeasured(&values);
  assert_true(isnan(values.calibration) && values.ctr == 0.0 && values.accuracy == 2.0 / 3.0);
  compute(3, equal, mixed, NULL, 1, &values);
  assert_close(values.auc, 0.5, 0.0, 0.0);
  assert_close(values.auprc, 2.0 / 3.0, 1e-15, 0.0);
  assert_int_equal(values.lack, TRS_LACK_NOTHING);
  TrsMetricsKeepMeasured(&values);
  assert_close(values.auc, 0.5, 0.0, 0.0);
  for (int n = 0; n <= 3; n += 3) {
    compute(n, p, mixed, zeros, 1, &values);
    assert_int_equal(values.n_samples, n);
    assert_int_equal(values.lack, TRS_LACK_WEIGHT);
    assert_true(isnan(values.loss) && isnan(values.ne) && isnan(values.auc) && isnan(values.auprc) &&
                isnan(values.accuracy) && isnan(values.calibration) && isnan(values.ctr) &&
                isnan(values.prediction) && isnan(values.mse) && isnan(values.rmse) && isnan(values.mae));
  }
}

/*
  With exact sums, the values have the same bits in any order and on any ranks. They differ from
  other sums only by rounding. Labels are probabilities, numbers, or classes. Weights extend over 18
  decades, and some predictions are equal.
*/
static void test_exact(void **state)
{
  const TrsLabelKind labels[] = {TRS_LABEL_PROBABILITY, TRS_LABEL_NUMBER, TRS_LABEL_CLASS};
  float p[N], y[N], w[N], back[3][N];

  (void)state;
  TrsRandomUniformFill(9, TRS_RANDOM_TEST, 1, 0, N, 0.0f, 1.0f, p);
  TrsRandomUniformFill(9, TRS_RANDOM_TEST, 2, 0, N, 0.0f, 1.0f, y);
  TrsRandomUniformFill(9, TRS_RANDOM_TEST, 3, 0, N, -9.0f, 9.0f, w);
  for (int i = 0; i < N; i++) {
    if (i % 3) y[i] = roundf(y[i]);
    if (i % 2) p[i] = floorf(p[i] * 16.0f) / 16.0f;
    w[i] = powf(10.0f, w[i]);
    back[0][N - 1 - i] = p[i];
    back[1][N - 1 - i] = y[i];
    back[2][N - 1 - i] = w[i];
  }
  for (int k = 0; k < 3; k++) {
    for (int weighted = 0; weighted < 2; weighted++) {
      const TrsMetricKind kind = {.labels = labels[k],
                                  .loss = TRS_LOSS_HUBER,
                                  .huber_delta = 0.1,
                                  .exact = PETSC_TRUE},
                          plain = {.labels = labels[k], .loss = TRS_LOSS_HUBER, .huber_delta = 0.1};
      TrsMetricValues one, spread, turned, other;

      compute_kind(&kind, N, p, y, weighted ? w : NULL, 0, &one);
      compute_kind(&kind, N, p, y, weighted ? w : NULL, 1, &spread);
      compute_kind(&kind, N, back[0], back[1], weighted ? back[2] : NULL, 1, &turned);
      compute_kind(&plain, N, p, y, weighted ? w : NULL, 1, &other);
      assert_memory_equal(&one, &spread, offsetof(TrsMetricValues, groups));
      assert_memory_equal(&one, &turned, offsetof(TrsMetricValues, groups));
      assert_true(one.loss != other.loss); /* the metrics of the other kind got different losses */
      if (labels[k] == TRS_LABEL_CLASS) assert_close(one.accuracy, other.accuracy, 0.0, 1e-12);
      if (labels[k] != TRS_LABEL_CLASS) assert_close(one.ctr, other.ctr, 0.0, 1e-12);
      if (labels[k] != TRS_LABEL_CLASS) assert_close(one.mse, other.mse, 0.0, 1e-12);
      if (labels[k] != TRS_LABEL_PROBABILITY) continue;
      assert_close(one.ne, other.ne, 0.0, 1e-12);
      assert_close(one.auc, other.auc, 0.0, 1e-12);
      assert_close(one.auprc, other.auprc, 0.0, 1e-12);
    }
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_exact), cmocka_unit_test(test_by_hand),
              cmocka_unit_test(test_auc_by_pairs), cmocka_unit_test(test_auprc_by_definition),
              cmocka_unit_test(test_degenerate))
