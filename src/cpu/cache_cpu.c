/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The cache of rows on the CPU, where lines and rows are the same kind of memory. It defines what
  the CUDA kernels must do, and plans with caches can be run and tested on machines without a GPU.

  A call sorts the batch's ids in two arrays of 8 N bytes, finds the distinct ids, and sorts the
  misses by set. The time grows with N log N. Each miss reads the 32 tags of its set once, and moves
  at most two rows.

  Source: compute/cache.h
*/
#include "compute/changed_rows.h"
#include "cpu/cpu_kernels.h"
#include "cpu/row_sort.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A distinct id of the batch. */
typedef struct {
  int64_t id, begin; /* begin is the index of the id's first occurrence in the sorted order */
  int32_t n;
  int32_t line; /* the id's line before the call; -1 if it had none */
} TrsCacheUnique;

/*
  A distinct id that has no line. Misses are sorted by set, and in a set by the order of insertion.
*/
typedef struct {
  int64_t set, count, id; /* count is 0 unless the cache is LFU */
} TrsCacheMiss;

/* Arrays of a call, in its workspace. n is the number of ids that belong to the cache's tables. */
typedef struct {
  int64_t n, n_unique, n_misses;
  int position_bits;
  /* [n] sorted; a key is linear id << position_bits | position in the batch's values */
  const uint64_t *key;
  TrsCacheUnique *unique;
  TrsCacheMiss *miss;
} TrsCacheBatch;

static int32_t find_line(const TrsCache *cache, int64_t id)
{
  const int64_t first = TrsCacheSetOf(id, cache->n_sets) * TRS_CACHE_WAYS;

  for (int w = 0; w < TRS_CACHE_WAYS; w++)
    if (cache->tag[first + w] == id + 1) return (int32_t)(first + w);
  return -1;
}

static int is_cached(const TrsCache *cache, const TrsTbeTable *table)
{
  return table->lines == cache->lines;
}

/* --- moving rows --- */

/* Copy a row between its table and a line. */
static void move_row(const TrsCache *cache, const TrsTbe *tbe, int64_t id, int64_t line, int to_line)
{
  const TrsTbeTable *table = tbe->table;
  char *cached = (char *)cache->lines + line * cache->line_bytes, *home;
  int64_t bytes;

  while (!is_cached(cache, table) || id < table->cache_first || id >= table->cache_first + table->rows)
    table++;
  bytes = TrsDTypeBytes(table->dtype);
  home = (char *)table->weight + (id - table->cache_first) * table->stride * bytes;
  if (!to_line && table->to_save) {
    /* Rows that have not changed need not be saved for a snapshot. */
    if (memcmp(home, cached, (size_t)(table->dim * bytes)) == 0) return;
    TrsRowSave(table->to_save, id - table->cache_first);
  }
  memcpy(to_line ? cached : home, to_line ? home : cached, (size_t)(table->dim * bytes));
}

