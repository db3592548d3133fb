/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The bags that the update of the batch before them does not touch (embed/untouched.h). All expected
  flags follow by hand from the ids.
*/
#include "embed/untouched.h"
#include "trs_test.h"

#include <string.h>

/* Features 0 and 2 share table 0, which has 130 rows: three words of bits. Table 1 has 64 rows. */
static const TrsTbeTable tables[] = {{.rows = 130, .dim = 4}, {.rows = 64, .dim = 4}};
static const TrsTbeFeature features[] = {{.table = 0}, {.table = 1}, {.table = 0}};
static const TrsTbe tbe = {.n_tables = 2, .n_features = 3, .table = tables, .feature = features};

/* A bag is touched if any of its rows occurs in its table, in any feature and sample. */
static void test_bags(void **state)
{
  /* batch of two samples: table 0 has rows 3, 129, 64 and 63; table 1 has row 63 */
  const int64_t written_offsets[] = {0, 2, 3, 4, 4, 5, 5}, written_ids[] = {3, 129, 64, 63, 63};
  /* the next batch has three samples */
  const int64_t offsets[] = {0, 1, 3, 3, 4, 5, 6, 9, 10, 12};
  /*
    Feature 0 has the bags {129}, {4, 65} and {}, feature 1 {3}, {62} and {63}, and feature 2
    {0, 1, 63}, {128} and {2, 64}. Row 3 was written in the other table.
  */
  const int64_t ids[] = {129, 4, 65, 3, 62, 63, 0, 1, 63, 128, 2, 64};
  const uint8_t wanted[] = {0, 1, 1, 1, 1, 0, 0, 1, 0};
  const TrsTbeInput written = {.batch = 2, .offsets = written_offsets, .values = written_ids, .n_values = 5};
  const TrsTbeInput next = {.batch = 3, .offsets = offsets, .values = ids, .n_values = 12};
  TrsUntouched untouched;
  uint8_t bags[9];

  (void)state;
  assert_petsc_ok(TrsUntouchedCreate(&tbe, &untouched));
  for (int again = 0; again < 2; again++) { /* no mark is left for the next batch */
    memset(bags, 7, sizeof(bags));
    assert_petsc_ok(TrsUntouchedFind(untouched, &written, &next, bags));
    assert_memory_equal(bags, wanted, sizeof(wanted));
  }
  assert_petsc_ok(TrsUntouchedDestroy(&untouched));
  assert_null(untouched);
}

/* Pruned and bad ids are no rows. They touch nothing, and a bag with only such ids is untouched. */
static void test_pruned(void **state)
{
  const int64_t offsets[] = {0, 2, 3, 4}, written_ids[] = {-1, 5, 64, 130}, ids[] = {-1, 130, 64, 5};
  const uint8_t wanted[] = {1, 1, 0};
  const TrsTbeInput written = {.batch = 1, .offsets = offsets, .values = written_ids, .n_values = 4};
  const TrsTbeInput next = {.batch = 1, .offsets = offsets, .values = ids, .n_values = 4};
  TrsUntouched untouched;
  uint8_t bags[3];

  (void)state;
  assert_petsc_ok(TrsUntouchedCreate(&tbe, &untouched));
  assert_petsc_ok(TrsUntouchedFind(untouched, &written, &next, bags));
  assert_memory_equal(bags, wanted, sizeof(wanted));
  assert_petsc_ok(TrsUntouchedDestroy(&untouched));
}

/* After a batch without samples, all bags are untouched. Destroy accepts NULL. */
static void test_empty(void **state)
{
  const int64_t none[] = {0}, offsets[] = {0, 1, 2, 3}, ids[] = {1, 2, 3};
  const uint8_t wanted[] = {1, 1, 1};
  const TrsTbeInput written = {.batch = 0, .offsets = none};
  const TrsTbeInput next = {.batch = 1, .offsets = offsets, .values = ids, .n_values = 3};
  TrsUntouched untouched = NULL;
  uint8_t bags[3];

  (void)state;
  assert_petsc_ok(TrsUntouchedDestroy(&untouched));
  assert_petsc_ok(TrsUntouchedCreate(&tbe, &untouched));
  assert_petsc_ok(TrsUntouchedFind(untouched, &written, &next, bags));
  assert_memory_equal(bags, wanted, sizeof(wanted));
  assert_petsc_ok(TrsUntouchedDestroy(&untouched));
}

TRS_TEST_MAIN(cmocka_unit_test(test_bags), cmocka_unit_test(test_pruned), cmocka_unit_test(test_empty))
