/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests tables from options, with and without a dataset. Expected results are derived by hand from
  the documented interface.
*/
#include "spec/table_config.h"
#include "trs_test.h"

#include <math.h>
#include <string.h>

enum { MAX_WORDS = 40 };

static const TrsOptionSpec outer_specs[] = {
    {"-embedding_stochastic_rounding", TRS_OPTION_BOOL, "true", NULL, NULL, NULL, ""}};
static const TrsOptionGroup outer_group = TRS_OPTION_GROUP("Outer", outer_specs);

/* Read the tables from a line of options. */
static PetscErrorCode read_tables(const char *line, const TrsDatasetFeatures *dataset, TrsOptions *options,
                                  TrsTableConfigs *tables)
{
  static const TrsOptionGroup *const groups[] = {&outer_group, &trs_tables_options, &trs_table_options};
  static char text[2048], program[] = "test";
  char *words[MAX_WORDS] = {program}, *rest = text, *word;
  int n = 1;

  snprintf(text, sizeof(text), "%s", line);
  while ((word = strtok_r(rest, " ", &rest)) != NULL) words[n++] = word;
  *tables = (TrsTableConfigs){0};
  assert_petsc_ok(TrsOptionsCreate(PETSC_COMM_SELF, n, words, groups, 3, options));
  return TrsTableConfigsFromOptions(*options, dataset, tables);
}

static void done(TrsOptions *options, TrsTableConfigs *tables)
{
  assert_petsc_ok(TrsTableConfigsFree(tables));
  assert_petsc_ok(TrsOptionsDestroy(options));
}

static void test_dry_run(void **state)
{
  TrsOptions options;
  TrsTableConfigs tables;
  const TrsTableConfig *b;

  (void)state;
  assert_petsc_ok(read_tables(
      "-tables a,b -tables_embedding_dim 8 -tables_num_embeddings 4M -table_b_num_embeddings 100 "
      "-table_b_pooling none -table_b_features x,y -table_b_data_type bf16 -table_b_sharding_types "
      "row_wise,table_wise -table_b_pooling_factors 1.5,2 -table_b_cache_load_factor 0.25",
      NULL, &options, &tables));
  assert_int_equal(tables.n, 2);
  assert_int_equal(tables.table[0].num_embeddings, 4000000);
  assert_string_equal(tables.table[0].features[0], "a");
  assert_null(tables.table[0].feature_keys);
  assert_close(tables.table[0].init.high, 1 / sqrt(4e6), 0, 1e-6);
  assert_int_equal(TrsTableModule(&tables.table[0]), TRS_MODULE_EBC);
  b = &tables.table[1];
  assert_int_equal(b->num_embeddings, 100);
  assert_int_equal(b->n_features, 2);
  assert_string_equal(b->features[1], "y");
  assert_int_equal(b->data_type, TRS_BF16);
  assert_int_equal(TrsTableModule(b), TRS_MODULE_EC);
  assert_int_equal(b->constraints.sharding_types,
                   1u << TRS_SHARDING_ROW_WISE | 1u << TRS_SHARDING_TABLE_WISE);
  assert_int_equal(b->constraints.n_pooling_factors, 2);
  assert_close(b->constraints.pooling_factors[1], 2, 0, 0);
  assert_true(b->constraints.has_cache_load_factor);
  assert_true(b->stochastic_rounding);
  assert_int_equal(b->bounds_check_mode, TRS_BOUNDS_WARNING);
  done(&options, &tables);
}

/*
  Formulas from the documentation of torch.nn.init, for 300 rows and 12 columns: fan_in is 12,
  fan_out is 300.
*/
static void test_init(void **state)
{
  static const struct {
    const char *options;
    TrsLawKind kind;
    double a, b; /* bounds, or mean and standard deviation */
  } laws[] = {
      {"-tables_init_min -2", TRS_LAW_UNIFORM, -2, 0.057735026918962574},
      {"-table_t_init_fn normal", TRS_LAW_NORMAL, 0, 1},
      {"-tables_init_fn normal -tables_init_mean -1 -table_t_init_std 0.5", TRS_LAW_NORMAL, -1, 0.5},
      {"-tables_init_fn xavier_uniform", TRS_LAW_UNIFORM, -0.13867504905630729, 0.13867504905630729},
      {"-tables_init_fn xavier_normal -tables_init_gain 3", TRS_LAW_NORMAL, 0, 0.24019223070763068},
      {"-tables_init_fn kaiming_uniform", TRS_LAW_UNIFORM, -0.70710678118654757, 0.70710678118654757},
      {"-tables_init_fn kaiming_normal -tables_init_a 1 -tables_init_mode fan_out", TRS_LAW_NORMAL, 0,
       0.057735026918962574},
      {"-tables_init_fn kaiming_normal -tables_init_nonlinearity relu", TRS_LAW_NORMAL, 0, 0.408248290463863},
      {"-tables_init_fn kaiming_normal -tables_init_nonlinearity selu", TRS_LAW_NORMAL, 0,
       0.21650635094610965},
      {"-tables_init_fn constant -tables_init_value 0.25", TRS_LAW_UNIFORM, 0.25, 0.25},
  };
  TrsOptions options;
  TrsTableConfigs tables;

  (void)state;
  for (size_t i = 0; i < sizeof(laws) / sizeof(laws[0]); i++) {
    char line[256];
    const TrsRandomLaw *law;

    snprintf(line, sizeof(line), "-tables t -tables_embedding_dim 12 -tables_num_embeddings 300 %s",
             laws[i].options);
    assert_petsc_ok(read_tables(line, NULL, &options, &tables));
    law = &tables.table[0].init;
    assert_int_equal(law->kind, laws[i].kind);
    assert_close(law->kind == TRS_LAW_NORMAL ? law->mean : law->low, laws[i].a, 1e-7, 1e-6);
    assert_close(law->kind == TRS_LAW_NORMAL ? law->std : law->high, laws[i].b, 1e-7, 1e-6);
    done(&options, &tables);
  }
}

