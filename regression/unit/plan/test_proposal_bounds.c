/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests that the partitioner gives the same outcome as the bounds, if the bounds are certain of an
  outcome. The random proposals change one table at a time, and most of them just fit or just do not
  fit. The partitioner without hints is the reference (test_partitioner.c compares it with
  TorchRec).
*/
#include "plan/search/proposal_bounds.h"
#include "plan_units.h"

#include <math.h>

enum { N_PROBLEMS = 60, N_PROPOSALS = 300, MAX_TABLES = 24, N_CHOICES = 8, MAX_DEVICES = 24 };

typedef struct {
  uint64_t random;
  int n, world_size, group;
  TrsPlanOption option[MAX_TABLES][N_CHOICES];
  TrsShardClass shard[MAX_TABLES][N_CHOICES][3];
  const TrsPlanOption *list[MAX_TABLES];
  TrsStorage left[MAX_DEVICES];
  TrsPartitionerConfig config;
} problem_t;

static int draw(problem_t *p, int n)
{
  p->random = p->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((p->random >> 33) % (uint64_t)n);
}

/*
  Make option k of a table with `rows` rows. It has row blocks or column blocks if its sharding type
  has them.
*/
static void make_option(problem_t *p, int t, int k, int rows)
{
  static const struct {
    TrsShardingType type;
    TrsPartitionBy by;
  } kinds[N_CHOICES] = {
      {TRS_SHARDING_TABLE_WISE, TRS_PARTITION_DEVICE},      {TRS_SHARDING_COLUMN_WISE, TRS_PARTITION_DEVICE},
      {TRS_SHARDING_TABLE_COLUMN_WISE, TRS_PARTITION_HOST}, {TRS_SHARDING_TABLE_ROW_WISE, TRS_PARTITION_HOST},
      {TRS_SHARDING_GRID_SHARD, TRS_PARTITION_MULTI_HOST},  {TRS_SHARDING_ROW_WISE, TRS_PARTITION_UNIFORM},
      {TRS_SHARDING_DATA_PARALLEL, TRS_PARTITION_UNIFORM},  {TRS_SHARDING_TABLE_WISE, TRS_PARTITION_DEVICE}};
  TrsPlanOption *option = &p->option[t][k];
  TrsShardingType type = kinds[k].type;
  int blocks = type == TRS_SHARDING_COLUMN_WISE || type == TRS_SHARDING_TABLE_COLUMN_WISE ||
                       type == TRS_SHARDING_GRID_SHARD
                   ? 2 + draw(p, 3)
                   : 1;
  int row_shards = type == TRS_SHARDING_ROW_WISE
                       ? p->world_size
                       : (type == TRS_SHARDING_TABLE_ROW_WISE || type == TRS_SHARDING_GRID_SHARD ? p->group
                                                                                                 : 1);
  int block = (rows + row_shards - 1) / row_shards, full = rows / block;
  const int of_class[3] = {block, rows - block * full, 0};
  PetscBool on_host = (PetscBool)(k == N_CHOICES - 1); /* the last choice stores weights in ddr */
  double ms = 0.01 * (1 + draw(p, 200));

  *option = (TrsPlanOption){.table = t,
                            .type = type,
                            .kernel = on_host ? TRS_KERNEL_FUSED_UVM : TRS_KERNEL_FUSED,
                            .partition_by = kinds[k].by,
                            .n_shards = blocks * row_shards,
                            .row_shards = row_shards,
                            .n_full = full,
                            .width = 4,
                            .n_classes = full >= row_shards ? 1 : (full + 1 >= row_shards ? 2 : 3),
                            .shard_class = p->shard[t][k],
                            .same_perf = PETSC_TRUE};
  if (type == TRS_SHARDING_DATA_PARALLEL) {
    option->n_shards = p->world_size;
    option->row_shards = option->n_full = p->world_size;
    option->n_classes = 1;
  }
  for (int c = 0; c < 3; c++) {
    int64_t bytes = of_class[type == TRS_SHARDING_DATA_PARALLEL ? 0 : c] * 16 / blocks + draw(p, 3);

    p->shard[t][k][c] = (TrsShardClass){.rows = of_class[c],
                                        .storage = {on_host ? 1 : bytes, on_host ? bytes : 0},
                                        .perf = {ms, 0.5 * ms, 2 * ms, 0.25 * ms, 0}};
    p->shard[t][k][c].total = TrsPerfTotal(&p->shard[t][k][c].perf);
  }
  assert_true(TrsOptionSummarise(option));
}

