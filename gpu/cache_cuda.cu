/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The cache of host rows on the GPU. Twin of src/cpu/cache_cpu.c, with the same lines, order and
  counters. Results do not depend on the order of threads, and the device never waits for the host.

  The ids of the batch are sorted and made unique (scan_cuda.h). A warp looks up each distinct id
  among the 32 tags of the id's set, one tag per lane. The misses are sorted by set and, for LFU, by
  descending count; both sorts are stable. Then a warp works on one set, with one line per lane: the
  cheapest line gets the first miss, the next line the next miss. Last, groups of lanes move rows
  over the bus to the host: the old row from the line to its table, the new row from its table to
  the line.

  Bytes moved for N ids, U distinct ids and M moved rows: about 24 N in each pass of the two sorts,
  256 U for tags, and on the bus one or two rows for each of the M moves. Scratch: 80 N bytes.

  Source: FBGEMM lru_cache_populate, lfu_cache_populate, lxu_cache_lookup; compute/cache.h
*/
#include "gpu/compute_cuda.h"
#include "gpu/scan_cuda.h"
#include "gpu/tbe/tbe_rows_cuda.h"

enum { TRS_CACHE_THREADS = 256, TRS_CACHE_COUNT_BITS = 40 };

/* A table of the cache, on the device. The tables are in ascending order of their linear ids. */
struct CacheTable {
  int64_t first; /* linear id of the table's first row */
  char *weight;  /* the table's rows, in host memory */
  int64_t stride_bytes, row_bytes;
};

/* A feature's ids. first < 0 means that the feature's table is not in this cache. */
struct CacheFeature {
  int64_t first, rows;
};

/* The tables of a cache, and the number of lanes that move a row. */
struct CacheTables {
  const CacheTable *table; /* [n] */
  int n, lanes_log2;
};

/*
  The ids of a call, in device memory. Arrays of misses are in sorted order, and their indices are
  positions in this order.
*/
struct CacheBatch {
  Runs runs;      /* runs of equal linear ids */
  uint32_t *item; /* [N] index in the batch of each sorted id */
  int32_t *line;  /* [runs] line of each distinct id, or -1 if it has no line */
  /*
    [N] sorted keys: the set, and for LFU the descending count. Entries that are not misses have set
    n_sets.
  */
  uint64_t *miss_key;
  uint32_t *miss;       /* [N] in the order of miss_key: index of the miss's run */
  int64_t *evicted_tag; /* [N] previous tag of the line, for each miss that got a line */
  int count_bits;       /* number of bits of miss_key below the set */
};

/* --- the ids of a batch --- */

/*
  Make the sort key of each id. Grid y is over features, x over their values. An id that is not a
  row of the cache's tables gets a key above all rows. If the call covers only part of a batch,
  values outside this part also get such a key.
*/
static __global__ void cache_keys_kernel(const CacheFeature *features, TrsTbeInput input, int64_t n_ids,
                                         uint64_t *key, uint32_t *item, int32_t *locations)
{
  const CacheFeature f = features[blockIdx.y];
  const int64_t end = input.offsets[(blockIdx.y + 1) * input.batch];
  const bool is_first = blockIdx.y == 0, is_last = blockIdx.y + 1 == gridDim.y;

  for (int64_t i = TrsCudaFirst(); is_first && i < input.offsets[0]; i += TrsCudaStep()) {
    key[i] = static_cast<uint64_t>(n_ids);
    item[i] = static_cast<uint32_t>(i);
  }
  for (int64_t i = end + TrsCudaFirst(); is_last && i < input.n_values; i += TrsCudaStep()) {
    key[i] = static_cast<uint64_t>(n_ids);
    item[i] = static_cast<uint32_t>(i);
  }
  for (int64_t i = input.offsets[blockIdx.y * input.batch] + TrsCudaFirst(); i < end; i += TrsCudaStep()) {
    const int64_t row = input.values[i];
    const bool valid = f.first >= 0 && static_cast<uint64_t>(row) < static_cast<uint64_t>(f.rows);

    key[i] = static_cast<uint64_t>(valid ? f.first + row : n_ids);
    item[i] = static_cast<uint32_t>(i);
    if (f.first >= 0) locations[i] = -1;
  }
}

