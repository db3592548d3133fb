/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/* Tests plans as JSON, their checks and their broadcast. Expected results are written by hand. */
#include "spec/sharding_plan.h"
#include "trs_test.h"

#include <string.h>

enum { W = 4, ROWS = 10, COLS = 64 };

/* Add a table of the test's size, with shards of one kind. */
static void add_table(TrsShardingPlan *plan, const char *name, TrsShardingType type, int n,
                      const TrsShard *shard)
{
  TrsTablePlan *table = &plan->table[plan->n_tables++];

  assert_petsc_ok(PetscStrallocpy(name, &table->name));
  table->sharding_type = type;
  table->compute_kernel = type == TRS_SHARDING_DATA_PARALLEL ? TRS_KERNEL_DENSE : TRS_KERNEL_FUSED;
  table->n_shards = n;
  assert_petsc_ok(PetscMalloc1(n, &table->shard));
  memcpy(table->shard, shard, (size_t)n * sizeof(*shard));
}

/* A plan with one table of each sharding type, on four ranks with two on each host. */
static TrsShardingPlan make_plan(void)
{
  static const TrsStorage storage = {1234567890123, 7};
  static const TrsPerf perf = {0.1, 1.0 / 3, 1e-9, 0, 12345.678};
  const TrsShard whole = {0, 0, 0, ROWS, COLS, storage, perf};
  TrsShardingPlan plan = {.has_costs = PETSC_TRUE,
                          .world_size = W,
                          .local_world_size = 2,
                          .pod_size = 1,
                          .n_devices = W,
                          .critical_path = 0.1 + 0.2,
                          .proposals = 5,
                          .feasible = 3,
                          .partitioned = 4};
  TrsShard shard[W];

  assert_petsc_ok(PetscCalloc1(7, &plan.table));
  assert_petsc_ok(PetscCalloc1(W, &plan.device_storage));
  assert_petsc_ok(PetscCalloc1(W, &plan.device_perf));
  plan.device_perf[1] = perf;
  for (int i = 0; i < W; i++) {
    shard[i] = whole;
    shard[i].rank = i;
  }
  add_table(&plan, "dp", TRS_SHARDING_DATA_PARALLEL, W, shard);
  add_table(&plan, "tw \"quoted\"", TRS_SHARDING_TABLE_WISE, 1, &shard[2]);
  plan.table[1].has_cache_load_factor = PETSC_TRUE;
  plan.table[1].compute_kernel = TRS_KERNEL_FUSED_UVM_CACHING;
  plan.table[1].cache_load_factor = 0.1;
  for (int i = 0; i < 2; i++) {
    shard[i] = (TrsShard){3 - i, 0, 32 * i, ROWS, 32, storage, perf};
  }
  add_table(&plan, "cw", TRS_SHARDING_COLUMN_WISE, 2, shard);
  add_table(&plan, "twcw", TRS_SHARDING_TABLE_COLUMN_WISE, 2, shard);
  for (int i = 0; i < W; i++) shard[i] = (TrsShard){i, 3 * i, 0, i < 3 ? 3 : 1, COLS, storage, perf};
  add_table(&plan, "rw", TRS_SHARDING_ROW_WISE, W, shard);
  for (int i = 0; i < 2; i++) shard[i] = (TrsShard){2 + i, 5 * i, 0, 5, COLS, storage, perf};
  add_table(&plan, "twrw", TRS_SHARDING_TABLE_ROW_WISE, 2, shard);
  for (int i = 0; i < W; i++) shard[i] = (TrsShard){i, 5 * (i % 2), 32 * (i / 2), 5, 32, storage, perf};
  add_table(&plan, "grid", TRS_SHARDING_GRID_SHARD, W, shard);
  return plan;
}

/* The tables that make_plan() plans. */
static void make_tables(const TrsShardingPlan *plan, TrsTableConfig *table)
{
  for (int t = 0; t < 7; t++)
    table[t] = (TrsTableConfig){.name = plan->table[t].name, .num_embeddings = ROWS, .embedding_dim = COLS};
}

