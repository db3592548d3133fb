/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ShardedEmbeddingBagCollection: a model's tables, distributed over the ranks by a plan.

  A batch uses one slot, in these steps:

    InputDistStart (counts), InputDistTensors (ids), InputDistWait
    ForwardStart (lookups, rows are sent), ForwardWait (rows are in the model's matrix)
    BackwardStart (gradients are sent), BackwardUpdate (fused optimizer)

  Slots are independent: the next batch's input dist runs while this batch is computed. All calls
  are collective, and all ranks must make them in the same order. Only Destroy of NULL is not
  collective.

  Source: TorchRec ShardedEmbeddingBagCollection (torchrec.distributed.embeddingbag)
*/
#pragma once

#include "embed/changes.h"
#include "embed/snapshot.h"
#include "shard/sharding.h"

typedef struct TrsShardedEbcImpl *TrsShardedEbc;

/* the options -ec_index_dedup, -ebc_variable_batch and others */
extern const TrsOptionGroup trs_shard_options;

typedef struct {
  /* [features] each feature's first column (src/RULES.md, rule A2) */
  const int64_t *columns;
  /* [features] position weights; NULL: no feature has position weights */
  const TrsPositionWeight *position;
  TrsPooledDistOptions dist; /* for all-to-alls of pooled rows */
  /* for sums of pooled rows; differs from dist only in the codecs */
  TrsPooledDistOptions reduce_scatter;
  /* for the rows of sequence tables; differs from dist only in the codecs */
  TrsPooledDistOptions sequence;
  PetscBool index_dedup;         /* -ec_index_dedup */
  PetscBool variable_batch;      /* -ebc_variable_batch */
  PetscBool look_ahead;          /* -ebc_look_ahead */
  TrsReduceScatterLevels levels; /* -ebc_row_wise_reduce_scatter */
  /*
    Number of copies of the tables; 0 means 1. Each copy learns from its part of the batch, and
    multiplies the gradients by the number of copies (src/RULES.md, section 21).
  */
  int replicas;
  /*
    The owners of this rank's shards in all copies that make the same updates. NULL: there are no
    such copies. Must be NULL with index_dedup or variable_batch.
  */
  TrsComm owners;
  /*
    Shared memory that the model lends as scratch (TrsDeviceAllocShared()); may be NULL. The
    collection may use it from ForwardStart to ForwardWait, and from BackwardStart to
    BackwardUpdate.
  */
  void *lent;
  int64_t lent_bytes;
  /*
    Type of the model's matrices: fp32 or bf16. For bf16 the device must have kernels for it. The
    tables must have pooling sum or mean and output_dtype fp32 or bf16, without gradient limits and
    position weights. bf16 cannot be combined with variable_batch, replicas, owners and
    -reproducible.
  */
  TrsDType rows;
  /*
    Type in which rows and gradients are sent if neither the options nor a table's output_dtype set
    one. Unused with -reproducible.
  */
  TrsDType wire;
  /*
    true: the model reads vectors at the addresses in TrsPooledMatrix.place, and overwrites them
    with gradients. The tables must have pooling sum or mean and output_dtype fp32, without gradient
    limits. Cannot be combined with owners, replicas and -reproducible.
  */
  PetscBool in_place;
  /*
    true: the caller begins no other batch's input dist between the InputDistTensors and the
    InputDistWait of a batch. The senders wait until then, so ids are read in the senders' memory.
  */
  PetscBool ids_in_place;
} TrsShardedEbcConfig;

/*
  Read the options of the exchanges, and -reproducible. Other fields are unchanged. Not collective.
  Errors: OPTION if -reproducible is combined with rounded messages or with sums by hosts.
*/
PetscErrorCode TrsShardedEbcConfigFromOptions(TrsOptions options, TrsShardedEbcConfig *config);

/*
  Raise the error OPTION: -reproducible cannot be combined with the option `name`, which rounds
  messages.
*/
PetscErrorCode TrsShardedEbcRefuseRounded(TrsOptions options, const char *name);

/*
  TrsShardedEbcCreate - Create the groups of tables, the groups' exchanges, and this rank's lookups.

  Collective. All arguments except config itself are borrowed.

  In:     shards   this rank's shards, made from the same tables and plan
  Errors: OPTION if a table does not support -reproducible
*/
PetscErrorCode TrsShardedEbcCreate(const TrsCommGroups *groups, const TrsDeviceOps *device,
                                   const TrsComputeOps *compute, const TrsTableConfigs *tables,
                                   const TrsShardingPlan *plan, const TrsEmbeddingShards *shards,
                                   const TrsShardedEbcConfig *config, TrsShardedEbc *ebc);
PetscErrorCode TrsShardedEbcDestroy(TrsShardedEbc *ebc);

/*
  The width of the pooled matrix, for vectors in place. The matrix has columns only for features
  whose vectors arrive in it. 0: there is no such matrix. columns [F] are the features' first
  columns, or -1 for features without columns. Every TrsPooledMatrix must use them. Borrowed. Not
  collective.
*/
int64_t TrsShardedEbcMatrixWidth(TrsShardedEbc ebc, const int64_t **columns);

/*
  The three steps of a batch's input dist. `batch` has the samples' ids, with features in the order
  of src/RULES.md, rule A2, and with offsets. It is borrowed until the slot is used again.
*/
PetscErrorCode TrsShardedEbcInputDistStart(TrsShardedEbc ebc, int slot, const TrsKjt *batch,
                                           TrsStream stream);
PetscErrorCode TrsShardedEbcInputDistTensors(TrsShardedEbc ebc, int slot, TrsStream stream);
PetscErrorCode TrsShardedEbcInputDistWait(TrsShardedEbc ebc, int slot, TrsStream stream);

/*
  Sort a training batch's ids for its update, on any stream. Must be called after the input dist and
  before BackwardUpdate. If SortsSums() is true, it must be called before BackwardStart, because
  gradients of equal bags or ids are then added up before they are sent. Optional: without this
  call, the backward sorts the ids. Does nothing on devices that do not sort ahead. Not collective.
*/
PetscErrorCode TrsShardedEbcSort(TrsShardedEbc ebc, int slot, TrsStream stream);
PetscBool TrsShardedEbcSortsSums(TrsShardedEbc ebc);

/*
  The two steps of the forward: look up rows, and bring them back. After ForwardWait they are in the
  pooled matrix, rounded to each table's output_dtype.
*/
PetscErrorCode TrsShardedEbcForwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                         const TrsPooledMatrix *pooled);
PetscErrorCode TrsShardedEbcForwardWait(TrsShardedEbc ebc, int slot, TrsStream stream,
                                        const TrsPooledMatrix *pooled);

