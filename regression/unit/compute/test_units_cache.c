/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests the cache of host rows, on every backend that has one. The inserted and evicted ids of each
  batch, and the counters, are compared with golden data of FBGEMM's LRU and LFU caches. The order
  of evictions, locks and write-back are compared with results computed by hand. Lookups and updates
  have the same bits with any cache as without a cache, even if the next batch is prefetched before
  this batch's update.
*/
#include "compute/compute_ops.h"
#include "core/random/random.h"
#include "golden_h5.h"

#include <string.h>

static const TrsDeviceOps *device;
static const TrsComputeOps *compute;
static TrsWorkspace workspace, tbe_workspace;

/* --- memory of the device --- */

static void *zeros(int64_t bytes)
{
  void *p = NULL;

  assert_petsc_ok(device->alloc(bytes > 0 ? bytes : 8, &p));
  return p;
}

static void copy(void *to, const void *from, int64_t bytes)
{
  assert_petsc_ok(device->copy(to, from, bytes, NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
}

static void *on_device(const void *host, int64_t bytes)
{
  void *p = zeros(bytes);

  if (bytes > 0) copy(p, host, bytes);
  return p;
}

static void *on_host(const void *p, int64_t bytes)
{
  void *host = calloc((size_t)bytes + 8, 1);

  assert_non_null(host);
  if (bytes > 0) copy(host, p, bytes);
  return host;
}

static void release(void *pointer_to_pointer)
{
  void **p = (void **)pointer_to_pointer;

  if (*p) assert_petsc_ok(device->release(p));
}

/* --- a cache --- */

static TrsCache new_cache(TrsCacheAlgorithm algorithm, int64_t n_sets, int64_t n_ids, int64_t line_bytes)
{
  const int64_t n = n_sets * TRS_CACHE_WAYS;
  TrsCache cache = {
      .algorithm = algorithm, .n_sets = n_sets, .n_ids = n_ids, .line_bytes = (line_bytes + 63) / 64 * 64};

  cache.tag = (int64_t *)zeros(n * 8);
  if (algorithm == TRS_CACHE_LRU) {
    cache.stamp = (int64_t *)zeros(n * 8);
    cache.locks = (int32_t *)zeros(n * 4);
  } else {
    cache.count = (int64_t *)zeros(n_ids * 8);
  }
  cache.lines = zeros(n * cache.line_bytes);
  cache.counters = (int64_t *)zeros(TRS_CACHE_N_COUNTERS * 8);
  return cache;
}

static void free_cache(TrsCache *cache)
{
  release(&cache->tag);
  release(&cache->stamp);
  release(&cache->locks);
  release(&cache->count);
  release(&cache->lines);
  release(&cache->counters);
}

/* A batch of ids with one feature and one bag, in device memory. */
typedef struct {
  TrsTbeInput input;
  int64_t *offsets, *values;
  int32_t *locations, *held;
} batch;

static batch new_batch(int64_t n, const int64_t *ids)
{
  const int64_t offsets[2] = {0, n};
  batch b = {.offsets = (int64_t *)on_device(offsets, 16), .values = (int64_t *)on_device(ids, n * 8)};

  b.locations = (int32_t *)zeros(n * 4);
  b.held = (int32_t *)zeros(n * 4);
  b.input = (TrsTbeInput){.batch = 1, .offsets = b.offsets, .values = b.values, .n_values = n};
  return b;
}

static void free_batch(batch *b)
{
  release(&b->offsets);
  release(&b->values);
  release(&b->locations);
  release(&b->held);
}

/* A cached table of one column in host memory. Row r holds the number r. */
typedef struct {
  TrsTbeTable table;
  TrsTbeFeature feature;
  TrsTbe tbe;
  TrsCache cache;
} numbers;

static void new_numbers(numbers *x, TrsCacheAlgorithm algorithm, int64_t n_sets, int64_t rows)
{
  void *weight = NULL;

  *x = (numbers){.cache = new_cache(algorithm, n_sets, rows, 4)};
  assert_petsc_ok(device->alloc_host(rows * 4, &weight));
  for (int64_t r = 0; r < rows; r++) ((float *)weight)[r] = (float)r;
  x->table = (TrsTbeTable){.weight = weight,
                           .rows = rows,
                           .stride = 1,
                           .dim = 1,
                           .table_dim = 1,
                           .lines = x->cache.lines,
                           .line_bytes = x->cache.line_bytes};
  x->tbe = (TrsTbe){.n_tables = 1, .n_features = 1, .table = &x->table, .feature = &x->feature};
}

static void free_numbers(numbers *x)
{
  assert_petsc_ok(device->release_host(&x->table.weight));
  free_cache(&x->cache);
}

static void prefetch(numbers *x, batch *b, int lock)
{
  x->cache.time++;
  assert_petsc_ok(compute->cache_prefetch(NULL, workspace, &x->cache, &x->tbe, &b->input, b->locations,
                                          lock ? b->held : NULL));
}

/*
  Set resident[id] for each cached id. The line of each cached id is in the id's set and holds its
  row. No other line holds it.
*/
static void residents(const numbers *x, char *resident)
{
  const int64_t n = x->cache.n_sets * TRS_CACHE_WAYS;
  int64_t *tag = (int64_t *)on_host(x->cache.tag, n * 8);
  char *lines = (char *)on_host(x->cache.lines, n * x->cache.line_bytes);

  memset(resident, 0, (size_t)x->cache.n_ids);
  for (int64_t l = 0; l < n; l++) {
    float number;

    if (!tag[l]) continue;
    assert_in_range(tag[l], 1, x->cache.n_ids);
    assert_int_equal(resident[tag[l] - 1], 0);
    resident[tag[l] - 1] = 1;
    assert_int_equal(l / TRS_CACHE_WAYS, TrsCacheSetOf(tag[l] - 1, x->cache.n_sets));
    memcpy(&number, lines + l * x->cache.line_bytes, sizeof(number));
    assert_int_equal((int64_t)number, tag[l] - 1);
  }
  free(tag);
  free(lines);
}

/* The location of an id is its line, or -1 if the id is not cached. */
static void check_locations(const numbers *x, const batch *b, const int64_t *ids, const char *resident)
{
  int64_t *tag = (int64_t *)on_host(x->cache.tag, x->cache.n_sets * TRS_CACHE_WAYS * 8);
  int32_t *location = (int32_t *)on_host(b->locations, b->input.n_values * 4);

  for (int64_t i = 0; i < b->input.n_values; i++)
    if (resident[ids[i]])
      assert_int_equal(tag[location[i]], ids[i] + 1);
    else
      assert_int_equal(location[i], -1);
  free(tag);
  free(location);
}

/* --- golden --- */

/* The ids whose state changed from `from` to `to` are the ids in the golden file. */
static void check_list(hid_t group, const char *what, int step, int64_t rows, const char *before,
                       const char *after, int from, int to)
{
  char path[64];
  int64_t n, at = 0, *ids;

  snprintf(path, sizeof(path), "out/%s%d", what, step);
  ids = golden_int64(group, path, &n);
  for (int64_t id = 0; id < rows; id++) {
    if ((from >= 0 && before[id] != from) || after[id] != to) continue;
    assert_true(at < n);
    assert_int_equal(id, ids[at++]);
  }
  assert_int_equal(at, n);
  free(ids);
}

static void one_group(hid_t group, const char *name, void *context)
{
  const int64_t rows = (int64_t)golden_number(group, "rows", 0),
                sets = (int64_t)golden_number(group, "sets", 0);
  const int n_batches = (int)golden_number(group, "num_batches", 0);
  char algorithm[16], path[64], *before = calloc((size_t)rows, 1), *after = calloc((size_t)rows, 1);
  int64_t *set = golden_int64(group, "out/slot_of_id", NULL);
  numbers x;

  (void)name;
  (void)context;
  golden_string(group, "algorithm", algorithm, sizeof(algorithm));
  assert_true(n_batches > 0 && rows > 0);
  new_numbers(&x, strcmp(algorithm, "lfu") == 0 ? TRS_CACHE_LFU : TRS_CACHE_LRU, sets, rows);
  for (int64_t id = 0; id < rows; id++) assert_int_equal(TrsCacheSetOf(id, sets), set[id]);
  for (int i = 0; i < n_batches; i++) {
    int64_t n, *ids, *stats, *was = (int64_t *)on_host(x.cache.counters, TRS_CACHE_N_COUNTERS * 8), *is;
    batch b;

    snprintf(path, sizeof(path), "in/batch%d", i);
    ids = golden_int64(group, path, &n);
    b = new_batch(n, ids);
    prefetch(&x, &b, 0);
    residents(&x, after);
    check_list(group, "cached", i, rows, before, after, -1, 1);
    check_list(group, "inserted", i, rows, before, after, 0, 1);
    check_list(group, "evicted", i, rows, before, after, 1, 0);
    check_locations(&x, &b, ids, after);
    snprintf(path, sizeof(path), "out/stats%d", i);
    stats = golden_int64(group, path, NULL);
    is = (int64_t *)on_host(x.cache.counters, TRS_CACHE_N_COUNTERS * 8);
    assert_int_equal(is[TRS_CACHE_CALLS], i + 1);
    assert_int_equal(is[TRS_CACHE_REQUESTED] - was[TRS_CACHE_REQUESTED], stats[0]);
    assert_int_equal(is[TRS_CACHE_UNIQUE] - was[TRS_CACHE_UNIQUE], stats[1]);
    assert_int_equal(is[TRS_CACHE_UNIQUE_MISSES] - was[TRS_CACHE_UNIQUE_MISSES], stats[2]);
    assert_int_equal(is[TRS_CACHE_CONFLICT_UNIQUE_MISSES] - was[TRS_CACHE_CONFLICT_UNIQUE_MISSES], stats[3]);
    memcpy(before, after, (size_t)rows);
    free_batch(&b);
    free(ids);
    free(stats);
    free(was);
    free(is);
  }
  free_numbers(&x);
  free(before);
  free(after);
  free(set);
}

/* Run a test once on each backend that has a cache and a device. */
static void on_backends(void (*test)(void))
{
  int n_devices = 0;
  char why_not[256];

  for (int b = 0; trs_compute_backends[b]; b++) {
    compute = trs_compute_backends[b];
    assert_petsc_ok(TrsDeviceFind(compute->name, &device));
    assert_petsc_ok(device->available(&n_devices, why_not, sizeof(why_not)));
    if (n_devices == 0 || !compute->cache_prefetch) continue;
    assert_petsc_ok(device->setup(0, 1));
    assert_petsc_ok(compute->workspace_create(&workspace));
    assert_petsc_ok(compute->workspace_create(&tbe_workspace));
    test();
    assert_petsc_ok(compute->workspace_destroy(&workspace));
    assert_petsc_ok(compute->workspace_destroy(&tbe_workspace));
  }
}

static void golden(void)
{
  hid_t file = golden_open("units_cache.h5");

  golden_for_each_group(file, one_group, NULL);
  golden_close(file);
}

static void test_golden(void **state)
{
  (void)state;
  on_backends(golden);
}

/* --- results by hand --- */

static void run_batch(numbers *x, int64_t n, const int64_t *ids, char *resident)
{
  batch b = new_batch(n, ids);

  prefetch(x, &b, 0);
  residents(x, resident);
  check_locations(x, &b, ids, resident);
  free_batch(&b);
}

/* With one set, the order does not depend on the hash. */
static void order_lru(void)
{
  int64_t ids[40];
  char resident[80];
  numbers x;

  new_numbers(&x, TRS_CACHE_LRU, 1, 80);
  for (int i = 0; i < 40; i++) ids[i] = 39 - i;
  run_batch(&x, 40, ids, resident); /* 40 ascending ids for 32 lines: ids 32..39 get no line */
  for (int i = 0; i < 40; i++) assert_int_equal(resident[i], i < 32);
  ids[0] = 3;
  ids[1] = 70;
  ids[2] = 71;
  /* 3 stays; ways 0 and 1 are the oldest and lowest, so they are evicted */
  run_batch(&x, 3, ids, resident);
  assert_true(!resident[0] && !resident[1] && resident[2] && resident[3] && resident[70] && resident[71]);
  ids[0] = 0;
  ids[1] = 1;
  run_batch(&x, 2, ids, resident); /* 2 and 4 are now the oldest; 3 was used later */
  assert_true(!resident[2] && resident[3] && !resident[4] && resident[5]);
  free_numbers(&x);
}

static void order_lfu(void)
{
  int64_t ids[64];
  char resident[80];
  numbers x;

  new_numbers(&x, TRS_CACHE_LFU, 1, 80);
  for (int i = 0; i < 64; i++) ids[i] = i / 2;
  run_batch(&x, 64, ids, resident); /* ids 0..31, twice each */
  ids[0] = 50;
  /* the new id has one use, which is fewer than two, so it is not inserted */
  run_batch(&x, 1, ids, resident);
  assert_true(!resident[50]);
  /* both have two uses: the new id is inserted, and the lowest way is evicted */
  run_batch(&x, 1, ids, resident);
  assert_true(resident[50] && !resident[0] && resident[1]);
  ids[0] = ids[1] = ids[2] = 60;
  ids[3] = 61;
  ids[4] = 0;
  /* 0 and 60 have 3 uses, and the lower id comes first; 61 has 1 use */
  run_batch(&x, 5, ids, resident);
  assert_true(resident[0] && resident[60] && !resident[61] && !resident[50] && !resident[1] && resident[2]);
  free_numbers(&x);
}

/*
  Counters of one call: 40 evicts 0, which the same batch had found, and 41 gets no line. Source:
  cache.h
*/
static void counters_lfu(void)
{
  int64_t ids[36], *was, *is;
  char resident[80];
  numbers x;

  new_numbers(&x, TRS_CACHE_LFU, 1, 80);
  for (int i = 0; i < 32; i++) ids[i] = i;
  run_batch(&x, 32, ids, resident); /* ids 0..31, once each */
  was = (int64_t *)on_host(x.cache.counters, TRS_CACHE_N_COUNTERS * 8);
  ids[32] = ids[33] = ids[34] = 40;
  ids[35] = 41;
  run_batch(&x, 36, ids, resident);
  assert_true(!resident[0] && resident[1] && resident[40] && !resident[41]);
  is = (int64_t *)on_host(x.cache.counters, TRS_CACHE_N_COUNTERS * 8);
  assert_int_equal(is[TRS_CACHE_REQUESTED] - was[TRS_CACHE_REQUESTED], 36);
  assert_int_equal(is[TRS_CACHE_UNIQUE] - was[TRS_CACHE_UNIQUE], 34);
  assert_int_equal(is[TRS_CACHE_UNIQUE_MISSES] - was[TRS_CACHE_UNIQUE_MISSES], 2);
  assert_int_equal(is[TRS_CACHE_CONFLICT_UNIQUE_MISSES] - was[TRS_CACHE_CONFLICT_UNIQUE_MISSES], 1);
  assert_int_equal(is[TRS_CACHE_CONFLICT_MISSES] - was[TRS_CACHE_CONFLICT_MISSES], 2);
  free(was);
  free(is);
  free_numbers(&x);
}

static void test_order(void **state)
{
  (void)state;
  on_backends(counters_lfu);
  on_backends(order_lru);
  on_backends(order_lfu);
}

/* The sum of all lines' locks. */
static int64_t locks_of(const numbers *x)
{
  int32_t *locks = (int32_t *)on_host(x->cache.locks, x->cache.n_sets * TRS_CACHE_WAYS * 4);
  int64_t sum = 0;

  for (int64_t l = 0; l < x->cache.n_sets * TRS_CACHE_WAYS; l++) {
    assert_in_range(locks[l], 0, 2);
    sum += locks[l];
  }
  free(locks);
  return sum;
}

/*
  Lines of batches in flight are not evicted. If two batches lock a line, both must unlock it before
  it can be evicted.
*/
static void locks(void)
{
  int64_t first[33], second[] = {5, 40, 41, 5, -1};
  char resident[80];
  int64_t *counters;
  numbers x;
  batch a, b, c;

  new_numbers(&x, TRS_CACHE_LRU, 1, 80);
  /* 0 occurs twice, but it locks its line only once */
  for (int i = 0; i < 33; i++) first[i] = i % 32;
  a = new_batch(33, first);
  b = new_batch(5, second);
  c = new_batch(2, second + 1);
  prefetch(&x, &a, 1);
  assert_int_equal(locks_of(&x), 32);
  prefetch(&x, &b, 1); /* all lines are locked, so 40 and 41 get no line */
  assert_int_equal(locks_of(&x), 33);
  residents(&x, resident);
  assert_true(!resident[40] && !resident[41]);
  counters = (int64_t *)on_host(x.cache.counters, TRS_CACHE_N_COUNTERS * 8);
  assert_int_equal(counters[TRS_CACHE_REQUESTED], 33 + 4); /* -1 is not a request */
  assert_int_equal(counters[TRS_CACHE_UNIQUE], 32 + 3);
  assert_int_equal(counters[TRS_CACHE_UNIQUE_MISSES], 32 + 2);
  assert_int_equal(counters[TRS_CACHE_CONFLICT_UNIQUE_MISSES], 2);
  assert_int_equal(counters[TRS_CACHE_CONFLICT_MISSES], 2);
  assert_petsc_ok(compute->cache_release(NULL, &x.cache, 33, a.held));
  assert_int_equal(locks_of(&x), 1);
  prefetch(&x, &c, 0); /* this evicts 0 and 1, the oldest ids that are not locked */
  residents(&x, resident);
  assert_true(resident[40] && resident[41] && resident[5] && !resident[0] && !resident[1]);
  assert_petsc_ok(compute->cache_locate(NULL, workspace, &x.cache, &x.tbe, &b.input, b.locations));
  /* 40 and 41 are found now; for -1 the check uses 0, which is absent */
  check_locations(&x, &b, (const int64_t[]){5, 40, 41, 5, 0}, resident);
  assert_petsc_ok(compute->cache_release(NULL, &x.cache, 5, b.held));
  assert_int_equal(locks_of(&x), 0);
  free(counters);
  free_batch(&a);
  free_batch(&b);
  free_batch(&c);
  free_numbers(&x);
}

static void test_locks(void **state)
{
  (void)state;
  on_backends(locks);
}

/*
  The cached line has the current value. It is written back if another row takes the line, or if the
  caller asks for it. If the line is dropped, the value is lost.
*/
static void write_back(void)
{
  const int64_t ids[] = {7, 8}, n_lines = TRS_CACHE_WAYS;
  int64_t others[32];
  char resident[80], lines[32 * 64];
  const float *home;
  numbers x;

  new_numbers(&x, TRS_CACHE_LRU, 1, 80);
  home = (const float *)x.table.weight;
  run_batch(&x, 2, ids, resident);
  copy(lines, x.cache.lines, sizeof(lines));
  for (int l = 0; l < 2; l++) memcpy(lines + l * x.cache.line_bytes, &(float){100.0f + (float)l}, 4);
  copy(x.cache.lines, lines, sizeof(lines));
  assert_petsc_ok(compute->cache_write_back(NULL, workspace, &x.cache, &x.tbe));
  assert_petsc_ok(device->stream_synchronize(NULL));
  assert_true(home[7] == 100.0f && home[8] == 101.0f && home[6] == 6.0f && home[9] == 9.0f);
  memcpy(lines, &(float){200.0f}, 4);
  copy(x.cache.lines, lines, sizeof(lines));
  for (int i = 0; i < 32; i++) others[i] = 40 + i;
  {
    batch b = new_batch(32, others);
    prefetch(&x, &b, 0);
    free_batch(&b);
  }
  assert_petsc_ok(device->stream_synchronize(NULL));
  assert_true(home[7] == 200.0f && home[8] == 101.0f);
  memcpy(lines, &(float){300.0f}, 4);
  copy(x.cache.lines, lines, sizeof(lines));
  assert_petsc_ok(device->zero(x.cache.tag, n_lines * 8, NULL));
  assert_petsc_ok(device->zero(x.cache.stamp, n_lines * 8, NULL));
  assert_petsc_ok(compute->cache_write_back(NULL, workspace, &x.cache, &x.tbe));
  run_batch(&x, 32, others, resident); /* this also checks that the lines equal the table's rows */
  for (int i = 0; i < 32; i++) assert_true(home[others[i]] == (float)others[i]);
  free_numbers(&x);
}

static void test_write_back(void **state)
{
  (void)state;
  on_backends(write_back);
}

/* --- results with and without a cache have the same bits --- */

enum { TABLES = 3, FEATURES = 4, BAGS = 6, STEPS = 12, MOST = 6 };

typedef struct {
  TrsCacheAlgorithm algorithm;
  TrsDType dtype;
  TrsSparseOptimizerKind kind;
  int weighted, ahead, rows_at_a_time, stochastic;
} law;

typedef struct {
  TrsTbeTable table[TABLES];
  TrsTbe tbe;
} model;

static const TrsTbeFeature law_features[FEATURES] = {{0, 0, 0}, {1, 1, 20}, {0, 1, 24}, {2, 0, 44}};
static const int law_dims[TABLES] = {20, 3, 64}, law_rows[TABLES] = {90, 70, 40};
enum { LAW_STRIDE = 108 };

static uint32_t draw(uint64_t stream, int64_t i)
{
  uint32_t words[4];

  TrsRandom(11, TRS_RANDOM_TEST, stream, (uint64_t)i, words);
  return words[0];
}

static void new_model(model *m, const law *how, const TrsCache *cache)
{
  int64_t first = 0;

  *m = (model){.tbe = {.n_tables = TABLES, .n_features = FEATURES, .feature = law_features}};
  m->tbe.table = m->table;
  for (int t = 0; t < TABLES; t++) {
    TrsTbeTable *table = &m->table[t];
    const int64_t n = law_rows[t] * law_dims[t], bytes = TrsDTypeBytes(how->dtype);
    float *wide = calloc((size_t)n, sizeof(*wide));
    const TrsComputeOps *host;

    *table = (TrsTbeTable){.rows = law_rows[t],
                           .stride = law_dims[t],
                           .dim = law_dims[t],
                           .dtype = how->dtype,
                           .stochastic_rounding = how->stochastic,
                           .key = (uint64_t)t,
                           .table_dim = law_dims[t]};
    assert_petsc_ok(TrsComputeFind("cpu", &host));
    TrsRandomUniformFill(3, TRS_RANDOM_TEST, (uint64_t)t, 0, n, -1.0f, 1.0f, wide);
    assert_petsc_ok(device->alloc_host(n * bytes, &table->weight));
    assert_petsc_ok(host->convert(NULL, n, TRS_FP32, wide, how->dtype, table->weight));
    free(wide);
    if (how->kind == TRS_OPTIM_ROWWISE_ADAGRAD) table->state[0] = (float *)zeros(law_rows[t] * 4);
    for (int s = 0; s < 2 && how->kind == TRS_OPTIM_ADAM; s++) table->state[s] = (float *)zeros(n * 4);
    if (cache && t != 1) { /* table 1 is not cached */
      table->lines = cache->lines;
      table->line_bytes = cache->line_bytes;
      table->cache_first = first;
      first += law_rows[t];
    }
  }
}

static void free_model(model *m)
{
  for (int t = 0; t < TABLES; t++) {
    assert_petsc_ok(device->release_host(&m->table[t].weight));
    for (int s = 0; s < 2; s++) release(&m->table[t].state[s]);
  }
}

typedef struct {
  TrsTbeInput input;
  int64_t *offsets, *values;
  float *weights;
  int32_t *locations, *held;
} law_batch;

static law_batch new_law_batch(int step, int weighted)
{
  int64_t offsets[FEATURES * BAGS + 1] = {0}, values[FEATURES * BAGS * MOST], n = 0;
  float weights[FEATURES * BAGS * MOST];
  law_batch b;

  for (int f = 0; f < FEATURES; f++)
    for (int bag = 0; bag < BAGS; bag++) {
      const int length = (int)(draw((uint64_t)step, f * BAGS + bag) % (MOST + 1));
      for (int k = 0; k < length; k++, n++) {
        const uint32_t word = draw(1000 + (uint64_t)step, n);
        values[n] = word % 17 == 0 ? -1 : (int64_t)(word % (uint32_t)law_rows[law_features[f].table]);
        if (word % 53 == 0) values[n] = 1000; /* not a row of the table */
        if (word % 3 == 0) values[n] %= 5;    /* some ids are frequent */
        weights[n] = (float)(word % 8) / 4.0f;
      }
      offsets[f * BAGS + bag + 1] = n;
    }
  b.offsets = (int64_t *)on_device(offsets, sizeof(offsets));
  b.values = (int64_t *)on_device(values, n * 8);
  b.weights = (float *)on_device(weights, n * 4);
  b.locations = (int32_t *)zeros(n * 4);
  b.held = (int32_t *)zeros(n * 4);
  b.input = (TrsTbeInput){.batch = BAGS,
                          .offsets = b.offsets,
                          .values = b.values,
                          .weights = weighted ? b.weights : NULL,
                          .n_values = n};
  return b;
}

static void free_law_batch(law_batch *b)
{
  release(&b->offsets);
  release(&b->values);
  release(&b->weights);
  release(&b->locations);
  release(&b->held);
}

static void forward(const law *how, const model *m, const law_batch *b, float *out)
{
  if (how->rows_at_a_time)
    assert_petsc_ok(compute->tbe_forward_rows(NULL, tbe_workspace, &m->tbe, &b->input, out, LAW_STRIDE));
  else
    assert_petsc_ok(
        compute->tbe_forward(NULL, tbe_workspace, &m->tbe, &b->input, TrsFloats(out, LAW_STRIDE)));
}

/* The gradient depends only on the step. */
static void backward(const law *how, const model *m, const law_batch *b, int step, const float *grad,
                     float *grad_weights)
{
  const TrsSparseOptimizerArgs args = {.kind = how->kind,
                                       .learning_rate = 0.1f,
                                       .eps = 1e-6f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.99f,
                                       .step = step + 1};

  if (how->rows_at_a_time) {
    assert_petsc_ok(
        compute->tbe_backward_rows(NULL, tbe_workspace, &m->tbe, &b->input, grad, LAW_STRIDE, &args));
  } else {
    if (how->weighted)
      assert_petsc_ok(compute->tbe_weight_gradients(NULL, tbe_workspace, &m->tbe, &b->input, grad, LAW_STRIDE,
                                                    grad_weights));
    assert_petsc_ok(
        compute->tbe_backward(NULL, tbe_workspace, &m->tbe, &b->input, TrsFloats(grad, LAW_STRIDE), &args));
  }
}

static void assert_same(const void *a, const void *b, int64_t bytes)
{
  void *x = on_host(a, bytes), *y = on_host(b, bytes);

  assert_memory_equal(x, y, (size_t)bytes);
  free(x);
  free(y);
}

static void obey(const law *how)
{
  const int64_t floats = FEATURES * BAGS * MOST * (int64_t)LAW_STRIDE;
  TrsCache cache = new_cache(how->algorithm, 1, law_rows[0] + law_rows[2], 64 * 4);
  float *out[2] = {zeros(floats * 4), zeros(floats * 4)}, *grad = zeros(floats * 4),
        *grad_weights[2] = {zeros(FEATURES * BAGS * MOST * 4), zeros(FEATURES * BAGS * MOST * 4)},
        *host = calloc((size_t)floats, sizeof(*host));
  int64_t *counters;
  law_batch b[STEPS];
  model plain, cached;

  new_model(&plain, how, NULL);
  new_model(&cached, how, &cache);
  for (int i = 0; i < STEPS; i++) b[i] = new_law_batch(i, how->weighted);
#define PREFETCH(i) \
  do { \
    cache.time++; \
    assert_petsc_ok(compute->cache_prefetch(NULL, workspace, &cache, &cached.tbe, &b[i].input, \
                                            b[i].locations, how->ahead ? b[i].held : NULL)); \
  } while (0)
  if (how->ahead) PREFETCH(0);
  for (int i = 0; i < STEPS; i++) {
    law_batch through = b[i];

    through.input.locations = b[i].locations;
    TrsRandomUniformFill(5, TRS_RANDOM_TEST, (uint64_t)i, 0, floats, -1.0f, 1.0f, host);
    copy(grad, host, floats * 4);
    if (!how->ahead) PREFETCH(i);
    forward(how, &plain, &b[i], out[0]);
    forward(how, &cached, &through, out[1]);
    assert_same(out[0], out[1], floats * 4);
    if (how->ahead && i + 1 < STEPS) PREFETCH(i + 1);
    if (how->ahead)
      assert_petsc_ok(
          compute->cache_locate(NULL, workspace, &cache, &cached.tbe, &b[i].input, b[i].locations));
    backward(how, &plain, &b[i], i, grad, grad_weights[0]);
    backward(how, &cached, &through, i, grad, grad_weights[1]);
    assert_same(grad_weights[0], grad_weights[1], FEATURES * BAGS * MOST * 4);
    if (how->ahead) assert_petsc_ok(compute->cache_release(NULL, &cache, b[i].input.n_values, b[i].held));
  }
#undef PREFETCH
  counters = (int64_t *)on_host(cache.counters, TRS_CACHE_N_COUNTERS * 8);
  /* lines were used by several rows */
  assert_true(counters[TRS_CACHE_UNIQUE_MISSES] > 2 * TRS_CACHE_WAYS);
  assert_true(counters[TRS_CACHE_UNIQUE] > counters[TRS_CACHE_UNIQUE_MISSES]);
  assert_true(counters[TRS_CACHE_CONFLICT_MISSES] > 0); /* some ids got no line */
  assert_petsc_ok(compute->cache_write_back(NULL, workspace, &cache, &cached.tbe));
  assert_petsc_ok(device->stream_synchronize(NULL));
  for (int t = 0; t < TABLES; t++)
    assert_memory_equal(plain.table[t].weight, cached.table[t].weight,
                        (size_t)(law_rows[t] * law_dims[t] * TrsDTypeBytes(how->dtype)));
  for (int i = 0; i < STEPS; i++) free_law_batch(&b[i]);
  free_model(&plain);
  free_model(&cached);
  free_cache(&cache);
  for (int k = 0; k < 2; k++) {
    release(&out[k]);
    release(&grad_weights[k]);
  }
  release(&grad);
  free(host);
  free(counters);
}

static void all_laws(void)
{
  static const TrsSparseOptimizerKind kinds[] = {TRS_OPTIM_SGD, TRS_OPTIM_ROWWISE_ADAGRAD, TRS_OPTIM_ADAM};

  for (int a = 0; a < 2; a++)
    for (TrsDType dtype = TRS_FP32; dtype <= TRS_BF16; dtype++)
      for (int k = 0; k < 3; k++)
        for (int bits = 0; bits < 8; bits++) {
          if (!device->host_memory && (a + (int)dtype + k + bits) % 4)
            continue; /* only a quarter of the cases, because launches are slow */
          obey(&(law){.algorithm = a ? TRS_CACHE_LFU : TRS_CACHE_LRU,
                      .dtype = dtype,
                      .kind = kinds[k],
                      .weighted = bits & 1,
                      .ahead = !a && (bits & 2),
                      .rows_at_a_time = bits == 4 || bits == 6,
                      .stochastic = dtype != TRS_FP32 && (bits & 4)});
        }
}

static void test_same_bits(void **state)
{
  (void)state;
  on_backends(all_laws);
}

TRS_TEST_MAIN(cmocka_unit_test(test_golden), cmocka_unit_test(test_order), cmocka_unit_test(test_locks),
              cmocka_unit_test(test_write_back), cmocka_unit_test(test_same_bits))
