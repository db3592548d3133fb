/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The caches of one lookup: placement of rows in lines (trs_placement_row_cache, placement.h). The
  lookup's fused_uvm_caching tables with the same load factor, algorithm and reserved memory share
  one cache (compute/cache.h). The locations of rows are kept for each batch in flight.

  If a batch is brought in ahead of its forward, its LRU lines are locked until it is done. LFU
  caches are always filled in the forward. If another batch is prefetched between two calls of a
  batch, the second call looks up its rows again. So calls may come in any order on one stream, or
  on streams ordered by events, and the results are those of tables without a cache.

  Memory: a cache's lines; for LRU 20 bytes per line; for LFU 8 bytes per line and 8 bytes per row
  of its tables; 8 bytes per id of each batch in flight.

  Source: FBGEMM SplitTableBatchedEmbeddingBagsCodegen.prefetch, TorchRec CacheParams;
          src/RULES.md, section 13
*/
#pragma once

#include "compute/compute_ops.h"

/* batches in flight: a training pipeline's and an evaluation's */
enum { TRS_CACHE_BATCHES = 6 };

/* The data of the placement. */
typedef struct TrsRowCachesImpl *TrsRowCaches;

/* The cache that a table needs. load_factor 0: none. */
typedef struct {
  double load_factor; /* lines / rows */
  TrsCacheAlgorithm algorithm;
  /* device memory that the cache leaves free; 0: free memory is not checked */
  int64_t reserved_bytes;
  int table; /* the table's number, for reports */
} TrsRowCacheWish;

/* Description of a cache for reports. */
typedef struct {
  TrsCacheAlgorithm algorithm;
  int n_tables;
  const int *table; /* [n_tables] the tables' numbers, one entry per shard; borrowed */
  int64_t rows;     /* number of these tables' rows on this rank */
  int64_t capacity_rows, bytes;
  int64_t counters[TRS_CACHE_N_COUNTERS];
} TrsRowCacheInfo;

/* Number of caches; 0 for NULL. */
int TrsRowCachesCount(TrsRowCaches caches);

/* Describe the i-th cache. The host waits for the stream. */
PetscErrorCode TrsRowCachesInfo(TrsRowCaches caches, int i, TrsStream stream, TrsRowCacheInfo *info);
