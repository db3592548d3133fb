/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Compares metrics of groups with TorchRec and scikit-learn (golden train/units_group_metrics.h5,
  tools/record_group_metrics_peer.py), and NE of segments (units_segmented_ne.h5,
  tools/record_segmented_ne_peer.py). The bits are the same for all orders of samples and all
  numbers of ranks.
*/
#include "golden_h5.h"
#include "train/metrics/group_metrics.h"
#include "train/metrics/running_metrics.h"
#include "trs_test.h"

#include <math.h>

/* Create the metrics for the options "-metrics_group /group -metrics_at 1,3,10", with segments. */
static TrsGroupMetrics create_segments(MPI_Comm comm, int64_t window, int64_t n_segments)
{
  const TrsOptionGroup *groups[1] = {&trs_metrics_options};
  char *argv[] = {(char[]){"test"},        (char[]){"-metrics_group"}, (char[]){"/group"},
                  (char[]){"-metrics_at"}, (char[]){"1,3,10"},         (char[]){"-metrics_segments"},
                  (char[16]){""}};
  TrsGroupMetrics metrics;
  TrsOptions options;

  snprintf(argv[6], 16, "%d", (int)n_segments);
  assert_petsc_ok(TrsOptionsCreate(MPI_COMM_WORLD, 7, argv, groups, 1, &options));
  assert_petsc_ok(TrsGroupMetricsCreate(comm, options, window, &metrics));
  assert_non_null(metrics);
  assert_petsc_ok(TrsOptionsDestroy(&options));
  return metrics;
}

static TrsGroupMetrics create(MPI_Comm comm, int64_t window)
{
  return create_segments(comm, window, 0);
}

static void expect(hid_t group, const char *group_name, const char *name, int64_t at, double found,
                   int *n_checked)
{
  double *expected;
  char path[64];

  snprintf(path, sizeof(path), at ? "out/%s_at_%d" : "out/%s", name, (int)at);
  if (!golden_has(group, path)) return;
  expected = golden_double(group, path, NULL);
  if (!(fabs(found - expected[0]) <= 1e-6))
    fail_msg("%s: %s is %.10g, expected %.10g", group_name, path, found, expected[0]);
  free(expected);
  (*n_checked)++;
}

static void expect_values(hid_t group, const char *name, const TrsGroupValues *v, int *n_checked)
{
  expect(group, name, "gauc", 0, v->gauc, n_checked);
  expect(group, name, "group_ne", 0, v->ne, n_checked);
  expect(group, name, "group_mse", 0, v->mse, n_checked);
  expect(group, name, "group_mae", 0, v->mae, n_checked);
  assert_int_equal(v->n_at, 3);
  for (int k = 0; k < 3; k++) {
    /* TorchRec counts a group without a positive sample as 0. */
    expect(group, name, "ndcg", v->at[k], v->ndcg[k] * (double)v->n_positive / (double)v->n_groups,
           n_checked);
    expect(group, name, "recall", v->at[k], v->recall[k], n_checked);
    expect(group, name, "hit_rate", v->at[k], v->hit_rate[k], n_checked);
    expect(group, name, "precision", v->at[k], v->precision[k], n_checked);
  }
}

static void expect_same_bits(const TrsGroupValues *a, const TrsGroupValues *b)
{
  assert_true(a->n_groups == b->n_groups && a->n_positive == b->n_positive && a->n_both == b->n_both);
  assert_memory_equal(&a->gauc, &b->gauc, sizeof(a->gauc));
  assert_memory_equal(&a->ne, &b->ne, sizeof(a->ne));
  assert_memory_equal(&a->mse, &b->mse, sizeof(a->mse));
  assert_memory_equal(&a->mae, &b->mae, sizeof(a->mae));
  assert_memory_equal(a->ndcg, b->ndcg, sizeof(a->ndcg));
  assert_memory_equal(a->hit_rate, b->hit_rate, sizeof(a->hit_rate));
  assert_memory_equal(a->recall, b->recall, sizeof(a->recall));
  assert_memory_equal(a->precision, b->precision, sizeof(a->precision));
}

