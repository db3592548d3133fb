/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests the options of embedding optimizers, options that are refused, and the states of each
  optimizer (src/RULES.md, rules A8 to A12).
*/
#include "optim/sparse_optimizer.h"
#include "trs_test.h"

#include <string.h>

/* Read the options for tables user and item. */
static PetscErrorCode read_config(const char *const *arguments, TrsSparseOptimizers *config)
{
  static const TrsOptionGroup *const groups[] = {&trs_sparse_optimizer_options, &trs_table_options};
  static char name[2][8] = {"user", "item"};
  TrsTableConfig table[2] = {{.name = name[0]}, {.name = name[1]}};
  const TrsTableConfigs tables = {.n = 2, .table = table};
  char *argv[24] = {(char *)(uintptr_t) "test"};
  TrsOptions options;
  PetscErrorCode ierr;
  int argc = 1;

  for (; arguments[argc - 1]; argc++) argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
  assert_petsc_ok(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 2, &options));
  ierr = TrsSparseOptimizersFromOptions(options, &tables, config);
  assert_petsc_ok(TrsOptionsDestroy(&options));
  return ierr;
}

static void test_defaults(void **state)
{
  static const char *const none[] = {NULL};
  TrsSparseOptimizers config;

  (void)state;
  assert_petsc_ok(read_config(none, &config));
  assert_int_equal(config.n, 1);
  assert_int_equal(config.of_table[1], 0);
  assert_int_equal(config.args->kind, TRS_OPTIM_ROWWISE_ADAGRAD);
  assert_int_equal(config.args->weight_decay_mode, TRS_DECAY_NONE);
  assert_true(config.args->learning_rate == 0.01f && config.args->eps == 1e-8f && config.args->beta1 == 0.9f);
  assert_true(config.args->beta2 == 0.999f && config.args->weight_decay == 0.0f &&
              config.args->eta == 0.001f);
  assert_true(config.args->momentum == 0.9f && config.max_gradient[0] == 0.0f);
  assert_petsc_ok(TrsSparseOptimizersFree(&config));
}

static void test_given(void **state)
{
  static const char *const arguments[] = {"-embedding_optimizer",
                                          "rowwise_adagrad",
                                          "-embedding_weight_decay_mode",
                                          "decouple",
                                          "-embedding_weight_decay",
                                          "0.5",
                                          "-embedding_max_gradient",
                                          "2",
                                          NULL};
  TrsSparseOptimizers config;

  (void)state;
  assert_petsc_ok(read_config(arguments, &config));
  assert_int_equal(config.args->weight_decay_mode, TRS_DECAY_DECOUPLE);
  assert_true(config.args->weight_decay == 0.5f && config.max_gradient[0] == 2.0f &&
              config.max_gradient[1] == 2.0f);
  assert_petsc_ok(TrsSparseOptimizersFree(&config));
}

/*
  A table may have its own optimizer and numbers. Values that are not given come from the options
  for all tables. Equal settings are stored once.
*/
static void test_of_a_table(void **state)
{
  static const char *const arguments[] = {"-embedding_optimizer",
                                          "adam",
                                          "-embedding_beta1",
                                          "0.5",
                                          "-table_item_optimizer",
                                          "lamb",
                                          "-table_item_learning_rate",
                                          "3",
                                          "-table_item_max_gradient",
                                          "4",
                                          NULL};
  static const char *const equal[] = {
      "-embedding_learning_rate", "1", "-table_user_learning_rate", "1", "-tables_eps", "0.25", NULL};
  const TrsSparseOptimizerArgs *user, *item;
  TrsSparseOptimizers config;

  (void)state;
  assert_petsc_ok(read_config(arguments, &config));
  user = TrsSparseOptimizersOf(&config, 0);
  item = TrsSparseOptimizersOf(&config, 1);
  assert_int_equal(config.n, 2);
  assert_int_equal(user->kind, TRS_OPTIM_ADAM);
  assert_int_equal(item->kind, TRS_OPTIM_LAMB);
  assert_true(user->beta1 == 0.5f && item->beta1 == 0.5f);
  assert_true(user->learning_rate == 0.01f && item->learning_rate == 3.0f);
  assert_true(config.max_gradient[0] == 0.0f && config.max_gradient[1] == 4.0f);
  assert_petsc_ok(TrsSparseOptimizersFree(&config));
  assert_petsc_ok(read_config(equal, &config));
  assert_int_equal(config.n, 1);
  assert_true(config.args->learning_rate == 1.0f && config.args->eps == 0.25f);
  assert_petsc_ok(TrsSparseOptimizersFree(&config));
}