static void test_json_round_trip(void **state)
{
  TrsShardingPlan plan = make_plan(), again;
  char *json, *json_again;
  int at = 0;

  (void)state;
  assert_petsc_ok(TrsShardingPlanToJson(&plan, &json));
  assert_petsc_ok(TrsShardingPlanFromJson(json, "test", &again));
  assert_petsc_ok(TrsShardingPlanToJson(&again, &json_again));
  assert_string_equal(json, json_again);
  assert_int_equal(again.table[0].shard[3].storage.hbm, 1234567890123);
  /* 17 digits restore every double */
  assert_close(again.table[0].shard[0].perf.fwd_comms, 1.0 / 3, 0, 0);
  assert_close(again.critical_path, 0.1 + 0.2, 0, 0);
  assert_ptr_equal(TrsShardingPlanFind(&again, "cw"), &again.table[2]);
  assert_null(TrsShardingPlanFind(&again, "none"));
  /* forward, backward, the same table twice, and behind the last table */
  assert_ptr_equal(TrsShardingPlanFindNext(&again, again.table[3].name, &at), &again.table[3]);
  assert_ptr_equal(TrsShardingPlanFindNext(&again, again.table[1].name, &at), &again.table[1]);
  assert_ptr_equal(TrsShardingPlanFindNext(&again, again.table[1].name, &at), &again.table[1]);
  assert_null(TrsShardingPlanFindNext(&again, "none", &at));
  assert_ptr_equal(TrsShardingPlanFindNext(&again, again.table[6].name, &at), &again.table[6]);
  assert_ptr_equal(TrsShardingPlanFindNext(&again, again.table[0].name, &at), &again.table[0]);
  assert_petsc_ok(PetscFree(json));
  assert_petsc_ok(PetscFree(json_again));
  assert_petsc_ok(TrsShardingPlanFree(&again));
  assert_petsc_ok(TrsShardingPlanFree(&plan));
}

#define HEAD "{\"format\": \"trshard-plan\", \"version\": 1, "
#define TABLE(name, type, kernel, ranks) \
  "{\"name\": \"" name "\", \"sharding_type\": \"" type "\", \"compute_kernel\": \"" kernel \
  "\", \"ranks\": [" ranks "]"

/*
  If a plan has only ranks, it gets the rectangles that the planner would make. Columns are divided
  as evenly as possible.
*/
static void test_only_ranks(void **state)
{
  static const char text[] = HEAD
      "\"tables\": [" TABLE("dp", "data_parallel", "dense", "0, 1, 2, 3") "}, " TABLE("tw", "table_wise", "fused", "2") "}, " TABLE(
          "cw", "column_wise", "fused",
          "3, 1, 0") "}, " TABLE("twcw", "table_column_wise", "fused",
                                 "2, 3") "}, " TABLE("rw", "row_wise", "fused",
                                                     "0, 1, 2, 3") "}, " TABLE("twrw", "table_row_wise",
                                                                               "fused",
                                                                               "2, 3") "}, " TABLE("grid",
                                                                                                   "grid_"
                                                                                                   "shard",
                                                                                                   "fused",
                                                                                                   "0, 1, 2, "
                                                                                                   "3") "}]}";
  static const int64_t cw[3][2] = {{0, 22}, {22, 21}, {43, 21}}, rw[W][2] = {{0, 3}, {3, 3}, {6, 3}, {9, 1}};
  const TrsPlanWorld world = {W, 2, 1};
  TrsShardingPlan plan, again;
  TrsTableConfig table[7];
  TrsTableConfigs tables = {7, table};
  char *json, *second;

  (void)state;
  assert_petsc_ok(TrsShardingPlanFromJson(text, "hand.json", &plan));
  make_tables(&plan, table);
  assert_petsc_ok(TrsShardingPlanComplete(&tables, &world, "hand.json", &plan));
  assert_petsc_ok(TrsShardingPlanCheck(&plan, &tables, W, "hand.json"));
  for (int i = 0; i < 3; i++)
    assert_true(plan.table[2].shard[i].col_offset == cw[i][0] && plan.table[2].shard[i].cols == cw[i][1]);
  for (int i = 0; i < W; i++)
    assert_true(plan.table[4].shard[i].row_offset == rw[i][0] && plan.table[4].shard[i].rows == rw[i][1]);
  assert_true(plan.table[6].shard[3].row_offset == 5 && plan.table[6].shard[3].col_offset == 32);
  assert_true(!plan.has_costs && plan.n_devices == W && plan.device_perf[3].fwd_compute == 0);
  /* known values are written, and costs are not */
  assert_petsc_ok(TrsShardingPlanToJson(&plan, &json));
  assert_null(strstr(json, "perf"));
  assert_petsc_ok(TrsShardingPlanFromJson(json, "test", &again));
  assert_petsc_ok(TrsShardingPlanToJson(&again, &second));
  assert_string_equal(json, second);
  assert_petsc_ok(PetscFree(json));
  assert_petsc_ok(PetscFree(second));
  assert_petsc_ok(TrsShardingPlanFree(&again));
  assert_petsc_ok(TrsShardingPlanFree(&plan));
}