static const char *const feature_names[] = {"user", "item"};
static const int64_t ranges[] = {50, 70};
static const double lengths[] = {1, 3.5};
static const TrsDatasetFeatures dataset = {
    .n_features = 2, .names = feature_names, .num_embeddings = ranges, .mean_lengths = lengths};

static void test_dataset(void **state)
{
  TrsOptions options;
  TrsTableConfigs tables;

  (void)state;
  assert_petsc_ok(read_tables("-tables_embedding_dim 4", &dataset, &options, &tables));
  assert_int_equal(tables.n, 2); /* one table for each feature */
  assert_string_equal(tables.table[1].name, "item");
  assert_int_equal(tables.table[1].num_embeddings, 70);
  assert_close(tables.table[1].constraints.pooling_factors[0], 3.5, 0, 0);
  done(&options, &tables);
  assert_petsc_ok(read_tables("-tables t -tables_features item,user -tables_embedding_dim 4", &dataset,
                              &options, &tables));
  assert_int_equal(tables.table[0].num_embeddings, 70); /* the larger of two ranges */
  assert_int_equal(tables.table[0].feature_keys[0], 1);
  assert_int_equal(tables.table[0].feature_keys[1], 0);
  done(&options, &tables);
}

/*
  A table of 50 rows is split into 13 and 4 rows. The dataset's table of 70 rows is split into 8 and
  9 rows.
*/
static void test_split(void **state)
{
  static const char *const names[] = {"user_quotient", "user_remainder", "item_quotient", "item_remainder"};
  static const int64_t sizes[] = {13, 4, 8, 9};
  TrsOptions options;
  TrsTableConfigs tables;

  (void)state;
  assert_petsc_ok(
      read_tables("-tables_embedding_dim 4 -tables_id_map qr -table_user_num_embeddings 50 "
                  "-table_user_qr_collisions 4 -table_user_qr_operation add -table_user_data_type fp16",
                  &dataset, &options, &tables));
  assert_int_equal(tables.n, 4);
  for (int t = 0; t < 4; t++) {
    const TrsTableConfig *table = &tables.table[t];

    assert_string_equal(table->name, names[t]);
    assert_string_equal(TrsTableOptionName(table), feature_names[t / 2]);
    assert_string_equal(table->features[0], feature_names[t / 2]);
    assert_int_equal(table->feature_keys[0], t / 2);
    assert_int_equal(table->num_embeddings, sizes[t]);
    assert_int_equal(table->id_map.kind, t % 2 ? TRS_ID_MAP_REMAINDER : TRS_ID_MAP_QUOTIENT);
    assert_int_equal(table->id_map.rows, t < 2 ? 50 : 70);
    assert_int_equal(table->id_map.collisions, t < 2 ? 4 : 9);
    assert_int_equal(table->multiplied, t >= 2);
    assert_int_equal(table->data_type, t < 2 ? TRS_FP16 : TRS_FP32);
    assert_close(table->init.high, 1 / sqrt((double)sizes[t]), 0, 1e-6);
    assert_int_equal(TrsTableVectors(table), t % 2 ? 0 : 1);
  }
  done(&options, &tables);
}

