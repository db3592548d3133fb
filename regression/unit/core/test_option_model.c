/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 */
/*
  Tests a checkpoint's model options: their priorities, which options are refused, and which are
  written.
*/
#include "option_specs.h"

static const TrsOptionGroup model_plain = TRS_OPTION_GROUP_OF_MODEL(
    "Plain", NULL, plain_specs, "-tables,-dense_arch,-rate", "-title,-steps");
static const TrsOptionGroup model_table = TRS_OPTION_GROUP_OF_MODEL("Tables", "table", table_specs,
                                                                    "embedding_dim,dim", "pooling,init_min");

static const TrsOptionGroup *const model_groups[] = {&model_plain, &model_table};

static PetscErrorCode take(TrsOptions options, const char *model)
{
  char text[1024];

  snprintf(text, sizeof(text), "%s", model);
  return TrsOptionsTakeModel(options, "m.h5", text);
}

/* Check which pooling a table has (an index) and from which source it comes. */
static void check_pooling(TrsOptions options, const char *table, int expected, const char *from)
{
  const char *name, *source;
  int pooling;

  assert_petsc_ok(TrsOptionsObjectName(options, "table", table, "pooling", &name));
  assert_petsc_ok(TrsOptionsGetEnum(options, name, &pooling, NULL));
  assert_petsc_ok(TrsOptionsSource(options, name, &source));
  assert_int_equal(pooling, expected);
  assert_string_equal(source, from);
}

/*
  The user's options have priority, including options for all tables. Then come the model's option
  for one table, the model's option for all tables, and the default.
*/
static void test_take_model(void **state)
{
  static const char model[] = "-tables a,b\n-tables_pooling mean\n-table_a_pooling none\n-dense_arch 8,4\n"
                              "-tables_embedding_dim 2K\n";
  const int64_t *sizes = NULL;
  const char *const names[] = {"a", "b"};
  char *text;
  TrsOptions options;
  PetscBool set;
  double rate;
  int n = 0;

  (void)state;
  assert_petsc_ok(create_in(model_groups, "-batch_size 8", &options));
  /* -dense_arch has a default, and its value was read */
  assert_petsc_ok(TrsOptionsGetInts(options, "-dense_arch", &n, &sizes, &set));
  assert_true(!set && n == 2 && sizes[0] == 512);
  assert_petsc_ok(take(options, model));
  assert_petsc_ok(TrsOptionsGetInts(options, "-dense_arch", &n, &sizes, &set));
  assert_true(set && n == 2 && sizes[0] == 8);
  check_pooling(options, "a", 2, "m.h5");
  check_pooling(options, "b", 1, "m.h5");
  assert_string_equal(TrsOptionsModelOf(options, "-dense_arch"), "m.h5");
  assert_null(TrsOptionsModelOf(options, "-rate"));
  assert_string_equal(TrsOptionsModelValue(options, "table", "a", "pooling"), "none");
  assert_string_equal(TrsOptionsModelValue(options, "table", "b", "pooling"), "mean");
  assert_null(TrsOptionsModelValue(options, "table", "b", "init_min"));
  /* the value comes from a file, so the error is DATA */
  assert_petsc_error(TrsOptionError(options, "-dense_arch", "wrong"), TRS_ERR_DATA);
  TrsErrorClear();
  assert_petsc_error(TrsOptionError(options, "-batch_size", "wrong"), TRS_ERR_OPTION);
  TrsErrorClear();
  assert_petsc_ok(TrsOptionsSettle(options, "-table_a_init_min", "-3"));
  assert_petsc_ok(TrsOptionsModelText(options, 1, &(TrsOptionObjects){"table", 2, names}, &text));
  assert_string_equal(text, "-rate 0.01\n-dense_arch 8,4\n-tables a,b\n-tables_embedding_dim 2K\n"
                            "-tables_pooling mean\n-table_a_pooling none\n-table_a_init_min -3\n");
  assert_petsc_ok(PetscFree(text));
  assert_petsc_ok(TrsOptionsDestroy(&options));

  assert_petsc_ok(create_in(
      model_groups, "-tables_pooling sum -tables_embedding_dim 2000 -dense_arch 8,4 -rate 1e-2", &options));
  assert_petsc_ok(
      take(options, "-tables a,b\n-rate 0.010\n-table_a_pooling none\n-table_b_embedding_dim 2K\n"));
  check_pooling(options, "a", 0, "command line");
  check_pooling(options, "b", 0, "command line");
  assert_petsc_ok(TrsOptionsGetReal(options, "-rate", &rate, NULL));
  assert_true(rate == 0.01);
  assert_petsc_ok(TrsOptionsModelText(options, 1, &(TrsOptionObjects){"table", 2, names}, &text));
  assert_null(strstr(text, "none"));
  assert_petsc_ok(PetscFree(text));
  assert_petsc_ok(TrsOptionsText(options, &text));
  assert_null(strstr(text, "none"));
  assert_non_null(strstr(text, "-tables a,b # m.h5\n"));
  assert_petsc_ok(PetscFree(text));
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

static void check_refused(const char *words, const char *model, PetscErrorCode code, const char *part)
{
  TrsOptions options;

  assert_petsc_ok(create_in(model_groups, words, &options));
  assert_petsc_error(take(options, model), code);
  if (!strstr(TrsErrorMessage(), part)) fail_msg("\"%s\" is not in: %s", part, TrsErrorMessage());
  TrsErrorClear();
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

static void test_model_refused(void **state)
{
  TrsOptions options;

  (void)state;
  check_refused("-dense_arch 8,4,4", "-dense_arch 8,4\n", TRS_ERR_OPTION,
                "-dense_arch \"8,4,4\" (command line): the model of m.h5 has -dense_arch 8,4;");
  check_refused("-rate 0.5", "-rate 0.25\n", TRS_ERR_OPTION, "has -rate 0.25;");
  check_refused("-tables_dim 3", "-tables a,b\n-table_b_dim 4\n", TRS_ERR_OPTION, "has -table_b_dim 4;");
  check_refused("-table_b_dim 3", "-tables a,b\n-tables_dim 4\n", TRS_ERR_OPTION, "has -tables_dim 4;");
  check_refused("-tables b,a", "-tables a,b\n", TRS_ERR_OPTION, "has -tables a,b;");
  check_refused("", "words\n", TRS_ERR_DATA, "m.h5: attribute model is no text of options");
  check_refused("", "", TRS_ERR_DATA, "m.h5: attribute model is no text of options");
  check_refused("", "-batch_size 3\n", TRS_ERR_DATA, "has -batch_size, which is no option of a model");
  check_refused("", "-unknown 3\n", TRS_ERR_DATA, "has -unknown, which is no option of a model");
  check_refused("", "-rate 2\n", TRS_ERR_DATA, "-rate \"2\" (m.h5): expected");
  /* a checkpoint that has no model options */
  assert_petsc_ok(create_in(model_groups, "", &options));
  assert_petsc_ok(TrsOptionsTakeModel(options, "m.h5", NULL));
  assert_petsc_error(TrsOptionError(options, "-batch_size", "wrong"), TRS_ERR_OPTION);
  assert_null(strstr(TrsErrorMessage(), "m.h5"));
  TrsErrorClear();
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

TRS_TEST_MAIN(cmocka_unit_test(test_take_model), cmocka_unit_test(test_model_refused))
