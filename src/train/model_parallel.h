/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ModelParallel is a DLRM whose tables are sharded and whose dense layers are replicated. It runs
  forward, backward and update of one batch.

  Source: TorchRec DistributedModelParallel (torchrec.distributed.model_parallel), FusedOptimizer.

  Streams: "memcpy" copies batches to the device, "data_dist" sends their ids to the shards,
  "prefetch" copies rows to caches, "results" copies the loss to the host, and "compute" does
  everything else. Events order the streams. Batches use the slots in turn, so that a batch need not
  wait for another batch only because both use the same memory. On a CPU, the work of a stream is
  done at once by the caller.

  A batch uses one slot (shard/sharding.h). CopyStart copies the batch to the device, InputDist*
  sends its ids to the shards, and Forward uses them. The slot also receives the batch's loss. In
  slots 0 .. TRS_TRAINING_SLOTS - 1 a batch ends with Backward. The following slots are for
  evaluations, where a batch ends with Losses.

  Exchanges overlap with compute: the exchange of pooled rows with the dense arch, and the exchange
  of gradients with the rest of the backward.
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
  const TrsCommGroups *groups; /* all ranks; the dense layers use them */
  /* The ranks of the plan, for the tables. They are `groups`, or with -plan_replicas the ranks
     of one copy. */
  const TrsCommGroups *shards;
  TrsComm owners; /* the owners of this rank's shards in all copies; NULL: there is one copy */
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsTableConfigs *tables;
  const TrsShardingPlan *plan;
  int num_dense;
  /* number of samples in the largest batch that this rank's dense layers process at once */
  int64_t max_batch;
  /*
    Number of such batches in a training step (-accumulate_steps). Their gradients are summed. 0
    means 1.
  */
  int64_t accumulate;
  uint64_t seed;
  PetscBool training; /* true: there are gradients, optimizer states, and exchanges of gradients */
  /*
    true: the tables have rows in the format TRS_ROWS_TBE, and are only used for lookups. They are
    zero until quant/ fills them. Must be false in training.
  */
  PetscBool quantised;
  PetscBool keeps_embeddings; /* true: TrsModelParallelEmbeddings() will be called */
  PetscBool evaluates;        /* in training: true if evaluations run between its steps */
  /*
    In training: note which rows change, with a bit for each use (TrsChangesUse). The host must be
    able to read the memory
  */
  unsigned notes_changes;
  /*
    In training: memory of this rank for the saved rows of a snapshot (TrsSnapshotCreate()). 0: no
    snapshots are taken
  */
  int64_t snapshot_bytes;
} TrsModelParallelConfig;

typedef struct TrsModelParallelImpl *TrsModelParallel;

extern const TrsOptionGroup trs_model_parallel_options; /* the option -reproducible */

/*
  Create the model, shards, exchanges and optimizers. The dense layers get their initial values. The
  tables are zero. The pointers in `config` are borrowed. Collective. Errors: OPTION, MEMORY.
*/
PetscErrorCode TrsModelParallelCreate(TrsOptions options, const TrsModelParallelConfig *config,
                                      TrsModelParallel *model);

/*
  TrsModelParallelDescribeDense - Describe a model's dense layers for the planner.

  Not collective.

  In:     tables     tables with the embeddings of the model
          num_dense  number of dense features
  Errors: OPTION
*/
PetscErrorCode TrsModelParallelDescribeDense(TrsOptions options, const TrsTableConfigs *tables, int num_dense,
                                             TrsDenseFacts *facts);

/*
  TrsModelParallelDenseWork - Compute the work of a model's dense layers, for the prediction of a
    step.

  Not collective. In: as for TrsModelParallelDescribeDense(). Errors: OPTION, MEMORY
*/
PetscErrorCode TrsModelParallelDenseWork(TrsOptions options, const TrsTableConfigs *tables, int num_dense,
                                         TrsDlrmWork *work);

/* Initialise the tables. Not needed if a checkpoint or quant/ fills them. Not collective. */
PetscErrorCode TrsModelParallelFillTables(TrsModelParallel model);
PetscErrorCode TrsModelParallelDestroy(TrsModelParallel *model);

/*
  Add all tensors that a checkpoint holds: tables (without quantised ones), dense layers, and in
  training the optimizers' states. Not collective.
*/
PetscErrorCode TrsModelParallelAddState(TrsModelParallel model, TrsState *state);

/*
  Add all tensors of a delta (embed/changes.h): the changed rows of the tables, and everything else
  that a prediction reads. The rows have the type `dtype`, or for TRS_N_DTYPES the type of their
  table. The model must note changes. Not collective.
*/
PetscErrorCode TrsModelParallelAddDelta(TrsModelParallel model, TrsDType dtype, TrsState *state);