static void test_errors(void **state)
{
  static const struct {
    const char *line, *says;
    PetscBool with_dataset;
  } wrong[] = {
      {"-tables a,b,a -tables_embedding_dim 4 -tables_num_embeddings 5", "listed twice", PETSC_FALSE},
      {"-tables a -tables_num_embeddings 5", "embedding_dim", PETSC_FALSE},
      {"-tables a -tables_embedding_dim 5", "number of rows", PETSC_FALSE},
      {"-tables a,b -tables_embedding_dim 4 -tables_num_embeddings 5 -tables_features x", "looked up twice",
       PETSC_FALSE},
      {"-tables zip -tables_embedding_dim 4", "no feature \"zip\"", PETSC_TRUE},
      {"-tables item -tables_embedding_dim 4 -tables_num_embeddings 69", "range to 70", PETSC_TRUE},
      {"-tables item -tables_embedding_dim 4 -tables_is_weighted -tables_pooling mean", "weighted",
       PETSC_TRUE},
      {"-tables a -tables_embedding_dim 4 -tables_num_embeddings 4611686018427387904", "overflow",
       PETSC_FALSE},
      {"-tables a -tables_embedding_dim 4 -tables_num_embeddings 9 -tables_num_poolings 1,2", "num_poolings",
       PETSC_FALSE},
      {"-tables a -tables_embedding_dim 4 -tables_num_embeddings 9 -table_b_pooling sum", "table_b",
       PETSC_FALSE},
      {"-tables a -tables_embedding_dim 4 -tables_num_embeddings 9 -table_a_init_std 2", "takes no init_std",
       PETSC_FALSE},
      {"-tables a -tables_embedding_dim 4 -tables_num_embeddings 9 -tables_init_gain 2", "takes init_gain",
       PETSC_FALSE},
      {"-tables a -tables_embedding_dim 4 -tables_num_embeddings 9 -tables_init_fn constant",
       "give the value", PETSC_FALSE},
  };

  (void)state;
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    TrsOptions options;
    TrsTableConfigs tables;

    assert_petsc_error(read_tables(wrong[i].line, wrong[i].with_dataset ? &dataset : NULL, &options, &tables),
                       TRS_ERR_OPTION);
    if (!strstr(TrsErrorMessage(), wrong[i].says)) print_error("%s\n", TrsErrorMessage());
    assert_non_null(strstr(TrsErrorMessage(), wrong[i].says));
    done(&options, &tables);
  }
  TrsErrorClear();
}

/* Data for evaluation or prediction may declare more rows than a table has by its options. */
static void test_newer_data(void **state)
{
  TrsDatasetFeatures newer = dataset;
  TrsOptions options;
  TrsTableConfigs tables;

  (void)state;
  newer.may_exceed = PETSC_TRUE;
  assert_petsc_ok(read_tables("-tables item -tables_embedding_dim 4 -tables_num_embeddings 69", &newer,
                              &options, &tables));
  assert_int_equal(tables.table[0].num_embeddings, 69);
  assert_int_equal(tables.table[0].id_map.rows, 69);
  done(&options, &tables);
}

/*
  Facts from TorchRec's EmbeddingComputeKernel: uvm stores rows in host memory, caching keeps some
  of them on the device, and quant is for inference. A run does not cache quantised rows.
*/
static void test_kernels(void **state)
{
  static const struct {
    const char *word;
    TrsRowsHome home;
    PetscBool is_caching, keeps_lines, is_quantised;
  } facts[TRS_N_KERNELS] = {
      {"dense", TRS_ROWS_DEVICE, 0, 0, 0},          {"fused", TRS_ROWS_DEVICE, 0, 0, 0},
      {"fused_uvm", TRS_ROWS_HOST, 0, 0, 0},        {"fused_uvm_caching", TRS_ROWS_HOST, 1, 1, 0},
      {"quant", TRS_ROWS_DEVICE, 0, 0, 1},          {"quant_uvm", TRS_ROWS_HOST, 0, 0, 1},
      {"quant_uvm_caching", TRS_ROWS_HOST, 1, 0, 1}};

  (void)state;
  for (int k = 0; k < TRS_N_KERNELS; k++) {
    const TrsComputeKernel kernel = (TrsComputeKernel)k;

    assert_string_equal(TrsComputeKernelName(kernel), facts[k].word);
    assert_int_equal(TrsKernelHome(kernel), facts[k].home);
    assert_int_equal(TrsKernelIsCaching(kernel), facts[k].is_caching);
    assert_int_equal(TrsKernelKeepsLines(kernel), facts[k].keeps_lines);
    assert_int_equal(TrsKernelIsQuantised(kernel), facts[k].is_quantised);
    assert_int_equal(TrsKernelUseOf(kernel) == TRS_USE_REPLICAS, kernel == TRS_KERNEL_DENSE);
  }
  assert_int_equal(TrsKernelsWhere(TrsKernelKeepsLines), 1u << TRS_KERNEL_FUSED_UVM_CACHING);
  assert_int_equal(TrsKernelsWhere(TrsKernelIsQuantised), 7u << TRS_KERNEL_QUANT);
}

TRS_TEST_MAIN(cmocka_unit_test(test_kernels), cmocka_unit_test(test_dry_run), cmocka_unit_test(test_init),
              cmocka_unit_test(test_dataset), cmocka_unit_test(test_split), cmocka_unit_test(test_errors),
              cmocka_unit_test(test_newer_data))