/* Find the line of a linear id. All lanes of the warp must call it, and all get the result. */
static __device__ __forceinline__ int32_t find_line(const TrsCache &cache, int64_t id, int lane)
{
  const int64_t first = TrsCacheSetOf(id, cache.n_sets) * TRS_CACHE_WAYS;
  const unsigned found = __ballot_sync(0xffffffffu, cache.tag[first + lane] == id + 1);

  return found ? static_cast<int32_t>(first) + __ffs(static_cast<int>(found)) - 1 : -1;
}

/*
  One warp per distinct id: count the id, record a hit, and make the key of a miss. Entries after
  the last run are not misses.
*/
static __global__ void find_hits_kernel(TrsCache cache, CacheBatch b, uint64_t *miss_key, uint32_t *run)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t n_runs = b.runs.before[b.runs.n];

  for (int64_t r = TrsCudaFirst() >> 5; r < b.runs.n; r += TrsCudaStep() >> 5) {
    uint64_t key = static_cast<uint64_t>(cache.n_sets) << b.count_bits;

    if (r < n_runs) {
      const int64_t id = static_cast<int64_t>(b.runs.key_of[r]);
      const int32_t line = find_line(cache, id, lane);
      int64_t count = 0;

      if (cache.algorithm == TRS_CACHE_LFU) {
        count = cache.count[id] + b.runs.begin[r + 1] - b.runs.begin[r];
        if (count > TRS_CACHE_MAX_COUNT) count = TRS_CACHE_MAX_COUNT;
      }
      if (line < 0) {
        key = static_cast<uint64_t>(TrsCacheSetOf(id, cache.n_sets)) << b.count_bits;
        if (cache.algorithm == TRS_CACHE_LFU) key |= static_cast<uint64_t>(TRS_CACHE_MAX_COUNT - count);
      }
      __syncwarp(); /* wait until all lanes have read the count */
      if (lane == 0) {
        b.line[r] = line;
        if (cache.algorithm == TRS_CACHE_LFU)
          cache.count[id] = count;
        else if (line >= 0)
          cache.stamp[line] = cache.time;
      }
    }
    if (lane == 0) {
      miss_key[r] = key;
      run[r] = static_cast<uint32_t>(r);
    }
  }
}

/* --- insertion --- */

/*
  The rank of this lane's line among the replaceable lines of the set. The cheapest line has rank 0;
  equal costs are ordered by way.
*/
static __device__ __forceinline__ int rank_of(int64_t cost, unsigned replaceable, int lane)
{
  int rank = 0;

  for (int other = 0; other < TRS_CACHE_WAYS; other++) {
    const int64_t its = __shfl_sync(0xffffffffu, cost, other);
    rank += (replaceable >> other & 1u) && (its < cost || (its == cost && other < lane));
  }
  return rank;
}

/*
  One warp: give lines to the misses of a set in order. They begin at index `head` of the sorted
  misses.
*/
static __device__ void insert_set(const TrsCache &cache, const CacheBatch &b, int64_t set, int64_t head,
                                  int lane)
{
  const bool lfu = cache.algorithm == TRS_CACHE_LFU;
  const int64_t line = set * TRS_CACHE_WAYS + lane, tag = cache.tag[line];
  const bool same = head + lane < b.runs.n &&
                    static_cast<int64_t>(b.miss_key[head + lane] >> b.count_bits) == set;
  /* at most as many as the set has lines */
  const int n_misses = __popc(__ballot_sync(0xffffffffu, same));
  const int64_t cost = lfu ? (tag ? cache.count[tag - 1] : -1) : cache.stamp[line];
  const bool free_line = lfu || (cost != cache.time && cache.locks[line] == 0);
  const int rank = rank_of(cost, __ballot_sync(0xffffffffu, free_line), lane);

  if (!free_line || rank >= n_misses) return;
  const uint32_t run = b.miss[head + rank];
  const int64_t id = static_cast<int64_t>(b.runs.key_of[run]);
  if (lfu && cost > cache.count[id]) return; /* then all later misses fail as well */
  b.line[run] = static_cast<int32_t>(line);
  b.evicted_tag[head + rank] = tag;
  cache.tag[line] = id + 1;
  if (!lfu) cache.stamp[line] = cache.time;
}

