/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests the caches of a lookup: which tables share a cache, and how large it is. Also tests the law
  of embed/placement.h: batches may be prefetched, looked up (even by evaluations) and updated, and
  rows may be written back or dropped, in any order. The results are always the same as for tables
  without a cache.
*/
#include "core/random/random.h"
#include "embed/placement.h"
#include "trs_test.h"

#include <string.h>

enum { TABLES = 3, DIM = 6, ROWS = 150, BATCHES = 24, IDS = 60 };

static const TrsComputeOps *compute;
static const TrsDeviceOps *device;
static TrsWorkspace workspace;

static uint32_t draw(uint64_t stream, int64_t i)
{
  uint32_t words[4];

  TrsRandom(19, TRS_RANDOM_TEST, stream, (uint64_t)i, words);
  return words[0];
}

/*
  Create the placement for n tables of a lookup. Each table is a shard, with its settings for a
  cache.
*/
static PetscErrorCode create(const TrsDeviceOps *on, const TrsComputeOps *by, int n, TrsTbeTable *table,
                             const TrsRowCacheWish *wish, TrsPlacement *placement)
{
  TrsEmbeddingShard shard[5] = {{0}};
  const TrsEmbeddingShards shards = {.placements = trs_placements, .n = n, .shard = shard};
  const int number[5] = {0, 1, 2, 3, 4};

  for (int t = 0; t < n; t++) shard[t].cache = wish[t];
  return TrsPlacementCreate(
      &(TrsPlacementTables){
          .device = on, .compute = by, .shards = &shards, .n_tables = n, .shard = number, .table = table},
      placement);
}

static PetscErrorCode info_of(TrsPlacement placement, int i, TrsRowCacheInfo *info)
{
  return TrsRowCachesInfo((TrsRowCaches)placement->data, i, NULL, info);
}

/* --- which tables share a cache --- */

static void test_groups(void **state)
{
  float rows[4 * 100];
  TrsTbeTable table[5];
  const TrsRowCacheWish wish[5] = {{0.5, TRS_CACHE_LRU, 0, 10},
                                   {0, TRS_CACHE_LRU, 0, 11},
                                   {0.5, TRS_CACHE_LFU, 0, 12},
                                   {0.5, TRS_CACHE_LRU, 0, 13},
                                   {0.9, TRS_CACHE_LRU, 0, 14}};
  TrsPlacement caches;
  TrsRowCacheInfo info;

  (void)state;
  for (int t = 0; t < 5; t++)
    table[t] = (TrsTbeTable){.weight = rows, .rows = t == 4 ? 0 : 100, .dim = t == 3 ? 40 : 4, .stride = 4};
  assert_petsc_ok(create(device, compute, 5, table, wish, &caches));
  assert_int_equal(TrsRowCachesCount((TrsRowCaches)caches->data),
                   2); /* a table without rows on this rank needs no cache */
  assert_true(table[0].lines && table[0].lines == table[3].lines && table[2].lines != table[0].lines);
  assert_true(!table[1].lines && !table[4].lines);
  assert_int_equal(table[0].line_bytes, 192); /* 40 floats, rounded up to whole lines of 64 bytes */
  assert_int_equal(table[2].line_bytes, 64);
  assert_true(table[0].cache_first == 0 && table[3].cache_first == 100 && table[2].cache_first == 0);
  assert_petsc_ok(info_of(caches, 0, &info));
  assert_int_equal(info.rows, 200);
  assert_int_equal(info.capacity_rows, 128); /* ceil(200 * 0.5 / 32) sets of 32 lines */
  assert_true(info.n_tables == 2 && info.table[0] == 10 && info.table[1] == 13);
  assert_true(info.bytes == 128 * (192 + 20) + 48 && info.counters[TRS_CACHE_CALLS] == 0);
  assert_petsc_ok(info_of(caches, 1, &info));
  assert_true(info.algorithm == TRS_CACHE_LFU && info.rows == 100 && info.capacity_rows == 64);
  assert_petsc_ok(TrsPlacementDestroy(&caches));
  assert_petsc_ok(create(device, compute, 1, &table[1], &wish[1], &caches));
  assert_true(caches->ops == &trs_placement_none && TrsPlacementIsNone(caches));
  assert_int_equal(TrsRowCachesCount(NULL), 0);
  assert_petsc_ok(TrsPlacementDestroy(&caches));
}