static void make_problem(problem_t *p, int seed)
{
  const int groups[] = {1, 2, 3, 4, 5};
  int64_t bytes = 0, cap;

  p->random = (uint64_t)seed * 7919 + 17;
  p->n = 2 + draw(p, MAX_TABLES - 1);
  p->world_size = 1 + draw(p, MAX_DEVICES);
  p->group = PetscMin(groups[draw(p, 5)], p->world_size);
  for (int t = 0; t < p->n; t++) {
    int rows = 1 + draw(p, draw(p, 4) ? 100 : 3000);

    bytes += 16 * rows;
    for (int k = 0; k < N_CHOICES; k++) make_option(p, t, k, rows);
    p->list[t] = &p->option[t][draw(p, N_CHOICES)];
  }
  cap = (int64_t)((0.6 + 0.2 * draw(p, 12)) * (double)bytes / p->world_size) + 1;
  for (int r = 0; r < p->world_size; r++)
    p->left[r] = (TrsStorage){cap + (seed % 3 == 0 ? draw(p, (int)cap + 1) : 0), cap};
  p->config = (TrsPartitionerConfig){.world_size = p->world_size,
                                     .local_world_size = p->group,
                                     .group = p->group,
                                     .left = p->left,
                                     .sort_by_perf = (PetscBool)(seed % 5 == 4),
                                     .balance_modules = (PetscBool)(seed % 7 == 6)};
}

/*
  Compare a partitioner that keeps records of earlier proposals with a new one: the ranks and the
  rating are the same, bit for bit.
*/
static void check_records(const problem_t *p, TrsPartitioner kept)
{
  const TrsPartitionHint hint = {.limit = HUGE_VAL};
  const TrsProposal proposal = {p->n, (const TrsPlanOption **)(uintptr_t)p->list};
  const TrsPlacement *old_ranks, *ranks;
  double old_rating = 0, rating = 0;
  PetscBool old_placed, placed;
  TrsPartitioner anew;

  assert_petsc_ok(TrsPartitionerCreate(&p->config, p->n, &anew));
  assert_petsc_ok(TrsPartition(anew, &proposal, &hint, &ranks, &placed, &rating));
  assert_petsc_ok(TrsPartition(kept, &proposal, &hint, &old_ranks, &old_placed, &old_rating));
  assert_int_equal(old_placed, placed);
  assert_true(!placed || old_rating == rating);
  for (int t = 0; t < p->n && placed; t++)
    for (int s = 0; s < p->list[t]->n_shards; s++)
      assert_int_equal(TrsPlacementRank(old_ranks, t, s), TrsPlacementRank(ranks, t, s));
  assert_petsc_ok(TrsPartitionerDestroy(&anew));
}