PetscErrorCode TrsCacheWriteBackCpu(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                    const TrsTbe *tbe)
{
  PetscFunctionBegin;
  (void)stream;
  (void)workspace;
#pragma omp parallel for schedule(static)
  for (int64_t line = 0; line < cache->n_sets * TRS_CACHE_WAYS; line++)
    if (cache->tag[line]) move_row(cache, tbe, cache->tag[line] - 1, line, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the ids of a batch --- */

static PetscErrorCode list_ids(TrsWorkspace w, const TrsCache *cache, const TrsTbe *tbe,
                               const TrsTbeInput *input, int32_t *locations, TrsCacheBatch *batch)
{
  uint64_t *key;

  PetscFunctionBegin;
  *batch = (TrsCacheBatch){.position_bits = TrsBitsFor((uint64_t)input->n_values)};
  PetscCheck(batch->position_bits + TrsBitsFor((uint64_t)cache->n_ids) <= 64, PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "%" PRId64 " ids of a cache of %" PRId64 " rows in one batch", input->n_values,
             cache->n_ids);
  PetscCall(TrsBufferReserve(&w->keys, input->n_values * (int64_t)sizeof(*key), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&w->scratch, input->n_values * (int64_t)sizeof(*key), PETSC_FALSE));
  key = (uint64_t *)w->keys.data;
  for (int f = 0; f < tbe->n_features; f++) {
    const TrsTbeTable *table = &tbe->table[tbe->feature[f].table];

    if (!is_cached(cache, table)) continue;
    for (int64_t i = input->offsets[f * input->batch]; i < input->offsets[(f + 1) * input->batch]; i++) {
      const int64_t row = input->values[i];

      locations[i] = -1;
      if ((uint64_t)row < (uint64_t)table->rows)
        key[batch->n++] = (uint64_t)(table->cache_first + row) << batch->position_bits | (uint64_t)i;
    }
  }
  batch->key = TrsRowSort(batch->n, batch->position_bits,
                          batch->position_bits + TrsBitsFor((uint64_t)cache->n_ids), key,
                          (uint64_t *)w->scratch.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the distinct ids and those without a line, and record the hits. */
static PetscErrorCode find_hits(TrsWorkspace w, const TrsCache *cache, TrsCacheBatch *batch)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&w->positions, batch->n * (int64_t)sizeof(*batch->unique), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&w->runs, batch->n * (int64_t)sizeof(*batch->miss), PETSC_FALSE));
  batch->unique = (TrsCacheUnique *)w->positions.data;
  batch->miss = (TrsCacheMiss *)w->runs.data;
  for (int64_t i = 0, next; i < batch->n; i = next) {
    const int64_t id = (int64_t)(batch->key[i] >> batch->position_bits);
    TrsCacheUnique *u = &batch->unique[batch->n_unique++];

    for (next = i + 1; next < batch->n && (int64_t)(batch->key[next] >> batch->position_bits) == id;) next++;
    *u = (TrsCacheUnique){.id = id, .begin = i, .n = (int32_t)(next - i), .line = find_line(cache, id)};
    if (cache->count) cache->count[id] = PetscMin(cache->count[id] + u->n, TRS_CACHE_MAX_COUNT);
    if (u->line >= 0 && cache->stamp) cache->stamp[u->line] = cache->time;
    if (u->line < 0)
      batch->miss[batch->n_misses++] = (TrsCacheMiss){
          .set = TrsCacheSetOf(id, cache->n_sets), .count = cache->count ? cache->count[id] : 0, .id = id};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- insertion --- */

/* Order misses by set, then descending count, then ascending id. */
static int compare_misses(const void *a, const void *b)
{
  const TrsCacheMiss *x = (const TrsCacheMiss *)a, *y = (const TrsCacheMiss *)b;

  if (x->set != y->set) return x->set < y->set ? -1 : 1;
  if (x->count != y->count) return x->count > y->count ? -1 : 1;
  return (x->id > y->id) - (x->id < y->id);
}

/*
  List the replaceable lines of a set and their costs, beginning with the lowest cost. Returns their
  number.
*/
static int list_candidates(const TrsCache *cache, int64_t set, int64_t *line, int64_t *cost)
{
  int n = 0;

  for (int64_t l = set * TRS_CACHE_WAYS; l < (set + 1) * TRS_CACHE_WAYS; l++) {
    const int64_t tag = cache->tag[l],
                  c = cache->stamp ? cache->stamp[l] : (tag ? cache->count[tag - 1] : -1);
    int at = n;

    if (cache->stamp && (c == cache->time || cache->locks[l] > 0)) continue;
    /* stable: lines with equal costs stay in the order of their ways */
    for (; at > 0 && cost[at - 1] > c; at--) {
      line[at] = line[at - 1];
      cost[at] = cost[at - 1];
    }
    line[at] = l;
    cost[at] = c;
    n++;
  }
  return n;
}

/* Assign lines to the n misses of a set, in order, until no line is left. */
static void insert_set(const TrsCache *cache, const TrsTbe *tbe, int64_t n, const TrsCacheMiss *miss)
{
  int64_t line[TRS_CACHE_WAYS], cost[TRS_CACHE_WAYS];
  const int n_lines = list_candidates(cache, miss->set, line, cost);

  for (int i = 0; i < PetscMin(n, n_lines); i++) {
    int64_t *tag = &cache->tag[line[i]];

    if (cache->count && cost[i] > miss[i].count) break;
    if (*tag) move_row(cache, tbe, *tag - 1, line[i], 0);
    move_row(cache, tbe, miss[i].id, line[i], 1);
    *tag = miss[i].id + 1;
    if (cache->stamp) cache->stamp[line[i]] = cache->time;
  }
}

static void insert_misses(const TrsCache *cache, const TrsTbe *tbe, TrsCacheBatch *batch)
{
  qsort(batch->miss, (size_t)batch->n_misses, sizeof(*batch->miss), compare_misses);
  for (int64_t i = 0, next; i < batch->n_misses; i = next) {
    for (next = i + 1; next < batch->n_misses && batch->miss[next].set == batch->miss[i].set;) next++;
    insert_set(cache, tbe, next - i, &batch->miss[i]);
  }
}

/* --- kernels --- */

PetscErrorCode TrsCachePrefetchCpu(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                   const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations,
                                   int32_t *held)
{
  const uint64_t mask = ((uint64_t)1 << TrsBitsFor((uint64_t)input->n_values)) - 1;
  int64_t *counters = cache->counters, n_held = 0;
  TrsCacheBatch batch;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(list_ids(workspace, cache, tbe, input, locations, &batch));
  PetscCall(find_hits(workspace, cache, &batch));
  if (batch.n_misses) insert_misses(cache, tbe, &batch);
  for (int64_t u = 0; u < batch.n_unique; u++) {
    const TrsCacheUnique *unique = &batch.unique[u];
    /* with LFU, a hit's row may have been replaced during the call */
    const int32_t line = find_line(cache, unique->id);

    for (int64_t i = unique->begin; i < unique->begin + unique->n; i++) locations[batch.key[i] & mask] = line;
    if (line >= 0 && held) {
      cache->locks[line]++;
      held[n_held++] = line;
    }
    counters[TRS_CACHE_CONFLICT_UNIQUE_MISSES] += unique->line < 0 && line < 0;
    counters[TRS_CACHE_CONFLICT_MISSES] += line < 0 ? unique->n : 0;
  }
  if (held)
    for (int64_t i = n_held; i < input->n_values; i++) held[i] = -1;
  counters[TRS_CACHE_CALLS]++;
  counters[TRS_CACHE_REQUESTED] += batch.n;
  counters[TRS_CACHE_UNIQUE] += batch.n_unique;
  counters[TRS_CACHE_UNIQUE_MISSES] += batch.n_misses;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCacheLocateCpu(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                 const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations)
{
  PetscFunctionBegin;
  (void)stream;
  (void)workspace;
  for (int f = 0; f < tbe->n_features; f++) {
    const TrsTbeTable *table = &tbe->table[tbe->feature[f].table];
    const int64_t begin = input->offsets[f * input->batch], end = input->offsets[(f + 1) * input->batch];

    if (!is_cached(cache, table)) continue;
#pragma omp parallel for schedule(static)
    for (int64_t i = begin; i < end; i++)
      locations[i] = (uint64_t)input->values[i] < (uint64_t)table->rows
                         ? find_line(cache, table->cache_first + input->values[i])
                         : -1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCacheReleaseCpu(TrsStream stream, const TrsCache *cache, int64_t n, const int32_t *held)
{
  PetscFunctionBegin;
  (void)stream;
  for (int64_t i = 0; i < n; i++)
    if (held[i] >= 0) cache->locks[held[i]]--;
  PetscFunctionReturn(PETSC_SUCCESS);
}