/* --- reserved memory --- */

/* The free bytes that the device of the next test reports. */
static int64_t free_now;

static PetscErrorCode memory_of_test(int64_t *free_bytes, int64_t *total_bytes)
{
  *free_bytes = *total_bytes = free_now;
  return PETSC_SUCCESS;
}

/* With LRU, a set of 32 lines needs 32 * (64 + 20) bytes. A line of 4 floats has 64 bytes. */
static void test_reserved_memory(void **state)
{
  enum { SET_BYTES = 32 * (64 + 20) };
  static const struct {
    int64_t free_bytes, reserved, rows;
  } cases[] = {{1 << 20, 0, 320},
               {1 << 20, 1000, 320},
               {1000 + 3 * SET_BYTES, 1000, 96},
               {1000 + 4 * SET_BYTES - 1, 1000, 96},
               {0, 0, 320}};
  TrsDeviceOps small = *device;
  float rows[4];

  (void)state;
  small.memory = memory_of_test;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    const TrsRowCacheWish wish = {0.5, TRS_CACHE_LRU, cases[i].reserved, 0};
    TrsTbeTable table = {.weight = rows, .rows = 640, .dim = 4, .stride = 4};
    TrsRowCacheInfo info;
    TrsPlacement caches;

    free_now = cases[i].free_bytes;
    assert_petsc_ok(create(&small, compute, 1, &table, &wish, &caches));
    assert_petsc_ok(info_of(caches, 0, &info));
    assert_int_equal(info.capacity_rows, cases[i].rows);
    assert_petsc_ok(TrsPlacementDestroy(&caches));
  }
  {
    const TrsRowCacheWish wish = {0.5, TRS_CACHE_LRU, 1000, 0};
    TrsTbeTable table = {.weight = rows, .rows = 640, .dim = 4, .stride = 4};
    TrsPlacement caches;

    free_now = 1000 + SET_BYTES - 1;
    assert_petsc_error(create(&small, compute, 1, &table, &wish, &caches), TRS_ERR_MEMORY);
  }
}

/* --- operations in any order --- */

typedef struct {
  float rows[TABLES][ROWS * DIM];
  TrsTbeTable table[TABLES];
  TrsTbe tbe;
} Model;

static const TrsTbeFeature features[TABLES] = {{0, 0, 0}, {1, 0, DIM}, {2, 1, 2 * DIM}};

static void new_model(Model *m)
{
  for (int t = 0; t < TABLES; t++) {
    TrsRandomUniformFill(3, TRS_RANDOM_TEST, (uint64_t)t, 0, ROWS * DIM, -1.0F, 1.0F, m->rows[t]);
    m->table[t] = (TrsTbeTable){
        .weight = m->rows[t], .rows = ROWS, .stride = DIM, .dim = DIM, .table_dim = DIM, .key = (uint64_t)t};
  }
  m->tbe = (TrsTbe){.n_tables = TABLES, .n_features = TABLES, .table = m->table, .feature = features};
}

/* A batch with one bag for each feature, with some frequent and some rare ids. */
typedef struct {
  int64_t offsets[TABLES + 1], values[TABLES * IDS];
  TrsTbeInput input;
} Ids;

static void new_ids(Ids *b, uint64_t number)
{
  for (int f = 0; f <= TABLES; f++) b->offsets[f] = (int64_t)f * IDS;
  for (int i = 0; i < TABLES * IDS; i++) {
    const uint32_t word = draw(number, i);
    b->values[i] = word % 19 == 0 ? -1 : (int64_t)(word % 3 ? word % ROWS : word % 9);
  }
  b->input = (TrsTbeInput){
      .batch = 1, .offsets = b->offsets, .values = b->values, .n_values = (int64_t)TABLES * IDS};
}

