/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ModelParallel is a DLRM whose tables are sharded and whose dense layers are replicated. It runs
  forward, backward and update of one batch.

  Source: TorchRec DistributedModelParallel (torchrec.distributed.model_parallel), FusedOptimizer.

  Streams: "memcpy" brings batches to the device, "data_dist" brings their ids to the shards,
  "prefetch" brings rows into caches, "results" takes the loss back, and "compute" does everything
  else. Events order the streams. Slots are used in turn, so that work on one batch does not wait
  for work on another only because both use the same memory. A CPU's streams run inline.

  A batch takes a slot (shard/sharding.h). CopyStart brings the batch to the device, InputDist*
  brings its ids to the shards, and Forward uses them. The batch's loss comes back in the same slot.
  A batch ends with Backward in slots 0 .. TRS_TRAINING_SLOTS - 1, and with Loss in the evaluation
  slots, which follow.

  Exchanges run under compute: pooled rows under the dense arch, gradients of rows and of dense
  layers under the rest of the backward.
*/
#pragma once

#include "data/reader.h"
#include "model/dlrm.h"
#include "optim/schedule.h"
#include "optim/sparse_optimizer.h"
#include "shard/sharded_ebc.h"
#include "spec/dense_facts.h"
#include "train/dense_allreduce.h"

typedef struct {
  const TrsCommGroups *groups; /* all ranks, for the dense layers */
  /* The ranks that the plan is for, for the tables: `groups`, or with -plan_replicas one copy's. */
  const TrsCommGroups *shards;
  TrsComm owners; /* the owners of the same shards in all copies; NULL: there is one copy */
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsTableConfigs *tables;
  const TrsShardingPlan *plan;
  int num_dense;
  int64_t max_batch; /* largest batch of this rank that the dense layers take at once */
  /* Such batches of a training step, whose gradients are summed (-accumulate_steps); 0 is 1. */
  int64_t accumulate;
  uint64_t seed;
  PetscBool training; /* whether there are gradients, optimizer states and their exchanges */
  /* Tables are rows of TRS_ROWS_TBE for lookups, which are zero until quant/ fills them.
     Never in training. */
  PetscBool quantised;
  PetscBool keeps_embeddings; /* TrsModelParallelEmbeddings() will be called */
  PetscBool evaluates;        /* in training: evaluations come between its steps */
} TrsModelParallelConfig;

typedef struct TrsModelParallelImpl *TrsModelParallel;

extern const TrsOptionGroup trs_model_parallel_options; /* -reproducible */

/*
  Build model, shards, exchanges and optimizers. The dense layers have their initial values, the
  tables are zero. config's pointers are borrowed. Collective. Errors: OPTION, MEMORY.
*/
PetscErrorCode TrsModelParallelCreate(TrsOptions options, const TrsModelParallelConfig *config,
                                      TrsModelParallel *model);

/*
  TrsModelParallelDescribeDense - What the planner asks of a model's dense layers.

  Not collective.

  In:     tables     whose embeddings the model takes
          num_dense  dense features
  Errors: OPTION
*/
PetscErrorCode TrsModelParallelDescribeDense(TrsOptions options, const TrsTableConfigs *tables, int num_dense,
                                             TrsDenseFacts *facts);

/*
  TrsModelParallelDenseWork - The work of a model's layers, for the prediction of a step.

  Not collective. In: as for TrsModelParallelDescribeDense(). Errors: OPTION, MEMORY
*/
PetscErrorCode TrsModelParallelDenseWork(TrsOptions options, const TrsTableConfigs *tables, int num_dense,
                                         TrsDlrmWork *work);

/*
  Give the tables their initial values, unless a checkpoint or quant/ gives them others. Not
  collective.
*/
PetscErrorCode TrsModelParallelFillTables(TrsModelParallel model);
PetscErrorCode TrsModelParallelDestroy(TrsModelParallel *model);

