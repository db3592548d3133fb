/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests options, states, step numbers and clipping. Expected numbers are written by hand. The tests
  in compute/ test the formulas.
*/
#include "optim/dense_optimizer.h"
#include "trs_test.h"

#include <string.h>

static TrsOptions create(const char *const *arguments, TrsDenseOptimizer *optimizer)
{
  static const TrsOptionGroup *const groups[] = {&trs_dense_optimizer_options};
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  char *argv[16] = {(char *)(uintptr_t) "test"};
  TrsOptions options;
  int argc = 1;

  for (; arguments[argc - 1]; argc++) argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
  assert_petsc_ok(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 1, &options));
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsDenseOptimizerCreate(device, compute, optimizer));
  assert_petsc_ok(TrsDenseOptimizerSetFromOptions(*optimizer, options));
  return options;
}

static void finish(TrsOptions options, TrsDenseOptimizer optimizer)
{
  assert_petsc_ok(TrsDenseOptimizerDestroy(&optimizer));
  assert_null(optimizer);
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

/*
  The default is sgd with learning rate 0.01 and no state. With the schedule's factor 0.5, w = 1 -
  0.005 * 2.
*/
static void test_sgd(void **state)
{
  static const char *const none[] = {NULL};
  float w[2] = {1.0f, -1.0f}, g[2] = {2.0f, 0.0f}, *states[TRS_DENSE_MAX_STATES];
  const char *names[TRS_DENSE_MAX_STATES];
  TrsDenseOptimizer optimizer;
  TrsOptions options = create(none, &optimizer);
  int n;

  (void)state;
  assert_petsc_ok(TrsDenseOptimizerSetUp(optimizer, w, 2));
  assert_petsc_ok(TrsDenseOptimizerStates(optimizer, &n, names, states));
  assert_int_equal(n, 0);
  assert_petsc_ok(TrsDenseOptimizerStep(optimizer, NULL, 1, 0.5, g));
  assert_close(w[0], 0.99, 1e-7, 0.0);
  assert_true(w[1] == -1.0f);
  finish(options, optimizer);
}

/* adagrad: sum = g^2 and w -= lr g / (sqrt(sum) + eps). The default of eps is 1e-10. */
static void test_adagrad(void **state)
{
  static const char *const arguments[] = {"-dense_optimizer", "adagrad", "-dense_learning_rate", "0.5", NULL};
  float w[1] = {1.0f}, g[1] = {-3.0f}, *states[TRS_DENSE_MAX_STATES];
  const char *names[TRS_DENSE_MAX_STATES];
  TrsDenseOptimizer optimizer;
  TrsOptions options = create(arguments, &optimizer);
  int n;

  (void)state;
  assert_petsc_ok(TrsDenseOptimizerSetUp(optimizer, w, 1));
  assert_petsc_ok(TrsDenseOptimizerStates(optimizer, &n, names, states));
  assert_int_equal(n, 1);
  assert_string_equal(names[0], "sum");
  assert_petsc_ok(TrsDenseOptimizerStep(optimizer, NULL, 1, 1.0, g));
  assert_close(states[0][0], 9.0, 0.0, 0.0);
  assert_close(w[0], 1.5, 1e-6, 0.0);
  finish(options, optimizer);
}

/*
  For any gradient, the first step of adam changes the weight by lr. This needs bias corrections
  with the right step number.
*/
static void test_adam(void **state)
{
  static const char *const arguments[] = {"-dense_optimizer", "adam", "-dense_learning_rate", "0.25", NULL};
  float w[2] = {1.0f, 1.0f}, g[2] = {10.0f, -0.01f}, *states[TRS_DENSE_MAX_STATES];
  const char *names[TRS_DENSE_MAX_STATES];
  TrsDenseOptimizer optimizer;
  TrsOptions options = create(arguments, &optimizer);
  int n;

  (void)state;
  assert_petsc_ok(TrsDenseOptimizerSetUp(optimizer, w, 2));
  assert_petsc_ok(TrsDenseOptimizerStates(optimizer, &n, names, states));
  assert_int_equal(n, 2);
  assert_string_equal(names[0], "exp_avg");
  assert_string_equal(names[1], "exp_avg_sq");
  assert_petsc_ok(TrsDenseOptimizerStep(optimizer, NULL, 1, 1.0, g));
  assert_close(w[0], 0.75, 1e-5, 0.0);
  assert_close(w[1], 1.25, 1e-5, 0.0);
  assert_close(states[0][0], 1.0, 1e-6, 0.0);
  assert_close(states[1][0], 0.1, 1e-6, 0.0);
  finish(options, optimizer);
}

/* A gradient of norm 5 is scaled to norm 1. A gradient of norm 0.5 is not changed. */
static void test_clipping(void **state)
{
  static const char *const arguments[] = {"-dense_max_gradient_norm", "1", "-dense_learning_rate", "1", NULL};
  float w[2] = {0.0f, 0.0f}, g[2] = {3.0f, -4.0f}, small[2] = {0.3f, 0.4f};
  TrsDenseOptimizer optimizer;
  TrsOptions options = create(arguments, &optimizer);

  (void)state;
  assert_petsc_ok(TrsDenseOptimizerSetUp(optimizer, w, 2));
  assert_petsc_ok(TrsDenseOptimizerStep(optimizer, NULL, 1, 1.0, g));
  assert_close(w[0], -0.6, 1e-6, 0.0);
  assert_close(w[1], 0.8, 1e-6, 0.0);
  assert_petsc_ok(TrsDenseOptimizerStep(optimizer, NULL, 2, 1.0, small));
  assert_close(w[0], -0.9, 1e-6, 0.0);
  assert_close(w[1], 0.4, 1e-6, 0.0);
  finish(options, optimizer);
}

TRS_TEST_MAIN(cmocka_unit_test(test_sgd), cmocka_unit_test(test_adagrad), cmocka_unit_test(test_adam),
              cmocka_unit_test(test_clipping))