/*
  With all samples on one rank, the results are the golden values. In another order, over all ranks,
  they have the same bits.
*/
static void one_group(hid_t group, const char *name, void *context)
{
  int64_t n;
  float *p = golden_float(group, "in/predictions", &n), *y = golden_float(group, "in/labels", NULL);
  float *w = golden_float(group, "in/weights", NULL);
  int64_t *g = golden_int64(group, "in/group", NULL);
  TrsGroupMetrics metrics = create(MPI_COMM_SELF, 0);
  TrsGroupValues alone, spread;

  assert_petsc_ok(TrsGroupMetricsAdd(metrics, n, p, y, w, g));
  assert_petsc_ok(TrsGroupMetricsCompute(metrics, &alone));
  assert_petsc_ok(TrsGroupMetricsDestroy(&metrics));
  expect_values(group, name, &alone, context);
  for (int64_t step = 1; step < n && step < 12; step++) {
    int64_t a = step, b = n;

    while (b) { /* only a step that is coprime to n reaches every sample */
      const int64_t rest = a % b;

      a = b;
      b = rest;
    }
    if (a != 1) continue;
    metrics = create(MPI_COMM_WORLD, 0);
    for (int64_t i = 0; i < n; i++) {
      const int64_t k = i * step % n;

      if ((i / 3) % trs_size() == trs_rank())
        assert_petsc_ok(TrsGroupMetricsAdd(metrics, 1, p + k, y + k, w + k, g + k));
    }
    assert_petsc_ok(TrsGroupMetricsCompute(metrics, &spread));
    assert_petsc_ok(TrsGroupMetricsDestroy(&metrics));
    expect_same_bits(&spread, &alone);
  }
  free(p);
  free(y);
  free(w);
  free(g);
}

