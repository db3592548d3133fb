/* SPDX-License-Identifier: BSD-3-Clause */
/* Golden data of FBGEMM's bounds check: repaired ids and offsets, number of warnings, errors of the mode fatal. */
#include "core/random.h"
#include "golden_h5.h"
#include "hosted_compute.h"

#include <inttypes.h>

/* In the order of the slot's modes: spec/table_config.h */
enum { FATAL, WARNING, IGNORE, NONE };

static const TrsComputeOps *compute;

static int mode_of(hid_t group)
{
  static const char *const names[] = {"fatal", "warning", "ignore", "none"};
  char mode[32];

  golden_string(group, "mode", mode, sizeof(mode));
  for (int i = FATAL; i <= NONE; i++)
    if (strcmp(mode, names[i]) == 0) return i;
  fail_msg("unknown mode %s", mode);
  return NONE;
}

/* Rows of each bag's table: with a batch size of its own for every feature, each bag is checked as a feature with one bag. */
static int64_t *rows_of_bags(hid_t group, int64_t n_bags)
{
  int64_t n_tables = 0, *rows = golden_int64(group, "in/rows", &n_tables), *begin = NULL;
  int64_t *of_bag = calloc((size_t)n_bags + 1, sizeof(*of_bag));

  if (golden_has(group, "in/B_offsets")) begin = golden_int64(group, "in/B_offsets", NULL);
  for (int64_t t = 0; t < n_tables; t++) {
    const int64_t first = begin ? begin[t] : t * (n_bags / n_tables),
                  end = begin ? begin[t + 1] : (t + 1) * (n_bags / n_tables);

    for (int64_t b = first; b < end; b++) of_bag[b] = rows[t];
  }
  free(rows);
  free(begin);
  return of_bag;
}

static void check(hid_t group, const char *name, PetscBool as_single_bags)
{
  const int mode = mode_of(group);
  int64_t n_offsets = 0, n_values = 0, n_tables = 0, report[5] = {0};
  int64_t *offsets = golden_int64(group, "in/offsets", &n_offsets),
          *values = golden_int64(group, "in/indices", &n_values),
          *rows = golden_int64(group, "in/rows", &n_tables),
          *warnings = golden_int64(group, "out/warning", NULL),
          *error = golden_int64(group, "out/error", NULL);

  if (as_single_bags) {
    free(rows);
    rows = rows_of_bags(group, n_offsets - 1);
    n_tables = n_offsets - 1;
  }
  assert_petsc_ok(compute->bounds_check(NULL, mode, (int)n_tables, (n_offsets - 1) / n_tables, rows, offsets,
                                        values, n_values, report));
  if (mode == FATAL && (report[0] > 0) != (error[0] > 0))
    fail_msg("%s: %" PRId64 " violations found, %" PRId64 " expected", name, report[0], error[0]);
  if (mode == WARNING && report[0] != warnings[0])
    fail_msg("%s: %" PRId64 " warnings, expected %" PRId64, name, report[0], warnings[0]);
  if (error[0] == 0) {
    int64_t *golden_offsets = golden_int64(group, "out/offsets", NULL),
            *golden_values = golden_int64(group, "out/indices", NULL);

    assert_memory_equal(offsets, golden_offsets, (size_t)n_offsets * sizeof(*offsets));
    assert_memory_equal(values, golden_values, (size_t)n_values * sizeof(*values));
    free(golden_offsets);
    free(golden_values);
  }
  free(offsets);
  free(values);
  free(rows);
  free(warnings);
  free(error);
}

static void one_group(hid_t group, const char *name, void *context)
{
  (void)context;
  if (!golden_has(group, "in/B_offsets")) check(group, name, PETSC_FALSE);
  check(group, name, PETSC_TRUE);
}

static void test_golden(void **state)
{
  hid_t file = golden_open("units_bounds.h5");

  (void)state;
  for (int i = 0; (compute = trs_hosted(i)); i++) golden_for_each_group(file, one_group, NULL);
  golden_close(file);
}

/* By hand: two features of two bags; the first bad id is 9 in bag 1 of feature 1. */
static void check_place_of_first(void)
{
  const int64_t rows[] = {10, 5};
  int64_t offsets[] = {0, 1, 2, 3, 5}, values[] = {9, -1, 4, -1, 9}, report[5] = {0};

  assert_petsc_ok(compute->bounds_check(NULL, WARNING, 2, 2, rows, offsets, values, 5, report));
  assert_int_equal(report[0], 1);
  assert_int_equal(report[1], 1);
  assert_int_equal(report[2], 1);
  assert_int_equal(report[3], 9);
  assert_int_equal(report[4], 4);
  assert_int_equal(values[4], 0);
  assert_int_equal(values[1], -1);
}

static void test_place_of_first(void **state)
{
  (void)state;
  for (int i = 0; (compute = trs_hosted(i)); i++) check_place_of_first();
}

/*
  Random damage: all backends agree with the CPU on every repaired offset and id, on the count and on the place of the first violation. More features
  than one launch of a GPU holds.
*/
static void test_damage(void **state)
{
  enum { FEATURES = 500, BATCH = 3, BAGS = FEATURES * BATCH, N = 4000, CASES = 24 };
  static int64_t offsets[2][BAGS + 1], values[2][N], rows[FEATURES];

  (void)state;
  for (int c = 0; c < CASES; c++) {
    const int mode = c % 3;
    int64_t report[2][5] = {{0}};

    for (int i = 0; (compute = trs_hosted(i)); i++) {
      const int to = i > 0;
      uint32_t word[4];

      memset(report[to], 0, sizeof(report[to]));
      for (int f = 0; f < FEATURES; f++) rows[f] = 10 + f;
      for (int b = 0; b <= BAGS; b++) offsets[to][b] = (int64_t)b * N / BAGS;
      for (int v = 0; v < N; v++) values[to][v] = v % 10;
      for (int d = 0; d < c / 2; d++) { /* 0 to 11 damages, ids more often than offsets */
        TrsRandom(3, TRS_RANDOM_TEST, (uint64_t)c, (uint64_t)d, word);
        if (d % 4 == 3)
          offsets[to][word[0] % (BAGS + 1)] = (int64_t)(word[1] % (2 * N)) - N / 2;
        else
          values[to][word[0] % N] = word[1] % 2 ? (int64_t)word[2] : -2 - (int64_t)word[2];
      }
      assert_petsc_ok(
          compute->bounds_check(NULL, mode, FEATURES, BATCH, rows, offsets[to], values[to], N, report[to]));
      if (i == 0) continue;
      assert_memory_equal(report[1], report[0], sizeof(report[0]));
      assert_memory_equal(offsets[1], offsets[0], sizeof(offsets[0]));
      assert_memory_equal(values[1], values[0], sizeof(values[0]));
    }
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_golden), cmocka_unit_test(test_place_of_first),
              cmocka_unit_test(test_damage))
