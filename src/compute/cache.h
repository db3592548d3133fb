/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A cache of table rows: rows live in host memory that the device reads, those in use also in lines of device memory (compute kernel
  fused_uvm_caching). Plain data shared by the CPU and CUDA kernels; compute_ops.h's cache_* slots work on it, embed/row_cache.h owns the memory.

  32-way set associative. A row is known by its linear id, table.cache_first + row; it may lie in the 32 lines of set TrsCacheSetOf(id) alone.
  A line holds a row as its table does: the same type, so moving a row never rounds, and numbers are the same with and without a cache, stochastic
  rounding included (FBGEMM's may have another precision and rounds when it writes back). Optimizer states are not cached.

  One prefetch ("call") brings in the rows of a batch, at time t = 1, 2, ...:
  - LFU: every distinct id's count += its occurrences in the batch (saturates at TRS_CACHE_MAX_COUNT).
  - Hits: LRU stamps the line with t.
  - Misses, set by set: LRU by ascending id; LFU by descending count, then ascending id. Lines of the set that may be replaced, cheapest first,
    the lowest way first among equals. LRU: cost is the stamp, empty 0; lines stamped t (hits included) or locked may not be replaced. LFU: cost is
    the resident's count, empty -1. Miss i takes line i of that order, where there is one and (LFU) its cost <= the miss's own count; from the
    first miss that finds none on, no miss of the set is inserted. Those are conflict misses: their rows are used where they are, in host memory.
  - A row that gives up its line is written back to its table first.
  Source: FBGEMM lru_cache_populate, lfu_cache_populate, lxu_cache_lookup;
  src/RULES.md, section 13 (units_cache)
*/
#pragma once

#include "compute/half.h"
#include "compute/tbe.h"

#include <stddef.h>

enum { TRS_CACHE_WAYS = 32 };

#define TRS_CACHE_MAX_COUNT ((INT64_C(1) << 40) - 1)
/* Sets: line numbers are int32; LFU sorts by set and count in one 64-bit key. */
#define TRS_CACHE_MAX_SETS_LRU (INT64_C(1) << 26)
#define TRS_CACHE_MAX_SETS_LFU ((INT64_C(1) << 24) - 2)

typedef enum { TRS_CACHE_LRU, TRS_CACHE_LFU } TrsCacheAlgorithm;

/* Sums over all calls. Ids are those that are rows of cached tables: pruned and bad ones count nowhere. */
typedef enum {
  TRS_CACHE_CALLS,
  TRS_CACHE_REQUESTED,              /* ids, */
  TRS_CACHE_UNIQUE,                 /* and distinct ones within their call */
  TRS_CACHE_UNIQUE_MISSES,          /* distinct ids that were not in the cache before the call */
  TRS_CACHE_CONFLICT_UNIQUE_MISSES, /* unique misses that were not inserted */
  TRS_CACHE_CONFLICT_MISSES, /* ids whose row has no line after the call; LFU: also hits that lost theirs */
  TRS_CACHE_N_COUNTERS
} TrsCacheCounter;

/*
  The arrays are device memory, all zero at first: an empty cache. Zero in tag and stamp makes it empty again, nothing written back.
  Line l is way l % 32 of set l / 32; n_lines = 32 * n_sets.
*/
typedef struct {
  TrsCacheAlgorithm algorithm;
  int64_t n_sets;
  int64_t n_ids;      /* linear ids are 0 .. n_ids - 1 */
  int64_t line_bytes; /* from line to line; a multiple of 64, at least every cached table's row */
  int64_t time;       /* of the call in progress: the owner adds 1 before each cache_prefetch */
  int64_t *tag;       /* [n_lines] linear id + 1 of the row there; 0: none */
  int64_t *stamp;     /* LRU [n_lines] time of the line's last use; LFU: NULL */
  int64_t *count;     /* LFU [n_ids] how often a row was asked for, cached or not; LRU: NULL */
  int32_t *locks;     /* LRU [n_lines] batches in flight that hold the line; LFU: NULL */
  void *lines;        /* [n_lines, line_bytes], 64-byte aligned */
  int64_t *counters;  /* [TRS_CACHE_N_COUNTERS] */
} TrsCache;

/* The set of a linear id: murmur3's 64-bit finaliser, mod sets. */
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

/* Where a row is to be read and written: its line, or its place in the table. */
TRS_ANYWHERE void *TrsCacheRow(const TrsTbeTable *table, int64_t row, int32_t location, int64_t element_bytes)
{
  return location >= 0 ? (char *)table->lines + location * table->line_bytes
                       : (char *)table->weight + row * table->stride * element_bytes;
}