/*
  Compare the outcome of one proposal with the bounds, and with a partitioner that gets hints. Count
  the outcomes that are certain.
*/
static void check_proposal(const TrsProposalBounds *bounds, TrsPartitioner judge, TrsPartitioner hinted,
                           const TrsProposal *proposal, double limit, int certain[3])
{
  const TrsPlacement *placement;
  TrsPartitionHint hint = {.limit = limit, .pieces = &bounds->own};
  double rating = HUGE_VAL, hinted_rating = HUGE_VAL;
  PetscBool placed, hinted_placed, fails = TrsProposalBoundsFails(bounds),
                                   sure = TrsProposalBoundsPlaced(bounds);

  assert_petsc_ok(
      TrsPartition(judge, proposal, &(TrsPartitionHint){.limit = HUGE_VAL}, &placement, &placed, &rating));
  assert_false(fails && placed);
  assert_false(sure && !placed);
  if (placed) {
    assert_true(TrsProposalBoundsRating(bounds) <= rating);
    assert_true(TrsProposalBoundsSlowestShard(bounds) <= rating);
  }
  assert_petsc_ok(TrsPartition(hinted, proposal, &hint, &placement, &hinted_placed, &hinted_rating));
  assert_int_equal(hinted_placed, placed);
  if (placed && rating <= limit) assert_true(hinted_rating == rating);
  if (placed && rating > limit) assert_true(hinted_rating > limit);
  hint = (TrsPartitionHint){.limit = limit, .only_below = PETSC_TRUE};
  assert_petsc_ok(TrsPartition(hinted, proposal, &hint, &placement, &hinted_placed, &hinted_rating));
  assert_int_equal(hinted_placed && hinted_rating <= limit, placed && rating <= limit);
  certain[0] += fails ? 1 : 0;
  certain[1] += sure ? 1 : 0;
  certain[2] += placed && rating <= limit;
}

static void test_certainty(void **state)
{
  problem_t *p = calloc(1, sizeof(*p));
  int certain[3] = {0, 0, 0};

  (void)state;
  assert_non_null(p);
  for (int seed = 0; seed < N_PROBLEMS; seed++) {
    TrsPartitioner judge, hinted;
    TrsProposalBounds bounds, anew;
    TrsProposal proposal;
    double limit;

    make_problem(p, seed);
    proposal = (TrsProposal){p->n, p->list};
    assert_petsc_ok(TrsPartitionerCreate(&p->config, p->n, &judge));
    assert_petsc_ok(TrsPartitionerCreate(&p->config, p->n, &hinted));
    assert_petsc_ok(TrsProposalBoundsCreate(&p->config, p->n, &bounds));
    assert_petsc_ok(TrsProposalBoundsCreate(&p->config, p->n, &anew));
    TrsProposalBoundsUpdate(&bounds, &proposal, -1);
    limit = TrsProposalBoundsRating(&bounds);
    for (int i = 0; i < N_PROPOSALS; i++) {
      int t = draw(p, p->n);

      p->list[t] = &p->option[t][draw(p, N_CHOICES)];
      TrsProposalBoundsUpdate(&bounds, &proposal, t);
      TrsProposalBoundsUpdate(&anew, &proposal, -1);
      assert_true(bounds.hbm == anew.hbm && bounds.ddr == anew.ddr &&
                  bounds.own.host_hbm == anew.own.host_hbm);
      assert_true(bounds.key[0] == anew.key[0] && bounds.key[1] == anew.key[1]);
      check_proposal(i % 2 ? &bounds : &anew, judge, hinted, &proposal, limit, certain);
      if (i % 10 == 9) check_records(p, judge);
      if (i % 50 == 0) limit = TrsProposalBoundsRating(&bounds) * (1 + 0.1 * draw(p, 10));
    }
    assert_petsc_ok(TrsProposalBoundsFree(&bounds));
    assert_petsc_ok(TrsProposalBoundsFree(&anew));
    /* fewer tables than before: all records are new */
    p->n = 1;
    check_records(p, judge);
    assert_petsc_ok(TrsPartitionerDestroy(&judge));
    assert_petsc_ok(TrsPartitionerDestroy(&hinted));
  }
  /* each kind of outcome occurs often */
  for (int k = 0; k < 3; k++) assert_true(certain[k] > N_PROPOSALS);
  free(p);
}

TRS_TEST_MAIN(cmocka_unit_test(test_certainty))
