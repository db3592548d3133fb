/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ModelParallel is a DLRM whose tables are sharded and whose dense layers are replicated. It runs
  forward, backward and update of one batch.

  Source: TorchRec DistributedModelParallel (torchrec.distributed.model_parallel), FusedOptimizer.

  Streams: "memcpy" brings batches to the device, "data_dist" brings their ids to the shards,
  "prefetch" brings rows into caches, "results" takes the loss back, and "compute" does everything
  else. Events order the streams. Work uses the slots in turn, so that one batch need not wait for
  another only because both use the same memory. A CPU's streams run inline.

  A batch takes a slot (shard/sharding.h). CopyStart brings the batch to the device, InputDist*
  brings its ids to the shards, and Forward uses them. The batch's loss comes back in the same slot.
  A batch ends with Backward in slots 0 .. TRS_TRAINING_SLOTS - 1, and with Loss in the evaluation
  slots, which follow.

  Exchanges overlap with compute: pooled rows with the dense arch, gradients of rows and dense
  layers with the rest of the backward.
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
  /* The plan's ranks, for the tables: `groups`, or with -plan_replicas one copy's ranks. */
  const TrsCommGroups *shards;
  TrsComm owners; /* the owners of the same shards in all copies; NULL: there is one copy */
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsTableConfigs *tables;
  const TrsShardingPlan *plan;
  int num_dense;
  int64_t max_batch; /* the largest batch of this rank that the dense layers process at once */
  /*
    Number of such batches in a training step, whose gradients are summed (-accumulate_steps). 0
    means 1.
  */
  int64_t accumulate;
  uint64_t seed;
  PetscBool training; /* are there gradients, optimizer states and their exchanges? */
  /*
    Tables have rows in the format TRS_ROWS_TBE, only for lookups. They are zero until quant/ fills
    them. Never in training.
  */
  PetscBool quantised;
  PetscBool keeps_embeddings; /* TrsModelParallelEmbeddings() will be called */
  PetscBool evaluates;        /* in training: evaluations run between its steps */
} TrsModelParallelConfig;

typedef struct TrsModelParallelImpl *TrsModelParallel;

extern const TrsOptionGroup trs_model_parallel_options; /* -reproducible */

/*
  Build model, shards, exchanges and optimizers. The dense layers get their initial values, the
  tables are zero. config's pointers are borrowed. Collective. Errors: OPTION, MEMORY.
*/
PetscErrorCode TrsModelParallelCreate(TrsOptions options, const TrsModelParallelConfig *config,
                                      TrsModelParallel *model);

/*
  TrsModelParallelDescribeDense - Describe a model's dense layers for the planner.

  Not collective.

  In:     tables     tables with the model's embeddings
          num_dense  dense features
  Errors: OPTION
*/
PetscErrorCode TrsModelParallelDescribeDense(TrsOptions options, const TrsTableConfigs *tables, int num_dense,
                                             TrsDenseFacts *facts);

/*
  TrsModelParallelDenseWork - Compute the work of a model's layers, for the prediction of a step.

  Not collective. In: as for TrsModelParallelDescribeDense(). Errors: OPTION, MEMORY
*/
PetscErrorCode TrsModelParallelDenseWork(TrsOptions options, const TrsTableConfigs *tables, int num_dense,
                                         TrsDlrmWork *work);

/* Initialise the tables, unless a checkpoint or quant/ fills them. Not collective. */
PetscErrorCode TrsModelParallelFillTables(TrsModelParallel model);
PetscErrorCode TrsModelParallelDestroy(TrsModelParallel *model);

/*
  Add everything that a checkpoint holds: tables (not quantised ones), dense layers, and in training
  the optimizers' states. Not collective.
*/
PetscErrorCode TrsModelParallelAddState(TrsModelParallel model, TrsState *state);

