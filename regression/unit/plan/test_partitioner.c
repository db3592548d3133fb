/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares ranks, ratings and critical paths of hand-made proposals with the results of TorchRec's
  partitioners.
*/
#include "plan/plan_result.h"
#include "plan/search/partitioner.h"
#include "plan_units.h"

#include <math.h>

enum { MAX_OPTIONS = 64, MAX_SHARDS = 256, MAX_DEVICES = 256 };

typedef struct {
  int n;
  TrsPlanOption option[MAX_OPTIONS];
  const TrsPlanOption *list[MAX_OPTIONS];
  TrsShardClass shard[MAX_OPTIONS][MAX_SHARDS];
  int class_of[MAX_SHARDS]; /* each shard has a class of its own */
  TrsStorage left[MAX_DEVICES];
  TrsTableConfig table[MAX_OPTIONS];
} problem_t;

static TrsPartitionBy by_name(const char *name)
{
  int by = 0;

  while (strcmp(TrsPartitionByName((TrsPartitionBy)by), name)) by++;
  return (TrsPartitionBy)by;
}

static void read_option(const json_t *x, problem_t *p)
{
  int i = p->n++;
  TrsPlanOption *option = &p->option[i];
  const json_t *shards = json_object_get(x, "shards");

  assert_true(p->n <= MAX_OPTIONS && json_array_size(shards) <= MAX_SHARDS);
  *option = (TrsPlanOption){.table = i,
                            .module = (TrsModule)(unit_string(x, "module")[1] - '0'),
                            .type = unit_type(unit_string(x, "sharding_type")),
                            .partition_by = by_name(unit_string(x, "partition_by")),
                            .n_shards = (int)json_array_size(shards),
                            .row_shards = 1,
                            .class_of = p->class_of,
                            .n_classes = (int)json_array_size(shards),
                            .shard_class = p->shard[i]};
  p->table[i] = (TrsTableConfig){.name = (char *)(uintptr_t)unit_string(x, "name"),
                                 .is_weighted = (PetscBool)(option->module == TRS_MODULE_WEIGHTED_EBC)};
  for (int s = 0; s < option->n_shards; s++) {
    const json_t *shard = json_array_get(shards, (size_t)s), *storage = json_object_get(shard, "storage");
    const json_t *perf = json_object_get(shard, "perf");

    p->shard[i][s] = (TrsShardClass){
        .storage = {unit_int(storage, "hbm"), unit_int(storage, "ddr")},
        .perf = {unit_at(perf, 0), unit_at(perf, 1), unit_at(perf, 2), unit_at(perf, 3), unit_at(perf, 4)}};
    p->shard[i][s].total = TrsPerfTotal(&p->shard[i][s].perf);
  }
  assert_true(TrsOptionSummarise(option));
  p->list[i] = option;
}

static double critical_path(const problem_t *p, const TrsPlacement *placement, int world_size)
{
  TrsTableConfigs tables = {p->n, (TrsTableConfig *)(uintptr_t)p->table};
  TrsTablePlan plan_table[MAX_OPTIONS] = {0};
  TrsShardingPlan plan = {.world_size = world_size, .n_tables = p->n, .table = plan_table};
  double comms, compute;

  for (int i = 0; i < p->n; i++) {
    plan_table[i] = (TrsTablePlan){
        .name = p->table[i].name, .sharding_type = p->option[i].type, .n_shards = p->option[i].n_shards};
    plan_table[i].shard = calloc((size_t)p->option[i].n_shards, sizeof(TrsShard));
    for (int s = 0; s < p->option[i].n_shards; s++)
      plan_table[i].shard[s] = (TrsShard){.rank = TrsPlacementRank(placement, i, s),
                                          .perf = p->shard[i][s].perf};
  }
  assert_petsc_ok(TrsPlanCriticalPath(&tables, &plan, &comms, &compute));
  for (int i = 0; i < p->n; i++) free(plan_table[i].shard);
  return comms + compute;
}

static void check_case(const json_t *x, problem_t *p)
{
  int W = (int)unit_int(x, "world_size");
  PetscBool memory_balanced = (PetscBool)!strcmp(unit_string(x, "partitioner"), "memory_balanced"), placed;
  const char *sort_by = unit_string(x, "sort_by");
  const json_t *options = json_object_get(x, "options"), *ranks = json_object_get(x, "ranks"), *option;
  TrsPartitionerConfig config = {.world_size = W,
                                 .local_world_size = (int)unit_int(x, "local_world_size"),
                                 .group = (int)unit_int(x, "local_world_size"),
                                 .left = p->left,
                                 .memory_balanced = memory_balanced,
                                 .sort_by_perf = (PetscBool)(sort_by && !strcmp(sort_by, "perf")),
                                 .balance_modules = unit_bool(x, "balance_modules"),
                                 .max_search_count = 10,
                                 .tolerance = 0.02};
  TrsProposal proposal = {.option = p->list};
  const TrsPlacement *placement;
  TrsPartitioner partitioner;
  double rating;
  size_t i;

  p->n = 0;
  json_array_foreach(options, i, option) read_option(option, p);
  for (int r = 0; r < W; r++)
    p->left[r] = (TrsStorage){(int64_t)unit_at(json_object_get(x, "hbm_per_device"), (size_t)r),
                              (int64_t)unit_at(json_object_get(x, "ddr_per_device"), (size_t)r)};
  if (json_object_get(x, "max_search_count")) config.max_search_count = unit_int(x, "max_search_count");
  if (json_object_get(x, "tolerance")) config.tolerance = unit_real(x, "tolerance");
  proposal.n = p->n;
  assert_petsc_ok(TrsPartitionerCreate(&config, p->n, &partitioner));
  assert_petsc_ok(TrsPartition(partitioner, &proposal, &(TrsPartitionHint){.limit = HUGE_VAL}, &placement,
                               &placed, &rating));
  assert_int_equal(placed, ranks != NULL);
  for (int k = 0; placed && k < p->n; k++) {
    const json_t *expected = json_object_get(ranks, p->table[k].name);

    for (int s = 0; s < p->option[k].n_shards; s++)
      assert_int_equal(TrsPlacementRank(placement, k, s), (int)unit_at(expected, (size_t)s));
  }
  if (placed) {
    assert_close(rating, unit_real(x, "perf_rating"), 0, 1e-12);
    assert_close(critical_path(p, placement, W), unit_real(x, "critical_path"), 0, 1e-12);
  }
  assert_petsc_ok(TrsPartitionerDestroy(&partitioner));
}

static void test_partitions(void **state)
{
  json_t *root, *x, *section = units_section(&root, "partition");
  problem_t *p = calloc(1, sizeof(*p));
  size_t i;

  (void)state;
  for (int s = 0; s < MAX_SHARDS; s++) p->class_of[s] = s;
  json_array_foreach(section, i, x) check_case(x, p);
  free(p);
  json_decref(root);
}

TRS_TEST_MAIN(cmocka_unit_test(test_partitions))