/*
  List the changed rows of some uses (TrsChangesList()). Must be called before each delta or
  checkpoint is written, for a checkpoint with all uses. Does nothing if the model notes no changes.
  Not collective.
*/
PetscErrorCode TrsModelParallelListChanges(TrsModelParallel model, unsigned uses);

/* Return the changed rows, which are borrowed, or NULL if the model does not note changes. */
TrsChanges TrsModelParallelChanges(TrsModelParallel model);

/* Return the model's snapshot, which is borrowed, or NULL without config.snapshot_bytes. */
TrsSnapshot TrsModelParallelSnapshot(TrsModelParallel model);

/*
  After a checkpoint was read into `state`, note what it contained. If it had the average of the
  weights (-ema_decay), the training continues this average. Otherwise the average begins with the
  next step. Not collective.
*/
void TrsModelParallelStateWasRead(TrsModelParallel model, const TrsState *state);

/*
  Set the number of updates that were done before the optimizers' states began. Optimizers such as
  adam count only the updates after it. Schedules count all updates. states_from is
  [TRS_STATES_KINDS]. Not collective.
*/
void TrsModelParallelStatesFrom(TrsModelParallel model, const int64_t *states_from);

/*
  Swap the dense layers' weights with their average (-ema_decay). The next call swaps them back. An
  evaluation runs between two calls. Not collective.
*/
PetscErrorCode TrsModelParallelSwapAverage(TrsModelParallel model);

/* Get this rank's shards, borrowed until TrsModelParallelDestroy(). */
const TrsEmbeddingShards *TrsModelParallelShards(TrsModelParallel model);

/*
  Start to copy a reader's batch to the device, before its input dist. The slot's last batch must
  have completed its Backward, or in an evaluation its Forward. If this function is not called,
  InputDistStart makes the copy. On a CPU the call does nothing. The batch is borrowed until it has
  ended. Not collective.
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
  Copy a batch's rows to the device's caches during the work of the previous batch (-pipeline
  prefetch_sparse_dist). The batch's input dist must be done. Must be called after the previous
  batch's Forward, and before its Backward if it has one. Without this call, the batch's Forward
  copies the rows. Without caches the call does nothing. Not collective.
*/
PetscErrorCode TrsModelParallelPrefetch(TrsModelParallel model, int slot);

/*
  True if rows of the next batch can be sent during a step (-ebc_look_ahead). Not collective; the
  result is the same on all ranks.
*/
PetscBool TrsModelParallelLooksAhead(TrsModelParallel model);

/*
  Let the next Forward, of a training batch, also wait for the ids of the batch in slot `next`, and
  send its rows that this batch's update does not change. The ids must be under way, and the batch
  must be trained after this batch. Then InputDistWait must not be called for it. Not collective.
*/
void TrsModelParallelLookAhead(TrsModelParallel model, int next);

/*
  Complete the exchange of rows that travel ahead. Must be called if the batch of the last LookAhead
  is not trained. Collective.
*/
PetscErrorCode TrsModelParallelCancelAhead(TrsModelParallel model);

/* Print how many bags have travelled ahead, if any could. Collective on the model's ranks. */
PetscErrorCode TrsModelParallelLookAheadView(TrsModelParallel model, MPI_Comm comm);

/*
  TrsModelParallelForward - Run the forward: lookup, dense arch, interaction, over arch and loss.

  Collective. The host does not wait for the device.

  Out:    predictions  host [B, columns of all tasks], valid after TrsModelParallelLosses().
                       Borrowed until the next Forward; on a device, until the slot's next Forward.
                       May be NULL
*/
PetscErrorCode TrsModelParallelForward(TrsModelParallel model, int slot, const TrsBatch *batch,
                                       const float **predictions);

/*
  TrsModelParallelLosses - Get the sums of the losses over the slot's samples, [tasks].

  The sums are over this rank's samples, with their weights, but without the tasks' weights. With
  -reproducible or -accumulate_steps, rank 0 gets the sums over all samples and the other ranks get
  0. Without labels the sums are 0. Not collective. The host waits for the slot's Forward, but not
  for work that was started after it. An evaluation's batch ends here and releases its cache lines.
*/
PetscErrorCode TrsModelParallelLosses(TrsModelParallel model, int slot, double *losses);

/*
  Get the parts [n, tasks] that the last Losses() has added up on this rank. They exist only if the
  dense layers work by blocks. In an evaluation with -reproducible a part is the loss of one sample
  (train/blockwise.h). Otherwise *n and *losses are unchanged. Borrowed until the next Forward. Not
  collective.
*/
void TrsModelParallelLossParts(TrsModelParallel model, int64_t *n, const double **losses);

/* Get the tasks that the model learns. Borrowed until TrsModelParallelDestroy(). Not collective. */
const TrsTaskConfigs *TrsModelParallelTasks(TrsModelParallel model);

