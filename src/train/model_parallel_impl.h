/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What ModelParallel is made of: set-up (model_parallel_setup.c), its state in checkpoints (model_parallel_state.c), the steps of a batch
  (model_parallel.c) and the dense layers' work in them, one of two (dense_work.c). Internal to train/.
*/
#pragma once

#include "device/timeline.h"
#include "train/blockwise.h"
#include "train/device_batch.h"
#include "train/model_parallel.h"

/* A batch from its copy to the end of its backward, or of its forward in an evaluation. */
typedef struct {
  TrsDeviceBatch copy;
  TrsEvent ready;                    /* its ids are at the shards */
  TrsEvent loss_ready;               /* what its forward gives the host, that is: */
  TrsPinnedBuffer loss, predictions; /* one double; [B] */
} TrsModelSlot;

/* Who does which part of the dense layers' work, and how their gradients are summed: chosen at set-up. */
typedef struct {
  /* Pooled rows to their samples, dense layers, loss. What the backward of a training batch may do at once it does. */
  PetscErrorCode (*forward)(TrsModelParallel model, int slot, const TrsBatch *batch, float scale,
                            const float **predictions);
  /* Dense layers' backward, gradients of pooled rows to their shards, the tables' update; the layers' gradients are summed. */
  PetscErrorCode (*backward)(TrsModelParallel model, int slot, const TrsBatch *batch,
                             const TrsSparseOptimizerArgs *args);
} TrsDenseWork;

struct TrsModelParallelImpl {
  TrsModelParallelConfig config;
  TrsEmbeddingShards shards;
  TrsShardedEbc ebc;
  TrsDlrm dlrm;
  TrsDenseOptimizer dense_optimizer;
  TrsDenseAllreduce allreduce;
  TrsSparseOptimizers optimizers;
  TrsSparseOptimizerArgs *step_args; /* [optimizers.n] with a step's learning rates */
  TrsSchedule schedule;
  TrsPooledMatrix pooled, grad; /* the model's interaction input and its gradient */
  int64_t *columns;             /* [features] first of each one's in them */
  TrsPositionWeight *position;  /* [features] */
  int64_t n_columns;            /* embedding columns of the model's matrix: they are its last */
  TrsStream stream, memcpy, data_dist, results, prefetch;
  PetscBool cached; /* has this rank caches of tables' rows? If not nothing uses `prefetch` and these */
  TrsEvent computed, prefetched; /* the prefetch may begin; the last one is done */
  PetscBool updated;             /* have rows changed since the last prefetch? */
  TrsModelSlot slot[TRS_SHARD_SLOTS];
  const TrsDenseWork *dense;
  TrsBlockwise blockwise; /* with -reproducible, else NULL */
};

/* A stage of the step begins, for the host and on the compute stream: TrsStageSwitch() and TrsTimelineMark(). */
PetscErrorCode TrsModelParallelEnter(TrsModelParallel m, TrsStage stage, TrsStage *before);

/* The tables' update, once no prefetch changes their caches any more: between BackwardStart and the next use of the rows. */
PetscErrorCode TrsModelParallelUpdateTables(TrsModelParallel model, int slot, const TrsPooledMatrix *grad,
                                            const TrsSparseOptimizerArgs *args);

/* Every rank its own samples, under the exchanges and the all-reduce. */
extern const TrsDenseWork trs_dense_by_ranks;

/* -reproducible: fixed blocks of the global batch (train/blockwise.h). */
extern const TrsDenseWork trs_dense_by_blocks;