/*
  Each warp searches 32 misses at a time for the first miss of each set, and inserts that set's
  misses.
*/
static __global__ void insert_kernel(TrsCache cache, CacheBatch b)
{
  const int lane = static_cast<int>(threadIdx.x) & 31;
  int64_t misses = 0;

  for (int64_t from = TrsCudaFirst() - lane; from < b.runs.n; from += TrsCudaStep()) {
    const int64_t at = from + lane;
    int64_t set = at < b.runs.n ? static_cast<int64_t>(b.miss_key[at] >> b.count_bits) : cache.n_sets;
    const bool miss = set < cache.n_sets;
    unsigned heads = __ballot_sync(
        0xffffffffu, miss && (at == 0 || static_cast<int64_t>(b.miss_key[at - 1] >> b.count_bits) != set));

    misses += __popc(__ballot_sync(0xffffffffu, miss));
    for (; heads; heads &= heads - 1) {
      const int head = __ffs(static_cast<int>(heads)) - 1;

      insert_set(cache, b, __shfl_sync(0xffffffffu, set, head), from + head, lane);
      __syncwarp();
    }
  }
  if (lane == 0 && misses)
    atomicAdd(reinterpret_cast<unsigned long long *>(cache.counters + TRS_CACHE_UNIQUE_MISSES),
              static_cast<unsigned long long>(misses));
}

/* --- moving rows --- */

static __device__ __forceinline__ const CacheTable *table_of(const CacheTables &tables, int64_t id)
{
  int low = 0, high = tables.n - 1;

  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (tables.table[middle].first <= id)
      low = middle;
    else
      high = middle - 1;
  }
  return &tables.table[low];
}

template <typename T>
static __device__ __forceinline__ void copy_units(char *to, const char *from, int64_t bytes, int lane,
                                                  int lanes)
{
  for (int64_t i = lane; i < bytes / static_cast<int64_t>(sizeof(T)); i += lanes)
    reinterpret_cast<T *>(to)[i] = reinterpret_cast<const T *>(from)[i];
}

/* Copy a row between its table and a line. All lanes of the group must call it. */
static __device__ __forceinline__ void move_row(const TrsCache &cache, const CacheTables &tables, int64_t id,
                                                int64_t line, bool to_line, int lane)
{
  const CacheTable *const t = table_of(tables, id);
  char *const home = t->weight + (id - t->first) * t->stride_bytes, *const cached = static_cast<char *>(
                                                                                        cache.lines) +
                                                                                    line * cache.line_bytes;
  char *const to = to_line ? cached : home, *const from = to_line ? home : cached;
  const int lanes = 1 << tables.lanes_log2;
  const uint64_t odd = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(home)) |
                       static_cast<uint64_t>(t->row_bytes);

  if (odd % 16 == 0)
    copy_units<uint4>(to, from, t->row_bytes, lane, lanes);
  else if (odd % 4 == 0)
    copy_units<uint32_t>(to, from, t->row_bytes, lane, lanes);
  else
    copy_units<uint16_t>(to, from, t->row_bytes, lane, lanes);
}

/* Move the rows of each miss that got a line. One group of lanes per miss. */
static __global__ void move_kernel(TrsCache cache, CacheBatch b, CacheTables tables)
{
  const int lane = static_cast<int>(threadIdx.x) & ((1 << tables.lanes_log2) - 1);

  for (int64_t at = TrsCudaFirst() >> tables.lanes_log2; at < b.runs.n;
       at += TrsCudaStep() >> tables.lanes_log2) {
    /* no misses from this entry on */
    if (static_cast<int64_t>(b.miss_key[at] >> b.count_bits) >= cache.n_sets) return;
    const uint32_t run = b.miss[at];
    const int32_t line = b.line[run];

    if (line < 0) continue;
    if (b.evicted_tag[at]) move_row(cache, tables, b.evicted_tag[at] - 1, line, false, lane);
    /*
      the two rows may be copied in units of different sizes, so another lane may write bytes that
      this lane read
    */
    __syncwarp(group_mask(1 << tables.lanes_log2));
    move_row(cache, tables, static_cast<int64_t>(b.runs.key_of[run]), line, true, lane);
  }
}