static void test_only_ranks_errors(void **state)
{
  static const struct {
    const char *text, *says;
  } wrong[] = {
      {HEAD "\"tables\": [" TABLE("t", "table_wise", "fused", "0, 1") "}]}", "has 2 ranks, not 1"},
      {HEAD "\"tables\": [" TABLE("t", "grid_shard", "fused", "0, 1, 2") "}]}", "not a multiple of the 2"},
      {HEAD "\"tables\": [" TABLE("t", "row_wise", "fused", "0, 1") "}]}", "has 2 shards for 4 ranks"},
      {HEAD "\"tables\": [" TABLE("t", "row_wise", "fused", "") "}]}", "ranks is empty"},
      {HEAD "\"tables\": [" TABLE("t", "table_wise", "fused", "-1") "}]}", "ranks[0] is not a rank"},
      {HEAD "\"tables\": [" TABLE("t", "table_wise", "fused", "4") "}]}", "rank 4 is outside of 4 ranks"},
      {HEAD "\"tables\": [" TABLE("t", "table_wise", "fused", "0") ", \"cache_algorithm\": \"lru\"}]}",
       "cache_algorithm does not go with compute kernel fused"},
      {HEAD "\"tables\": [" TABLE("t", "table_wise", "fused", "0") ", \"output_dtype\": \"fp7\"}]}",
       "tables[0].output_dtype \"fp7\" is not known"},
      {HEAD "\"tables\": [" TABLE("t", "table_wise", "fused", "0") ", \"enforce_hbm\": 1}]}",
       "enforce_hbm is not true or false"},
      {HEAD "\"tables\": [" TABLE("t", "table_wise", "fused", "0") ", \"cache_reserved_memory\": -1}]}",
       "cache_reserved_memory is -1"},
  };
  const TrsPlanWorld world = {W, 2, 1};
  char name[] = "t";
  TrsTableConfig table = {.name = name, .num_embeddings = ROWS, .embedding_dim = COLS};
  TrsTableConfigs tables = {1, &table};

  (void)state;
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    TrsShardingPlan plan;
    PetscErrorCode ierr = TrsShardingPlanFromJson(wrong[i].text, "hand.json", &plan);

    if (!ierr) ierr = TrsShardingPlanComplete(&tables, &world, "hand.json", &plan);
    if (!ierr) ierr = TrsShardingPlanCheck(&plan, &tables, W, "hand.json");
    assert_int_equal(ierr, TRS_ERR_DATA);
    assert_non_null(strstr(TrsErrorMessage(), wrong[i].says));
    assert_non_null(strstr(TrsErrorMessage(), "hand.json"));
    TrsErrorClear();
  }
}

/* Tables keep their choices when a plan is written and read. */
static void test_choices(void **state)
{
  TrsShardingPlan plan = make_plan(), again;
  TrsTableChoice *choice = plan.table[1].choice;
  char *json;

  (void)state;
  choice[TRS_CHOICE_CACHE_ALGORITHM] = (TrsTableChoice){PETSC_TRUE, 1};
  choice[TRS_CHOICE_CACHE_RESERVED_MEMORY] = (TrsTableChoice){PETSC_TRUE, 5000000000};
  choice[TRS_CHOICE_ENFORCE_HBM] = (TrsTableChoice){PETSC_TRUE, 1};
  choice[TRS_CHOICE_STOCHASTIC_ROUNDING] = (TrsTableChoice){PETSC_TRUE, 0};
  choice[TRS_CHOICE_BOUNDS_CHECK_MODE] = (TrsTableChoice){PETSC_TRUE, TRS_BOUNDS_IGNORE};
  choice[TRS_CHOICE_OUTPUT_DTYPE] = (TrsTableChoice){PETSC_TRUE, TRS_BF16};
  assert_petsc_ok(TrsShardingPlanToJson(&plan, &json));
  assert_non_null(strstr(json, "\"cache_algorithm\": \"lfu\", \"cache_reserved_memory\": 5000000000, "
                               "\"enforce_hbm\": true, \"stochastic_rounding\": false, "
                               "\"bounds_check_mode\": \"ignore\", \"output_dtype\": \"bf16\""));
  assert_petsc_ok(TrsShardingPlanFromJson(json, "test", &again));
  for (int t = 0; t < 7; t++)
    for (int k = 0; k < TRS_N_TABLE_CHOICES; k++) {
      assert_int_equal(again.table[t].choice[k].set, plan.table[t].choice[k].set);
      assert_int_equal(again.table[t].choice[k].value, plan.table[t].choice[k].value);
    }
  assert_petsc_ok(PetscFree(json));
  assert_petsc_ok(TrsShardingPlanFree(&again));
  assert_petsc_ok(TrsShardingPlanFree(&plan));
}

