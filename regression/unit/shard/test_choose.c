/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests the choice of payload, grid and update. Each allowed combination of options has one, and
  each refusal names its option.
*/
#include "embed/placement.h"
#include "shard/choose.h"
#include "trs_test.h"

#include <string.h>

/* A context with one table, "user". */
typedef struct {
  TrsTableConfig config;
  TrsTableConfigs tables;
  TrsTablePlan plan;
  const TrsTablePlan *table_plan[1];
  TrsSparseOptimizerArgs args;
  TrsSparseOptimizers optimizers;
  TrsEmbeddingShards shards;
  TrsCommGroups groups;
  TrsShardingContext context;
} fixture;

static void make(fixture *f, TrsPooling pooling, TrsShardingType type)
{
  static char name[] = "user";

  *f = (fixture){.config = {.name = name, .pooling = pooling, .sequence_pooling = TRS_SEQUENCE_POOLING_MAX},
                 .plan = {.name = name, .sharding_type = type}};
  f->tables = (TrsTableConfigs){.n = 1, .table = &f->config};
  f->table_plan[0] = &f->plan;
  f->optimizers = (TrsSparseOptimizers){.n = 1, .args = &f->args};
  f->shards = (TrsEmbeddingShards){
      .tables = &f->tables, .optimizers = &f->optimizers, .placements = trs_placements};
  f->groups = (TrsCommGroups){.local_world_size = 2, .n_hosts = TRS_HIERARCHICAL_HOSTS - 1};
  f->context = (TrsShardingContext){
      .groups = &f->groups, .tables = &f->tables, .shards = &f->shards, .table_plan = f->table_plan};
}

static void check_choice(fixture *f, const TrsShardingOps *payload, TrsGrid grid, const TrsUpdateOps *update)
{
  TrsShardingChoice found;

  assert_petsc_ok(TrsShardingChoose(&f->context, 0, &found));
  assert_ptr_equal(found.payload, payload);
  assert_int_equal(found.grid, grid);
  assert_ptr_equal(found.update, update);
}

/* Check that the error names both options. */
static void check_refused(const fixture *f, const char *option, const char *other)
{
  TrsShardingChoice choice;

  assert_petsc_error(TrsShardingChoose(&f->context, 0, &choice), TRS_ERR_OPTION);
  assert_non_null(strstr(TrsErrorMessage(), option));
  assert_non_null(strstr(TrsErrorMessage(), other));
  TrsErrorClear();
}

/* Every sharding type has a payload and an update for each allowed set of options. */
static void test_no_cell_is_empty(void **state)
{
  (void)state;
  for (int type = 0; type < TRS_N_SHARDINGS; type++)
    for (int pooling = TRS_POOLING_SUM; pooling <= TRS_POOLING_NONE; pooling++)
      for (int way = 0; way < 3; way++) {
        TrsShardingChoice choice;
        fixture f;
        make(&f, (TrsPooling)pooling, (TrsShardingType)type);
        f.context.dist.reproducible = (PetscBool)(way == 1);
        f.context.variable_batch = (PetscBool)(way == 2);
        assert_petsc_ok(TrsShardingChoose(&f.context, 0, &choice));
        assert_non_null(choice.payload);
        assert_non_null(choice.update);
      }
}

static void test_pooled(void **state)
{
  fixture f;

  (void)state;
  make(&f, TRS_POOLING_SUM, TRS_SHARDING_TABLE_COLUMN_WISE);
  check_choice(&f, &trs_payload_pooled, TRS_GRID_RANKS, &trs_update_owner);
  make(&f, TRS_POOLING_MEAN, TRS_SHARDING_GRID_SHARD);
  check_choice(&f, &trs_payload_pooled, TRS_GRID_HOSTS, &trs_update_owner);
  make(&f, TRS_POOLING_SUM, TRS_SHARDING_ROW_WISE);
  check_choice(&f, &trs_payload_pooled, TRS_GRID_WORLD, &trs_update_owner);
  f.context.dist.reproducible = PETSC_TRUE;
  check_choice(&f, &trs_payload_ordered_rows, TRS_GRID_WORLD, &trs_update_cut_rows);
  make(&f, TRS_POOLING_SUM, TRS_SHARDING_DATA_PARALLEL);
  f.context.variable_batch = PETSC_TRUE; /* replicas exchange no bags */
  check_choice(&f, &trs_payload_replicas, TRS_GRID_WORLD, &trs_update_replicas);
}

