/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ModelParallel: a DLRM whose tables are sharded and whose dense layers are replicated; forward, backward and update of one batch.
  Source: TorchRec DistributedModelParallel (torchrec.distributed.model_parallel), FusedOptimizer.

  Streams: "memcpy" brings batches to the device, "data_dist" their ids to the shards, "prefetch" rows into caches, "compute" does the rest, "results" takes
  the loss back; events order them, and slots are used in turn, so that none waits for another's work on the same batch only. A CPU's streams run inline.

  A batch takes a slot (shard/sharding.h): CopyStart brings it to the device, InputDist* its ids to the shards, Forward uses them; there its loss comes
  back. In slots 0 .. TRS_TRAINING_SLOTS - 1 a Backward ends it, in an evaluation's, which follow these, Loss. What
  travels does so under compute: pooled rows under the dense arch, gradients of rows and of dense layers under the rest of the backward.
*/
#pragma once

#include "data/reader.h"
#include "model/dlrm.h"
#include "optim/schedule.h"
#include "optim/sparse_optimizer.h"
#include "shard/sharded_ebc.h"
#include "train/dense_allreduce.h"

typedef struct {
  const TrsCommGroups *groups;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsTableConfigs *tables;
  const TrsShardingPlan *plan;
  int num_dense;
  int64_t max_batch; /* largest B of a training or evaluation batch on this rank */
  uint64_t seed;
  PetscBool training; /* with gradients, optimizer states and their exchanges? */
  PetscBool
      quantised; /* tables are rows of TRS_ROWS_TBE for lookups, zero until quant/ fills them; never in training */
} TrsModelParallelConfig;

typedef struct TrsModelParallelImpl *TrsModelParallel;

extern const TrsOptionGroup trs_model_parallel_options; /* -reproducible */

/*
  Build model, shards, exchanges and optimizers; the dense layers have their initial values, tables are zero. config's pointers are borrowed. Collective.
  Errors: OPTION, MEMORY
*/
PetscErrorCode TrsModelParallelCreate(TrsOptions options, const TrsModelParallelConfig *config,
                                      TrsModelParallel *model);
/* Give the tables their initial values, unless a checkpoint or quant/ gives them others. Not collective. */
PetscErrorCode TrsModelParallelFillTables(TrsModelParallel model);
PetscErrorCode TrsModelParallelDestroy(TrsModelParallel *model);

/* Add all that a checkpoint holds: tables (not quantised ones), dense layers, and in training the optimizers' states. Not collective. */
PetscErrorCode TrsModelParallelAddState(TrsModelParallel model, TrsState *state);

/* This rank's shards. Borrowed until Destroy. */
const TrsEmbeddingShards *TrsModelParallelShards(TrsModelParallel model);

/*
  Start the copy of a batch of the reader to the device, ahead of its input dist; the slot's last batch has had its Backward, or Forward in an evaluation.
  Where it was not called InputDistStart does it. Nothing on a CPU. Not collective. The batch is borrowed until it ends.
*/
PetscErrorCode TrsModelParallelCopyStart(TrsModelParallel model, int slot, const TrsBatch *batch);

/*
  The three parts of a batch's input dist (src/RULES.md, section 14). The batch is borrowed until the
  slot is used again. Collective.
*/
PetscErrorCode TrsModelParallelInputDistStart(TrsModelParallel model, int slot, const TrsBatch *batch);
PetscErrorCode TrsModelParallelInputDistTensors(TrsModelParallel model, int slot);
PetscErrorCode TrsModelParallelInputDistWait(TrsModelParallel model, int slot);

/*
  Bring the rows of a batch whose input dist is done into the device's caches, under the work of the batch before (-pipeline prefetch_sparse_dist). After
  that batch's Forward, before its Backward where it has one; a Forward that finds it undone does it itself. Nothing without caches. Not collective.
*/
PetscErrorCode TrsModelParallelPrefetch(TrsModelParallel model, int slot);

/*
  TrsModelParallelForward - Lookup, dense arch, interaction, over arch, loss.

  Collective. The host does not wait for the device.

  Out:    predictions  host [B] probabilities, there after TrsModelParallelLoss(): borrowed until the next Forward, on a device the slot's next. NULL: none
*/
PetscErrorCode TrsModelParallelForward(TrsModelParallel model, int slot, const TrsBatch *batch,
                                       const float **predictions);

/*
  TrsModelParallelLoss - The sum of the slot's samples' losses: of this rank's (with -reproducible of all, on rank 0, and 0 on the others); 0 without labels.

  Not collective. The host waits for the slot's Forward, not for what was started after it. An evaluation's batch is over then, and gives back what it
  holds of caches.
*/
PetscErrorCode TrsModelParallelLoss(TrsModelParallel model, int slot, double *loss_sum);

/* Does work go on behind the host's back, so that the loss is better asked for once the backward has been started? */
PetscBool TrsModelParallelIsAsynchronous(TrsModelParallel model);

/* So that the next Forward may be started before this one's Loss is asked for? Not with -reproducible, which keeps the losses of one batch. */
PetscBool TrsModelParallelForwardsAhead(TrsModelParallel model);

/*
  TrsModelParallelBackward - Backward and both optimizers' step, after a Forward of the same batch with labels.

  Collective. In: step  updates done before this one, over the life of the weights (t = step + 1)
*/
PetscErrorCode TrsModelParallelBackward(TrsModelParallel model, int slot, const TrsBatch *batch,
                                        int64_t step);

/*
  The last batch's pooled rows and, after its backward, their gradients, in device memory: [B, *stride] with the embeddings in *n_columns columns from the
  pointers on. Borrowed until the next Forward. Not collective.
*/
PetscErrorCode TrsModelParallelEmbeddings(TrsModelParallel model, const float **pooled, const float **grads,
                                          int64_t *stride, int64_t *n_columns);

/* Bytes this rank holds: tables, their optimizer states, dense parameters with gradients and states. Not collective. */
PetscErrorCode TrsModelParallelBytes(TrsModelParallel model, int64_t *tables, int64_t *states,
                                     int64_t *dense);

/* Of the tables' and states' bytes, those in host memory for fused_uvm and fused_uvm_caching; and those of the caches. Not collective. */
PetscErrorCode TrsModelParallelHostBytes(TrsModelParallel model, int64_t *host_rows, int64_t *caches);

/* This rank's caches: how many, and the i-th, whose tables are numbered as in the config. Info waits for the device. Not collective. */
int TrsModelParallelCaches(TrsModelParallel model);
PetscErrorCode TrsModelParallelCacheInfo(TrsModelParallel model, int i, TrsRowCacheInfo *info);

/* Describe the dense layers on rank 0. Logically collective. */
PetscErrorCode TrsModelParallelView(TrsModelParallel model, MPI_Comm comm);
