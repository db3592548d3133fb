/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ShardedEmbeddingBagCollection: a model's tables, spread over the ranks by a plan.

  A batch goes through a slot:

    InputDistStart (counts), InputDistTensors (ids), InputDistWait
    ForwardStart (lookups, rows on their way), ForwardWait (rows in the model's matrix)
    BackwardStart (gradients on their way), BackwardUpdate (fused optimizer)

  Slots are independent: the next batch's input dist runs while this batch is computed. All calls
  except Destroy of NULL are collective, and must have the same order on all ranks.

  Source: TorchRec ShardedEmbeddingBagCollection (torchrec.distributed.embeddingbag)
*/
#pragma once

#include "shard/sharding.h"

typedef struct TrsShardedEbcImpl *TrsShardedEbc;

extern const TrsOptionGroup trs_shard_options; /* -ec_index_dedup, -ebc_variable_batch and others */

typedef struct {
  const int64_t *columns;              /* [features] first columns (src/RULES.md, rule A2) */
  const TrsPositionWeight *position;   /* [features] position weights; NULL: no feature has any */
  TrsPooledDistOptions dist;           /* for all-to-alls of pooled rows */
  TrsPooledDistOptions reduce_scatter; /* for sums of pooled rows; the codecs differ from dist */
  TrsPooledDistOptions sequence;       /* for sequence tables' rows; the codecs differ from dist */
  PetscBool index_dedup;               /* -ec_index_dedup */
  PetscBool variable_batch;            /* -ebc_variable_batch */
  TrsReduceScatterLevels levels;       /* -ebc_row_wise_reduce_scatter */
  /*
    Number of copies of the tables; 0 means 1. Each copy learns from its part of the batch, and
    multiplies the gradients by this number (src/RULES.md, section 21).
  */
  int replicas;
  /*
    The owners of this rank's shards in all copies that make the same updates. NULL: there are no
    such copies. Excludes index_dedup and variable_batch.
  */
  TrsComm owners;
  /*
    Scratch memory from TrsDeviceAllocShared() that the model lends; may be NULL. The collection may
    use it from ForwardStart to ForwardWait, and from BackwardStart to BackwardUpdate.
  */
  void *lent;
  int64_t lent_bytes;
  /*
    Type of the model's matrices: fp32 or bf16. bf16 needs a device with kernels for it, and tables
    with pooling sum or mean, without gradient limits and position weights, whose output_dtype is
    fp32 or bf16. It excludes variable_batch, replicas, owners and -reproducible.
  */
  TrsDType rows;
  /*
    Type in which rows and gradients travel if neither the options nor a table's output_dtype give
    one. Unused with -reproducible.
  */
  TrsDType wire;
  /*
    The model reads vectors where they lie (TrsPooledMatrix.place), and writes gradients over them.
    Needs tables with pooling sum or mean, without gradient limits, whose output_dtype is fp32.
    Excludes owners, replicas and -reproducible.
  */
  PetscBool in_place;
  /*
    No other batch's input dist begins between a batch's InputDistTensors and its InputDistWait. The
    senders wait until then, so ids are read in the senders' memory.
  */
  PetscBool ids_in_place;
} TrsShardedEbcConfig;

/*
  Read the options of the exchanges and -reproducible; other fields are unchanged. Not collective.
  Errors: OPTION if -reproducible is given with rounded messages or with sums by hosts.
*/
PetscErrorCode TrsShardedEbcConfigFromOptions(TrsOptions options, TrsShardedEbcConfig *config);

/* Raise OPTION: -reproducible excludes the option `name`, which rounds messages. */
PetscErrorCode TrsShardedEbcRefuseRounded(TrsOptions options, const char *name);

/*
  TrsShardedEbcCreate - Create the groups of tables, their exchanges, and this rank's lookups.

  Collective. All arguments except config itself are borrowed.

  In:     shards   of this rank, made from the same tables and plan
  Errors: OPTION if a table does not support -reproducible
*/
PetscErrorCode TrsShardedEbcCreate(const TrsCommGroups *groups, const TrsDeviceOps *device,
                                   const TrsComputeOps *compute, const TrsTableConfigs *tables,
                                   const TrsShardingPlan *plan, const TrsEmbeddingShards *shards,
                                   const TrsShardedEbcConfig *config, TrsShardedEbc *ebc);
PetscErrorCode TrsShardedEbcDestroy(TrsShardedEbc *ebc);

/*
  If in place: the width of the pooled matrix, which has columns only for features whose vectors
  arrive in it; 0: there is no such matrix. columns [F] are the features' first columns, -1 for the
  other features; every TrsPooledMatrix must use them. Borrowed. Not collective.
*/
int64_t TrsShardedEbcMatrixWidth(TrsShardedEbc ebc, const int64_t **columns);

/*
  The three steps of a batch's input dist. batch: the samples' ids, with features in the order of
  src/RULES.md, rule A2, and offsets filled; borrowed until the slot is used again.
*/
PetscErrorCode TrsShardedEbcInputDistStart(TrsShardedEbc ebc, int slot, const TrsKjt *batch,
                                           TrsStream stream);
PetscErrorCode TrsShardedEbcInputDistTensors(TrsShardedEbc ebc, int slot, TrsStream stream);
PetscErrorCode TrsShardedEbcInputDistWait(TrsShardedEbc ebc, int slot, TrsStream stream);

/*
  Sort a training batch's ids for its update, on any stream. Call it after the input dist and before
  BackwardUpdate; also before BackwardStart if SortsSums() is true, because gradients of equal bags
  or ids are then added up before they travel. Optional: without this call the backward sorts the
  ids. Does nothing on devices that do not sort ahead. Not collective.
*/
PetscErrorCode TrsShardedEbcSort(TrsShardedEbc ebc, int slot, TrsStream stream);
PetscBool TrsShardedEbcSortsSums(TrsShardedEbc ebc);

/*
  Look up and bring the rows back. After ForwardWait they are in the pooled matrix, rounded to each
  table's output_dtype.
*/
PetscErrorCode TrsShardedEbcForwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                         const TrsPooledMatrix *pooled);
PetscErrorCode TrsShardedEbcForwardWait(TrsShardedEbc ebc, int slot, TrsStream stream,
                                        const TrsPooledMatrix *pooled);

