/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Compares windowed and lifetime metrics with TorchRec (golden train/units_running_metrics.h5,
  tools/record_metrics_peer.py).
*/
#include "golden_h5.h"
#include "train/metrics/running_metrics.h"
#include "trs_test.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

typedef struct {
  const char *name;
  double value;
} Named;

/* Check every metric that TorchRec reported for a row. */
static int check_row(hid_t group, const char *group_name, int64_t row, const TrsRunningValues *v)
{
  const TrsMetricValues *w = &v->window, *l = &v->lifetime;
  const Named named[] = {{"window_ne", w->ne},
                         {"window_auc", w->auc},
                         {"window_auprc", w->auprc},
                         {"window_accuracy", w->accuracy},
                         {"window_calibration", w->calibration},
                         {"window_ctr", w->ctr},
                         {"window_mse", w->mse},
                         {"window_rmse", w->rmse},
                         {"window_mae", w->mae},
                         {"lifetime_ne", l->ne},
                         {"lifetime_auprc", l->auprc},
                         {"lifetime_accuracy", l->accuracy},
                         {"lifetime_calibration", l->calibration},
                         {"lifetime_ctr", l->ctr},
                         {"lifetime_mse", l->mse},
                         {"lifetime_rmse", l->rmse},
                         {"lifetime_mae", l->mae}};
  const int n = (int)(sizeof(named) / sizeof(named[0]));

  for (int i = 0; i < n; i++) {
    char path[64];
    double *expected;

    snprintf(path, sizeof(path), "out/%s", named[i].name);
    expected = golden_double(group, path, NULL);
    if (!(fabs(named[i].value - expected[row]) <=
          2e-6 * (1.0 + fabs(expected[row])))) /* TorchRec computes some sums in fp32 */
      fail_msg("%s: %s of row %d is %.10g, expected %.10g", group_name, named[i].name, (int)row,
               named[i].value, expected[row]);
    free(expected);
  }
  return n;
}

/* Run all updates. Each global batch is divided into parts that are as equal as possible. */
static void one_group(hid_t group, const char *name, void *context)
{
  int64_t n, shape[2];
  float *p = golden_read(group, "in/predictions", H5T_NATIVE_FLOAT, &n, shape);
  float *y = golden_float(group, "in/labels", NULL);
  const int64_t every = (int64_t)golden_number(group, "compute_every", 1);
  const int64_t updates = shape[0], batch = shape[1];
  const int64_t mine = batch / trs_size();
  const float *first_p = p + trs_rank() * mine, *first_y = y + trs_rank() * mine;
  TrsRunningMetrics metrics;

  assert_int_equal(batch % trs_size(), 0);
  assert_petsc_ok(TrsRunningMetricsCreate(MPI_COMM_WORLD, &(TrsMetricKind){0}, NULL,
                                          (int64_t)golden_number(group, "window_size", 1), &metrics));
  for (int64_t u = 0; u < updates; u++) {
    assert_petsc_ok(TrsRunningMetricsAdd(
        metrics, &(TrsMetricSamples){mine, first_p + u * batch, first_y + u * batch, NULL, NULL, NULL}));
    if ((u + 1) % every == 0) {
      TrsRunningValues values;
      assert_petsc_ok(TrsRunningMetricsCompute(metrics, &values));
      *(int *)context += check_row(group, name, (u + 1) / every - 1, &values);
      assert_true(values.lifetime.n_samples == (u + 1) * batch && isnan(values.lifetime.auc));
    }
  }
  assert_petsc_ok(TrsRunningMetricsDestroy(&metrics));
  assert_null(metrics);
  free(p);
  free(y);
}

