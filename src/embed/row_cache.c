/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/events.h"
#include "embed/placement.h"

#include <inttypes.h>

enum { TRS_LINE_ALIGNMENT = 64 };

typedef enum { TRS_BATCH_FREE, TRS_BATCH_AHEAD, TRS_BATCH_LOCATED } TrsBatchState;

typedef struct {
  TrsBatchState state;
  const int64_t *values; /* the batch's ids, whose address identifies the batch */
  PetscBool locked;
  /* TrsRowCachesImpl.n_calls when the batch was located; -1: not located */
  int64_t n_calls;
  TrsDeviceBuffer locations, held; /* held: [n_caches, n_values] */
} TrsCacheBatch;

typedef struct {
  TrsCache cache;
  /* one per cache, because LRU and LFU caches are filled on different streams */
  TrsWorkspace workspace;
  TrsRowCacheWish wish;
  /* [n_tables] the tables' numbers in reports, and in the lookup */
  int n_tables, *table, *tbe_table;
  int64_t bytes;
} TrsRowCache;

struct TrsRowCachesImpl {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  int n;
  TrsRowCache *cache; /* [n] */
  int64_t n_calls;    /* number of calls that moved rows: prefetches and others */
  TrsCacheBatch batch[TRS_CACHE_BATCHES];
};

/* --- memory --- */

