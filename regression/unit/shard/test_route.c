/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests the route for a group of two tables on four ranks: its entries, the order in which ids are
  sent, the split of rows, and the runs of columns. All expected numbers are derived by hand from
  the plans below. Creating a route needs no communication, so one process stands for any rank.
*/
#include "shard/sharding.h"
#include "trs_test.h"

#include <string.h>

enum { W = 4, L = 2, N_FEATURES = 5, MOST_SHARDS = 4 };

/*
  Table a has the model's features 3 and 4, and table b has feature 0. Rows have 8 columns in a and
  4 in b. In the model's matrix, feature 3 begins at column 0, feature 4 at column 8 and feature 0
  at column 16.
*/
typedef struct {
  struct TrsCommImpl world;
  TrsCommGroups groups;
  TrsTableConfig config[2];
  TrsTableConfigs tables;
  TrsShard shard[2][MOST_SHARDS];
  TrsTablePlan plan[2];
  const TrsTablePlan *table_plan[2];
  int first_feature[2], table[2];
  int64_t columns[N_FEATURES];
  TrsShardingContext context;
  struct TrsShardingImpl sharding;
} fixture;

static void make(fixture *f, TrsGrid grid, TrsShardingType type_a, int n_a, const TrsShard *a,
                 TrsShardingType type_b, int n_b, const TrsShard *b)
{
  *f = (fixture){.world = {.size = W},
                 .config = {{.n_features = 2, .embedding_dim = 8}, {.n_features = 1, .embedding_dim = 4}},
                 .first_feature = {3, 0},
                 .table = {0, 1},
                 .columns = {16, -1, -1, 0, 8}};
  f->groups = (TrsCommGroups){.world = &f->world, .local_world_size = L, .n_hosts = W / L};
  f->tables = (TrsTableConfigs){.n = 2, .table = f->config};
  memcpy(f->shard[0], a, sizeof(*a) * (size_t)n_a);
  memcpy(f->shard[1], b, sizeof(*b) * (size_t)n_b);
  f->plan[0] = (TrsTablePlan){.sharding_type = type_a, .n_shards = n_a, .shard = f->shard[0]};
  f->plan[1] = (TrsTablePlan){.sharding_type = type_b, .n_shards = n_b, .shard = f->shard[1]};
  for (int t = 0; t < 2; t++) f->table_plan[t] = &f->plan[t];
  f->context = (TrsShardingContext){.groups = &f->groups,
                                    .device = trs_device_backends[0],
                                    .tables = &f->tables,
                                    .table_plan = f->table_plan,
                                    .first_feature = f->first_feature,
                                    .columns = f->columns};
  f->sharding = (struct TrsShardingImpl){
      .context = &f->context, .n_tables = 2, .table = f->table, .route = {.grid = grid}};
  assert_petsc_ok(TrsRouteCreate(&f->sharding));
}

#define assert_ints(found, ...) \
  do { \
    const int wanted[] = {__VA_ARGS__}; \
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) assert_int_equal((found)[i], wanted[i]); \
  } while (0)

/*
  Table a is cut into two halves: the left half is on rank 2, and the right half is on rank 0. Table
  b is whole, on rank 0.
*/
static void make_whole(fixture *f)
{
  const TrsShard a[] = {{.rank = 2, .rows = 10, .cols = 4},
                        {.rank = 0, .col_offset = 4, .rows = 10, .cols = 4}};
  const TrsShard b[] = {{.rank = 0, .rows = 7, .cols = 4}};

  make(f, TRS_GRID_RANKS, TRS_SHARDING_COLUMN_WISE, 2, a, TRS_SHARDING_TABLE_WISE, 1, b);
}

static void test_entries(void **state)
{
  fixture f;
  const TrsRoute *route = &f.sharding.route;

  (void)state;
  make_whole(&f);
  assert_int_equal(route->L, 1);
  assert_int_equal(route->H, W);
  assert_int_equal(route->n_features, 3);
  assert_ints(route->group_feature, 3, 4, 0);
  assert_ints(route->table_feature, 0, 2, 3);
  assert_int_equal(route->n_entries, 5);
  assert_ints(route->host_entry, 0, 3, 3, 5, 5);
  assert_ints(route->n_sent, 3, 0, 2, 0);
  assert_ints(route->place, 0, 1, 2, 0, 1);
  assert_ints(route->feature, 3, 4, 0, 3, 4);
  assert_int_equal(route->entry[0].column, 4); /* the right half */
  assert_int_equal(route->entry[3].column, 0);
  assert_int_equal(route->entry[3].columns, 4);
  assert_null(route->cut_by); /* shards have all rows, so rows are not cut */
  assert_null(route->order);  /* therefore nothing is reordered */
  assert_petsc_ok(TrsRouteDestroy(&f.sharding));
}

