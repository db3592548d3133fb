/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 */
/*
  Compares metrics of one task with TorchRec (golden units_metrics.h5), with tolerance 1e-6. Samples
  are distributed over the ranks in batches of the group's batch_size.
*/
#include "golden_h5.h"
#include "train/metrics/metrics.h"
#include "trs_test.h"

/*
  True if samples with equal predictions have different labels. Then TorchRec's AUC depends on the
  order of its sort. Our AUC counts each pair of such samples as one half.
*/
static int has_mixed_ties(int64_t n, const float *p, const float *y)
{
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++)
      if (p[i] == p[j] && y[i] != y[j]) return 1;
  return 0;
}

static void compute(PetscBool curves, int64_t n, int64_t batch_size, const float *p, const float *y,
                    const float *w, TrsMetricValues *values)
{
  TrsMetrics metrics;

  assert_petsc_ok(TrsMetricsCreate(MPI_COMM_WORLD, &(TrsMetricKind){0}, curves, &metrics));
  for (int64_t begin = 0, batch = 0; begin < n; begin += batch_size, batch++) {
    const int64_t m = n - begin < batch_size ? n - begin : batch_size;

    if (batch % trs_size() == trs_rank()) {
      assert_petsc_ok(TrsMetricsAdd(metrics, m, p + begin, y + begin, w ? w + begin : NULL));
    }
  }
  assert_petsc_ok(TrsMetricsCompute(metrics, values));
  assert_petsc_ok(TrsMetricsDestroy(&metrics));
}

static void check(hid_t group, const char *group_name, const char *name, double found, int *n_checked)
{
  char path[64];
  double *expected;

  snprintf(path, sizeof(path), "out/%s", name);
  if (!golden_has(group, path)) return;
  expected = golden_double(group, path, NULL);
  if (!(found - expected[0] <= 1e-6 * (1.0 + expected[0]) &&
        expected[0] - found <= 1e-6 * (1.0 + expected[0]))) {
    fail_msg("%s: %s is %.10g, expected %.10g", group_name, name, found, expected[0]);
  }
  free(expected);
  (*n_checked)++;
}

static void one_group(hid_t group, const char *name, void *context)
{
  int64_t n;
  float *p = golden_float(group, "in/predictions", &n), *y = golden_float(group, "in/labels", NULL);
  float *w = golden_has(group, "in/weights") ? golden_float(group, "in/weights", NULL) : NULL;
  const int64_t batch_size = (int64_t)golden_number(group, "batch_size", (double)n);
  TrsMetricValues values, unweighted, binned;
  int *n_checked = context;

  compute(PETSC_TRUE, n, batch_size, p, y, w, &values);
  compute(PETSC_TRUE, n, batch_size, p, y, NULL, &unweighted);
  compute(PETSC_FALSE, n, batch_size, p, y, w, &binned);
  check(group, name, "ne", values.ne, n_checked);
  check(group, name, "unweighted_ne", unweighted.ne, n_checked);
  /* the lifetime value, which uses 1000 bins */
  check(group, name, "auprc", binned.auprc, n_checked);
  check(group, name, "accuracy", values.accuracy, n_checked);
  check(group, name, "calibration", values.calibration, n_checked);
  check(group, name, "ctr", values.ctr, n_checked);
  check(group, name, "weighted_avg", values.prediction, n_checked);
  check(group, name, "mse", values.mse, n_checked);
  check(group, name, "rmse", values.rmse, n_checked);
  check(group, name, "mae", values.mae, n_checked);
  if (!has_mixed_ties(n, p, y)) check(group, name, "auc", values.auc, n_checked);
  free(p);
  free(y);
  free(w);
}

static void test_units_metrics(void **state)
{
  hid_t file = golden_open("units_metrics.h5");
  int n_checked = 0;

  (void)state;
  golden_for_each_group(file, one_group, &n_checked);
  golden_close(file);
  assert_true(n_checked > 0);
}

TRS_TEST_MAIN(cmocka_unit_test(test_units_metrics))