/*
  True if the device works independently of the host. The caller should then start the backward
  before it reads the loss.
*/
PetscBool TrsModelParallelIsAsynchronous(TrsModelParallel model);

/*
  True if the next Forward may start before the caller reads the loss of this Forward. False with
  -reproducible or -accumulate_steps, because the model keeps the losses of only one batch.
*/
PetscBool TrsModelParallelForwardsAhead(TrsModelParallel model);

/*
  True if a table assigns rows to ids (id_map zch). The ids of a batch then get their rows after the
  update of the previous batch, and a pipeline must not wait for the rows earlier.
*/
PetscBool TrsModelParallelGivesRows(TrsModelParallel model);

/*
  TrsModelParallelBackward - Run the backward, and a step of both optimizers. Must be called after a
    Forward on the same batch with labels.

  Collective.

  In: step  number of all earlier updates of the weights, also in earlier runs (t = step + 1)
*/
PetscErrorCode TrsModelParallelBackward(TrsModelParallel model, int slot, const TrsBatch *batch,
                                        int64_t step);

/*
  Get the number of updates after which the copies of the tables are next averaged (-plan_replicas),
  unless an evaluation averages them earlier. `updates` is the present number of updates, including
  those of earlier runs. If the copies are equal, the result is `updates`. Not collective; the same
  on all ranks.
*/
int64_t TrsModelParallelNextMean(TrsModelParallel model, int64_t updates);

/*
  TrsModelParallelSynchronise - Make the copies of the tables equal (-plan_replicas). Called before
    files are written and evaluations run.

  Collective. Does nothing if there is one copy, or if there was no update since the last call.
*/
PetscErrorCode TrsModelParallelSynchronise(TrsModelParallel model);

/*
  Get the pooled rows of the last batch and, after its backward, their gradients, in device memory.
  Both are matrices [B, *stride]. The pointers refer to the first of the *n_columns columns with
  embeddings. Borrowed until the next Forward. keeps_embeddings must be set. Not collective.
*/
PetscErrorCode TrsModelParallelEmbeddings(TrsModelParallel model, const float **pooled, const float **grads,
                                          int64_t *stride, int64_t *n_columns);

/*
  From now on, make each Forward copy its batch's pooled rows to the host, for
  TrsModelParallelPooled(). Not collective.
*/
PetscErrorCode TrsModelParallelKeepPooled(TrsModelParallel model);

/*
  Get a feature's pooled rows for this rank's samples in a batch, as the interaction reads them.

  Not collective. Must be called while the batch's predictions are valid. With -reproducible the
  rows are the same for every plan and number of ranks.

  In:     feature  index of the feature among the features of all tables, in their order
  Out:    rows     host [B], *stride floats from one row to the next, borrowed like the predictions
*/
PetscErrorCode TrsModelParallelPooled(TrsModelParallel model, const TrsBatch *batch, int feature,
                                      const float **rows, int64_t *stride);

/* The number of columns in each tower's output. 0 for a model without towers. Not collective. */
int64_t TrsModelParallelPairWidth(TrsModelParallel model);

/*
  From now on, make each Forward copy the towers' outputs to the host, for TrsModelParallelPairs().
  Not collective.
*/
PetscErrorCode TrsModelParallelKeepPairs(TrsModelParallel model);

/*
  Get the towers' outputs for this rank's samples in a batch, on the host: [B, 2 width], first the
  query's output, then the candidate's. Valid and borrowed like the batch's predictions. Not
  collective.
*/
PetscErrorCode TrsModelParallelPairs(TrsModelParallel model, const TrsBatch *batch, const float **rows);

/*
  Get the bytes that this rank holds for tables, for the tables' optimizer states, and for dense
  parameters with their gradients and states. Not collective.
*/
PetscErrorCode TrsModelParallelBytes(TrsModelParallel model, int64_t *tables, int64_t *states,
                                     int64_t *dense);

/*
  Get the bytes of tables and states that are in host memory for fused_uvm and fused_uvm_caching,
  and the bytes of the caches. Not collective.
*/
PetscErrorCode TrsModelParallelHostBytes(TrsModelParallel model, int64_t *host_rows, int64_t *caches);

/*
  Caches returns the number of this rank's caches, and CacheInfo returns information about cache i.
  The tables in the information have the config's indices. CacheInfo waits for the device. Not
  collective.
*/
int TrsModelParallelCaches(TrsModelParallel model);
PetscErrorCode TrsModelParallelCacheInfo(TrsModelParallel model, int i, TrsRowCacheInfo *info);

/* The work of the dense layers. Not collective. */
TrsDlrmWork TrsModelParallelWork(TrsModelParallel model);

/* Print a description of the dense layers on rank 0. Logically collective. */
PetscErrorCode TrsModelParallelView(TrsModelParallel model, MPI_Comm comm);
