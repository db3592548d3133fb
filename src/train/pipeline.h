/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The pipelines for trainings and evaluations choose which work on batches i, i+1 and i+2 overlaps.
  The results never depend on the pipeline.

  Source: TorchRec TrainPipelineBase, TrainPipelineSparseDist, PrefetchTrainPipelineSparseDist,
          EvalPipelineSparseDist (torchrec.distributed.train_pipeline).

  base          all work on batch i in sequence; only the reader runs ahead
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

  In each step the ranks agree, in one small all-reduce during the backward. They agree on the loss,
  on whether a rank failed, on whether a rank was asked to stop, and on the amount of bad data that
  was accepted. So no rank ever leaves a step without the others.
*/
#pragma once

#include "train/model_parallel.h"

typedef struct {
  int64_t step; /* the reader's step, from 0 in this training */
  int64_t epoch;
  int64_t global_batch; /* samples on all ranks */
  int64_t position;     /* samples of the epoch before this step */
  /*
    Mean over the global batch before this step's update, the same on all ranks. With several tasks,
    the sum of their weighted means.
  */
  double loss;
  PetscBool stop;  /* some rank was asked to stop */
  double ids;      /* ids on all ranks, if samples have as many on every rank as on this one */
  int64_t bad_ids; /* ids on all ranks that the bounds check in mode warning set to 0 */
  /* In a training: one of these ids, the same on all ranks. Defined if there are any. */
  TrsBadId first_bad;
  /*
    On all ranks, with -data_check warning: numbers that are not finite, and labels that are invalid
    for their loss.
  */
  int64_t bad_numbers;
} TrsStepResult;

typedef struct TrsPipelineImpl *TrsPipeline;

extern const TrsOptionGroup trs_pipeline_options; /* -pipeline */

/*
  TrsPipelineCreate - Create a training's pipeline.

  Not collective.

  In:     control        for the agreement in each step, borrowed
          model, reader  set up, borrowed
          first_update   number of updates of the weights before the reader's step 0
          stop           becomes non-zero (by a signal handler) if this rank is asked to stop;
                         borrowed
*/
PetscErrorCode TrsPipelineCreate(TrsComm control, TrsOptions options, TrsModelParallel model,
                                 TrsReader reader, int64_t first_update, const volatile int *stop,
                                 TrsPipeline *pipeline);

/*
  Create an evaluation's pipeline, which makes one pass of the reader. With options NULL it runs
  batch by batch, like -pipeline base. With stop NULL it never stops early. The other arguments are
  those of TrsPipelineCreate(). Not collective.
*/
PetscErrorCode TrsPipelineCreateEvaluation(TrsComm control, TrsOptions options, TrsModelParallel model,
                                           TrsReader reader, const volatile int *stop, TrsPipeline *pipeline);

/*
  An observer is called for every batch on this rank before the batch's step ends. predictions is
  host [B, columns of all tasks], and losses [tasks] come from TrsModelParallelLosses(). seconds is
  the time from the start of the input dist until these results were available. The ranks agree on
  an error from the observer. The call is collective if the observer is: all ranks call it in the
  same step.
*/
typedef struct {
  PetscErrorCode (*batch)(void *context, const TrsBatch *batch, const float *predictions,
                          const double *losses, double seconds);
  void *context;
} TrsBatchObserver;

/*
  Set the observer. Must be called before the first step. The struct is copied, its context
  borrowed. Not collective.
*/
PetscErrorCode TrsPipelineSetObserver(TrsPipeline pipeline, const TrsBatchObserver *observer);

/*
  TrsPipelineProgress - Do one step: train on a batch, or evaluate it.

  Collective.

  Out: more  PETSC_FALSE if there was no batch left, the same on all ranks. Then nothing was done
             and result is unchanged
  Errors (agreed): those of TrsReaderNext and of the observer on any rank
*/
PetscErrorCode TrsPipelineProgress(TrsPipeline pipeline, TrsStepResult *result, PetscBool *more);

/*
  Destroy the pipeline. If it ends before its data, exchanges ahead of the last step are completed.
  Collective.
*/
PetscErrorCode TrsPipelineDestroy(TrsPipeline *pipeline);
