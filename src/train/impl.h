/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The parts of ModelParallel: set-up (model_parallel_setup.c), its state in checkpoints
  (model_parallel_state.c), the steps of a batch (model_parallel.c), and the dense layers' work in
  these steps, which has two variants (dense_work.c). Internal to train/.
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
  A batch's slot, from the batch's copy to the end of its backward, or of its forward in an
  evaluation.
*/
typedef struct {
  TrsDeviceBatch copy;
  TrsEvent ready;                    /* the batch's ids are on the shards */
  TrsEvent sorted;                   /* the ids are sorted for the update */
  TrsEvent loss_ready;               /* the forward's results are on the host */
  TrsPinnedBuffer loss, predictions; /* these results: [tasks]; [B, columns] */
  TrsPinnedBuffer pooled;            /* [B, stride] if pooled rows are kept */
  const TrsBatch *pooled_of;         /* batch of the pooled rows; NULL: none */
  TrsPinnedBuffer pairs;             /* [B, 2 D] if the towers' outputs are kept */
  const TrsBatch *pairs_of;          /* batch of the towers' outputs; NULL: none */
} TrsModelSlot;

/*
  The distribution of the dense layers' work over ranks, and the summation of their gradients.
  Chosen at set-up.
*/
typedef struct {
  /*
    Bring pooled rows to their samples, run the dense layers, and compute the loss. For a training
    batch this function may already do parts of the backward.
  */
  PetscErrorCode (*forward)(TrsModelParallel model, int slot, const TrsBatch *batch, float scale,
                            const float **predictions);
  /*
    Run the dense layers' backward, bring the pooled rows' gradients to their shards, update the
    tables, and sum the layers' gradients.
  */
  PetscErrorCode (*backward)(TrsModelParallel model, int slot, const TrsBatch *batch,
                             const TrsSparseOptimizerArgs *args);
} TrsDenseWork;

struct TrsModelParallelImpl {
  TrsModelParallelConfig config;
  TrsEmbeddingShards shards;
  TrsShardedEbc ebc;
  TrsDlrm dlrm;
  TrsPairLoss pair_loss; /* NULL: the model computes its own losses */
  TrsDenseOptimizer dense_optimizer;
  TrsDenseAllreduce allreduce;
  TrsStepGraphs graphs;     /* NULL: every step launches its kernels directly */
  const float *predictions; /* the model's predictions; set by the first forward that makes some */
  TrsSparseOptimizers optimizers;
  TrsSparseOptimizerArgs *step_args;     /* [optimizers.n] with a step's learning rates */
  int64_t states_from[TRS_STATES_KINDS]; /* TrsModelParallelStatesFrom() */
  TrsSchedule schedule;
  PetscBool averaged;           /* an evaluation with averaged weights, not a training */
  TrsPooledMatrix pooled, grad; /* the model's interaction input and its gradient */
  int64_t global_batch;         /* samples of all ranks' largest batches, for the banner */
  int64_t *columns;             /* [features] first columns in a row of all vectors */
  int64_t kept_stride;          /* floats in such a row */
  /*
    [features] places of the batch's vectors, later of their gradients; NULL: in these matrices. If
    set, both matrices are the same one, which has memory if some tables' vectors arrive there.
  */
  TrsVectorPlace *place;
  TrsPositionWeight *position; /* [features] */
  /* The matrix in which vectors arrive if tables are split; NULL: they arrive in `pooled`. */
  TrsSplitTables split;
  TrsRaggedRows ragged; /* rows of the sequences with layers; NULL: there are none */
  int64_t n_columns;    /* embedding columns in the model's matrix, its last columns */
  TrsStream stream, memcpy, data_dist, results, prefetch;
  TrsWorkspace assembly; /* for assembling batches on the stream memcpy */
  /*
    Are ids sorted ahead of the update, on the stream `prefetch`? sums_ahead: are they also sorted
    for sums of gradients, which are made before the gradients travel and so need the sorts earlier?
  */
  PetscBool sorts_ahead, sums_ahead;
  /* Do rows have other places, such as caches? Otherwise the next three fields are not used. */
  PetscBool placed;
  TrsEvent computed, prefetched; /* the prefetch may begin; the last prefetch is done */
  PetscBool updated;             /* have rows changed since the last prefetch? */
  TrsModelSlot slot[TRS_SHARD_SLOTS];
  PetscBool keeps_pooled;  /* TrsModelParallelKeepPooled() */
  TrsDeviceBuffer widened; /* kept pooled rows as floats, unless an fp32 matrix has them */
  PetscBool keeps_pairs;   /* TrsModelParallelKeepPairs() */
  const TrsDenseWork *dense;
  TrsBlockwise blockwise; /* NULL: by ranks */
  TrsReplicas replicas;
};

/*
  Begin a stage of the step, for the host and on the compute stream:
  TrsStageSwitch() and TrsTimelineMark().
*/
PetscErrorCode TrsModelParallelEnter(TrsModelParallel m, TrsStage stage, TrsStage *before);

/*
  Update the tables, once no prefetch changes their caches. Must be called between BackwardStart and
  the next use of the rows.
*/
PetscErrorCode TrsModelParallelUpdateTables(TrsModelParallel model, int slot, const TrsPooledMatrix *grad,
                                            const TrsSparseOptimizerArgs *args);

/* Every rank computes its own samples, overlapped with the exchanges and the all-reduce. */
extern const TrsDenseWork trs_dense_by_ranks;

/*
  -reproducible and -accumulate_steps: the ranks compute fixed blocks of the global batch
  (train/blockwise.h).
*/
extern const TrsDenseWork trs_dense_by_blocks;
