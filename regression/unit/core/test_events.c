/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 */
#include "core/clock.h"
#include "core/events.h"
#include "trs_test.h"

#include <string.h>
#include <time.h>

static int depth, n_ranges; /* the ranges that a profiler sees */

static void count_range(const char *name)
{
  depth += name ? 1 : -1;
  n_ranges += name != NULL;
  assert_true(depth >= 0 && depth <= 1);
}

/*
  An observer may be set and removed within stages. It sees as many ends as begins of ranges, and no
  nested ranges.
*/
static void test_observer_sees_whole_ranges(void **state)
{
  TrsStage before;

  (void)state;
  assert_petsc_ok(TrsStageSwitch(TRS_STAGE_LOOKUP, NULL));
  TrsStageObserve(count_range);
  assert_int_equal(depth, 1);
  assert_petsc_ok(TrsStageSwitch(TRS_STAGE_WAIT, &before));
  assert_petsc_ok(TrsStageSwitch(before, NULL));
  assert_petsc_ok(TrsStageSwitch(TRS_STAGE_NONE, NULL));
  assert_int_equal(depth, 0);
  assert_petsc_ok(TrsStageSwitch(TRS_STAGE_IO, NULL));
  TrsStageObserve(NULL);
  assert_int_equal(depth, 0);
  assert_int_equal(n_ranges, 4);
  assert_petsc_ok(TrsStageSwitch(TRS_STAGE_NONE, NULL)); /* no observer is called */
  assert_int_equal(n_ranges, 4);
}

static void sleep_ms(long ms)
{
  const struct timespec nap = {0, ms * 1000000};

  nanosleep(&nap, NULL);
}

/* Time is added to the stage that was entered, and only once. */
static void test_times(void **state)
{
  const double start_s = TrsClock();
  double seconds[TRS_N_STAGES], all = 0;
  TrsStage before = TRS_N_STAGES;

  (void)state;
  assert_petsc_ok(TrsStageTimes(seconds, PETSC_TRUE));
  assert_int_equal(TrsStageCurrent(), TRS_STAGE_NONE);
  assert_petsc_ok(TrsStageSwitch(TRS_STAGE_LOOKUP, &before));
  assert_int_equal(before, TRS_STAGE_NONE);
  sleep_ms(20);
  assert_petsc_ok(TrsStageSwitch(TRS_STAGE_WAIT, &before));
  assert_int_equal(before, TRS_STAGE_LOOKUP);
  assert_int_equal(TrsStageCurrent(), TRS_STAGE_WAIT);
  sleep_ms(10);
  assert_petsc_ok(TrsStageSwitch(before, NULL));
  /* a switch from the stage to itself */
  assert_petsc_ok(TrsStageSwitch(TRS_STAGE_LOOKUP, &before));
  assert_int_equal(before, TRS_STAGE_LOOKUP);
  sleep_ms(5);
  assert_petsc_ok(TrsStageTimes(seconds, PETSC_FALSE)); /* the running stage counts until now */
  assert_true(seconds[TRS_STAGE_LOOKUP] >= 0.025 && seconds[TRS_STAGE_WAIT] >= 0.010);
  for (int i = 0; i < TRS_N_STAGES; i++) all += seconds[i];
  assert_true(all <= TrsClock() - start_s + 1e-9 && seconds[TRS_STAGE_OPTIMIZER] == 0);
  assert_petsc_ok(TrsStageSwitch(TRS_STAGE_NONE, NULL));
  assert_petsc_ok(TrsStageTimes(seconds, PETSC_TRUE));
  assert_petsc_ok(TrsStageTimes(seconds, PETSC_FALSE));
  assert_true(seconds[TRS_STAGE_LOOKUP] == 0);
}

/* Each stage has one PETSc event, with the name that -log_view shows. */
static void test_petsc_events(void **state)
{
  static const char *const names[] = {
      "input_dist", "lookup", "output_dist", "dense forward", "dense backward", "embedding backward",
      "optimizer",  "I/O",    "waiting",     "exchange",      "cache",          "plan"};
  PetscEventPerfInfo info;
  PetscLogEvent event;

  (void)state;
  assert_petsc_ok(TrsEventsRegister()); /* a second call registers no more events */
  assert_petsc_ok(PetscLogDefaultBegin());
  for (int i = 0; i < TRS_STAGE_NONE; i++) {
    assert_string_equal(TrsStageName((TrsStage)i), names[i]);
    assert_petsc_ok(TrsStageSwitch((TrsStage)i, NULL));
    assert_petsc_ok(TrsStageSwitch(TRS_STAGE_NONE, NULL));
    assert_petsc_ok(PetscLogEventGetId(names[i], &event));
    assert_true(event > 0);
    assert_petsc_ok(PetscLogEventGetPerfInfo(0, event, &info));
    assert_int_equal(info.count, 1);
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_times), cmocka_unit_test(test_observer_sees_whole_ranges),
              cmocka_unit_test(test_petsc_events))