/* Copy the row of every occupied line back to its table. One group of lanes per line. */
static __global__ void write_back_kernel(TrsCache cache, CacheTables tables)
{
  const int lane = static_cast<int>(threadIdx.x) & ((1 << tables.lanes_log2) - 1);

  for (int64_t line = TrsCudaFirst() >> tables.lanes_log2; line < cache.n_sets * TRS_CACHE_WAYS;
       line += TrsCudaStep() >> tables.lanes_log2)
    if (cache.tag[line]) move_row(cache, tables, cache.tag[line] - 1, line, false, lane);
}

/* --- locations of rows --- */

static __device__ __forceinline__ void add_counter(const TrsCache &cache, int which, int64_t value)
{
  for (int by = 16; by > 0; by /= 2) value += __shfl_xor_sync(0xffffffffu, value, by);
  if ((threadIdx.x & 31) == 0 && value)
    atomicAdd(reinterpret_cast<unsigned long long *>(cache.counters + which),
              static_cast<unsigned long long>(value));
}

/*
  One thread per distinct id: forget a line that LFU has meanwhile given to another row, set locks,
  and add to the counters.
*/
static __global__ void settle_kernel(TrsCache cache, CacheBatch b, int32_t *held)
{
  const int64_t n_runs = b.runs.before[b.runs.n];
  int64_t absent = 0, absent_ids = 0;

  for (int64_t r = TrsCudaFirst(); r < b.runs.n; r += TrsCudaStep()) {
    int32_t line = -1;

    if (r < n_runs) {
      line = b.line[r];
      absent += line < 0; /* counts a miss that was not inserted */
      if (line >= 0 && cache.tag[line] != static_cast<int64_t>(b.runs.key_of[r]) + 1) line = -1;
      b.line[r] = line;
      if (line < 0) absent_ids += b.runs.begin[r + 1] - b.runs.begin[r];
      if (line >= 0 && held) cache.locks[line]++; /* no other thread has this line */
    }
    if (held) held[r] = line;
  }
  add_counter(cache, TRS_CACHE_CONFLICT_UNIQUE_MISSES, absent);
  add_counter(cache, TRS_CACHE_CONFLICT_MISSES, absent_ids);
  const bool first = TrsCudaFirst() == 0;
  add_counter(cache, TRS_CACHE_CALLS, first);
  add_counter(cache, TRS_CACHE_REQUESTED, first ? b.runs.begin[n_runs] : 0);
  add_counter(cache, TRS_CACHE_UNIQUE, first ? n_runs : 0);
}

static __global__ void locations_kernel(CacheBatch b, int32_t *locations)
{
  const int64_t n = b.runs.begin[b.runs.before[b.runs.n]];

  for (int64_t i = TrsCudaFirst(); i < n; i += TrsCudaStep())
    locations[b.item[i]] = b.line[b.runs.before[i + 1] - 1];
}

