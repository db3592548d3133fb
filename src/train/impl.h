/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The parts of ModelParallel: set-up (model_parallel_setup.c), its state in checkpoints
  (model_parallel_state.c), the steps of a batch (model_parallel.c), and the two variants of the
  dense layers' work in these steps (dense_work.c). Internal to train/.
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
  The slot of a batch. The batch has it from its copy to the end of its backward. In an evaluation,
  it has it to the end of its forward.
*/
typedef struct {
  TrsDeviceBatch copy;
  TrsEvent ready;                    /* recorded when the batch's ids are on the shards */
  TrsEvent sorted;                   /* recorded when the ids are sorted for the update */
  TrsEvent loss_ready;               /* recorded when the forward's results are on the host */
  TrsPinnedBuffer loss, predictions; /* the forward's results: [tasks], and [B, columns] */
  TrsPinnedBuffer pooled;            /* [B, stride] pooled rows, if they are kept */
  const TrsBatch *pooled_of;         /* the batch of the pooled rows; NULL: there are no rows */
  TrsPinnedBuffer pairs;             /* [B, 2 D] the towers' outputs, if they are kept */
  const TrsBatch *pairs_of;          /* the batch of the towers' outputs; NULL: there are none */
} TrsModelSlot;

/*
  The functions that distribute the work of the dense layers over ranks and sum their gradients.
  Chosen at set-up.
*/
typedef struct {
  /*
    Bring pooled rows to the ranks of their samples, run the dense layers, and compute the loss. For
    a training batch this function may also do parts of the backward.
  */
  PetscErrorCode (*forward)(TrsModelParallel model, int slot, const TrsBatch *batch, float scale,
                            const float **predictions);
  /*
    Run the backward of the dense layers, bring the pooled rows' gradients to their shards, update
    the tables, and sum the layers' gradients.
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
  /* true: the optimizer's last step has written the model's operands, and no weight has changed
     since then */
  PetscBool operands_written;
  TrsDenseAllreduce allreduce;
  TrsStepGraphs graphs; /* NULL: every step launches its kernels directly */
  /* the model's predictions, set by the first forward that computes them */
  const float *predictions;
  TrsSparseOptimizers optimizers;
  /* [optimizers.n] arguments with the learning rates of the current step */
  TrsSparseOptimizerArgs *step_args;
  int64_t states_from[TRS_STATES_KINDS]; /* set by TrsModelParallelStatesFrom() */
  TrsSchedule schedule;
  PetscBool averaged;           /* true: an evaluation (not a training) with averaged weights */
  TrsPooledMatrix pooled, grad; /* the input of the model's interaction, and its gradient */
  /* number of samples in the largest batches of all ranks, for the banner */
  int64_t global_batch;
  /* [features] index of each feature's first column in a row of all vectors */
  int64_t *columns;
  int64_t kept_stride; /* number of floats in such a row */
  /*
    [features] addresses of the batch's vectors, later of their gradients; NULL: they are in the two
    matrices. If set, both matrices are the same matrix. It has memory only if the vectors of some
    tables arrive in it.
  */
  TrsVectorPlace *place;
  TrsPositionWeight *position; /* [features] */
  /* Has the matrix in which vectors arrive if tables are split. NULL: they arrive in `pooled`. */
  TrsSplitTables split;
  TrsRaggedRows ragged; /* rows of the sequences that layers pool; NULL: there are none */
  /* number of embedding columns in the model's matrix; they are its last columns */
  int64_t n_columns;
  TrsStream stream, memcpy, data_dist, results, prefetch;
  TrsWorkspace assembly; /* workspace for assembling batches on the stream memcpy */
  /*
    sorts_ahead: ids are sorted ahead of the update, on the stream `prefetch`. sums_ahead: they are
    also sorted for sums of gradients. These sums are made before the gradients are sent, so they
    need the sorts earlier.
  */
  PetscBool sorts_ahead, sums_ahead;
  /* true: rows have a placement such as a cache. Otherwise the next three fields are not used. */
  PetscBool placed;
  TrsEvent computed, prefetched; /* events: the prefetch may begin; the last prefetch is done */
  PetscBool updated;             /* true: rows have changed since the last prefetch */
  TrsModelSlot slot[TRS_SHARD_SLOTS];
  /*
    The slot of the training batch whose rows travel ahead during the next Forward; -1: there is
    none. Set by TrsModelParallelLookAhead()
  */
  int next_slot;
  PetscBool keeps_pooled; /* set by TrsModelParallelKeepPooled() */
  /* the pooled rows that are kept, as floats; unused if an fp32 matrix has them */
  TrsDeviceBuffer widened;
  PetscBool keeps_pairs; /* set by TrsModelParallelKeepPairs() */
  const TrsDenseWork *dense;
  TrsBlockwise blockwise; /* NULL: the dense layers work by ranks */
  TrsReplicas replicas;
  TrsChanges changes;   /* NULL unless config.notes_changes is set */
  TrsSnapshot snapshot; /* NULL unless config.snapshot_bytes is set */
};

/*
  Begin a stage of the step, on the host and on the compute stream (TrsStageSwitch(),
  TrsTimelineMark()).
*/
PetscErrorCode TrsModelParallelEnter(TrsModelParallel m, TrsStage stage, TrsStage *before);

/*
  Parts of the forward of a slot's batch. TellAhead waits for the ids of the batch of LookAhead().
  It must be called before the rows of the slot's batch are waited for. SendAhead must be called
  after these rows have arrived, and starts to send rows of the batch of LookAhead(). Both do
  nothing if there is no such batch. Collective.
*/
PetscErrorCode TrsModelParallelTellAhead(TrsModelParallel m, int slot);
PetscErrorCode TrsModelParallelSendAhead(TrsModelParallel m);

/*
  Update the tables as soon as no prefetch changes their caches. Must be called between
  BackwardStart and the next use of the rows.
*/
PetscErrorCode TrsModelParallelUpdateTables(TrsModelParallel model, int slot, const TrsPooledMatrix *grad,
                                            const TrsSparseOptimizerArgs *args);

/* Every rank computes its own samples. This overlaps with the exchanges and the all-reduce. */
extern const TrsDenseWork trs_dense_by_ranks;

/*
  Used for -reproducible and -accumulate_steps: the ranks compute fixed blocks of the global batch
  (train/blockwise.h).
*/
extern const TrsDenseWork trs_dense_by_blocks;
