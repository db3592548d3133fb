/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ShardedEmbeddingBagCollection: all tables of a model as a plan spreads them over the ranks. Source: TorchRec
  ShardedEmbeddingBagCollection (torchrec.distributed.embeddingbag).

  One batch goes through a slot: InputDistStart (counts), InputDistTensors (ids), InputDistWait; ForwardStart (lookups, rows on their way),
  ForwardWait (rows in the model's matrix); BackwardStart (gradients on their way), BackwardUpdate (fused optimizer). Slots are independent,
  so that the next batch's input dist runs under this one's compute. All calls but the Destroy of NULL are collective, in the same order on all ranks.
*/
#pragma once

#include "shard/sharding.h"

typedef struct TrsShardedEbcImpl *TrsShardedEbc;

extern const TrsOptionGroup trs_shard_options; /* -ec_index_dedup, -ebc_variable_batch */

typedef struct {
  const int64_t
      *columns; /* [features] first column of each feature (src/RULES.md, rule A2) in the model's matrix */
  const TrsPositionWeight *position; /* [features] position weights; NULL: no feature has any */
  TrsPooledDistOptions dist;         /* of the exchanges: of all-to-alls of pooled rows; */
  TrsPooledDistOptions reduce_scatter,
      sequence;             /* alike but for the codecs: of their sums, and of sequence tables' rows */
  PetscBool index_dedup;    /* -ec_index_dedup */
  PetscBool variable_batch; /* -ebc_variable_batch */
  void *lent;               /* of TrsDeviceAllocShared(), free from a ForwardStart to its */
  int64_t lent_bytes;       /* ForwardWait, and from a BackwardStart to its Update; may be none */
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

/* batch: the samples' ids, features in the model's order (src/RULES.md, rule A2), offsets filled; borrowed until the slot is used again. */
PetscErrorCode TrsShardedEbcInputDistStart(TrsShardedEbc ebc, int slot, const TrsKjt *batch,
                                           TrsStream stream);
PetscErrorCode TrsShardedEbcInputDistTensors(TrsShardedEbc ebc, int slot, TrsStream stream);
PetscErrorCode TrsShardedEbcInputDistWait(TrsShardedEbc ebc, int slot, TrsStream stream);

PetscErrorCode TrsShardedEbcForwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                         const TrsPooledMatrix *pooled);
PetscErrorCode TrsShardedEbcForwardWait(TrsShardedEbc ebc, int slot, TrsStream stream,
                                        const TrsPooledMatrix *pooled);

/*
  Caches of tables whose rows are in host memory (embed/row_cache.h): fill them for a slot whose input dist is done, ahead of its forward. Batches of
  -ebc_variable_batch fill theirs in the forward. Not collective.
*/
PetscErrorCode TrsShardedEbcPrefetch(TrsShardedEbc ebc, int slot, TrsStream stream);

/* A batch that has no backward is over: the caches' lines that it holds are free. Not collective. */
PetscErrorCode TrsShardedEbcEvaluated(TrsShardedEbc ebc, int slot, TrsStream stream);

/* The shards' memory holds what the caches do. Not collective. */
PetscErrorCode TrsShardedEbcWriteBack(TrsShardedEbc ebc, TrsStream stream);

/* This rank's caches: how many, and the i-th. Not collective; Info waits for the stream. */
int TrsShardedEbcCaches(TrsShardedEbc ebc);
PetscErrorCode TrsShardedEbcCacheInfo(TrsShardedEbc ebc, int i, TrsStream stream, TrsRowCacheInfo *info);

/* grad: gradient of the pooled matrix; its embedding columns may be overwritten. */
PetscErrorCode TrsShardedEbcBackwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                          const TrsPooledMatrix *grad);
PetscErrorCode TrsShardedEbcBackwardUpdate(TrsShardedEbc ebc, int slot, TrsStream stream,
                                           const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args);