/*
  Grid y over features, x over their values. A thread first tries the line in `locations`, which may
  hold any number. If this line has the id's tag, the line is right. The lanes of a warp together
  look up the remaining ids.
*/
static __global__ void locate_kernel(const CacheFeature *features, TrsCache cache, TrsTbeInput input,
                                     int32_t *locations)
{
  const CacheFeature f = features[blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t begin = input.offsets[blockIdx.y * input.batch],
                end = input.offsets[(blockIdx.y + 1) * input.batch];

  if (f.first < 0) return;
  for (int64_t from = begin + TrsCudaFirst() - lane; from < end; from += TrsCudaStep()) {
    const int64_t i = from + lane, row = i < end ? input.values[i] : -1, id = f.first + row;
    const bool valid = static_cast<uint64_t>(row) < static_cast<uint64_t>(f.rows);
    int32_t line = valid ? locations[i] : -1;

    if (line < 0 || line >= cache.n_sets * TRS_CACHE_WAYS || cache.tag[line] != id + 1) line = -1;
    for (unsigned search = __ballot_sync(0xffffffffu, valid && line < 0); search; search &= search - 1) {
      const int which = __ffs(static_cast<int>(search)) - 1;
      const int32_t found = find_line(cache, __shfl_sync(0xffffffffu, id, which), lane);

      if (lane == which) line = found;
    }
    if (i < end) locations[i] = line;
  }
}

static __global__ void release_kernel(int32_t *locks, int64_t n, const int32_t *held)
{
  for (int64_t i = TrsCudaFirst(); i < n; i += TrsCudaStep())
    if (held[i] >= 0) locks[held[i]]--;
}

/* --- host --- */

static bool is_cached(const TrsCache *cache, const TrsTbeTable *table)
{
  return table->lines == cache->lines;
}

/*
  Upload the cache's tables in ascending order of their ids. The caller usually passes them in this
  order.
*/
static PetscErrorCode upload_tables(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                    const TrsTbe *tbe, CacheTables *tables)
{
  int64_t widest = 1;
  CacheTable *list;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_CACHE_TABLES, tbe->n_tables, sizeof(*list), &list));
  for (int t = 0; t < tbe->n_tables; t++) {
    const TrsTbeTable *table = &tbe->table[t];
    const int64_t element = TrsDTypeBytes(table->dtype);
    int at = n;

    if (!is_cached(cache, table)) continue;
    for (; at > 0 && list[at - 1].first > table->cache_first; at--) list[at] = list[at - 1];
    list[at] = {table->cache_first, static_cast<char *>(table->weight), table->stride * element,
                table->dim * element};
    widest = PetscMax(widest, table->dim * element);
    n++;
  }
  tables->n = n;
  tables->lanes_log2 = TrsCudaLanesLog2(static_cast<int>(PetscMin(widest, static_cast<int64_t>(4096))), 16);
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_CACHE_TABLES, stream,
                               n * static_cast<int64_t>(sizeof(*list)), list, &tables->table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode upload_features(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                      const TrsTbe *tbe, CacheFeature **features)
{
  CacheFeature *list;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_CACHE_FEATURES, tbe->n_features, sizeof(*list), &list));
  for (int f = 0; f < tbe->n_features; f++) {
    const TrsTbeTable *table = &tbe->table[tbe->feature[f].table];

    list[f] = {is_cached(cache, table) ? table->cache_first : -1, table->rows};
  }
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_CACHE_FEATURES, stream,
                               tbe->n_features * static_cast<int64_t>(sizeof(*list)), list, features));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A grid for N values of n features: x covers values, y covers all features. */
static PetscErrorCode feature_grid(int64_t n_values, int n_features, dim3 *grid)
{
  PetscFunctionBegin;
  PetscCheck(n_features <= 65535, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%d features of one cached lookup",
             n_features);
  *grid = TrsCudaBlocks(n_values / n_features + 1, TRS_CACHE_THREADS);
  grid->y = static_cast<unsigned>(n_features);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* List the batch's distinct ids. */
static PetscErrorCode list_ids(TrsStream stream, TrsWorkspace w, const TrsCache *cache, const TrsTbe *tbe,
                               const TrsTbeInput *input, int32_t *locations, CacheBatch *b)
{
  const int64_t n = input->n_values;
  const uint64_t end = static_cast<uint64_t>(cache->n_ids);
  CacheFeature *features;
  uint64_t *key;
  uint32_t *item;
  dim3 grid;

  PetscFunctionBegin;
  PetscCheck(n < UINT32_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%lld ids in one batch of one rank are more than the GPU's cache takes (2^32)",
             static_cast<long long>(n));
  PetscCall(upload_features(stream, w, cache, tbe, &features));
  PetscCall(TrsCudaReserveRuns(w, n, &b->runs));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_KEYS, n, sizeof(*key), &key));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_ITEMS, n, sizeof(*item), &item));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_ITEMS_SORTED, n, sizeof(*item), &b->item));
  if (n > 0) {
    PetscCall(feature_grid(n, tbe->n_features, &grid));
    CU_LAUNCH(cache_keys_kernel, grid, TRS_CACHE_THREADS, 0, TrsCudaStream(stream), features, *input,
              cache->n_ids, key, item, locations);
    TrsCheckLaunch();
  }
  PetscCall(TrsCudaSortPairs(w, stream, n, TrsCudaBitsFor(end), key, b->runs.key, item, b->item));
  PetscCall(TrsCudaFindRuns(stream, end, &b->runs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sort the misses by set, and within a set in the order of insertion. */
static PetscErrorCode sort_misses(TrsStream stream, TrsWorkspace w, const TrsCache *cache, CacheBatch *b)
{
  const int64_t n = b->runs.n;
  uint64_t *key;
  uint32_t *run;

  PetscFunctionBegin;
  b->count_bits = cache->algorithm == TRS_CACHE_LFU ? TRS_CACHE_COUNT_BITS : 0;
  /* the keys of the ids are no longer needed, so their memory is used */
  PetscCall(TrsCudaScratch(w, TRS_CUDA_KEYS, n, sizeof(*key), &key));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_ITEMS, n, sizeof(*run), &run));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_LOCATIONS, n, sizeof(*b->line), &b->line));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_MISSES, n, sizeof(*b->miss), &b->miss));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_EVICTED, n, sizeof(*b->evicted_tag), &b->evicted_tag));
  b->miss_key = b->runs.key;
  CU_LAUNCH(find_hits_kernel, TrsCudaBlocks(n << 5, TRS_CACHE_THREADS), TRS_CACHE_THREADS, 0,
            TrsCudaStream(stream), *cache, *b, key, run);
  TrsCheckLaunch();
  PetscCall(TrsCudaSortPairs(w, stream, n,
                             b->count_bits + TrsCudaBitsFor(static_cast<uint64_t>(cache->n_sets)), key,
                             b->miss_key, run, b->miss));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Number of thread blocks that move rows from and to host memory. 64 thread blocks have 256 KiB in
  flight, which exceeds PCIe's bandwidth times its latency. More blocks would occupy multiprocessors
  that the dense layers need at the same time.
