/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ShardedEmbeddingBagCollection: all tables of a model as a plan spreads them over the ranks.
  Source: TorchRec ShardedEmbeddingBagCollection (torchrec.distributed.embeddingbag).

  A batch goes through a slot: InputDistStart (counts), InputDistTensors (ids), InputDistWait
    ForwardStart (lookups, rows on their way), ForwardWait (rows in the model's matrix)
    BackwardStart (gradients on their way), BackwardUpdate (fused optimizer) Slots are independent:
    the next batch's input dist runs under the compute of this one. All calls are collective, in the
    same order on all ranks, but the Destroy of NULL.
*/
#pragma once

#include "shard/sharding.h"

typedef struct TrsShardedEbcImpl *TrsShardedEbc;

extern const TrsOptionGroup trs_shard_options; /* -ec_index_dedup, -ebc_variable_batch */

typedef struct {
  const int64_t *columns;              /* [features] first columns (src/RULES.md, rule A2) */
  const TrsPositionWeight *position;   /* [features] position weights; NULL: no feature has any */
  TrsPooledDistOptions dist;           /* of all-to-alls of pooled rows */
  TrsPooledDistOptions reduce_scatter; /* of sums of pooled rows; codecs differ from dist */
  TrsPooledDistOptions sequence;       /* of sequence tables' rows; codecs differ from dist */
  PetscBool index_dedup;               /* -ec_index_dedup */
  PetscBool variable_batch;            /* -ebc_variable_batch */
  /*
    Scratch memory of TrsDeviceAllocShared() that the model lends; may be none. The collection may
    use it from ForwardStart to ForwardWait, and from BackwardStart to BackwardUpdate.
  */
  void *lent;
  int64_t lent_bytes;
} TrsShardedEbcConfig;

/*
  TrsShardedEbcCreate - Groups of tables, their exchanges, and this rank's lookups.

  Collective. Everything given is borrowed, but for config itself.

  In:     shards   of this rank, made from the same tables and plan
  Errors: OPTION where -reproducible does not go with a table
*/
PetscErrorCode TrsShardedEbcCreate(const TrsCommGroups *groups, const TrsDeviceOps *device,
                                   const TrsComputeOps *compute, const TrsTableConfigs *tables,
                                   const TrsShardingPlan *plan, const TrsEmbeddingShards *shards,
                                   const TrsShardedEbcConfig *config, TrsShardedEbc *ebc);
PetscErrorCode TrsShardedEbcDestroy(TrsShardedEbc *ebc);

/*
  batch: the samples' ids, features in the order of src/RULES.md, rule A2, offsets filled.
  Borrowed until the slot is used again.
*/
PetscErrorCode TrsShardedEbcInputDistStart(TrsShardedEbc ebc, int slot, const TrsKjt *batch,
                                           TrsStream stream);
PetscErrorCode TrsShardedEbcInputDistTensors(TrsShardedEbc ebc, int slot, TrsStream stream);
PetscErrorCode TrsShardedEbcInputDistWait(TrsShardedEbc ebc, int slot, TrsStream stream);

PetscErrorCode TrsShardedEbcForwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                         const TrsPooledMatrix *pooled);
PetscErrorCode TrsShardedEbcForwardWait(TrsShardedEbc ebc, int slot, TrsStream stream,
                                        const TrsPooledMatrix *pooled);

/*
  Fill the caches of tables whose rows are in host memory (embed/row_cache.h) for a slot whose input
  dist is done, ahead of its forward. Not collective.
*/
PetscErrorCode TrsShardedEbcPrefetch(TrsShardedEbc ebc, int slot, TrsStream stream);

/* A batch without a backward is over; the cache lines that it holds become free. Not collective. */
PetscErrorCode TrsShardedEbcEvaluated(TrsShardedEbc ebc, int slot, TrsStream stream);

/* Write what the caches hold to the shards' memory. Not collective. */
PetscErrorCode TrsShardedEbcWriteBack(TrsShardedEbc ebc, TrsStream stream);

/* This rank's caches: how many, and the i-th. Not collective; Info waits for the stream. */
int TrsShardedEbcCaches(TrsShardedEbc ebc);
PetscErrorCode TrsShardedEbcCacheInfo(TrsShardedEbc ebc, int i, TrsStream stream, TrsRowCacheInfo *info);

/* grad: gradient of the pooled matrix; its embedding columns may be overwritten. */
PetscErrorCode TrsShardedEbcBackwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                          const TrsPooledMatrix *grad);
PetscErrorCode TrsShardedEbcBackwardUpdate(TrsShardedEbc ebc, int slot, TrsStream stream,
                                           const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args);