/*
  row_wise sums in two levels if each host has several ranks. With the option, two such hosts are
  enough. By default at least four hosts are needed. Other choices do not change.
*/
static void test_hierarchical(void **state)
{
  fixture f;

  (void)state;
  make(&f, TRS_POOLING_SUM, TRS_SHARDING_ROW_WISE);
  check_choice(&f, &trs_payload_pooled, TRS_GRID_WORLD, &trs_update_owner);
  f.context.levels = TRS_REDUCE_SCATTER_HIERARCHICAL;
  check_choice(&f, &trs_payload_pooled, TRS_GRID_WORLD_BY_HOSTS, &trs_update_owner);
  f.groups.n_hosts = 1;
  check_choice(&f, &trs_payload_pooled, TRS_GRID_WORLD, &trs_update_owner);
  f.context.levels = TRS_REDUCE_SCATTER_AUTO;
  f.groups.n_hosts = TRS_HIERARCHICAL_HOSTS;
  check_choice(&f, &trs_payload_pooled, TRS_GRID_WORLD_BY_HOSTS, &trs_update_owner);
  f.context.variable_batch = PETSC_TRUE;
  check_choice(&f, &trs_payload_distinct_bags, TRS_GRID_WORLD_BY_HOSTS, &trs_update_owner);
  f.context.variable_batch = PETSC_FALSE;
  f.groups.local_world_size = 1;
  check_choice(&f, &trs_payload_pooled, TRS_GRID_WORLD, &trs_update_owner);
  f.groups.local_world_size = 2;
  f.context.levels = TRS_REDUCE_SCATTER_FLAT;
  check_choice(&f, &trs_payload_pooled, TRS_GRID_WORLD, &trs_update_owner);
  f.context.levels = TRS_REDUCE_SCATTER_AUTO;
  f.context.dist.reproducible = PETSC_TRUE;
  check_choice(&f, &trs_payload_ordered_rows, TRS_GRID_WORLD, &trs_update_cut_rows);
  make(&f, TRS_POOLING_NONE, TRS_SHARDING_ROW_WISE);
  f.groups.n_hosts = TRS_HIERARCHICAL_HOSTS;
  check_choice(&f, &trs_payload_sequence, TRS_GRID_WORLD, &trs_update_owner_by_id);
  f.plan.sharding_type = TRS_SHARDING_DATA_PARALLEL;
  check_choice(&f, &trs_payload_sequence_replicas, TRS_GRID_WORLD, &trs_update_replicas);
}

/*
  If the model uses the mean of a sequence, a table whose rows would be sent is treated as a table
  with mean pooling. The same is true for a table that exchanges only gradients.
*/
static void test_sequences(void **state)
{
  fixture f;

  (void)state;
  make(&f, TRS_POOLING_NONE, TRS_SHARDING_ROW_WISE);
  check_choice(&f, &trs_payload_sequence, TRS_GRID_WORLD, &trs_update_owner_by_id);
  make(&f, TRS_POOLING_NONE, TRS_SHARDING_DATA_PARALLEL);
  check_choice(&f, &trs_payload_sequence_replicas, TRS_GRID_WORLD, &trs_update_replicas);
  f.config.sequence_pooling = TRS_SEQUENCE_POOLING_MEAN;
  check_choice(&f, &trs_payload_replicas, TRS_GRID_WORLD, &trs_update_replicas);
  make(&f, TRS_POOLING_NONE, TRS_SHARDING_TABLE_WISE);
  f.config.sequence_pooling = TRS_SEQUENCE_POOLING_MEAN;
  f.context.dist.reproducible = PETSC_TRUE;
  check_choice(&f, &trs_payload_pooled, TRS_GRID_RANKS, &trs_update_cut_rows);
}

static void test_refusals_name_the_option(void **state)
{
  int lengths[] = {4};
  fixture f;

  (void)state;
  make(&f, TRS_POOLING_SUM, TRS_SHARDING_ROW_WISE);
  f.context.dist.reproducible = PETSC_TRUE;
  f.config.max_feature_lengths = lengths;
  check_refused(&f, "-reproducible", "position_weighted table \"user\"");
  f.config.max_feature_lengths = NULL;
  f.context.variable_batch = PETSC_TRUE;
  check_refused(&f, "-reproducible", "-ebc_variable_batch");
  make(&f, TRS_POOLING_NONE, TRS_SHARDING_TABLE_WISE);
  f.context.dist.reproducible = PETSC_TRUE;
  f.context.index_dedup = PETSC_TRUE;
  check_refused(&f, "-reproducible", "-ec_index_dedup");
}

/*
  Optimizers that need whole rows do not allow a sequence table to be cut by columns. Other
  optimizers do.
*/
static void test_columns_of_sequences(void **state)
{
  fixture f;

  (void)state;
  for (int whole_rows = 0; whole_rows < 2; whole_rows++) {
    make(&f, TRS_POOLING_NONE, TRS_SHARDING_COLUMN_WISE);
    f.args.kind = whole_rows ? TRS_OPTIM_LAMB : TRS_OPTIM_SGD;
    f.context.dist.reproducible = PETSC_TRUE;
    if (whole_rows)
      check_refused(&f, "column_wise", "-table_user_sharding_types");
    else
      check_choice(&f, &trs_payload_sequence, TRS_GRID_RANKS, &trs_update_owner_by_id);
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_no_cell_is_empty), cmocka_unit_test(test_pooled),
              cmocka_unit_test(test_hierarchical), cmocka_unit_test(test_sequences),
              cmocka_unit_test(test_refusals_name_the_option), cmocka_unit_test(test_columns_of_sequences))