/*
  Add everything that a checkpoint holds: tables (not quantised ones), dense layers, and in training
  the optimizers' states. Not collective.
*/
PetscErrorCode TrsModelParallelAddState(TrsModelParallel model, TrsState *state);

/*
  Take note of what a training's checkpoint held: the average of the weights (-ema_decay) goes on if
  it was read, else it begins with the next step. Call this after a checkpoint was read into
  `state`. Not collective.
*/
void TrsModelParallelStateWasRead(TrsModelParallel model, const TrsState *state);

/*
  Set the updates that were done before the optimizers' states began: adam and its like count theirs
  from there, schedules count all. states_from: [TRS_STATES_KINDS]. Not collective.
*/
void TrsModelParallelStatesFrom(TrsModelParallel model, const int64_t *states_from);

/*
  Exchange the weights of the dense layers with their average (-ema_decay), and with the next call
  back: an evaluation is between two calls. Not collective.
*/
PetscErrorCode TrsModelParallelSwapAverage(TrsModelParallel model);

/* This rank's shards, borrowed until TrsModelParallelDestroy(). */
const TrsEmbeddingShards *TrsModelParallelShards(TrsModelParallel model);

/*
  Start the copy of a reader's batch to the device, ahead of its input dist. The slot's last batch
  must have had its Backward, or in an evaluation its Forward. If this function is not called,
  InputDistStart makes the copy. On a CPU there is nothing to do. The batch is borrowed until it
  ends. Not collective.
*/
PetscErrorCode TrsModelParallelCopyStart(TrsModelParallel model, int slot, const TrsBatch *batch);

/*
  The three parts of a batch's input dist (src/RULES.md, section 14). The batch is borrowed until
  the slot is used again. Collective.
*/
PetscErrorCode TrsModelParallelInputDistStart(TrsModelParallel model, int slot, const TrsBatch *batch);
PetscErrorCode TrsModelParallelInputDistTensors(TrsModelParallel model, int slot);
PetscErrorCode TrsModelParallelInputDistWait(TrsModelParallel model, int slot);

/*
  Bring the rows of a batch into the device's caches, under the work of the previous batch
  (-pipeline prefetch_sparse_dist). The batch's input dist must be done. Call this after the
  previous batch's Forward, and before its Backward if it has one. If it was not called, the batch's
  Forward does this work. Without caches there is nothing to do. Not collective.
*/
PetscErrorCode TrsModelParallelPrefetch(TrsModelParallel model, int slot);

/*
  TrsModelParallelForward - Lookup, dense arch, interaction, over arch, loss.

  Collective. The host does not wait for the device.

  Out:    predictions  host [B, columns of all tasks], valid after TrsModelParallelLosses() and
                       borrowed until the next Forward, on a device until the slot's next one. May
                       be NULL
*/
PetscErrorCode TrsModelParallelForward(TrsModelParallel model, int slot, const TrsBatch *batch,
                                       const float **predictions);

/*
  TrsModelParallelLosses - The sums of the losses of the slot's samples, [tasks].

  The samples are those of this rank, weighted, and the tasks' weights are not in the sums. With
  -reproducible or -accumulate_steps, rank 0 gets the sums of all samples and the other ranks get 0.
  Without labels the sums are 0. Not collective. The host waits for the slot's Forward, but not for
  work that was started after it. A batch of an evaluation is then over and gives back its parts of
  caches.
*/
PetscErrorCode TrsModelParallelLosses(TrsModelParallel model, int slot, double *losses);

/* The model's learning tasks. Borrowed until TrsModelParallelDestroy(). Not collective. */
const TrsTaskConfigs *TrsModelParallelTasks(TrsModelParallel model);

/*
  Tell whether the device works independently of the host. Then the loss should be asked for after
  the backward has been started.
*/
PetscBool TrsModelParallelIsAsynchronous(TrsModelParallel model);

