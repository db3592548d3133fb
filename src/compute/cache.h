/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A cache of table rows (compute kernel fused_uvm_caching). All rows are in host memory that the
  device can read. Rows in use are copied to lines in device memory. The CPU and CUDA kernels share
  these plain structs. The cache_* kernels of compute_ops.h work on them, and embed/row_cache.h owns
  the memory.

  The cache is 32-way set associative. A row's linear id is table.cache_first + row. The row may
  only be in one of the 32 lines of set TrsCacheSetOf(id).

  A line holds a row in the type of its table, so moving a row never rounds. Results are therefore
  the same with and without a cache, even with stochastic rounding. (FBGEMM's cache may have another
  precision, and rounds when it writes a row back.) Optimizer states are not cached.

  A prefetch ("call") loads the rows of a batch, at time t = 1, 2, ...:
  - LFU adds the number of an id's occurrences in the batch to the id's count (up to
    TRS_CACHE_MAX_COUNT).
  - LRU stamps the lines of hits with t.
  - Misses are inserted set by set. In a set, LRU sorts the misses by ascending id. LFU sorts them
    by descending count; misses with equal counts are sorted by ascending id.
  - The replaceable lines of the set are sorted by ascending cost. Lines with equal costs stay in
    the order of their ways. With LRU, a line's cost is its stamp, or 0 if the line is empty; lines
    that are locked or have stamp t (such as hits) are not replaceable. With LFU, a line's cost is
    the count of the line's row, or -1 if the line is empty; all lines are replaceable.
  - Miss i of the set gets line i of the set's sorted lines, if this line exists. LFU also requires
    that the line's cost is at most the miss's count. After the first miss that gets no line, no
    further miss of the set is inserted.
  - A miss that is not inserted is a conflict miss: the kernels use its row in host memory.
  - Before a line is replaced, its row is written back to the table.

  Source: FBGEMM lru_cache_populate, lfu_cache_populate, lxu_cache_lookup; src/RULES.md, section 13
          (units_cache)
*/
#pragma once

#include "compute/half.h"
#include "compute/tbe.h"

#include <stddef.h>

enum { TRS_CACHE_WAYS = 32 };

#define TRS_CACHE_MAX_COUNT ((INT64_C(1) << 40) - 1)
/*
  Largest numbers of sets. For LRU, an index of a line must fit in int32. For LFU, the index of a
  set and a count must fit in one 64-bit sort key.
*/
#define TRS_CACHE_MAX_SETS_LRU (INT64_C(1) << 26)
#define TRS_CACHE_MAX_SETS_LFU ((INT64_C(1) << 24) - 2)

typedef enum { TRS_CACHE_LRU, TRS_CACHE_LFU } TrsCacheAlgorithm;

/*
  Counters, summed over all calls. They count only ids that are rows of cached tables. Pruned and
  bad ids are not counted.
*/
typedef enum {
  TRS_CACHE_CALLS,
  TRS_CACHE_REQUESTED,              /* ids */
  TRS_CACHE_UNIQUE,                 /* distinct ids of each call */
  TRS_CACHE_UNIQUE_MISSES,          /* distinct ids that were not in the cache before the call */
  TRS_CACHE_CONFLICT_UNIQUE_MISSES, /* unique misses that were not inserted */
  /* ids whose row is not in the cache after the call; with LFU, also hits whose row was replaced */
  TRS_CACHE_CONFLICT_MISSES,
  TRS_CACHE_N_COUNTERS
} TrsCacheCounter;

/*
  A cache. The arrays are in device memory. If all arrays are zero, the cache is empty. Setting tag
  and stamp to zero empties the cache without writing rows back. Line l is way l % 32 of set l / 32;
  n_lines = 32 * n_sets.
*/
typedef struct {
  TrsCacheAlgorithm algorithm;
  int64_t n_sets;
  int64_t n_ids; /* linear ids are 0 .. n_ids - 1 */
  /* bytes from one line to the next; a multiple of 64 that holds the longest row of the cached
     tables */
  int64_t line_bytes;
  /* time of the call in progress; the owner must add 1 before each cache_prefetch */
  int64_t time;
  int64_t *tag;   /* [n_lines] linear id + 1 of the row in the line; 0 if the line is empty */
  int64_t *stamp; /* [n_lines] LRU: time of the line's last use. LFU: NULL */
  /* [n_ids] LFU: number of requests for each row, cached or not. LRU: NULL */
  int64_t *count;
  int32_t *locks;    /* [n_lines] LRU: number of batches in flight that use the line. LFU: NULL */
  void *lines;       /* [n_lines, line_bytes], 64-byte aligned */
  int64_t *counters; /* [TRS_CACHE_N_COUNTERS] */
} TrsCache;

/* Return the set of a linear id: murmur3's 64-bit finaliser, modulo the number of sets. */
TRS_ANYWHERE int64_t TrsCacheSetOf(int64_t id, int64_t n_sets)
{
  uint64_t h = (uint64_t)id;

  h ^= h >> 33;
  h *= UINT64_C(0xff51afd7ed558ccd);
  h ^= h >> 33;
  h *= UINT64_C(0xc4ceb9fe1a85ec53);
  h ^= h >> 33;
  return (int64_t)(h % (uint64_t)n_sets);
}

/*
  Return the address at which a row is read and written. It is in a line of the cache, or in the
  table.
*/
TRS_ANYWHERE void *TrsCacheRow(const TrsTbeTable *table, int64_t row, int32_t location, int64_t element_bytes)
{
  return location >= 0 ? (char *)table->lines + location * table->line_bytes
                       : (char *)table->weight + row * table->stride * element_bytes;
}