/* A plan without capacities is valid. If it has capacities, the capacity of each device is kept. */
static void test_json_capacity(void **state)
{
  TrsShardingPlan plan = make_plan(), again;
  char *json, *broken;

  (void)state;
  assert_petsc_ok(TrsShardingPlanToJson(&plan, &json));
  assert_petsc_ok(TrsShardingPlanFromJson(json, "test", &again));
  assert_null(again.device_capacity);
  assert_petsc_ok(PetscFree(json));
  assert_petsc_ok(TrsShardingPlanFree(&again));
  assert_petsc_ok(PetscCalloc1(W, &plan.device_capacity));
  assert_petsc_ok(PetscCalloc1(W, &plan.device_available));
  plan.device_capacity[3] = (TrsStorage){1234567890123, 5};
  plan.device_available[3] = (TrsStorage){1000, -7};
  plan.table[2].module = TRS_MODULE_EC;
  assert_petsc_ok(TrsShardingPlanToJson(&plan, &json));
  assert_petsc_ok(TrsShardingPlanFromJson(json, "test", &again));
  assert_int_equal(again.device_capacity[3].hbm, 1234567890123);
  assert_int_equal(again.device_available[3].ddr, -7);
  assert_int_equal(again.table[2].module, TRS_MODULE_EC);
  assert_petsc_ok(TrsShardingPlanFree(&again));
  broken = strstr(strstr(json, "\"available\"") + 1, "\"available\"");
  memcpy(broken, "\"avail\"    ", strlen("\"available\""));
  assert_petsc_error(TrsShardingPlanFromJson(json, "file.json", &again), TRS_ERR_DATA);
  assert_non_null(strstr(TrsErrorMessage(), "devices[1] has no field \"available\""));
  TrsErrorClear();
  assert_petsc_ok(PetscFree(json));
  assert_petsc_ok(TrsShardingPlanFree(&plan));
}

static void test_json_errors(void **state)
{
  static const char *const wrong[] = {
      "",
      "{",
      "[]",
      "{}",
      "{\"format\": \"trshard-plan\"}",
      "{\"format\": 1}",
      "null",
      "{\"format\": \"trshard-plan\", \"version\": 1, \"world_size\": 0}",
      "{\"format\": \"trshard-plan\", \"version\": 1, \"world_size\": 1, \"local_world_size\": 1, "
      "\"critical_path\": 0, "
      "\"proposals\": 1, \"feasible\": 1, \"partitioned\": 1, \"devices\": [], \"tables\": []}"};
  TrsShardingPlan plan;

  (void)state;
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    assert_petsc_error(TrsShardingPlanFromJson(wrong[i], "file.json", &plan), TRS_ERR_DATA);
    assert_non_null(strstr(TrsErrorMessage(), "file.json"));
    assert_int_equal(plan.n_tables, 0);
  }
  TrsErrorClear();
}

static void test_check(void **state)
{
  TrsShardingPlan plan = make_plan();
  TrsTableConfig table[8];
  TrsTableConfigs tables = {7, table};

  (void)state;
  make_tables(&plan, table);
  assert_petsc_ok(TrsShardingPlanCheck(&plan, &tables, W, "plan"));
  assert_petsc_error(TrsShardingPlanCheck(&plan, &tables, W + 1, "plan"), TRS_ERR_DATA);
  tables.n = 6; /* the plan has one table too many, then one too few */
  assert_petsc_error(TrsShardingPlanCheck(&plan, &tables, W, "plan"), TRS_ERR_DATA);
  tables.n = 7;
  plan.n_tables = 6;
  assert_petsc_error(TrsShardingPlanCheck(&plan, &tables, W, "plan"), TRS_ERR_DATA);
  assert_non_null(strstr(TrsErrorMessage(), "\"grid\""));
  TrsErrorClear();
  plan.n_tables = 7;
  assert_petsc_ok(TrsShardingPlanFree(&plan));
}