/* Adjacent columns are copied together: the right half of feature 4, and feature 0. */
static void test_runs(void **state)
{
  const int64_t expected[][4] = {/* for each run: block, column in the block, column, width */
                                 {0, 0, 4, 4},
                                 {0, 4, 12, 8},
                                 {2, 0, 0, 4},
                                 {2, 4, 8, 4}};
  int64_t dims[W];
  fixture f;

  (void)state;
  make_whole(&f);
  assert_petsc_ok(TrsRouteCreateRuns(&f.sharding, PETSC_FALSE, PETSC_FALSE, dims));
  assert_ints(dims, 12, 0, 8, 0);
  assert_int_equal(f.sharding.route.n_runs, 4);
  for (int i = 0; i < 4; i++) {
    const TrsColumnRun *run = &f.sharding.route.run[i];
    assert_int_equal(run->block, expected[i][0]);
    assert_int_equal(run->block_column, expected[i][1]);
    assert_int_equal(run->column, expected[i][2]);
    assert_int_equal(run->width, expected[i][3]);
  }
  assert_petsc_ok(TrsRouteDestroy(&f.sharding));
}

/*
  Rows are distributed over the ranks of a host: table a evenly on host 1, and table b unevenly on
  host 0. Buckets are made in the order (rank within a host, entry), and sent in the order (host,
  rank, entry).
*/
static void test_rows_over_a_host(void **state)
{
  const TrsShard a[] = {{.rank = 2, .rows = 5, .cols = 8},
                        {.rank = 3, .row_offset = 5, .rows = 5, .cols = 8}};
  const TrsShard b[] = {{.rank = 0, .rows = 2, .cols = 4},
                        {.rank = 1, .row_offset = 2, .rows = 5, .cols = 4}};
  fixture f;
  const TrsRoute *route = &f.sharding.route;

  (void)state;
  make(&f, TRS_GRID_HOSTS, TRS_SHARDING_TABLE_ROW_WISE, 2, a, TRS_SHARDING_TABLE_ROW_WISE, 2, b);
  assert_int_equal(route->L, L);
  assert_int_equal(route->H, W / L);
  assert_ints(route->host_entry, 0, 1, 3); /* the feature of b, then both features of a */
  assert_ints(route->feature, 0, 3, 4);
  assert_ints(route->n_sent, 1, 1, 2, 2);
  assert_ints(route->order, 0, 3, 1, 2, 4, 5);
  /* an even cut of 7 rows on 2 ranks is 4 and 3 */
  assert_int_equal(route->cut_by[0].bucket_rows, 4);
  assert_ints(route->cut_by[0].bounds, 0, 2, 7);
  assert_int_equal(route->cut_by[1].bucket_rows, 5);
  assert_null(route->cut_by[1].bounds); /* an even cut */
  for (int i = 0; i < W; i++) assert_int_equal(TrsRouteSource(route, i), ((int[]){0, 2, 1, 3})[i]);
  assert_petsc_ok(TrsRouteDestroy(&f.sharding));
}

/*
  Rows are distributed over all ranks. Table a begins on rank 1, so rank 0 has no rows. Table b is
  cut evenly, and its last rank has fewer rows.
*/
static void test_rows_over_the_world(void **state)
{
  const TrsShard a[] = {{.rank = 1, .rows = 4, .cols = 8},
                        {.rank = 2, .row_offset = 4, .rows = 3, .cols = 8},
                        {.rank = 3, .row_offset = 7, .rows = 3, .cols = 8}};
  const TrsShard b[] = {{.rank = 0, .rows = 2, .cols = 4},
                        {.rank = 1, .row_offset = 2, .rows = 2, .cols = 4},
                        {.rank = 2, .row_offset = 4, .rows = 2, .cols = 4},
                        {.rank = 3, .row_offset = 6, .rows = 1, .cols = 4}};
  fixture f;
  const TrsRoute *route = &f.sharding.route;

  (void)state;
  make(&f, TRS_GRID_WORLD, TRS_SHARDING_ROW_WISE, 3, a, TRS_SHARDING_ROW_WISE, 4, b);
  assert_int_equal(route->H, 1);
  assert_ints(route->n_sent, 3, 3, 3, 3);
  assert_ints(route->cut_by[0].bounds, 0, 0, 4, 7, 10);
  assert_ints(route->cut_by[1].bounds, 0, 0, 4, 7, 10);
  assert_int_equal(route->cut_by[2].bucket_rows, 2);
  assert_null(route->cut_by[2].bounds);
  /* on one host, buckets are sent in the order in which they were made */
  assert_null(route->order);
  for (int i = 0; i < W; i++) assert_int_equal(TrsRouteSource(route, i), i);
  assert_petsc_ok(TrsRouteDestroy(&f.sharding));
  make(&f, TRS_GRID_WORLD_BY_HOSTS, TRS_SHARDING_ROW_WISE, 3, a, TRS_SHARDING_ROW_WISE, 4, b);
  /* the same buckets, but sources are grouped by their local index in a host */
  assert_int_equal(route->H, 1);
  assert_ints(route->cut_by[0].bounds, 0, 0, 4, 7, 10);
  assert_null(route->order);
  for (int i = 0; i < W; i++) assert_int_equal(TrsRouteSource(route, i), ((int[]){0, 2, 1, 3})[i]);
  assert_petsc_ok(TrsRouteDestroy(&f.sharding));
}

TRS_TEST_MAIN(cmocka_unit_test(test_entries), cmocka_unit_test(test_runs),
              cmocka_unit_test(test_rows_over_a_host), cmocka_unit_test(test_rows_over_the_world))