*/
static dim3 move_blocks(int64_t n_threads)
{
  return dim3(PetscMin(TrsCudaBlocks(n_threads, TRS_CACHE_THREADS).x, 64u));
}

PetscErrorCode TrsCachePrefetchCuda(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                    const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations,
                                    int32_t *held)
{
  const int64_t n = input->n_values;
  const dim3 blocks = TrsCudaBlocks(n, TRS_CACHE_THREADS);
  const cudaStream_t s = TrsCudaStream(stream);
  CacheTables tables;
  CacheBatch b;

  PetscFunctionBegin;
  PetscCall(upload_tables(stream, workspace, cache, tbe, &tables));
  PetscCall(list_ids(stream, workspace, cache, tbe, input, locations, &b));
  PetscCall(sort_misses(stream, workspace, cache, &b));
  CU_LAUNCH(insert_kernel, blocks, TRS_CACHE_THREADS, 0, s, *cache, b);
  CU_LAUNCH(move_kernel, move_blocks(n << tables.lanes_log2), TRS_CACHE_THREADS, 0, s, *cache, b, tables);
  CU_LAUNCH(settle_kernel, blocks, TRS_CACHE_THREADS, 0, s, *cache, b, held);
  CU_LAUNCH(locations_kernel, blocks, TRS_CACHE_THREADS, 0, s, b, locations);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCacheLocateCuda(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                  const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations)
{
  CacheFeature *features;
  dim3 grid;

  PetscFunctionBegin;
  if (input->n_values <= 0 || tbe->n_features <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(upload_features(stream, workspace, cache, tbe, &features));
  PetscCall(feature_grid(input->n_values, tbe->n_features, &grid));
  CU_LAUNCH(locate_kernel, grid, TRS_CACHE_THREADS, 0, TrsCudaStream(stream), features, *cache, *input,
            locations);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCacheReleaseCuda(TrsStream stream, const TrsCache *cache, int64_t n, const int32_t *held)
{
  PetscFunctionBegin;
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(release_kernel, TrsCudaBlocks(n, TRS_CACHE_THREADS), TRS_CACHE_THREADS, 0, TrsCudaStream(stream),
            cache->locks, n, held);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCacheWriteBackCuda(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                     const TrsTbe *tbe)
{
  CacheTables tables;

  PetscFunctionBegin;
  PetscCall(upload_tables(stream, workspace, cache, tbe, &tables));
  CU_LAUNCH(write_back_kernel, move_blocks(cache->n_sets * TRS_CACHE_WAYS << tables.lanes_log2),
            TRS_CACHE_THREADS, 0, TrsCudaStream(stream), *cache, tables);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