/*
  Record what a training's checkpoint contained: the average of the weights (-ema_decay) continues
  if it was read. Otherwise it begins with the next step. Must be called after a checkpoint was read
  into `state`. Not collective.
*/
void TrsModelParallelStateWasRead(TrsModelParallel model, const TrsState *state);

/*
  Set the number of updates done before the optimizers' states began. Optimizers such as adam count
  their updates from there, schedules count all updates. states_from: [TRS_STATES_KINDS]. Not
  collective.
*/
void TrsModelParallelStatesFrom(TrsModelParallel model, const int64_t *states_from);

/*
  Swap the dense layers' weights with their average (-ema_decay). The next call swaps them back: an
  evaluation runs between two calls. Not collective.
*/
PetscErrorCode TrsModelParallelSwapAverage(TrsModelParallel model);

/* This rank's shards, borrowed until TrsModelParallelDestroy(). */
const TrsEmbeddingShards *TrsModelParallelShards(TrsModelParallel model);

/*
  Start the copy of a reader's batch to the device, ahead of its input dist. The slot's last batch
  must have completed its Backward, or in an evaluation its Forward. If this function is not called,
  InputDistStart makes the copy. On a CPU the call does nothing. The batch is borrowed until it
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
  Bring a batch's rows into the device's caches, during the work of the previous batch (-pipeline
  prefetch_sparse_dist). The batch's input dist must be done. Must be called after the previous
  batch's Forward, and before its Backward if it has one. Without this call, the batch's Forward
  does this work. Without caches the call does nothing. Not collective.
*/
PetscErrorCode TrsModelParallelPrefetch(TrsModelParallel model, int slot);

/*
  TrsModelParallelForward - Lookup, dense arch, interaction, over arch, loss.

  Collective. The host does not wait for the device.

  Out:    predictions  host [B, columns of all tasks], valid after TrsModelParallelLosses().
                       Borrowed until the next Forward, on a device until the slot's next Forward.
                       May be NULL
*/
PetscErrorCode TrsModelParallelForward(TrsModelParallel model, int slot, const TrsBatch *batch,
                                       const float **predictions);

/*
  TrsModelParallelLosses - Get the sums of the losses over the slot's samples, [tasks].

  The samples are this rank's, with their weights. The tasks' weights are not applied. With
  -reproducible or -accumulate_steps, rank 0 gets the sums over all samples and the other ranks get
  0. Without labels the sums are 0. Not collective. The host waits for the slot's Forward, but not
  for work that was started after it. An evaluation's batch ends here and releases its cache lines.
*/
PetscErrorCode TrsModelParallelLosses(TrsModelParallel model, int slot, double *losses);

/*
  The parts [n, tasks] that the last Losses() has added up on this rank, where the model keeps them:
  with -reproducible, in an evaluation, those of samples (train/blockwise.h). Elsewhere *n and
  *losses stay. Borrowed until the next Forward. Not collective.
*/
void TrsModelParallelLossParts(TrsModelParallel model, int64_t *n, const double **losses);

/* The model's learning tasks. Borrowed until TrsModelParallelDestroy(). Not collective. */
const TrsTaskConfigs *TrsModelParallelTasks(TrsModelParallel model);

/*
  True if the device works independently of the host. The loss should then be read only after the
  backward has been started.
*/
PetscBool TrsModelParallelIsAsynchronous(TrsModelParallel model);

/*
  True if the next Forward may start before this Forward's loss is read. With -reproducible or
  -accumulate_steps it must not, because the model keeps the losses of only one batch.
*/
PetscBool TrsModelParallelForwardsAhead(TrsModelParallel model);

/*
  True if some table gives rows to ids (id_map zch). The ids of a batch then get their rows after
  the update of the batch before it, and a pipeline must not wait for them earlier.
*/
PetscBool TrsModelParallelGivesRows(TrsModelParallel model);