static void test_refused(void **state)
{
  static const struct {
    const char *arguments[5];
    const char *named;
  } wrong[] = {
      {{"-embedding_optimizer", "shampoo"}, "-embedding_optimizer"},
      {{"-embedding_optimizer", "sgd", "-embedding_weight_decay", "0.1"}, "-embedding_weight_decay"},
      {{"-embedding_optimizer", "adagrad", "-embedding_weight_decay", "0.1"}, "-embedding_weight_decay"},
      {{"-embedding_weight_decay_mode", "counter"}, "not supported"},
      {{"-table_item_optimizer", "shampoo"}, "-table_item_optimizer"},
      {{"-tables_optimizer", "shampoo"}, "-tables_optimizer"},
      {{"-table_item_weight_decay_mode", "cowclip"}, "-table_item_weight_decay_mode"},
      {{"-table_user_optimizer", "sgd", "-table_user_weight_decay", "0.1"}, "-table_user_weight_decay"},
      {{"-table_user_optimizer", "sgd", "-embedding_weight_decay", "0.1"}, "sgd of table user"},
  };
  TrsSparseOptimizers config;

  (void)state;
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    assert_petsc_error(read_config(wrong[i].arguments, &config), TRS_ERR_OPTION);
    assert_non_null(strstr(TrsErrorMessage(), wrong[i].named));
  }
  TrsErrorClear();
}

/* No device has an update for shampoo, so the option is refused. */
static void test_no_update(void **state)
{
  TrsSparseOptimizerArgs args = {.step = 1};
  const TrsSparseOptimizers one = {.n = 1, .args = &args};

  (void)state;
  for (int b = 0; trs_compute_backends[b]; b++)
    for (int kind = 0; kind < TRS_N_OPTIMS; kind++) {
      PetscErrorCode ierr;

      args.kind = (TrsSparseOptimizerKind)kind;
      PetscCallAbort(PETSC_COMM_SELF, PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
      ierr = TrsSparseOptimizersCheck(&one, trs_compute_backends[b]);
      PetscCallAbort(PETSC_COMM_SELF, PetscPopErrorHandler());
      assert_int_equal(ierr, kind == TRS_OPTIM_SHAMPOO ? TRS_ERR_UNAVAILABLE : PETSC_SUCCESS);
    }
}

static void test_states(void **state)
{
  static const struct {
    const char *name;
    int n;
    const char *states[2];
    int rowwise[2];
    int couples;
  } expected[] = {
      {"none", 0, {NULL}, {0}, 0},
      {"sgd", 0, {NULL}, {0}, 0},
      {"adagrad", 1, {"momentum1"}, {0}, 0},
      {"rowwise_adagrad", 1, {"momentum1"}, {1}, 1},
      {"adam", 2, {"exp_avg", "exp_avg_sq"}, {0, 0}, 0},
      {"partial_rowwise_adam", 2, {"exp_avg", "exp_avg_sq"}, {0, 1}, 1},
      {"lamb", 2, {"exp_avg", "exp_avg_sq"}, {0, 0}, 1},
      {"partial_rowwise_lamb", 2, {"exp_avg", "exp_avg_sq"}, {0, 1}, 1},
      {"lars_sgd", 1, {"momentum1"}, {0}, 1},
      {"lion", 1, {"exp_avg"}, {0}, 0},
      {"ftrl", 2, {"z", "n"}, {0, 0}, 0},
  };

  (void)state;
  for (int kind = 0; kind < (int)(sizeof(expected) / sizeof(expected[0])); kind++) {
    const char *names[TRS_OPTIMIZER_STATES];
    PetscBool rowwise[TRS_OPTIMIZER_STATES];
    int n = -1;

    TrsSparseOptimizerStates((TrsSparseOptimizerKind)kind, &n, names, rowwise);
    assert_string_equal(TrsSparseOptimizerName((TrsSparseOptimizerKind)kind), expected[kind].name);
    assert_int_equal(n, expected[kind].n);
    assert_int_equal(TrsSparseOptimizerCouplesColumns((TrsSparseOptimizerKind)kind), expected[kind].couples);
    for (int i = 0; i < n; i++) {
      assert_string_equal(names[i], expected[kind].states[i]);
      assert_int_equal(rowwise[i], expected[kind].rowwise[i]);
    }
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_defaults), cmocka_unit_test(test_given),
              cmocka_unit_test(test_of_a_table), cmocka_unit_test(test_refused),
              cmocka_unit_test(test_states), cmocka_unit_test(test_no_update))
