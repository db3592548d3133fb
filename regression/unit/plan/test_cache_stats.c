/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares miss rates with TorchRec's results. Both compute in float32. */
#include "plan/cost/cache_stats.h"
#include "plan_units.h"

static void test_miss_rate(void **state)
{
  json_t *root, *x, *section = units_section(&root, "expected_miss_rate");
  size_t i;

  (void)state;
  json_array_foreach(section, i, x)
  {
    const json_t *hist = json_object_get(x, "hist"), *bins = json_object_get(x, "bins_float32");
    const json_t *factor = json_object_get(x, "clf"), *rate = json_object_get(x, "miss_rate");
    int n = (int)json_array_size(hist);
    double *counts = calloc((size_t)n + 1, sizeof(double));

    for (int k = 0; k < n; k++) counts[k] = unit_at(hist, (size_t)k);
    for (int k = 0; k <= n; k++)
      assert_close(TrsCacheStatsBin(n, unit_int(x, "height"), k), unit_at(bins, (size_t)k), 0, 0);
    for (size_t k = 0; k < json_array_size(factor); k++)
      assert_close(TrsCacheMissRate(n, counts, unit_int(x, "height"), unit_at(factor, k)), unit_at(rate, k),
                   0, 1e-9);
    free(counts);
  }
  json_decref(root);
}

TRS_TEST_MAIN(cmocka_unit_test(test_miss_rate))