/* Look up a batch with and without caches, and compare. */
static void look_up(TrsPlacement caches, const Model *plain, const Model *cached, const Ids *b)
{
  float out[2][TABLES * DIM];
  TrsTbeInput input = b->input;

  assert_petsc_ok(compute->tbe_forward(NULL, workspace, &plain->tbe, &b->input,
                                       TrsFloats(out[0], (int64_t)TABLES * DIM)));
  assert_petsc_ok(TrsPlacementForward(caches, NULL, &cached->tbe, &input));
  assert_petsc_ok(
      compute->tbe_forward(NULL, workspace, &cached->tbe, &input, TrsFloats(out[1], (int64_t)TABLES * DIM)));
  assert_memory_equal(out[0], out[1], sizeof(out[0]));
}

static void update(TrsPlacement caches, const Model *plain, const Model *cached, const Ids *b,
                   uint64_t number)
{
  const TrsSparseOptimizerArgs sgd = {.kind = TRS_OPTIM_SGD, .learning_rate = 0.5F, .step = 1};
  float grad[TABLES * DIM];
  TrsTbeInput input = b->input;

  TrsRandomUniformFill(4, TRS_RANDOM_TEST, number, 0, TABLES * DIM, -1.0F, 1.0F, grad);
  assert_petsc_ok(compute->tbe_backward(NULL, workspace, &plain->tbe, &b->input,
                                        TrsFloats(grad, (int64_t)TABLES * DIM), &sgd));
  assert_petsc_ok(TrsPlacementBackward(caches, NULL, &cached->tbe, &input));
  assert_petsc_ok(compute->tbe_backward(NULL, workspace, &cached->tbe, &input,
                                        TrsFloats(grad, (int64_t)TABLES * DIM), &sgd));
  assert_petsc_ok(TrsPlacementDone(caches, NULL, &cached->tbe, &input));
}

static void assert_home(TrsPlacement caches, const Model *plain, const Model *cached, PetscBool drop)
{
  assert_petsc_ok(TrsPlacementSettle(caches, NULL, &cached->tbe, drop));
  for (int t = 0; t < TABLES; t++)
    assert_memory_equal(plain->rows[t], cached->rows[t], sizeof(plain->rows[t]));
}

/* A training. `seed` determines what happens between its steps. */
static void train(uint64_t seed)
{
  static Model plain, cached;
  static Ids b[2], evaluation;
  const TrsRowCacheWish wish[TABLES] = {
      {0.1, TRS_CACHE_LRU, 0, 0}, {seed % 2 ? 0.1 : 0, TRS_CACHE_LFU, 0, 1}, {0.1, TRS_CACHE_LRU, 0, 2}};
  TrsPlacement caches;
  TrsRowCacheInfo info;

  new_model(&plain);
  new_model(&cached);
  assert_petsc_ok(create(device, compute, TABLES, cached.table, wish, &caches));
  new_ids(&b[0], seed);
  for (int i = 0; i < BATCHES; i++) {
    const uint32_t word = draw(100 + seed, i);
    Ids *now = &b[i % 2], *next = &b[(i + 1) % 2];

    new_ids(next, seed + (uint64_t)i + 1);
    new_ids(&evaluation, 1000 + seed + (uint64_t)i);
    if (word & 1) look_up(caches, &plain, &cached, &evaluation);
    if (word & 2) assert_home(caches, &plain, &cached, (PetscBool)((word & 4) != 0));
    if ((word & 24) != 24) /* a batch may be updated even if it was not looked up */
      look_up(caches, &plain, &cached, now);
    if (word & 32) assert_petsc_ok(TrsPlacementAhead(caches, NULL, &cached.tbe, &next->input));
    if (word & 64) look_up(caches, &plain, &cached, &evaluation);
    if (word & 128) assert_home(caches, &plain, &cached, (PetscBool)((word & 256) != 0));
    update(caches, &plain, &cached, now, seed + (uint64_t)i);
  }
  assert_home(caches, &plain, &cached, PETSC_FALSE);
  assert_petsc_ok(info_of(caches, 0, &info));
  assert_true(info.counters[TRS_CACHE_UNIQUE_MISSES] > info.capacity_rows);
  assert_true(info.counters[TRS_CACHE_CONFLICT_MISSES] > 0);
  assert_petsc_ok(TrsPlacementDestroy(&caches));
}