static PetscErrorCode allocate(TrsRowCaches c, TrsRowCache *row_cache, int64_t bytes, void *pointer)
{
  void *memory;

  PetscFunctionBegin;
  PetscCall(c->device->alloc(bytes, &memory));
  *(void **)pointer = memory;
  row_cache->bytes += bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The number of sets for `rows` rows: rounded up, at least 1, at most the largest possible number.
*/
static int64_t sets_for(int64_t rows, const TrsRowCacheWish *wish)
{
  const int64_t lines = (int64_t)((double)rows * wish->load_factor),
                sets = (lines + TRS_CACHE_WAYS - 1) / TRS_CACHE_WAYS,
                most = wish->algorithm == TRS_CACHE_LFU ? TRS_CACHE_MAX_SETS_LFU : TRS_CACHE_MAX_SETS_LRU;

  return PetscMin(PetscMax(sets, 1), most);
}

/*
  Reduce the number of sets to keep wish.reserved_bytes of device memory free. If ranks share the
  memory, each rank sees the free memory at the time of this call.
*/
static PetscErrorCode limit_sets(TrsRowCaches c, const TrsRowCacheWish *wish, TrsCache *cache)
{
  const PetscBool lru = (PetscBool)(cache->algorithm == TRS_CACHE_LRU);
  const int64_t line_bytes = (int64_t)sizeof(*cache->tag) + cache->line_bytes +
                             (lru ? (int64_t)(sizeof(*cache->stamp) + sizeof(*cache->locks)) : 0);
  const int64_t fixed_bytes = lru ? 0 : cache->n_ids * (int64_t)sizeof(*cache->count);
  int64_t free_bytes, total_bytes, sets;

  PetscFunctionBegin;
  if (wish->reserved_bytes == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(c->device->memory(&free_bytes, &total_bytes));
  sets = (free_bytes - wish->reserved_bytes - fixed_bytes) / (TRS_CACHE_WAYS * line_bytes);
  PetscCheck(sets >= 1, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "cache_reserved_memory %" PRId64 " leaves no room for a cache: %" PRId64
             " bytes are free on device %s",
             wish->reserved_bytes, free_bytes, c->device->name);
  cache->n_sets = PetscMin(cache->n_sets, sets);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Allocate a cache's arrays. Its rows and the width of the widest row must be known. */
static PetscErrorCode allocate_cache(TrsRowCaches c, TrsRowCache *row_cache)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_TABLES);
  TrsCache *cache = &row_cache->cache;
  int64_t n_lines;

  PetscFunctionBegin;
  PetscCall(c->compute->workspace_create(&row_cache->workspace));
  cache->algorithm = row_cache->wish.algorithm;
  cache->n_sets = sets_for(cache->n_ids, &row_cache->wish);
  PetscCall(limit_sets(c, &row_cache->wish, cache));
  n_lines = cache->n_sets * TRS_CACHE_WAYS;
  PetscCall(allocate(c, row_cache, n_lines * (int64_t)sizeof(*cache->tag), &cache->tag));
  if (cache->algorithm == TRS_CACHE_LRU) {
    PetscCall(allocate(c, row_cache, n_lines * (int64_t)sizeof(*cache->stamp), &cache->stamp));
    PetscCall(allocate(c, row_cache, n_lines * (int64_t)sizeof(*cache->locks), &cache->locks));
  } else {
    PetscCall(allocate(c, row_cache, cache->n_ids * (int64_t)sizeof(*cache->count), &cache->count));
  }
  PetscCall(allocate(c, row_cache, n_lines * cache->line_bytes, &cache->lines));
  PetscCall(
      allocate(c, row_cache, TRS_CACHE_N_COUNTERS * (int64_t)sizeof(*cache->counters), &cache->counters));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_cache(TrsRowCaches c, TrsRowCache *row_cache)
{
  TrsCache *cache = &row_cache->cache;
  void *memory[] = {cache->tag, cache->stamp, cache->count, cache->locks, cache->lines, cache->counters};

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) PetscCall(c->device->release(&memory[i]));
  PetscCall(c->compute->workspace_destroy(&row_cache->workspace));
  PetscCall(PetscFree2(row_cache->table, row_cache->tbe_table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the cache for a wish. The first wish of its kind creates a cache. */
static TrsRowCache *cache_for(TrsRowCaches c, const TrsRowCacheWish *wish)
{
  int i = 0;

  while (i < c->n && (c->cache[i].wish.load_factor != wish->load_factor ||
                      c->cache[i].wish.algorithm != wish->algorithm ||
                      c->cache[i].wish.reserved_bytes != wish->reserved_bytes))
    i++;
  if (i == c->n) c->cache[c->n++].wish = *wish;
  return &c->cache[i];
}

static PetscBool treats_table(const TrsEmbeddingShards *shards, int table)
{
  const TrsTablePlan *plan = TrsShardingPlanFind(shards->plan, shards->tables->table[table].name);

  return (PetscBool)(plan && TrsKernelKeepsLines(plan->compute_kernel));
}

/* The cache that a table needs. load_factor 0: none. */
static TrsRowCacheWish wish_of(const TrsPlacementTables *tables, int t)
{
  if (tables->shard[t] < 0 || tables->table[t].rows == 0) return (TrsRowCacheWish){.load_factor = 0};
  return tables->shards->shard[tables->shard[t]].cache;
}

/* Number a table's rows in the cache for its wish. */
static PetscErrorCode join_cache(TrsRowCaches c, const TrsRowCacheWish *wish, int n_cached, int t,
                                 TrsTbeTable *table)
{
  const int64_t row_bytes = table->dim * (int64_t)TrsDTypeBytes(table->dtype);
  TrsRowCache *row_cache = cache_for(c, wish);

  PetscFunctionBegin;
  if (!row_cache->table)
    PetscCall(PetscMalloc2((size_t)n_cached, &row_cache->table, (size_t)n_cached, &row_cache->tbe_table));
  row_cache->tbe_table[row_cache->n_tables] = t;
  row_cache->table[row_cache->n_tables++] = wish->table;
  table->cache_first = row_cache->cache.n_ids;
  row_cache->cache.n_ids += table->rows;
  row_cache->cache.line_bytes = PetscMax(row_cache->cache.line_bytes, (row_bytes + TRS_LINE_ALIGNMENT - 1) /
                                                                          TRS_LINE_ALIGNMENT *
                                                                          TRS_LINE_ALIGNMENT);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Create the caches that the tables need. Errors: MEMORY, also if reserved_bytes leave no room for
  one set; UNAVAILABLE if the device has no cache kernels.
*/
static PetscErrorCode create_caches(TrsPlacement self, const TrsPlacementTables *tables)
{
  const TrsComputeOps *compute = tables->compute;
  TrsTbeTable *table = tables->table;
  TrsRowCaches c;
  int n_cached = 0;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n_tables; t++) n_cached += wish_of(tables, t).load_factor > 0;
  if (n_cached == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(compute->cache_prefetch, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "this build has no caches for device %s: plan without compute kernel fused_uvm_caching",
             compute->name);
  PetscCall(PetscNew(&c));
  self->data = c;
  c->device = tables->device;
  c->compute = compute;
  PetscCall(PetscCalloc1((size_t)n_cached, &c->cache));
  for (int t = 0; t < tables->n_tables; t++) {
    const TrsRowCacheWish wish = wish_of(tables, t);

    if (wish.load_factor > 0) PetscCall(join_cache(c, &wish, n_cached, t, &table[t]));
  }
  for (int i = 0; i < c->n; i++) {
    const TrsRowCache *row_cache = &c->cache[i];

    PetscCall(allocate_cache(c, &c->cache[i]));
    for (int k = 0; k < row_cache->n_tables; k++) {
      table[row_cache->tbe_table[k]].lines = row_cache->cache.lines;
      table[row_cache->tbe_table[k]].line_bytes = row_cache->cache.line_bytes;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_caches(TrsPlacement self)
{
  TrsRowCaches c = (TrsRowCaches)self->data;

  PetscFunctionBegin;
  for (int i = 0; i < c->n; i++) PetscCall(release_cache(c, &c->cache[i]));
  for (int b = 0; b < TRS_CACHE_BATCHES; b++) {
    PetscCall(TrsDeviceBufferFree(c->device, &c->batch[b].locations));
    PetscCall(TrsDeviceBufferFree(c->device, &c->batch[b].held));
  }
  PetscCall(PetscFree(c->cache));
  PetscCall(PetscFree(self->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- batches --- */

/* Find the batch with these ids; NULL if there is none. */
static TrsCacheBatch *find_batch(TrsRowCaches c, const TrsTbeInput *input)
{
  for (int b = 0; b < TRS_CACHE_BATCHES; b++)
    if (c->batch[b].state != TRS_BATCH_FREE && c->batch[b].values == input->values) return &c->batch[b];
  return NULL;
}

/*
  Find an entry for the batch: its own, or a free one, or the entry of a batch that holds no lines
  and was never ended.
*/
static PetscErrorCode take_batch(TrsRowCaches c, const TrsTbeInput *input, TrsCacheBatch **batch)
{
  TrsCacheBatch *b = find_batch(c, input);
  const PetscBool known = (PetscBool)(b != NULL);

  PetscFunctionBegin;
  for (int i = 0; i < TRS_CACHE_BATCHES && !b; i++)
    if (c->batch[i].state == TRS_BATCH_FREE) b = &c->batch[i];
  for (int i = 0; i < TRS_CACHE_BATCHES && !b; i++)
    if (!c->batch[i].locked) b = &c->batch[i];
  PetscCheck(b, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "more than %d batches hold lines of a cache",
             TRS_CACHE_BATCHES);
  if (!known) b->n_calls = -1;
  b->values = input->values;
  PetscCall(TrsDeviceBufferReserve(c->device, &b->locations, input->n_values * (int64_t)sizeof(int32_t)));
  *batch = b;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int32_t *held_of(const TrsCacheBatch *b, int cache, int64_t n_values)
{
  return (int32_t *)b->held.data + cache * n_values;
}

/* Bring the batch's rows into the caches of one algorithm, or into all caches. */
static PetscErrorCode prefetch(TrsRowCaches c, TrsStream stream, const TrsTbe *tbe, const TrsTbeInput *input,
                               TrsCacheBatch *b, PetscBool lru, PetscBool lfu)
{
  PetscBool any = PETSC_FALSE;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_CACHE, &before));
  for (int i = 0; i < c->n; i++) {
    TrsCache *cache = &c->cache[i].cache;
    const PetscBool is_lru = (PetscBool)(cache->algorithm == TRS_CACHE_LRU);

    if (is_lru ? !lru : !lfu) continue;
    any = PETSC_TRUE;
    cache->time++;
    PetscCall(c->compute->cache_prefetch(stream, c->cache[i].workspace, cache, tbe, input,
                                         (int32_t *)b->locations.data,
                                         b->locked && is_lru ? held_of(b, i, input->n_values) : NULL));
  }
  if (any) b->n_calls = ++c->n_calls;
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the batch's rows in the LRU caches, or in all caches. */
static PetscErrorCode locate(TrsRowCaches c, TrsStream stream, const TrsTbe *tbe, const TrsTbeInput *input,
                             TrsCacheBatch *b, PetscBool lfu)
{
  PetscFunctionBegin;
  for (int i = 0; i < c->n; i++) {
    if (!lfu && c->cache[i].cache.algorithm == TRS_CACHE_LFU) continue;
    PetscCall(c->compute->cache_locate(stream, c->cache[i].workspace, &c->cache[i].cache, tbe, input,
                                       (int32_t *)b->locations.data));
  }
  b->n_calls = c->n_calls;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ahead_caches(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input)
{
  TrsRowCaches c = (TrsRowCaches)self->data;
  TrsCacheBatch *b;

  PetscFunctionBegin;
  PetscCall(take_batch(c, input, &b));
  PetscCall(TrsDeviceBufferReserve(c->device, &b->held, c->n * input->n_values * (int64_t)sizeof(int32_t)));
  b->state = TRS_BATCH_AHEAD;
  b->locked = PETSC_TRUE;
  PetscCall(prefetch(c, stream, tbe, input, b, PETSC_TRUE, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Set input->locations. If another batch has moved rows in the meantime, rows are located again.
  fill: first bring the batch's rows into the caches.
*/
static PetscErrorCode place(TrsRowCaches c, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input,
                            PetscBool fill)
{
  TrsCacheBatch *b;
  PetscBool ahead, moved;

  PetscFunctionBegin;
  PetscCall(take_batch(c, input, &b));
  ahead = (PetscBool)(b->state == TRS_BATCH_AHEAD); /* LRU caches are filled, LFU caches are not */
  moved = (PetscBool)(b->n_calls != c->n_calls);
  if (fill ? ahead && moved : ahead || moved) PetscCall(locate(c, stream, tbe, input, b, (PetscBool)!fill));
  if (fill) PetscCall(prefetch(c, stream, tbe, input, b, (PetscBool)!ahead, PETSC_TRUE));
  if (fill || !ahead) b->state = TRS_BATCH_LOCATED;
  input->locations = (const int32_t *)b->locations.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_caches(TrsPlacement self, TrsStream stream, const TrsTbe *tbe,
                                     TrsTbeInput *input)
{
  PetscFunctionBegin;
  PetscCall(place((TrsRowCaches)self->data, stream, tbe, input, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_caches(TrsPlacement self, TrsStream stream, const TrsTbe *tbe,
                                      TrsTbeInput *input)
{
  PetscFunctionBegin;
  PetscCall(place((TrsRowCaches)self->data, stream, tbe, input, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode done_caches(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input)
{
  TrsRowCaches c = (TrsRowCaches)self->data;
  TrsCacheBatch *b = find_batch(c, input);

  PetscFunctionBegin;
  (void)tbe;
  if (!b) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < c->n && b->locked; i++)
    if (c->cache[i].cache.algorithm == TRS_CACHE_LRU)
      PetscCall(c->compute->cache_release(stream, &c->cache[i].cache, input->n_values,
                                          held_of(b, i, input->n_values)));
  b->locked = PETSC_FALSE;
  b->state = TRS_BATCH_FREE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode settle_caches(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, PetscBool drop)
{
  TrsRowCaches c = (TrsRowCaches)self->data;

  PetscFunctionBegin;
  for (int i = 0; i < c->n; i++) {
    const TrsCache *cache = &c->cache[i].cache;
    const int64_t n_lines = cache->n_sets * TRS_CACHE_WAYS;

    PetscCall(c->compute->cache_write_back(stream, c->cache[i].workspace, cache, tbe));
    if (!drop) continue;
    PetscCall(c->device->zero(cache->tag, n_lines * (int64_t)sizeof(*cache->tag), stream));
    if (cache->stamp)
      PetscCall(c->device->zero(cache->stamp, n_lines * (int64_t)sizeof(*cache->stamp), stream));
    c->n_calls++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsPlacementOps trs_placement_row_cache = {
    .name = "row cache",
    .treats = treats_table,
    .create = create_caches,
    .destroy = destroy_caches,
    .ahead = ahead_caches,
    .forward = forward_caches,
    .backward = backward_caches,
    .done = done_caches,
    .settle = settle_caches,
};

/* --- reports --- */

int TrsRowCachesCount(TrsRowCaches caches)
{
  return caches ? caches->n : 0;
}

PetscErrorCode TrsRowCachesInfo(TrsRowCaches c, int i, TrsStream stream, TrsRowCacheInfo *info)
{
  const TrsRowCache *row_cache = &c->cache[i];
  TrsPinnedBuffer host = {0};

  PetscFunctionBegin;
  *info = (TrsRowCacheInfo){.algorithm = row_cache->cache.algorithm,
                            .n_tables = row_cache->n_tables,
                            .table = row_cache->table,
                            .rows = row_cache->cache.n_ids,
                            .capacity_rows = row_cache->cache.n_sets * TRS_CACHE_WAYS,
                            .bytes = row_cache->bytes};
  PetscCall(TrsPinnedBufferReserve(c->device, &host, (int64_t)sizeof(info->counters)));
  PetscCall(c->device->copy(host.data, row_cache->cache.counters, (int64_t)sizeof(info->counters), stream));
  PetscCall(c->device->stream_synchronize(stream));
  PetscCall(PetscMemcpy(info->counters, host.data, sizeof(info->counters)));
  PetscCall(TrsPinnedBufferFree(c->device, &host));
  PetscFunctionReturn(PETSC_SUCCESS);
}