static void test_torchrec(void **state)
{
  hid_t file = H5Fopen(trs_golden_in("train", "units_running_metrics.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  int n_checked = 0;

  (void)state;
  assert_true(file >= 0);
  golden_for_each_group(file, one_group, &n_checked);
  assert_true(n_checked >= 17 * 20);
  golden_close(file);
}

/*
  Metrics are saved for all ranks and loaded again. Then the lifetime values continue unchanged, and
  the window is empty.
*/
static void test_save_and_load(void **state)
{
  const float p[] = {0.25f, 0.75f, 0.5f}, y[] = {0.0f, 1.0f, 1.0f};
  TrsRunningValues whole, resumed;
  TrsRunningMetrics one, two;
  double *numbers, copy[4096];
  int n;

  (void)state;
  assert_petsc_ok(TrsRunningMetricsCreate(MPI_COMM_WORLD, &(TrsMetricKind){0}, NULL, 1000, &one));
  assert_petsc_ok(TrsRunningMetricsCreate(MPI_COMM_WORLD, &(TrsMetricKind){0}, NULL, 1000, &two));
  for (int step = 1; step <= 10; step++) {
    assert_petsc_ok(TrsRunningMetricsAdd(one, &(TrsMetricSamples){3, p, y, NULL, NULL, NULL}));
    assert_petsc_ok(TrsRunningMetricsStep(one, 3 * trs_size(), (double)step));
  }
  assert_petsc_ok(TrsRunningMetricsSave(one, &n, &numbers));
  assert_true(n <= 4096);
  for (int i = 0; i < n; i++) copy[i] = numbers[i];
  assert_petsc_ok(TrsRunningMetricsLoad(two, "file", n, copy));
  for (int step = 11; step <= 20; step++) {
    assert_petsc_ok(TrsRunningMetricsAdd(one, &(TrsMetricSamples){3, p, y, NULL, NULL, NULL}));
    assert_petsc_ok(TrsRunningMetricsStep(one, 3 * trs_size(), (double)step));
    assert_petsc_ok(TrsRunningMetricsAdd(two, &(TrsMetricSamples){3, p, y, NULL, NULL, NULL}));
    assert_petsc_ok(TrsRunningMetricsStep(two, 3 * trs_size(), (double)step));
  }
  assert_petsc_ok(TrsRunningMetricsCompute(one, &whole));
  assert_petsc_ok(TrsRunningMetricsCompute(two, &resumed));
  assert_int_equal(whole.total_examples, 60 * trs_size());
  assert_int_equal(resumed.total_examples, 60 * trs_size());
  assert_int_equal(resumed.attempt_examples, 30 * trs_size());
  assert_int_equal(resumed.window.n_samples, 30 * trs_size());
  assert_int_equal(resumed.lifetime.n_samples, 60 * trs_size());
  assert_close(resumed.lifetime.ne, whole.lifetime.ne, 1e-14, 0.0);
  assert_close(resumed.lifetime.calibration, 1.5 / 2.0, 1e-14, 0.0);
  /* the first 8 steps of each run are not counted; a step takes a second */
  assert_close(whole.attempt_throughput, 3.0 * trs_size(), 1e-12, 0.0);
  assert_close(resumed.lifetime_throughput, 3.0 * trs_size(), 1e-12, 0.0);
  /* with the first values, throughput is still unknown */
  assert_true(isnan(whole.window_throughput));
  /* the cross entropy, which can be negative for labels outside [0, 1] */
  copy[3] = -1e20;
  assert_petsc_ok(TrsRunningMetricsLoad(two, "file", n, copy));
  copy[3] = (double)NAN;
  assert_petsc_error(TrsRunningMetricsLoad(two, "file", n, copy), TRS_ERR_DATA);
  copy[3] = 1.0;
  copy[0] = -1.0; /* this is the number of samples */
  assert_petsc_error(TrsRunningMetricsLoad(two, "file", n, copy), TRS_ERR_DATA);
  copy[0] = 1e17;
  assert_petsc_error(TrsRunningMetricsLoad(two, "file", n, copy), TRS_ERR_DATA);
  assert_petsc_error(TrsRunningMetricsLoad(two, "file", n - 1, numbers), TRS_ERR_DATA);
  assert_petsc_ok(TrsRunningMetricsDestroy(&one));
  assert_petsc_ok(TrsRunningMetricsDestroy(&two));
}

/*
  Add this rank's part of batches of unequal size. The part may be empty, and some samples have no
  label.
*/
static void add_shared(TrsRunningMetrics metrics, int n, int size, int rank, int step)
{
  float p[64], y[64], w[64];
  int64_t place[64];
  int m = 0;

  for (int i = n * rank / size; i < n * (rank + 1) / size; i++) {
    const unsigned mixed = (unsigned)(step * 64 + i) * 2654435761u;

    if (mixed % 5 == 0) continue;
    p[m] = (float)(mixed >> 8) / 16777216.0f;
    y[m] = (float)(mixed % 7) / 6.0f;
    w[m] = powf(10.0f, (float)(mixed % 19) - 9.0f);
    place[m++] = i;
  }
  assert_petsc_ok(TrsRunningMetricsAdd(metrics, &(TrsMetricSamples){m, p, y, w, NULL, place}));
  assert_petsc_ok(TrsRunningMetricsStep(metrics, n, (double)step));
}

/*
  Save the window of `one`, which has 100 samples, and load it into `two`. `other` refuses numbers
  that are not a valid window.
*/
static void check_window(TrsRunningMetrics one, TrsRunningMetrics two, TrsRunningMetrics other)
{
  double *numbers, copy[302], keep;
  int n, used;

  assert_petsc_ok(TrsRunningMetricsSaveWindow(one, 301, &n, &numbers));
  /* the window is too large, so an empty window is saved */
  assert_int_equal(n, trs_rank() == 0 ? 2 : 0);
  assert_petsc_ok(TrsRunningMetricsSaveWindow(one, 302, &n, &numbers));
  assert_int_equal(n, trs_rank() == 0 ? 302 : 0);
  if (trs_rank() == 0) memcpy(copy, numbers, sizeof(copy));
  MPI_Bcast(copy, 302, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  assert_true(copy[0] == 3.0 && copy[1] == 100.0);
  assert_petsc_ok(TrsRunningMetricsLoadWindow(two, "file", 302, copy, &used));
  assert_int_equal(used, 302);
  assert_petsc_error(TrsRunningMetricsLoadWindow(other, "file", 301, copy, &used), TRS_ERR_DATA);
  assert_petsc_error(TrsRunningMetricsLoadWindow(other, "file", 1, copy, &used), TRS_ERR_DATA);
  for (int i = 0; i < 5; i++) {
    const double wrong[] = {4.0, 99.5, (double)NAN, 1e300, 0.1};

    keep = copy[i];
    copy[i] = wrong[i];
    assert_petsc_error(TrsRunningMetricsLoadWindow(other, "file", 302, copy, &used), TRS_ERR_DATA);
    copy[i] = keep;
  }
}

/*
  With exact sums, the window has the last samples of all ranks, and all values have the same bits
  as on a single rank. The same is true for the lifetime values of a training that was saved and
  loaded. If a file has no exact sums, the training continues from the rounded sums.
*/
static void test_exact(void **state)
{
  const TrsMetricKind kind = {.exact = PETSC_TRUE};
  const size_t bytes = offsetof(TrsMetricValues, groups);
  TrsRunningMetrics all, alone, resumed, old;
  TrsRunningValues v, one, later, rounded;
  double *numbers, *exact, keep;
  int n, n_exact;

  (void)state;
  assert_petsc_ok(TrsRunningMetricsCreate(MPI_COMM_WORLD, &kind, NULL, 100, &all));
  assert_petsc_ok(TrsRunningMetricsCreate(MPI_COMM_SELF, &kind, NULL, 100, &alone));
  assert_petsc_ok(TrsRunningMetricsCreate(MPI_COMM_WORLD, &kind, NULL, 100, &resumed));
  assert_petsc_ok(TrsRunningMetricsCreate(MPI_COMM_WORLD, &kind, NULL, 100, &old));
  for (int step = 1; step <= 40; step++) {
    const int batch = step % 4 ? 33 : 1; /* if a batch has only one sample, the last rank has it */

    add_shared(all, batch, trs_size(), trs_rank(), step);
    add_shared(alone, batch, 1, 0, step);
    if (step > 20) add_shared(resumed, batch, trs_size(), trs_rank(), step);
    if (step > 20) add_shared(old, batch, trs_size(), trs_rank(), step);
    if (step == 20) {
      assert_petsc_ok(TrsRunningMetricsSave(all, &n, &numbers));
      assert_petsc_ok(TrsRunningMetricsSaveExact(all, &n_exact, &exact));
      assert_petsc_ok(TrsRunningMetricsLoad(resumed, "file", n, numbers));
      assert_petsc_ok(TrsRunningMetricsLoadExact(resumed, "file", n_exact, exact));
      assert_petsc_ok(TrsRunningMetricsLoad(old, "file", n, numbers));
      for (int i = 0; i < n_exact; i += 4321) {
        keep = exact[i];
        exact[i] = (double)NAN;
        assert_petsc_error(TrsRunningMetricsLoadExact(old, "file", n_exact, exact), TRS_ERR_DATA);
        exact[i] = 0.5;
        assert_petsc_error(TrsRunningMetricsLoadExact(old, "file", n_exact, exact), TRS_ERR_DATA);
        exact[i] = -0x1p31; /* a digit below the lowest position, or a digit that is too large */
        if (i % 9 != 2 && i % 9 != 4)
          assert_petsc_error(TrsRunningMetricsLoadExact(old, "file", n_exact, exact), TRS_ERR_DATA);
        exact[i] = keep;
      }
      assert_petsc_error(TrsRunningMetricsLoadExact(old, "file", n_exact - 1, exact), TRS_ERR_DATA);
      check_window(all, resumed, old);
      assert_petsc_ok(TrsRunningMetricsLoad(old, "file", n, numbers));
    }
    if (step > 20) { /* the window was saved and loaded */
      assert_petsc_ok(TrsRunningMetricsCompute(resumed, &later));
      assert_petsc_ok(TrsRunningMetricsCompute(all, &v));
      assert_memory_equal(&later.window, &v.window, bytes);
    }
    if (step % 3) continue;
    assert_petsc_ok(TrsRunningMetricsCompute(all, &v));
    assert_petsc_ok(TrsRunningMetricsCompute(alone, &one));
    assert_memory_equal(&v.window, &one.window, bytes);
    assert_memory_equal(&v.lifetime, &one.lifetime, bytes);
    if (step > 5) assert_int_equal(v.window.n_samples, 100);
  }
  assert_petsc_ok(TrsRunningMetricsCompute(all, &v));
  assert_petsc_ok(TrsRunningMetricsCompute(resumed, &later));
  assert_petsc_ok(TrsRunningMetricsCompute(old, &rounded));
  assert_memory_equal(&rounded.window, &v.window, bytes); /* the window is full again */
  assert_memory_equal(&later.lifetime, &v.lifetime, bytes);
  assert_int_equal(rounded.lifetime.n_samples, v.lifetime.n_samples);
  assert_close(rounded.lifetime.ne, v.lifetime.ne, 0.0, 1e-14);
  assert_petsc_ok(TrsRunningMetricsDestroy(&all));
  assert_petsc_ok(TrsRunningMetricsDestroy(&alone));
  assert_petsc_ok(TrsRunningMetricsDestroy(&resumed));
  assert_petsc_ok(TrsRunningMetricsDestroy(&old));
}

TRS_TEST_MAIN(cmocka_unit_test(test_exact), cmocka_unit_test(test_torchrec),
              cmocka_unit_test(test_save_and_load))
