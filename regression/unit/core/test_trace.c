/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/trace.h"
#include "trs_test.h"

#include <string.h>

/*
  If a ring buffer has wrapped around several times, it holds the newest spans in order, and counts
  the spans that were dropped.
*/
static void test_wrap(void **state)
{
  TrsTraceSpan *span;
  int64_t n, n_lost;

  (void)state;
  for (int total = 0; total < 30; total++) {
    const int64_t kept = total < 8 ? total : 7;

    assert_petsc_ok(TrsTraceOpen(8, 0, 1, PETSC_FALSE));
    for (int i = 0; i < total; i++) TrsTraceRecord(TRS_TRACE_READER, TRS_TRACE_READ, i, i, i + 0.5, 10 * i);
    assert_petsc_ok(TrsTraceSpans(&n, &span, &n_lost));
    assert_int_equal(n, kept);
    assert_int_equal(n_lost, total - kept);
    for (int64_t i = 0; i < n; i++) {
      assert_int_equal(span[i].step, total - kept + i);
      assert_int_equal(span[i].bytes, 10 * span[i].step);
      assert_int_equal(span[i].row, TRS_TRACE_READER);
    }
    assert_petsc_ok(PetscFree(span));
  }
  assert_petsc_ok(TrsTraceClose());
}

/*
  Only stages of the traced steps are recorded. Each stage is inside its step, and the step comes
  first. If a stage was entered before its step, its beginning is cut off.
*/
static void test_steps(void **state)
{
  TrsTraceSpan *span;
  int64_t n, n_lost;

  (void)state;
  assert_petsc_ok(TrsTraceOpen(64, 3, 5, PETSC_FALSE));
  for (int step = 0; step < 8; step++) {
    if (step == 4) assert_petsc_ok(TrsStageSwitch(TRS_STAGE_IO, NULL));
    TrsTraceStepBegin(step);
    assert_int_equal(trs_tracing, step == 3 || step == 4);
    assert_petsc_ok(TrsStageSwitch(TRS_STAGE_LOOKUP, NULL));
    assert_petsc_ok(TrsStageSwitch(TRS_STAGE_WAIT, NULL));
    assert_petsc_ok(TrsStageSwitch(TRS_STAGE_NONE, NULL));
    TrsTraceStepEnd();
    assert_false(trs_tracing);
    /* this is between steps, so it is not recorded */
    assert_petsc_ok(TrsStageSwitch(TRS_STAGE_PLAN, NULL));
    assert_petsc_ok(TrsStageSwitch(TRS_STAGE_NONE, NULL));
  }
  assert_petsc_ok(TrsTraceSpans(&n, &span, &n_lost));
  assert_int_equal(n, 3 + 4);
  assert_int_equal(n_lost, 0);
  for (int64_t i = 0, in = 0; i < n; i++) {
    const int expected[] = {TRS_TRACE_STEP, TRS_STAGE_LOOKUP, TRS_STAGE_WAIT, TRS_TRACE_STEP,
                            TRS_STAGE_IO,   TRS_STAGE_LOOKUP, TRS_STAGE_WAIT};

    assert_int_equal(span[i].what, expected[i]);
    assert_int_equal(span[i].step, i < 3 ? 3 : 4);
    if (span[i].what == TRS_TRACE_STEP) in = i;
    assert_true(span[in].start_s <= span[i].start_s && span[i].end_s <= span[in].end_s);
    if (i > in + 1) assert_true(span[i - 1].end_s <= span[i].start_s);
  }
  assert_petsc_ok(PetscFree(span));
  assert_petsc_ok(TrsTraceClose());
}

/* After Close, no step is traced and recording does nothing. */
static void test_closed(void **state)
{
  TrsTraceSpan *span;
  int64_t n, n_lost;

  (void)state;
  assert_petsc_ok(TrsTraceClose());
  assert_false(TrsTraceWants(0));
  TrsTraceStepBegin(0);
  assert_false(trs_tracing);
  TrsTraceRecord(TRS_TRACE_MAIN, TRS_STAGE_LOOKUP, 0, 0, 1, -1);
  assert_petsc_ok(TrsTraceSpans(&n, &span, &n_lost));
  assert_int_equal(n, 0);
  assert_petsc_ok(PetscFree(span));
}

static void test_names(void **state)
{
  (void)state;
  for (int a = 0; a < TRS_TRACE_N_KINDS; a++)
    for (int b = 0; b < a; b++) assert_string_not_equal(TrsTraceName(a), TrsTraceName(b));
}

TRS_TEST_MAIN(cmocka_unit_test(test_wrap), cmocka_unit_test(test_steps), cmocka_unit_test(test_closed),
              cmocka_unit_test(test_names))