/*
  TrsModelParallelBackward - Run the backward and both optimizers' step, after a Forward on the same
  batch with labels.

  Collective.

  In: step  updates of the weights before this one, over their whole life (t = step + 1)
*/
PetscErrorCode TrsModelParallelBackward(TrsModelParallel model, int slot, const TrsBatch *batch,
                                        int64_t step);

/*
  Get the number of updates after which the copies of the tables are next averaged (-plan_replicas),
  if no evaluation does it earlier. It is `updates`, the present number over the weights' whole
  life, if the copies are equal. Not collective; the same on all ranks.
*/
int64_t TrsModelParallelNextMean(TrsModelParallel model, int64_t updates);

/*
  TrsModelParallelSynchronise - Make the copies of the tables equal (-plan_replicas), before files
  are written and evaluations run.

  Collective. Does nothing if there is one copy, or if there was no update since the last call.
*/
PetscErrorCode TrsModelParallelSynchronise(TrsModelParallel model);

/*
  Get the last batch's pooled rows and, after its backward, their gradients, in device memory. Both
  are matrices [B, *stride], with the embeddings in the *n_columns columns from the pointers on.
  Borrowed until the next Forward. The model must have keeps_embeddings. Not collective.
*/
PetscErrorCode TrsModelParallelEmbeddings(TrsModelParallel model, const float **pooled, const float **grads,
                                          int64_t *stride, int64_t *n_columns);

/*
  Make every later Forward copy its batch's pooled rows to the host, for TrsModelParallelPooled().
  Not collective.
*/
PetscErrorCode TrsModelParallelKeepPooled(TrsModelParallel model);

/*
  Get a feature's pooled rows for this rank's samples in a batch, as the interaction reads them.

  Not collective. Must be called while the batch's predictions are valid. With -reproducible the
  rows are the same for every plan and number of ranks.

  In:     feature  its index among the features of all tables in their order
  Out:    rows     host [B], *stride floats from one row to the next, borrowed like the predictions
*/
PetscErrorCode TrsModelParallelPooled(TrsModelParallel model, const TrsBatch *batch, int feature,
                                      const float **rows, int64_t *stride);

/* Columns in each of the two towers' outputs; 0 for a model without towers. Not collective. */
int64_t TrsModelParallelPairWidth(TrsModelParallel model);

/*
  Make every later Forward copy the towers' outputs to the host, for TrsModelParallelPairs(). Not
  collective.
*/
PetscErrorCode TrsModelParallelKeepPairs(TrsModelParallel model);

/*
  Get the towers' outputs for this rank's samples in a batch, host [B, 2 width]: the query's, then
  the candidate's. Valid and borrowed like the batch's predictions. Not collective.
*/
PetscErrorCode TrsModelParallelPairs(TrsModelParallel model, const TrsBatch *batch, const float **rows);

/*
  Get the bytes that this rank holds: tables, their optimizer states, and dense parameters with
  gradients and states. Not collective.
*/
PetscErrorCode TrsModelParallelBytes(TrsModelParallel model, int64_t *tables, int64_t *states,
                                     int64_t *dense);

/*
  Get the part of the tables' and states' bytes that is in host memory for fused_uvm and
  fused_uvm_caching, and the bytes of the caches. Not collective.
*/
PetscErrorCode TrsModelParallelHostBytes(TrsModelParallel model, int64_t *host_rows, int64_t *caches);

/*
  The number of this rank's caches, and cache i. Its tables have the config's numbers.
  TrsModelParallelCacheInfo() waits for the device. Not collective.
*/
int TrsModelParallelCaches(TrsModelParallel model);
PetscErrorCode TrsModelParallelCacheInfo(TrsModelParallel model, int i, TrsRowCacheInfo *info);

/* The work of the dense layers. Not collective. */
TrsDlrmWork TrsModelParallelWork(TrsModelParallel model);

/* Print a description of the dense layers on rank 0. Logically collective. */
PetscErrorCode TrsModelParallelView(TrsModelParallel model, MPI_Comm comm);
