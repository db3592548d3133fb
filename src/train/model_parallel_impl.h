/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The parts of ModelParallel: set-up (model_parallel_setup.c), its state in checkpoints
  (model_parallel_state.c), the steps of a batch (model_parallel.c), and the work of the dense
  layers in these steps, which has two variants (dense_work.c). Internal to train/.
*/
#pragma once

#include "device/timeline.h"
#include "train/blockwise.h"
#include "train/device_batch.h"
#include "train/model_parallel.h"
#include "train/pair_loss.h"
#include "train/ragged_rows.h"
#include "train/replicas.h"
#include "train/split_tables.h"
#include "train/step_graphs.h"

/*
  The slot of a batch, from the batch's copy to the end of its
  backward, or of its forward in an evaluation.
*/
typedef struct {
  TrsDeviceBatch copy;
  TrsEvent ready;                    /* the batch's ids are at the shards */
  TrsEvent sorted;                   /* and they are sorted for the update */
  TrsEvent loss_ready;               /* the results of the forward are on the host */
  TrsPinnedBuffer loss, predictions; /* these results: [tasks]; [B, columns] */
  TrsPinnedBuffer pooled;            /* [B, stride] if pooled rows are kept */
  const TrsBatch *pooled_of;         /* the batch that they belong to; NULL for none */
  TrsPinnedBuffer pairs;             /* [B, 2 D] if the towers' outputs are kept */
  const TrsBatch *pairs_of;          /* the batch that they belong to; NULL for none */
} TrsModelSlot;

/*
  The distribution of the dense layers' work over ranks, and the summation of their gradients.
  Chosen at set-up.
*/
typedef struct {
  /* Bring pooled rows to their samples, run the dense layers, and compute the loss. For a training
     batch this function may do parts of the backward at once. */
  PetscErrorCode (*forward)(TrsModelParallel model, int slot, const TrsBatch *batch, float scale,
                            const float **predictions);
  /* Run the dense layers' backward, bring gradients of pooled rows to their shards, update the
     tables, and sum the layers' gradients. */
  PetscErrorCode (*backward)(TrsModelParallel model, int slot, const TrsBatch *batch,
                             const TrsSparseOptimizerArgs *args);
} TrsDenseWork;

struct TrsModelParallelImpl {
  TrsModelParallelConfig config;
  TrsEmbeddingShards shards;
  TrsShardedEbc ebc;
  TrsDlrm dlrm;
  TrsPairLoss pair_loss; /* NULL: the model has losses of its own */
  TrsDenseOptimizer dense_optimizer;
  TrsDenseAllreduce allreduce;
  TrsStepGraphs graphs;     /* NULL: every step starts its kernels itself */
  const float *predictions; /* where the model leaves them, since its first forward with some */
  TrsSparseOptimizers optimizers;
  TrsSparseOptimizerArgs *step_args;     /* [optimizers.n] with a step's learning rates */
  int64_t states_from[TRS_STATES_KINDS]; /* TrsModelParallelStatesFrom() */
  TrsSchedule schedule;
  PetscBool averaged;           /* evaluation of averaged weights, not a training */
  TrsPooledMatrix pooled, grad; /* the model's interaction input and its gradient */
  int64_t global_batch;         /* samples of all ranks' largest batches, for the banner */
  int64_t *columns;             /* [features] first columns in a row of all vectors */
  int64_t kept_stride;          /* of these rows */
  /*
    [features] where the vectors of the batch lie, and then their gradients; NULL: in these
    matrices. If set, both matrices are one, which has memory if vectors of some tables arrive
    there.
  */
  TrsVectorPlace *place;
  TrsPositionWeight *position; /* [features] */
  /* The matrix that vectors arrive in, where tables are split; NULL: they arrive in `pooled`. */
  TrsSplitTables split;
  TrsRaggedRows ragged; /* rows of the sequences that have layers; NULL: there is none */
  int64_t n_columns;    /* embedding columns of the model's matrix, its last columns */
  TrsStream stream, memcpy, data_dist, results, prefetch;
  TrsWorkspace assembly; /* of batches, on the stream memcpy */
  /*
    Whether ids are sorted ahead of the update, on the stream `prefetch`; also for sums of gradients
    that are made before they travel, which wait for the sorts earlier.
  */
  PetscBool sorts_ahead, sums_ahead;
  /*
    Whether rows have other places, such as caches. Otherwise the next three fields are not used.
  */
  PetscBool placed;
  TrsEvent computed, prefetched; /* the prefetch may begin; the last prefetch is done */
  PetscBool updated;             /* whether rows have changed since the last prefetch */
  TrsModelSlot slot[TRS_SHARD_SLOTS];
  PetscBool keeps_pooled;  /* TrsModelParallelKeepPooled() */
  TrsDeviceBuffer widened; /* floats of pooled rows that are kept, unless these are in a matrix */
  PetscBool keeps_pairs;   /* TrsModelParallelKeepPairs() */
  const TrsDenseWork *dense;
  TrsBlockwise blockwise; /* NULL by ranks */
  TrsReplicas replicas;
};

/*
  Begin a stage of the step, for the host and on the compute stream:
  TrsStageSwitch() and TrsTimelineMark().
*/
PetscErrorCode TrsModelParallelEnter(TrsModelParallel m, TrsStage stage, TrsStage *before);

/*
  Update the tables, once no prefetch changes their caches any more. Call this between BackwardStart
  and the next use of the rows.
*/
PetscErrorCode TrsModelParallelUpdateTables(TrsModelParallel model, int slot, const TrsPooledMatrix *grad,
                                            const TrsSparseOptimizerArgs *args);

/* Every rank works on its own samples, under the exchanges and the all-reduce. */
extern const TrsDenseWork trs_dense_by_ranks;

/*
  -reproducible and -accumulate_steps: the ranks work on fixed blocks of the global batch
  (train/blockwise.h).
*/
extern const TrsDenseWork trs_dense_by_blocks;
