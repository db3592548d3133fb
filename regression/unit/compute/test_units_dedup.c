/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares with golden data of FBGEMM's jagged_unique_indices: the unique ids of the features of
  each table, and the index of each id among them.
*/
#include "golden_h5.h"
#include "hosted_compute.h"

static const TrsComputeOps *compute;

static void one_group(hid_t group, const char *name, void *context)
{
  const int64_t stride = (int64_t)golden_number(group, "stride", 0.0);
  int64_t n_bags = 0, n_values = 0, n_unique = 0, n_begin = 0;
  int32_t *lengths = golden_int32(group, "in/lengths", &n_bags);
  /* the features of each table */
  int64_t *values = golden_int64(group, "in/values", &n_values),
          *table_begin = golden_int64(group, "in/hash_size_offsets", &n_begin);
  int64_t *golden_unique = golden_int64(group, "out/unique_indices", &n_unique),
          *golden_reverse = golden_int64(group, "out/reverse_indices", NULL);
  const int n_tables = (int)n_begin - 1;
  int64_t *offsets = calloc((size_t)n_bags + 1, sizeof(*offsets)),
          *begin = calloc((size_t)n_begin, sizeof(*begin)),
          *unique_begin = calloc((size_t)n_begin, sizeof(*begin)),
          *unique = calloc((size_t)n_values + 1, sizeof(*unique)),
          *reverse = calloc((size_t)n_values + 1, sizeof(*reverse));
  TrsWorkspace workspace = NULL;

  (void)name;
  (void)context;
  assert_petsc_ok(compute->offsets(NULL, n_bags, lengths, offsets));
  for (int t = 0; t <= n_tables; t++) begin[t] = offsets[table_begin[t] * stride];
  assert_petsc_ok(compute->workspace_create(&workspace));
  assert_petsc_ok(compute->unique(NULL, workspace, n_tables, begin, values, unique_begin, unique, reverse));
  assert_int_equal(unique_begin[n_tables], n_unique);
  assert_memory_equal(unique, golden_unique, (size_t)n_unique * sizeof(*unique));
  for (int t = 0; t < n_tables; t++)
    for (int64_t i = begin[t]; i < begin[t + 1]; i++)
      assert_int_equal(reverse[i], golden_reverse[i] - unique_begin[t]);
  assert_petsc_ok(compute->workspace_destroy(&workspace));
  free(lengths);
  free(values);
  free(table_begin);
  free(golden_unique);
  free(golden_reverse);
  free(offsets);
  free(begin);
  free(unique_begin);
  free(unique);
  free(reverse);
}

static void test_golden(void **state)
{
  hid_t file = golden_open("units_dedup.h5");

  (void)state;
  for (int i = 0; (compute = trs_hosted(i)); i++) golden_for_each_group(file, one_group, NULL);
  golden_close(file);
}

TRS_TEST_MAIN(cmocka_unit_test(test_golden))
