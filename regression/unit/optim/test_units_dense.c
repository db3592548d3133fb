/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares with golden data of torch.optim, and of LAMB from its paper
  (regression/golden/runtime/record_dense_optimizer.py): steps of the dense optimizers with clipped
  gradients, for every instruction set, and learning-rate schedules.
*/
#include "golden_h5.h"
#include "optim/dense_optimizer.h"
#include "optim/schedule.h"

#include <math.h>

static TrsOptions parse(hid_t group, const TrsOptionGroup *const *groups)
{
  char text[512], *argv[32] = {(char *)(uintptr_t) "test"};
  TrsOptions options;
  int argc = 1;

  golden_string(group, "options", text, sizeof(text));
  for (char *word = strtok(text, " "); word && argc < 32; word = strtok(NULL, " ")) argv[argc++] = word;
  assert_petsc_ok(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 1, &options));
  return options;
}

static void assert_near(const char *name, const char *what, int64_t n, const float *found,
                        const double *expected)
{
  for (int64_t i = 0; i < n; i++)
    if (!(fabs((double)found[i] - expected[i]) <= 3e-6 * (1.0 + fabs(expected[i]))))
      fail_msg("%s: %s, element %d is %.9g, expected %.9g", name, what, (int)i, (double)found[i],
               expected[i]);
}

static void check_optimizer(hid_t group, const char *name)
{
  static const TrsOptionGroup *const groups[] = {&trs_dense_optimizer_options};
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsDenseOptimizer optimizer;
  TrsOptions options = parse(group, groups);
  int64_t n, n_grads, n_first;
  float *w = golden_float(group, "in/weight", &n), *grads = golden_float(group, "in/grads", &n_grads);
  int64_t *first = golden_int64(group, "in/first", &n_first);
  double *expected = golden_double(group, "out/weight", NULL);
  double *average = golden_double(group, "out/ema", NULL);
  const char *names[TRS_DENSE_MAX_STATES];
  float *states[TRS_DENSE_MAX_STATES];
  int n_states;

  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsDenseOptimizerCreate(device, compute, &optimizer));
  assert_petsc_ok(TrsDenseOptimizerSetFromOptions(optimizer, options));
  assert_petsc_ok(TrsDenseOptimizerSetTensors(optimizer, (int)n_first, first));
  assert_petsc_ok(TrsDenseOptimizerSetUp(optimizer, w, n));
  for (int64_t step = 0; step < n_grads / n; step++) {
    assert_petsc_ok(TrsDenseOptimizerStep(optimizer, NULL, step + 1, 1.0, grads + step * n));
    assert_near(name, "weight", n, w, expected + step * n);
  }
  assert_petsc_ok(TrsDenseOptimizerStates(optimizer, &n_states, names, states));
  assert_string_equal(names[n_states - 1], TRS_DENSE_AVERAGE);
  assert_near(name, "average", n, states[n_states - 1], average);
  assert_petsc_ok(TrsDenseOptimizerSwapAverage(optimizer, NULL));
  assert_near(name, "average in use", n, w, average);
  assert_petsc_ok(TrsDenseOptimizerSwapAverage(optimizer, NULL));
  assert_near(name, "weight after the use", n, w, expected + n_grads - n);
  assert_petsc_ok(TrsDenseOptimizerDestroy(&optimizer));
  assert_petsc_ok(TrsOptionsDestroy(&options));
  free(w);
  free(grads);
  free(first);
  free(average);
  free(expected);
}

static void check_schedule(hid_t group, const char *name)
{
  static const TrsOptionGroup *const groups[] = {&trs_schedule_options};
  TrsOptions options = parse(group, groups);
  TrsSchedule schedule;
  int64_t n;
  double *expected = golden_double(group, "out/factor", &n);

  assert_petsc_ok(TrsScheduleFromOptions(options, &schedule));
  for (int64_t s = 0; s < n; s++)
    if (!(fabs(TrsScheduleFactor(&schedule, s + 1) - expected[s]) <= 1e-12))
      fail_msg("%s: the factor of step %d is %.17g, expected %.17g", name, (int)s,
               TrsScheduleFactor(&schedule, s + 1), expected[s]);
  assert_petsc_ok(TrsScheduleFree(&schedule));
  assert_petsc_ok(TrsOptionsDestroy(&options));
  free(expected);
}

static void one_group(hid_t group, const char *name, void *context)
{
  (void)context;
  if (strncmp(name, "optimizer_", 10) == 0)
    check_optimizer(group, name);
  else if (strncmp(name, "schedule_", 9) == 0)
    check_schedule(group, name);
  else
    fail_msg("unknown group %s", name);
}

static void test_golden(void **state)
{
  static const char *const isas[] = {"portable", "avx2", "avx512"};
  hid_t file = golden_open("units_dense_optimizer.h5");

  (void)state;
  for (int i = 0; i < 3; i++) {
    TrsComputeSetIsa(isas[i]);
    golden_for_each_group(file, one_group, NULL);
  }
  golden_close(file);
}

TRS_TEST_MAIN(cmocka_unit_test(test_golden))
