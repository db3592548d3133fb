/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The pipelines for trainings and evaluations. A pipeline determines which work on batches i, i+1
  and i+2 overlaps. The results never depend on the pipeline.

  Source: TorchRec TrainPipelineBase, TrainPipelineSparseDist, PrefetchTrainPipelineSparseDist,
          EvalPipelineSparseDist (torchrec.distributed.train_pipeline).

  base          all work on batch i is done in sequence; only the reader runs ahead
  sparse_dist   fetch of i+2 | input dist of i+1 | forward and backward of i
  prefetch_sparse_dist
                fetch of i+2 | ids of i+1 | forward of i | cache fill of i+1 | backward of i; then
                ids of i+2 start. With every pipeline LFU caches are filled in the forward. With
                tables that give rows to ids it is sparse_dist

  An evaluation has no backward, and its caches are filled during the forward. On a device that
  works independently of the host, the forward of batch i+1 starts before the host waits for the
  results of batch i, so that the device works while the host processes them. The pipeline then
  holds one more batch. An evaluation may run between two steps of a training. The training's
  batches in flight do not change.

  In each step the ranks make one small all-reduce during the backward. It tells all ranks the loss,
  if a rank failed, if a rank was asked to stop, and the amount of bad data that was accepted. All
  ranks therefore leave the training after the same step.
*/
#pragma once

#include "train/model_parallel.h"

typedef struct {
  int64_t step; /* index of the reader's step, counted from 0 in this training */
  int64_t epoch;
  int64_t global_batch; /* number of samples on all ranks */
  int64_t position;     /* number of samples of the epoch before this step */
  /*
    Average over the global batch, before this step's update. It is the same on all ranks. With
    several tasks it is the weighted sum of their averages.
  */
  double loss;
  PetscBool stop; /* true: a rank was asked to stop */
  PetscBool busy; /* true: a rank was busy (TrsPipelineSetBusy()) before the backward ended */
  /* estimated number of ids on all ranks: samples are assumed to have as many ids as on this rank
     */
  double ids;
  /* number of ids on all ranks that the bounds check in mode warning has set to 0 */
  int64_t bad_ids;
  /* In a training: one of these ids, the same on all ranks. Valid only if there are such ids. */
  TrsBadId first_bad;
  /*
    Count on all ranks, with -data_check warning: numbers that are not finite, and labels that are
    invalid for their loss.
  */
  int64_t bad_numbers;
} TrsStepResult;

typedef struct TrsPipelineImpl *TrsPipeline;

extern const TrsOptionGroup trs_pipeline_options; /* the option -pipeline */

/*
  TrsPipelineCreate - Create a training's pipeline.

  Not collective.

  In:     control        communicator for the small all-reduce of each step, borrowed
          model, reader  must be set up; borrowed
          first_update   number of updates of the weights before step 0 of the reader
          stop           a signal handler makes it non-zero if this rank is asked to stop; borrowed
*/
PetscErrorCode TrsPipelineCreate(TrsComm control, TrsOptions options, TrsModelParallel model,
                                 TrsReader reader, int64_t first_update, const volatile int *stop,
                                 TrsPipeline *pipeline);

/*
  Create an evaluation's pipeline, which makes one pass over the reader's data. If `options` is
  NULL, it handles one batch after the other, like -pipeline base. If `stop` is NULL, it never stops
  early. The other arguments are those of TrsPipelineCreate(). Not collective.
*/
PetscErrorCode TrsPipelineCreateEvaluation(TrsComm control, TrsOptions options, TrsModelParallel model,
                                           TrsReader reader, const volatile int *stop, TrsPipeline *pipeline);

/*
  An observer. The pipeline calls it for every batch of this rank before the batch's step ends.
  predictions is [B, columns of all tasks] on the host, and losses [tasks] come from
  TrsModelParallelLosses(). seconds is the time from the start of the input dist until these results
  were available. The ranks agree on an error from the observer. All ranks call it in the same step,
  so the observer may be collective.
*/
typedef struct {
  PetscErrorCode (*batch)(void *context, const TrsBatch *batch, const float *predictions,
                          const double *losses, double seconds);
  void *context;
} TrsBatchObserver;

/*
  Set the observer. Must be called before the first step. The pipeline copies the struct and borrows
  its context. Not collective.
*/
PetscErrorCode TrsPipelineSetObserver(TrsPipeline pipeline, const TrsBatchObserver *observer);

/*
  From now on, let the ranks tell each other in each step whether any of them is busy with other
  work: *busy is not 0. It is borrowed, and read atomically. Not collective.
*/
void TrsPipelineSetBusy(TrsPipeline pipeline, const int *busy);

/*
  TrsPipelineProgress - Do one step: train on a batch, or evaluate it.

  Collective.

  Out: more  the same on all ranks. PETSC_FALSE: there was no batch left. Nothing was done, and
             `result` is unchanged. If the reader's stream then gets more batches, the next call
             goes on with them
  Errors (agreed): those of TrsReaderNext and of the observer on any rank
*/
PetscErrorCode TrsPipelineProgress(TrsPipeline pipeline, TrsStepResult *result, PetscBool *more);

/*
  Destroy the pipeline. If it ends before its data does, exchanges that have been started for later
  steps are completed first. Collective.
*/
PetscErrorCode TrsPipelineDestroy(TrsPipeline *pipeline);