/* Each change makes the plan of one table invalid. */
static void test_check_shards(void **state)
{
  static const struct {
    int table, shard;
    TrsShard change; /* these numbers are added to the shard */
  } wrong[] = {{0, 1, {.rank = 1}},  {0, 1, {.rows = -1}},       {1, 0, {.rows = -1}},
               {1, 0, {.rank = 9}},  {1, 0, {.cols = 1}},        {2, 1, {.col_offset = 4}},
               {2, 1, {.cols = -4}}, {2, 0, {.rows = -1}},       {3, 0, {.rank = -2}},
               {4, 2, {.rank = -1}}, {4, 2, {.rows = -1}},       {4, 3, {.row_offset = -1}},
               {5, 0, {.rank = -1}}, {5, 1, {.row_offset = -1}}, {6, 3, {.row_offset = -5}},
               {6, 2, {.rank = -2}}};
  TrsShardingPlan plan = make_plan();
  TrsTableConfig table[8];
  TrsTableConfigs tables = {7, table};

  (void)state;
  make_tables(&plan, table);
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    TrsShard *shard = &plan.table[wrong[i].table].shard[wrong[i].shard], good = *shard;

    shard->rank += wrong[i].change.rank;
    shard->rows += wrong[i].change.rows;
    shard->cols += wrong[i].change.cols;
    shard->row_offset += wrong[i].change.row_offset;
    shard->col_offset += wrong[i].change.col_offset;
    assert_petsc_error(TrsShardingPlanCheck(&plan, &tables, W, "plan"), TRS_ERR_DATA);
    *shard = good;
  }
  TrsErrorClear();
  assert_petsc_ok(TrsShardingPlanCheck(&plan, &tables, W, "plan"));
  assert_petsc_ok(TrsShardingPlanFree(&plan));
}

static void test_broadcast(void **state)
{
  TrsShardingPlan plan = {0}, expected = make_plan();
  char *json, *json_expected;

  (void)state;
  if (trs_rank() == 0) plan = make_plan();
  assert_petsc_ok(
      TrsShardingPlanBroadcast(MPI_COMM_WORLD, trs_rank() ? TRS_ERR_INTERNAL : PETSC_SUCCESS, &plan));
  assert_petsc_ok(TrsShardingPlanToJson(&plan, &json));
  assert_petsc_ok(TrsShardingPlanToJson(&expected, &json_expected));
  assert_string_equal(json, json_expected);
  assert_petsc_ok(PetscFree(json));
  assert_petsc_ok(PetscFree(json_expected));
  assert_petsc_ok(TrsShardingPlanFree(&plan));
  assert_petsc_ok(TrsShardingPlanFree(&expected));
}

static PetscErrorCode find_no_plan(void)
{
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_NO_PLAN, "short by 17 bytes");
}

/* If rank 0 fails, all ranks fail with its message. */
static void test_broadcast_error(void **state)
{
  TrsShardingPlan plan = {0};
  PetscErrorCode ierr;

  (void)state;
  TrsErrorClear();
  ierr = trs_rank() ? PETSC_SUCCESS : find_no_plan();
  ierr = TrsShardingPlanBroadcast(MPI_COMM_WORLD, ierr, &plan);
  assert_int_equal(ierr, TRS_ERR_NO_PLAN);
  assert_non_null(strstr(TrsErrorMessage(), "short by 17 bytes"));
  TrsErrorClear();
}

TRS_TEST_MAIN(cmocka_unit_test(test_json_round_trip), cmocka_unit_test(test_only_ranks),
              cmocka_unit_test(test_only_ranks_errors), cmocka_unit_test(test_choices),
              cmocka_unit_test(test_json_capacity), cmocka_unit_test(test_json_errors),
              cmocka_unit_test(test_check), cmocka_unit_test(test_check_shards),
              cmocka_unit_test(test_broadcast), cmocka_unit_test(test_broadcast_error))
