/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/* Reads tables of algorithms for matrix products, and refuses wrong lines. */
#include "compute/product_table.h"
#include "trs_test.h"

#include <string.h>

static const char key[] = "NVIDIA H200, cuBLASLt 13.1.0, bf16",
                  shape[] = "8192 x 512 x 16 NT bf16 to bf16 bias relu";

static void test_entries(void **state)
{
  static const char text[] = "# a comment\n"
                             "\n"
                             "[NVIDIA H200, cuBLASLt 13.1.0, bf16]\r\n"
                             "# 3.10 us, the first one 5.20 us\n"
                             "4 of 8 tile 20 parts 2 scheme 1 : 8192 x 512 x 16 NT bf16 to bf16 bias relu\n"
                             "1 of 1 tile 0 parts 0 scheme 0 : another shape\n"
                             "[NVIDIA H100, cuBLASLt 13.1.0, bf16]\n"
                             "2 of 8 tile 21 parts 1 scheme 0 : 8192 x 512 x 16 NT bf16 to bf16 bias relu";
  const TrsProductEntry *entry;
  TrsProductTable table;
  const char *wrong;
  int line;

  (void)state;
  assert_petsc_ok(TrsProductTableParse(text, &table, &line, &wrong));
  assert_null(wrong);
  assert_int_equal(line, 0);
  assert_int_equal(table.n, 3);
  entry = TrsProductTableFind(&table, key, shape);
  assert_non_null(entry);
  assert_int_equal(entry->algorithm, 4);
  assert_int_equal(entry->n, 8);
  assert_int_equal(entry->tile, 20);
  assert_int_equal(entry->split, 2);
  assert_int_equal(entry->scheme, 1);
  entry = TrsProductTableFind(&table, "NVIDIA H100, cuBLASLt 13.1.0, bf16", shape);
  assert_non_null(entry);
  assert_int_equal(entry->tile, 21);
  assert_null(TrsProductTableFind(&table, key, "no shape"));
  assert_null(TrsProductTableFind(&table, "NVIDIA H200, cuBLASLt 13.1.0, tf32", shape));
  assert_true(TrsProductTableHas(&table, key));
  assert_false(TrsProductTableHas(&table, "NVIDIA H200"));
  assert_petsc_ok(TrsProductTableFree(&table));
  assert_petsc_ok(TrsProductTableFree(&table)); /* an empty table */
  assert_petsc_ok(TrsProductTableParse("", &table, &line, &wrong));
  assert_null(wrong);
  assert_int_equal(table.n, 0);
  assert_petsc_ok(TrsProductTableFree(&table));
}

/* Each text has one wrong line. */
static void test_wrong_lines(void **state)
{
  static const struct {
    const char *text, *wrong;
    int line;
  } cases[] = {
      {"1 of 8 tile 1 parts 1 scheme 1 : a", "before the first entry", 1},
      {"[a]\n[b\n", "expected '[GPU", 2},
      {"[a]\n[]\n", "expected '[GPU", 2},
      {"[a]\n1 of 8 tile 1 parts 1 scheme 1\n", "expected 'ALGORITHM", 2},
      {"[a]\n1 of 8 tile 1 parts 1 scheme 1 : ", "expected 'ALGORITHM", 2},
      {"[a]\none of 8 tile 1 parts 1 scheme 1 : a", "expected 'ALGORITHM", 2},
      {"[a]\n9 of 8 tile 1 parts 1 scheme 1 : a", "not one of a list", 2},
      {"[a]\n0 of 8 tile 1 parts 1 scheme 1 : a", "not one of a list", 2},
      {"[a]\n1 of 9 tile 1 parts 1 scheme 1 : a", "not one of a list", 2},
      {"[a]\n1 of 8 tile -1 parts 1 scheme 1 : a", "between 0 and", 2},
      {"[a]\n1 of 8 tile 1 parts 99999999 scheme 1 : a", "between 0 and", 2},
      {"[a]\n1 of 8 tile 1 parts 1 scheme 1 : a\n\n2 of 8 tile 1 parts 1 scheme 1 : a", "already", 4}};

  (void)state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    TrsProductTable table;
    const char *wrong;
    int line;

    assert_petsc_ok(TrsProductTableParse(cases[i].text, &table, &line, &wrong));
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, cases[i].wrong));
    assert_int_equal(line, cases[i].line);
    assert_int_equal(table.n, 0);
    assert_null(table.entry);
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_entries), cmocka_unit_test(test_wrong_lines))
