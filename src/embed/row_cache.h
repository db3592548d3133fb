/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The caches of one lookup. Its fused_uvm_caching tables of one load factor, algorithm and reserved
  memory share one cache (compute/cache.h). Each batch in flight knows where its rows are.

  A batch is known by the address of its array of ids. No other batch may use this array from the
  batch's first call (Ahead(), or else Forward()) to its last one (Backward(), or Done() if it has
  no backward). A batch with Ahead() before its forward has its LRU lines locked until Done(). LFU
  caches are filled in the forward, with or without Ahead(). A call that follows the prefetch of
  another batch looks its rows up again. So the calls may come in any order on one stream, or on
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

/*
  TrsRowCachesCreate - Create caches for the tables of a lookup that want one. caches is NULL if no
  table does.

  Not collective.

  In:     wish    [n_tables]
  InOut:  table   [n_tables] described, with host rows if cached; lines, line_bytes and cache_first
                  are set
  Errors: MEMORY, also if reserved_bytes leave no room for one set; UNAVAILABLE if the device has no
          cache kernels
*/
PetscErrorCode TrsRowCachesCreate(const TrsDeviceOps *device, const TrsComputeOps *compute, int n_tables,
                                  TrsTbeTable *table, const TrsRowCacheWish *wish, TrsRowCaches *caches);
PetscErrorCode TrsRowCachesDestroy(TrsRowCaches *caches);

/*
  Bring in the batch's rows before its forward. Here and below caches may be NULL, and then nothing
  happens.
*/
PetscErrorCode TrsRowCachesAhead(TrsRowCaches caches, TrsStream stream, const TrsTbe *tbe,
                                 const TrsTbeInput *input);

/*
  Prepare a lookup: set input->locations. They are valid until the batch is done, or another batch
  takes its place.
*/
PetscErrorCode TrsRowCachesForward(TrsRowCaches caches, TrsStream stream, const TrsTbe *tbe,
                                   TrsTbeInput *input);

/* Prepare an update. The batch may have been looked up or not. */
PetscErrorCode TrsRowCachesBackward(TrsRowCaches caches, TrsStream stream, const TrsTbe *tbe,
                                    TrsTbeInput *input);

/* End a batch: after its update, or after its lookup if it has no update. */
PetscErrorCode TrsRowCachesDone(TrsRowCaches caches, TrsStream stream, const TrsTbeInput *input);

/*
  Write the caches' rows back to the tables' own memory. drop: also empty the caches, so that the
  tables may be changed.
*/
PetscErrorCode TrsRowCachesWriteBack(TrsRowCaches caches, TrsStream stream, const TrsTbe *tbe,
                                     PetscBool drop);

/* Number of caches; 0 for NULL. */
int TrsRowCachesCount(TrsRowCaches caches);

/* Describe the i-th cache. The host waits for the stream. */
PetscErrorCode TrsRowCachesInfo(TrsRowCaches caches, int i, TrsStream stream, TrsRowCacheInfo *info);
