/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The caches of one lookup: placement of rows in lines (trs_placement_row_cache, placement.h). Its
  fused_uvm_caching tables of one load factor, algorithm and reserved memory share one cache
  (compute/cache.h). Each batch in flight knows where its rows are.

  A batch that was brought in ahead of its forward has its LRU lines locked until it is done. LFU
  caches are filled in the forward, with or without a call ahead. A call that follows the prefetch
  of another batch looks its rows up again. So the calls may come in any order on one stream, or on
  streams that events order, and the numbers are those of tables without a cache.

  Memory: a cache's lines; for LRU 20 bytes a line; for LFU 8 bytes a line and 8 bytes a row of its
  tables; 8 bytes an id of each batch in flight.

  Source: FBGEMM SplitTableBatchedEmbeddingBagsCodegen.prefetch, TorchRec CacheParams;
          src/RULES.md, section 13
*/
#pragma once

#include "compute/compute_ops.h"

/* batches in flight: those of a training pipeline and of an evaluation */
enum { TRS_CACHE_BATCHES = 6 };

/* The data of the placement. */
typedef struct TrsRowCachesImpl *TrsRowCaches;

/* The cache that a table wants. load_factor 0: none. */
typedef struct {
  double load_factor; /* lines / rows */
  TrsCacheAlgorithm algorithm;
  /* device memory that the cache leaves free; 0: the memory is not looked at */
  int64_t reserved_bytes;
  int table; /* the table's number, for reports */
} TrsRowCacheWish;

/* A cache, as described for reports. */
typedef struct {
  TrsCacheAlgorithm algorithm;
  int n_tables;
  const int *table; /* [n_tables] the tables' numbers, one entry a shard; borrowed */
  int64_t rows;     /* rows of these tables on this rank */
  int64_t capacity_rows, bytes;
  int64_t counters[TRS_CACHE_N_COUNTERS];
} TrsRowCacheInfo;

/* Number of caches; 0 for NULL. */
int TrsRowCachesCount(TrsRowCaches caches);

/* Describe the i-th cache. The host waits for the stream. */
PetscErrorCode TrsRowCachesInfo(TrsRowCaches caches, int i, TrsStream stream, TrsRowCacheInfo *info);