/*
  True if some rows can travel a batch ahead: config.look_ahead was set, and a group supports it
  (look_ahead.h). Not collective; the result is the same on all ranks.
*/
PetscBool TrsShardedEbcLooksAhead(TrsShardedEbc ebc);

/*
  Send rows of the next training batch, whose input dist is done, during a step of the batch in
  `slot`. LookAhead must be called between ForwardStart and ForwardWait of `slot`, and SendAhead
  between its ForwardWait and BackwardStart. Optional. The next training batch must then be `next`,
  and the tables must not change between the BackwardUpdate of `slot` and the forward of `next`.
*/
PetscErrorCode TrsShardedEbcLookAhead(TrsShardedEbc ebc, int slot, int next, TrsStream stream);
PetscErrorCode TrsShardedEbcSendAhead(TrsShardedEbc ebc, TrsStream stream);

/* After SendAhead, end the look-ahead without the forward of `next`. */
PetscErrorCode TrsShardedEbcCancelAhead(TrsShardedEbc ebc, TrsStream stream);

/*
  Print the share of bags that travelled ahead, if bags were sent to other hosts so. Collective on
  comm, which has the ranks of the collection.
*/
PetscErrorCode TrsShardedEbcLookAheadView(TrsShardedEbc ebc, MPI_Comm comm);

/*
  If the model reads vectors in place (TrsShardedEbcConfig.in_place): end a forward that no backward
  follows. Must be called after the model has read the vectors.
*/
PetscErrorCode TrsShardedEbcForwardEnd(TrsShardedEbc ebc, TrsStream stream);

/*
  True if a lookup on this rank has a placement (embed/placement.h), such as a cache. Otherwise the
  next three functions do nothing.
*/
PetscBool TrsShardedEbcIsPlaced(TrsShardedEbc ebc);

/*
  Before the forward of the slot's batch, copy its rows to their placement, such as a cache. The
  input dist must be done. Not collective.
*/
PetscErrorCode TrsShardedEbcPrefetch(TrsShardedEbc ebc, int slot, TrsStream stream);

/* End a batch without a backward, and release its rows in the placement. Not collective. */
PetscErrorCode TrsShardedEbcEvaluated(TrsShardedEbc ebc, int slot, TrsStream stream);

/*
  Write changed rows back from caches and other placements to the tables, so that later work in the
  stream may read the tables. drop: also empty the placements, so that the tables may be changed.
  Batches in flight then find their rows again. Not collective.
*/
PetscErrorCode TrsShardedEbcSettle(TrsShardedEbc ebc, TrsStream stream, PetscBool drop);

/*
  Caches returns the number of this rank's caches. CacheInfo returns information about cache i,
  after it has waited for the stream. Not collective.
*/
int TrsShardedEbcCaches(TrsShardedEbc ebc);
PetscErrorCode TrsShardedEbcCacheInfo(TrsShardedEbc ebc, int i, TrsStream stream, TrsRowCacheInfo *info);

/*
  The two steps of the backward. `grad` is the gradient of the pooled matrix. The calls clamp its
  embedding columns (max_gradient), round them to output_dtype, and may overwrite them.
*/
PetscErrorCode TrsShardedEbcBackwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                          const TrsPooledMatrix *grad);
PetscErrorCode TrsShardedEbcBackwardUpdate(TrsShardedEbc ebc, int slot, TrsStream stream,
                                           const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args);

/*
  TrsShardedEbcAddState - Add the tables and their optimizer states to a checkpoint's list, with
    functions through which io/ accesses device memory and caches.

  Quantised tables add nothing. Not collective.

  In: stream  the stream that changes the tensors; files wait for it
      after   event after which caches may be written back, or NULL
*/
PetscErrorCode TrsShardedEbcAddState(TrsShardedEbc ebc, TrsStream stream, TrsEvent after, TrsState *state);
