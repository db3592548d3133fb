/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares factors with numbers by hand, from the formulas of torchrec.optim.warmup. s = step - 1
  counts from 0.
*/
#include "optim/schedule.h"
#include "trs_test.h"

#include <math.h>
#include <string.h>

static PetscErrorCode read_schedule(const char *const *arguments, TrsSchedule *schedule)
{
  static const TrsOptionGroup *const groups[] = {&trs_schedule_options};
  char *argv[16] = {(char *)(uintptr_t) "test"};
  TrsOptions options;
  PetscErrorCode ierr;
  int argc = 1;

  for (; arguments[argc - 1]; argc++) argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
  assert_petsc_ok(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 1, &options));
  ierr = TrsScheduleFromOptions(options, schedule);
  assert_petsc_ok(TrsOptionsDestroy(&options));
  return ierr;
}

static void test_none(void **state)
{
  static const char *const none[] = {NULL};
  TrsSchedule schedule;

  (void)state;
  assert_petsc_ok(read_schedule(none, &schedule));
  assert_true(TrsScheduleFactor(&schedule, 1) == 1.0 && TrsScheduleFactor(&schedule, 1000000) == 1.0);
  assert_petsc_ok(TrsScheduleFree(&schedule));
}

/*
  Warm-up from 0.2 to 1 in 4 steps, half speed until step 10, square-root decay from (1 - s/20)^2
  until step 20, then 1.
*/
static void test_stages(void **state)
{
  static const char *const arguments[] = {"-schedule_policies",
                                          "linear,constant,poly",
                                          "-schedule_end_steps",
                                          "4,10,20",
                                          "-schedule_values",
                                          "0.2,0.5,2",
                                          "-schedule_scales",
                                          "1,1,3",
                                          NULL};
  TrsSchedule schedule;

  (void)state;
  assert_petsc_ok(read_schedule(arguments, &schedule));
  assert_close(TrsScheduleFactor(&schedule, 1), 0.2, 1e-15, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 2), 0.4, 1e-15, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 5), 1.0, 1e-15, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 6), 0.5, 1e-15, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 11), 0.5, 1e-15, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 12), 3.0 * 0.45 * 0.45, 1e-15, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 21), 0.0, 1e-15, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 22), 1.0, 0.0, 0.0);
  assert_petsc_ok(TrsScheduleFree(&schedule));
}

static void test_policies(void **state)
{
  static const char *const step[] = {"-schedule_policies",
                                     "step",
                                     "-schedule_end_steps",
                                     "100",
                                     "-schedule_values",
                                     "0.5",
                                     "-schedule_decay_steps",
                                     "10",
                                     NULL};
  static const char *const inv_sqrt[] = {"-schedule_policies", "inv_sqrt", "-schedule_end_steps", "100",
                                         NULL};
  static const char *const cosine[] = {
      "-schedule_policies", "cosine", "-schedule_end_steps", "100", "-schedule_values", "0.1", NULL};
  TrsSchedule schedule;

  (void)state;
  assert_petsc_ok(read_schedule(step, &schedule));
  assert_close(TrsScheduleFactor(&schedule, 10), 1.0, 0.0, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 11), 0.5, 0.0, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 31), 0.125, 0.0, 0.0);
  assert_petsc_ok(TrsScheduleFree(&schedule));
  assert_petsc_ok(read_schedule(inv_sqrt, &schedule));
  /* TorchRec would divide by 0 here */
  assert_close(TrsScheduleFactor(&schedule, 1), 1.0, 0.0, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 17), 0.25, 1e-15, 0.0);
  assert_petsc_ok(TrsScheduleFree(&schedule));
  assert_petsc_ok(read_schedule(cosine, &schedule));
  assert_close(TrsScheduleFactor(&schedule, 1), 1.0, 0.0, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 51), 0.55, 1e-15, 0.0);
  assert_close(TrsScheduleFactor(&schedule, 101), 0.1, 1e-15, 0.0);
  assert_petsc_ok(TrsScheduleFree(&schedule));
}

/*
  The schedule of dlrm by its formula: warm-up until step 2, constant until step 6, then ((4 - n) /
  4)^2. The test also has a cosine after a warm-up.
*/
static void test_steps_of_a_stage(void **state)
{
  static const char *const dlrm[] = {"-schedule_policies",
                                     "linear,constant,poly",
                                     "-schedule_end_steps",
                                     "2,6,10",
                                     "-schedule_values",
                                     "0,1,2",
                                     "-schedule_steps_of",
                                     "stage",
                                     NULL};
  static const char *const waves[] = {"-schedule_policies",
                                      "linear,cosine",
                                      "-schedule_end_steps",
                                      "20,40",
                                      "-schedule_values",
                                      "0,0",
                                      "-schedule_steps_of",
                                      "stage",
                                      NULL};
  static const double wanted[] = {0, 0.5, 1, 1, 1, 1, 1, 0.5625, 0.25, 0.0625, 0, 1};
  TrsSchedule schedule;

  (void)state;
  assert_petsc_ok(read_schedule(dlrm, &schedule));
  for (int s = 0; s < 12; s++) assert_close(TrsScheduleFactor(&schedule, s + 1), wanted[s], 1e-15, 0.0);
  assert_petsc_ok(TrsScheduleFree(&schedule));
  assert_petsc_ok(read_schedule(waves, &schedule));
  assert_close(TrsScheduleFactor(&schedule, 21), 1.0, 0.0, 0.0);
  for (int s = 21; s <= 40; s++)
    assert_close(TrsScheduleFactor(&schedule, s + 1), 0.5 * (1.0 + cos(M_PI * (s - 20) / 20.0)), 1e-15, 0.0);
  assert_petsc_ok(TrsScheduleFree(&schedule));
}

static void test_errors(void **state)
{
  static const struct {
    const char *arguments[9];
    const char *named;
  } wrong[] = {
      {{"-schedule_policies", "linear"}, "-schedule_end_steps"},
      {{"-schedule_policies", "linear,constant", "-schedule_end_steps", "5"}, "-schedule_end_steps"},
      {{"-schedule_policies", "linear,constant", "-schedule_end_steps", "5,5"}, "-schedule_end_steps"},
      {{"-schedule_policies", "linear", "-schedule_end_steps", "5", "-schedule_values", "1,2"},
       "-schedule_values"},
  };
  TrsSchedule schedule;

  (void)state;
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    assert_petsc_error(read_schedule(wrong[i].arguments, &schedule), TRS_ERR_OPTION);
    assert_non_null(strstr(TrsErrorMessage(), wrong[i].named));
    assert_petsc_ok(TrsScheduleFree(&schedule));
  }
  TrsErrorClear();
}

TRS_TEST_MAIN(cmocka_unit_test(test_none), cmocka_unit_test(test_stages), cmocka_unit_test(test_policies),
              cmocka_unit_test(test_steps_of_a_stage), cmocka_unit_test(test_errors))
