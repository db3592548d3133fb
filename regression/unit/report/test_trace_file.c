/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/trace_file.h"
#include "trs_test.h"

static TrsTraceSpan exchange(double start_s, double end_s)
{
  return (TrsTraceSpan){
      .row = TRS_TRACE_EXCHANGE, .what = TRS_TRACE_DENSE, .start_s = start_s, .end_s = end_s};
}

/*
  Exchanges that overlap get separate rows. A row is reused as soon as it is free. Rows that are not
  used stay unchanged.
*/
static void test_lanes(void **state)
{
  TrsTraceSpan span[] = {{.row = TRS_TRACE_MAIN, .end_s = 9},
                         exchange(0, 4),
                         exchange(1, 2),
                         exchange(2, 6),
                         exchange(3, 5),
                         exchange(4, 7)};
  const int lane[] = {0, 0, 1, 1, 2, 0};

  (void)state;
  assert_int_equal(TrsTraceLanes(6, span), 0);
  assert_int_equal(span[0].row, TRS_TRACE_MAIN);
  for (int i = 1; i < 6; i++) assert_int_equal(span[i].row, TRS_TRACE_EXCHANGE + lane[i]);
}

/* If more exchanges overlap than there are rows, the surplus exchanges are dropped and counted. */
static void test_too_many(void **state)
{
  TrsTraceSpan span[TRS_TRACE_LANES + 3];

  (void)state;
  for (int i = 0; i < TRS_TRACE_LANES + 3; i++) span[i] = exchange(i, 1000);
  assert_int_equal(TrsTraceLanes(TRS_TRACE_LANES + 3, span), 3);
  for (int i = 0; i < TRS_TRACE_LANES + 3; i++)
    assert_int_equal(span[i].row, i < TRS_TRACE_LANES ? TRS_TRACE_EXCHANGE + i : -1);
}

TRS_TEST_MAIN(cmocka_unit_test(test_lanes), cmocka_unit_test(test_too_many))