/* If in place: end a forward without a backward, once its vectors have been read. */
PetscErrorCode TrsShardedEbcForwardEnd(TrsShardedEbc ebc, TrsStream stream);

/*
  True if a lookup on this rank has a placement (embed/placement.h). Otherwise the next three
  functions do nothing.
*/
PetscBool TrsShardedEbcIsPlaced(TrsShardedEbc ebc);

/*
  Bring the rows of the slot's batch into their places, such as caches, before its forward. Its
  input dist must be done. Not collective.
*/
PetscErrorCode TrsShardedEbcPrefetch(TrsShardedEbc ebc, int slot, TrsStream stream);

/* End a batch without a backward, and free the places that it holds. Not collective. */
PetscErrorCode TrsShardedEbcEvaluated(TrsShardedEbc ebc, int slot, TrsStream stream);

/*
  Write rows in other places back to the tables, so that later work in the stream may read the
  tables. drop: also empty these places, so that the tables may be changed; batches in flight then
  find their rows' places again. Not collective.
*/
PetscErrorCode TrsShardedEbcSettle(TrsShardedEbc ebc, TrsStream stream, PetscBool drop);

/*
  The number of this rank's caches, and information about cache i. CacheInfo waits for the stream.
  Not collective.
*/
int TrsShardedEbcCaches(TrsShardedEbc ebc);
PetscErrorCode TrsShardedEbcCacheInfo(TrsShardedEbc ebc, int i, TrsStream stream, TrsRowCacheInfo *info);

/*
  The two steps of the backward. grad is the gradient of the pooled matrix. Its embedding columns
  are clamped (max_gradient), rounded to output_dtype, and may be overwritten.
*/
PetscErrorCode TrsShardedEbcBackwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                          const TrsPooledMatrix *grad);
PetscErrorCode TrsShardedEbcBackwardUpdate(TrsShardedEbc ebc, int slot, TrsStream stream,
                                           const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args);

/*
  TrsShardedEbcAddState - Add the tables and their optimizer states to a checkpoint's list, with
  functions by which io/ reaches device memory and caches.

  Quantised tables add nothing. Not collective.

  In: stream  the stream that changes the tensors; files wait for it
      after   an event to wait for before caches are written back, or NULL
*/
PetscErrorCode TrsShardedEbcAddState(TrsShardedEbc ebc, TrsStream stream, TrsEvent after, TrsState *state);
