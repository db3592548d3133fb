/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ModelParallel: a DLRM whose tables are sharded and whose dense layers are replicated; forward, backward and update of one batch.
  Source: TorchRec DistributedModelParallel (torchrec.distributed.model_parallel), FusedOptimizer.

  A batch takes a slot of the sharded collection (shard/sharded_ebc.h): InputDist* bring its ids to the shards, Forward uses them. What
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
} TrsModelParallelConfig;

typedef struct TrsModelParallelImpl *TrsModelParallel;

/* Build model, shards, exchanges and optimizers. config's pointers are borrowed. Collective. Errors: OPTION, MEMORY */
PetscErrorCode TrsModelParallelCreate(TrsOptions options, const TrsModelParallelConfig *config,
                                      TrsModelParallel *model);
PetscErrorCode TrsModelParallelDestroy(TrsModelParallel *model);

/* Add all that a checkpoint holds: tables, dense layers, and in training the optimizers' states. Not collective. */
PetscErrorCode TrsModelParallelAddState(TrsModelParallel model, TrsState *state);

/* The three parts of a batch's input dist (spec: runtime section 14). Collective. The batch is borrowed until the slot is used again. */
PetscErrorCode TrsModelParallelInputDistStart(TrsModelParallel model, int slot, const TrsBatch *batch);
PetscErrorCode TrsModelParallelInputDistTensors(TrsModelParallel model, int slot);
PetscErrorCode TrsModelParallelInputDistWait(TrsModelParallel model, int slot);

/*
  TrsModelParallelForward - Lookup, dense arch, interaction, over arch, loss.

  Collective.

  Out:    loss_sum     of this rank's samples; 0 without labels. May be NULL
          predictions  [B] probabilities, borrowed until the next Forward. May be NULL
*/
PetscErrorCode TrsModelParallelForward(TrsModelParallel model, int slot, const TrsBatch *batch,
                                       double *loss_sum, const float **predictions);

/*
  TrsModelParallelBackward - Backward and both optimizers' step, after a Forward of the same batch with labels.

  Collective. In: step  updates done before this one, over the life of the weights (t = step + 1)
*/
PetscErrorCode TrsModelParallelBackward(TrsModelParallel model, int slot, const TrsBatch *batch,
                                        int64_t step);

/* Bytes this rank holds: tables, their optimizer states, dense parameters with gradients and states. Not collective. */
PetscErrorCode TrsModelParallelBytes(TrsModelParallel model, int64_t *tables, int64_t *states,
                                     int64_t *dense);

/* Describe the dense layers on rank 0. Logically collective. */
PetscErrorCode TrsModelParallelView(TrsModelParallel model, MPI_Comm comm);