/*
  Tell whether the next Forward may be started before this one's Loss is asked for. With
  -reproducible or -accumulate_steps it may not, because the model keeps the losses of only one
  batch.
*/
PetscBool TrsModelParallelForwardsAhead(TrsModelParallel model);

/*
  TrsModelParallelBackward - Backward and the step of both optimizers, after a Forward of the same
    batch with labels.

  Collective.

  In: step  updates done before this one, over the life of the weights (t = step + 1)
*/
PetscErrorCode TrsModelParallelBackward(TrsModelParallel model, int slot, const TrsBatch *batch,
                                        int64_t step);

/*
  TrsModelParallelSynchronise - Make the copies of the tables equal (-plan_replicas), before files
    and evaluations.

  Collective. There is nothing to do without copies, or without an update since the last time.
*/
PetscErrorCode TrsModelParallelSynchronise(TrsModelParallel model);

/*
  The last batch's pooled rows and, after its backward, their gradients, in device memory. They are
  matrices [B, *stride], whose embeddings are the *n_columns columns from the pointers on. Borrowed
  until the next Forward. For a model that keeps_embeddings. Not collective.
*/
PetscErrorCode TrsModelParallelEmbeddings(TrsModelParallel model, const float **pooled, const float **grads,
                                          int64_t *stride, int64_t *n_columns);

/*
  Let every Forward copy its batch's pooled rows to the host from now on, for
  TrsModelParallelPooled(). Not collective.
*/
PetscErrorCode TrsModelParallelKeepPooled(TrsModelParallel model);

/*
  The pooled rows of a feature for this rank's samples of a batch, as the interaction takes them.

  Not collective. Call this where the batch's predictions are valid. They are the same for every
  plan and number of ranks with -reproducible.

  In:     feature  its place among the features of all tables in their order
  Out:    rows     host [B], *stride floats from one to the next, borrowed like the predictions
*/
PetscErrorCode TrsModelParallelPooled(TrsModelParallel model, const TrsBatch *batch, int feature,
                                      const float **rows, int64_t *stride);

/*
  Columns of each of the two towers' outputs, 0 for a model without towers. Not collective.
*/
int64_t TrsModelParallelPairWidth(TrsModelParallel model);

/*
  Let every Forward copy the towers' outputs to the host from now on, for TrsModelParallelPairs().
  Not collective.
*/
PetscErrorCode TrsModelParallelKeepPairs(TrsModelParallel model);

/*
  The towers' outputs of this rank's samples of a batch, host [B, 2 width]: a query's, then its
  candidate's. Valid where the batch's predictions are, and borrowed like them. Not collective.
*/
PetscErrorCode TrsModelParallelPairs(TrsModelParallel model, const TrsBatch *batch, const float **rows);

/*
  Bytes that this rank holds: tables, their optimizer states, and dense parameters with gradients
  and states. Not collective.
*/
PetscErrorCode TrsModelParallelBytes(TrsModelParallel model, int64_t *tables, int64_t *states,
                                     int64_t *dense);

/*
  The part of the tables' and states' bytes that lies in host memory for fused_uvm and
  fused_uvm_caching, and the bytes of the caches. Not collective.
*/
PetscErrorCode TrsModelParallelHostBytes(TrsModelParallel model, int64_t *host_rows, int64_t *caches);

/*
  The number of this rank's caches, and the i-th cache, whose tables are numbered as in the config.
  TrsModelParallelCacheInfo() waits for the device. Not collective.
*/
int TrsModelParallelCaches(TrsModelParallel model);
PetscErrorCode TrsModelParallelCacheInfo(TrsModelParallel model, int i, TrsRowCacheInfo *info);

/* The work of the dense layers. Not collective. */
TrsDlrmWork TrsModelParallelWork(TrsModelParallel model);

/* Print a description of the dense layers on rank 0. Logically collective. */
PetscErrorCode TrsModelParallelView(TrsModelParallel model, MPI_Comm comm);
