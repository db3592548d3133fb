/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ShardedEmbeddingBagCollection: all tables of a model as a plan spreads them over the ranks.

  A batch goes through a slot:
    InputDistStart (counts), InputDistTensors (ids), InputDistWait
    ForwardStart (lookups, rows on their way), ForwardWait (rows in the model's matrix)
    BackwardStart (gradients on their way), BackwardUpdate (fused optimizer)
  Slots are independent: the next batch's input dist runs under the compute of this one. All calls
  are collective, in the same order on all ranks, except for Destroy of NULL.

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
    Copies of the tables; 0 is 1. Each copy learns from its part of the batch, whose gradients are
    multiplied by this number (src/RULES.md, section 21).
  */
  int replicas;
  /*
    The owners of this rank's shards in copies that make the same updates; NULL: there are none.
    Without index_dedup and variable_batch.
  */
  TrsComm owners;
  /*
    Scratch memory of TrsDeviceAllocShared() that the model lends; may be none. The collection may
    use it from ForwardStart to ForwardWait, and from BackwardStart to BackwardUpdate.
  */
  void *lent;
  int64_t lent_bytes;
  /*
    The type of the model's matrices: of floats, or of bf16. bf16 needs a device that has kernels
    for it, and tables of pooling sum or mean without limits of gradients and position weights,
    whose output_dtype is fp32 or bf16; not with variable_batch, replicas, owners or -reproducible.
  */
  TrsDType rows;
  /*
    The type in which rows and gradients travel where neither the options nor a table's output_dtype
    say it, but with -reproducible.
  */
  TrsDType wire;
  /*
    The model takes vectors where they lie (TrsPooledMatrix.place), and puts gradients in their
    places. Needs tables of pooling sum or mean whose output_dtype is fp32, without limits of
    gradients; not with owners, replicas, or -reproducible.
  */
  PetscBool in_place;
  /*
    Between a batch's InputDistTensors and its InputDistWait no other batch's input dist begins: ids
    are read at their senders, which wait until then.
  */
  PetscBool ids_in_place;
} TrsShardedEbcConfig;

/*
  Read what the options say of the exchanges and of -reproducible. The other fields stay. Not
  collective. Errors: OPTION if -reproducible is given with messages that are rounded, or with sums
  by hosts.
*/
PetscErrorCode TrsShardedEbcConfigFromOptions(TrsOptions options, TrsShardedEbcConfig *config);

/* Raise OPTION: -reproducible does not go with this option, which rounds messages. */
PetscErrorCode TrsShardedEbcRefuseRounded(TrsOptions options, const char *name);

/*
  TrsShardedEbcCreate - Create the groups of tables, their exchanges, and this rank's lookups.

  Collective. All arguments are borrowed, except config itself.

  In:     shards   of this rank, made from the same tables and plan
  Errors: OPTION if -reproducible does not go with a table
*/
PetscErrorCode TrsShardedEbcCreate(const TrsCommGroups *groups, const TrsDeviceOps *device,
                                   const TrsComputeOps *compute, const TrsTableConfigs *tables,
                                   const TrsShardingPlan *plan, const TrsEmbeddingShards *shards,
                                   const TrsShardedEbcConfig *config, TrsShardedEbc *ebc);
PetscErrorCode TrsShardedEbcDestroy(TrsShardedEbc *ebc);

/*
  In place: the width of the pooled matrix, which has the columns of those features alone whose
  vectors arrive there; 0: there is no such matrix. columns [F] are the features' in it, -1 of the
  others: those of every TrsPooledMatrix. Borrowed. Not collective.
*/
int64_t TrsShardedEbcMatrixWidth(TrsShardedEbc ebc, const int64_t **columns);

/*
  Do the input dist of a batch in three steps. batch: the samples' ids, with features in the order
  of src/RULES.md, rule A2, and offsets filled; borrowed until the slot is used again.
*/
PetscErrorCode TrsShardedEbcInputDistStart(TrsShardedEbc ebc, int slot, const TrsKjt *batch,
                                           TrsStream stream);
PetscErrorCode TrsShardedEbcInputDistTensors(TrsShardedEbc ebc, int slot, TrsStream stream);
PetscErrorCode TrsShardedEbcInputDistWait(TrsShardedEbc ebc, int slot, TrsStream stream);

/*
  Sort the ids of a training batch for its update, on any stream. Its input dist must be done;
  BackwardUpdate comes after it. If SortsSums() says that gradients of equal bags or ids are added
  up before they travel, BackwardStart comes after it, too. Without this call the backward sorts
  them. On devices that sort as they go this call does nothing. Not collective.
*/
PetscErrorCode TrsShardedEbcSort(TrsShardedEbc ebc, int slot, TrsStream stream);
PetscBool TrsShardedEbcSortsSums(TrsShardedEbc ebc);

/*
  Look up and bring the rows back. After ForwardWait they are in the pooled matrix, rounded to the
  tables' output_dtype.
*/
PetscErrorCode TrsShardedEbcForwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                         const TrsPooledMatrix *pooled);
PetscErrorCode TrsShardedEbcForwardWait(TrsShardedEbc ebc, int slot, TrsStream stream,
                                        const TrsPooledMatrix *pooled);

/* In place: end a forward that no BackwardStart follows, when its vectors have been read. */
PetscErrorCode TrsShardedEbcForwardEnd(TrsShardedEbc ebc, TrsStream stream);

/*
  Does some lookup of this rank have a placement (embed/placement.h)? Else the next three do
  nothing.
*/
PetscBool TrsShardedEbcIsPlaced(TrsShardedEbc ebc);

/*
  Bring the rows of the slot's batch into their places, such as caches, ahead of its forward. Its
  input dist must be done. Not collective.
*/
PetscErrorCode TrsShardedEbcPrefetch(TrsShardedEbc ebc, int slot, TrsStream stream);

/* End a batch without a backward: the places that it holds become free. Not collective. */
PetscErrorCode TrsShardedEbcEvaluated(TrsShardedEbc ebc, int slot, TrsStream stream); /* Write rows
in other places back to the tables, so that these may be read in the stream's order. drop: also
empty these places, so that the tables may be changed; batches under way find their rows anew. Not
collective.
*/
PetscErrorCode TrsShardedEbcSettle(TrsShardedEbc ebc, TrsStream stream, PetscBool drop);

/*
  The number of this rank's caches, and the i-th cache. Info waits for the stream. Not collective.
*/
int TrsShardedEbcCaches(TrsShardedEbc ebc);
PetscErrorCode TrsShardedEbcCacheInfo(TrsShardedEbc ebc, int i, TrsStream stream, TrsRowCacheInfo *info);

/*
  Do the backward in two steps. grad is the gradient of the pooled matrix; its embedding columns are
  clamped (max_gradient), rounded to output_dtype, and may be overwritten.
*/
PetscErrorCode TrsShardedEbcBackwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                          const TrsPooledMatrix *grad);
PetscErrorCode TrsShardedEbcBackwardUpdate(TrsShardedEbc ebc, int slot, TrsStream stream,
                                           const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args);

/*
  TrsShardedEbcAddState - Add the tables and their optimizers' states to a checkpoint's list, and
    say how io/ reaches device memory and caches.

  Quantised tables add nothing. Not collective.

  In: stream  the tensors' work; files wait for it
      after   an event to wait for before caches are written back, or NULL
*/
PetscErrorCode TrsShardedEbcAddState(TrsShardedEbc ebc, TrsStream stream, TrsEvent after, TrsState *state);