static void test_peers(void **state)
{
  hid_t file = H5Fopen(trs_golden_in("train", "units_group_metrics.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  int n_checked = 0;

  (void)state;
  assert_true(file >= 0);
  golden_for_each_group(file, one_group, &n_checked);
  assert_int_equal(n_checked, 5 * 13 + 3 * 3); /* NDCG is compared only without weights */
  golden_close(file);
}

static void expect_segments(const char *name, const TrsGroupValues *v, int64_t n, const double *expected)
{
  assert_int_equal(v->n_segments, n);
  for (int64_t i = 0; i < n; i++)
    if (!(isnan(expected[i]) ? isnan(v->segment_ne[i]) : fabs(v->segment_ne[i] / expected[i] - 1.0) <= 1e-6))
      fail_msg("%s: segment %d has NE %.10g, expected %.10g", name, (int)i, v->segment_ne[i], expected[i]);
}

/*
  NE of segments, over all samples and over a window, for any distribution of samples over ranks.
*/
static void one_of_segments(hid_t group, const char *name, void *context)
{
  int64_t n, n_segments;
  float *p = golden_float(group, "in/predictions", &n), *y = golden_float(group, "in/labels", NULL);
  float *w = golden_float(group, "in/weights", NULL);
  int64_t *g = golden_int64(group, "in/group", NULL);
  double *lifetime = golden_double(group, "out/lifetime", &n_segments);
  double *window = golden_double(group, "out/window", NULL);
  const int64_t window_samples = (int64_t)golden_number(group, "window", 0);
  TrsGroupMetrics all = create_segments(MPI_COMM_WORLD, 0, n_segments);
  TrsGroupMetrics last = create_segments(MPI_COMM_WORLD, window_samples, n_segments);
  TrsGroupValues v, alone;

  for (int64_t i = trs_rank(); i < n; i += trs_size()) {
    assert_petsc_ok(TrsGroupMetricsAdd(all, 1, p + i, y + i, w + i, g + i));
    assert_petsc_ok(TrsGroupMetricsAdd(last, 1, p + i, y + i, w + i, g + i));
  }
  /* the window sizes are multiples of 2, 3 and 4 ranks */
  assert_petsc_ok(TrsGroupMetricsCompute(last, &v));
  expect_segments(name, &v, n_segments, window);
  assert_petsc_ok(TrsGroupMetricsCompute(all, &v));
  expect_segments(name, &v, n_segments, lifetime);
  assert_petsc_ok(TrsGroupMetricsDestroy(&all));
  assert_petsc_ok(TrsGroupMetricsDestroy(&last));
  all = create_segments(MPI_COMM_SELF, 0, n_segments);
  for (int64_t i = n; i-- > 0;) assert_petsc_ok(TrsGroupMetricsAdd(all, 1, p + i, y + i, w + i, g + i));
  assert_petsc_ok(TrsGroupMetricsCompute(all, &alone));
  assert_memory_equal(alone.segment_ne, v.segment_ne, (size_t)n_segments * sizeof(double));
  assert_memory_equal(alone.segment_samples, v.segment_samples, (size_t)n_segments * sizeof(double));
  for (int64_t i = 0; i < n; i++) alone.segment_samples[g[i]]--;
  for (int64_t i = 0; i < n_segments; i++) assert_true(alone.segment_samples[i] == 0.0);
  assert_petsc_ok(TrsGroupMetricsDestroy(&all));
  ++*(int *)context;
  free(p);
  free(y);
  free(w);
  free(g);
  free(lifetime);
  free(window);
}

static void test_segments(void **state)
{
  hid_t file = H5Fopen(trs_golden_in("train", "units_segmented_ne.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  int n = 0;

  (void)state;
  assert_true(file >= 0);
  golden_for_each_group(file, one_of_segments, &n);
  assert_int_equal(n, 5);
  golden_close(file);
}

/*
  Two samples of both classes with equal predictions. TorchRec gives 0.5 or 1. The mean over both
  orders is 0.75.
*/
static void test_tie_by_hand(void **state)
{
  const float p[] = {0.5f, 0.5f, 0.25f, 0.9f}, y[] = {1, 0, 0, 1};
  const int64_t g[] = {7, 7, 7, -1}; /* all samples of the second group have the same class */
  TrsGroupMetrics metrics = create(MPI_COMM_WORLD, 0);
  TrsGroupValues v;

  (void)state;
  if (trs_rank() == 0) assert_petsc_ok(TrsGroupMetricsAdd(metrics, 2, p + 2, y + 2, NULL, g + 2));
  if (trs_rank() == trs_size() - 1) assert_petsc_ok(TrsGroupMetricsAdd(metrics, 2, p, y, NULL, g));
  assert_petsc_ok(TrsGroupMetricsCompute(metrics, &v));
  assert_true(v.gauc == 0.75);
  assert_true(v.n_groups == 2 && v.n_positive == 2 && v.n_both == 1);
  assert_true(v.at[0] == 1 && v.hit_rate[0] == 0.75 && v.recall[0] == 0.75 && v.precision[0] == 0.75);
  assert_petsc_ok(TrsGroupMetricsDestroy(&metrics));
}

/* If no group counts, the metrics are NaN, and the numbers of groups show the reason. */
static void test_no_meaning(void **state)
{
  const float p[] = {0.5f, 0.25f}, y[] = {0, 0};
  const int64_t g[] = {1, 1};
  TrsGroupMetrics metrics = create(MPI_COMM_WORLD, 0), none = NULL;
  TrsGroupValues v;

  (void)state;
  assert_petsc_ok(TrsGroupMetricsCompute(metrics, &v));
  assert_true(v.n_groups == 0 && isnan(v.gauc) && isnan(v.mse) && isnan(v.recall[0]));
  if (trs_rank() == 0) assert_petsc_ok(TrsGroupMetricsAdd(metrics, 2, p, y, NULL, g));
  assert_petsc_ok(TrsGroupMetricsCompute(metrics, &v));
  assert_true(v.n_groups == 1 && v.n_positive == 0 && v.n_both == 0);
  assert_true(isnan(v.gauc) && isnan(v.ne) && isnan(v.ndcg[0]) && isnan(v.recall[0]) &&
              v.precision[0] == 0.0);
  assert_petsc_ok(TrsGroupMetricsDestroy(&metrics));
  assert_petsc_ok(TrsGroupMetricsCompute(none, &v));
  assert_true(v.n_at == 0 && v.n_groups == 0);
}

/* A window has only the last samples. */
static void test_window(void **state)
{
  TrsGroupMetrics window = create(MPI_COMM_WORLD, 10 * trs_size()), last = create(MPI_COMM_WORLD, 0);
  TrsGroupValues a, b;

  (void)state;
  for (int i = 0; i < 37; i++) {
    const float p = (float)((i * 29 + trs_rank()) % 37) / 37.0f, y = (float)(i % 3 == 0);
    const int64_t g = i % 4;

    assert_petsc_ok(TrsGroupMetricsAdd(window, 1, &p, &y, NULL, &g));
    if (i >= 27) assert_petsc_ok(TrsGroupMetricsAdd(last, 1, &p, &y, NULL, &g));
  }
  assert_petsc_ok(TrsGroupMetricsCompute(window, &a));
  assert_petsc_ok(TrsGroupMetricsCompute(last, &b));
  expect_same_bits(&a, &b);
  assert_petsc_ok(TrsGroupMetricsDestroy(&window));
  assert_petsc_ok(TrsGroupMetricsDestroy(&last));
}

TRS_TEST_MAIN(cmocka_unit_test(test_peers), cmocka_unit_test(test_segments),
              cmocka_unit_test(test_tie_by_hand), cmocka_unit_test(test_no_meaning),
              cmocka_unit_test(test_window))