static void test_any_order(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 40; seed++) train(seed * 10000 + seed);
}

/*
  Under prefetch_sparse_dist, LFU caches make no separate search. The lookup itself loads the rows.
*/
static int64_t n_located;

static PetscErrorCode count_locate(TrsStream stream, TrsWorkspace space, const TrsCache *cache,
                                   const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations)
{
  PetscFunctionBegin;
  n_located++;
  PetscCall(compute->cache_locate(stream, space, cache, tbe, input, locations));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_lfu_is_not_searched(void **state)
{
  static Model plain, cached;
  static Ids b[2];
  const TrsRowCacheWish wish[TABLES] = {
      {0.1, TRS_CACHE_LFU, 0, 0}, {0.1, TRS_CACHE_LFU, 0, 1}, {0, TRS_CACHE_LRU, 0, 2}};
  TrsComputeOps counting = *compute;
  TrsPlacement caches;

  (void)state;
  counting.cache_locate = count_locate;
  n_located = 0;
  new_model(&plain);
  new_model(&cached);
  assert_petsc_ok(create(device, &counting, TABLES, cached.table, wish, &caches));
  new_ids(&b[0], 0);
  assert_petsc_ok(TrsPlacementAhead(caches, NULL, &cached.tbe, &b[0].input));
  for (int i = 0; i < BATCHES; i++) {
    new_ids(&b[(i + 1) % 2], (uint64_t)i + 1);
    look_up(caches, &plain, &cached, &b[i % 2]);
    assert_petsc_ok(TrsPlacementAhead(caches, NULL, &cached.tbe, &b[(i + 1) % 2].input));
    update(caches, &plain, &cached, &b[i % 2], (uint64_t)i);
  }
  assert_int_equal(n_located, 0);
  assert_home(caches, &plain, &cached, PETSC_FALSE);
  assert_petsc_ok(TrsPlacementDestroy(&caches));
}

/* Without ids or without cached tables, all operations do nothing. */
static void test_nothing(void **state)
{
  const TrsRowCacheWish wish = {.load_factor = 0};
  TrsTbeTable table = {.rows = 4, .dim = 1};
  int64_t values[] = {1}, offsets[] = {0, 1};
  TrsTbeInput input = {.batch = 1, .offsets = offsets, .values = values, .n_values = 1};
  const TrsTbe tbe = {.n_tables = 1, .table = &table};
  TrsPlacement none;

  (void)state;
  assert_petsc_ok(create(device, compute, 1, &table, &wish, &none));
  assert_petsc_ok(TrsPlacementTake(none, NULL, &(TrsPlacementBatch){.tbe = &tbe}));
  assert_petsc_ok(TrsPlacementAhead(none, NULL, &tbe, &input));
  assert_petsc_ok(TrsPlacementForward(none, NULL, &tbe, &input));
  assert_petsc_ok(TrsPlacementBackward(none, NULL, &tbe, &input));
  assert_petsc_ok(TrsPlacementDone(none, NULL, &tbe, &input));
  assert_petsc_ok(TrsPlacementSettle(none, NULL, &tbe, PETSC_TRUE));
  assert_true(!input.locations && input.values == values && values[0] == 1);
  assert_petsc_ok(TrsPlacementDestroy(&none));
}

static int set_up(void **state)
{
  (void)state;
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(compute->workspace_create(&workspace));
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  assert_petsc_ok(compute->workspace_destroy(&workspace));
  return 0;
}

TRS_TEST_MAIN(cmocka_unit_test_setup_teardown(test_groups, set_up, tear_down),
              cmocka_unit_test_setup_teardown(test_reserved_memory, set_up, tear_down),
              cmocka_unit_test_setup_teardown(test_any_order, set_up, tear_down),
              cmocka_unit_test_setup_teardown(test_lfu_is_not_searched, set_up, tear_down),
              cmocka_unit_test(test_nothing))
