/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The caches of one lookup: fused_uvm_caching tables of one load factor and algorithm share one (compute/cache.h), and the batches in flight know
  where their rows are.

  A batch is known by its array of ids, which is its own from its prefetch, or else its forward, to its backward, or Done() where it has none. With Ahead() before its forward its LRU
  lines are locked until Done(); LFU is filled in the forward, as it is without. Calls that follow another batch's prefetch look rows up again, so any
  order of these calls on one stream, or ordered by events, gives the numbers that tables without a cache give.

  Memory: a cache's lines and, of LRU, 20 bytes a line, of LFU 8 bytes a line and 8 bytes a row of its tables; 8 bytes an id of each batch in flight.
  Source: FBGEMM SplitTableBatchedEmbeddingBagsCodegen.prefetch, TorchRec CacheParams;
  src/RULES.md, section 13
*/
#pragma once

#include "compute/compute_ops.h"

enum { TRS_CACHE_BATCHES = 6 }; /* in flight: a training pipeline's, and those of an evaluation */

typedef struct TrsRowCachesImpl *TrsRowCaches;

/* What a table wants of a cache; load_factor 0: none. */
typedef struct {
  double load_factor; /* lines / rows */
  TrsCacheAlgorithm algorithm;
  int table; /* its number, for reports */
} TrsRowCacheWish;

/* A cache, for reports. */
typedef struct {
  TrsCacheAlgorithm algorithm;
  int n_tables;
  const int *table; /* [n_tables] their numbers, one for each shard; borrowed */
  int64_t rows;     /* of these tables on this rank */
  int64_t capacity_rows, bytes;
  int64_t counters[TRS_CACHE_N_COUNTERS];
} TrsRowCacheInfo;

/*
  TrsRowCachesCreate - Caches for those of a lookup's tables that want one; NULL when none does.

  Not collective.

  In:     wish    [n_tables]
  InOut:  table   [n_tables] described, with host rows where cached: their lines, line_bytes and cache_first are set
  Errors: MEMORY; UNAVAILABLE when the device has no cache kernels
*/
PetscErrorCode TrsRowCachesCreate(const TrsDeviceOps *device, const TrsComputeOps *compute, int n_tables,
                                  TrsTbeTable *table, const TrsRowCacheWish *wish, TrsRowCaches *caches);
PetscErrorCode TrsRowCachesDestroy(TrsRowCaches *caches);

/* Bring in the batch's rows before its forward. caches may be NULL, here and below: nothing happens. */
PetscErrorCode TrsRowCachesAhead(TrsRowCaches caches, TrsStream stream, const TrsTbe *tbe,
                                 const TrsTbeInput *input);

/* Before a lookup: input->locations is set, valid until the batch is done, or another one takes its place. */
PetscErrorCode TrsRowCachesForward(TrsRowCaches caches, TrsStream stream, const TrsTbe *tbe,
                                   TrsTbeInput *input);

/* Before an update, of a batch that was looked up or of any other. */
PetscErrorCode TrsRowCachesBackward(TrsRowCaches caches, TrsStream stream, const TrsTbe *tbe,
                                    TrsTbeInput *input);

/* After the update; after the lookup where there is no update. */
PetscErrorCode TrsRowCachesDone(TrsRowCaches caches, TrsStream stream, const TrsTbeInput *input);

/* The tables' own memory holds what the cache does; drop: and the cache no longer does, so that it may be changed. */
PetscErrorCode TrsRowCachesWriteBack(TrsRowCaches caches, TrsStream stream, const TrsTbe *tbe,
                                     PetscBool drop);

/* Number of caches; 0 for NULL. */
int TrsRowCachesCount(TrsRowCaches caches);

/* The i-th cache. The host waits for the stream. */
PetscErrorCode TrsRowCachesInfo(TrsRowCaches caches, int i, TrsStream stream, TrsRowCacheInfo *info);
