/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pipelines of trainings and evaluations: what of batches i, i+1 and i+2 runs at the same time. Numbers never depend on it.
  Source: TorchRec TrainPipelineBase, TrainPipelineSparseDist, PrefetchTrainPipelineSparseDist, EvalPipelineSparseDist (torchrec.distributed.train_pipeline).

  base          everything of batch i, one after the other; the reader alone is ahead
  sparse_dist   fetch of i+2 | input dist of i+1 | forward and backward of i
  prefetch_sparse_dist  fetch of i+2 | ids of i+1 | forward of i | cache fill of i+1 | backward of i; then ids of i+2 start. LFU caches are filled in
                the forward under any pipeline

  An evaluation has no backward, and its caches are filled under the forward. On a device, where a forward goes on behind the host's back, that of batch
  i+1 is started before the host waits for what batch i gives, so that the device goes on while the host counts; one batch more is in hand then. It may
  run between two steps of a training, whose batches in flight stay as they are.

  Each step the ranks agree, in one small all-reduce that travels under the backward, on the loss, on whether somebody failed, on whether
  somebody was asked to stop and on how much bad data was let pass; so no rank ever leaves a step alone.
*/
#pragma once

#include "train/model_parallel.h"

typedef struct {
  int64_t step; /* of the reader: from 0 in this training */
  int64_t epoch;
  int64_t global_batch; /* samples of all ranks */
  int64_t position;     /* samples of the epoch before this step */
  double loss;          /* mean over the global batch, before this step's update; the same on all ranks */
  PetscBool stop;       /* some rank was asked to stop */
  int64_t bad_ids;      /* of all ranks: ids that the bounds check made 0 under mode warning */
  TrsBadId first_bad;   /* of a training: one of them, the same on all ranks; only where there are any */
  int64_t bad_numbers;  /* of all ranks: not finite, or labels outside [0, 1], under -data_check warning */
} TrsStepResult;

typedef struct TrsPipelineImpl *TrsPipeline;

extern const TrsOptionGroup trs_pipeline_options; /* -pipeline */

/*
  TrsPipelineCreate - Not collective.

  In:     control     for the per-step agreement, borrowed
          model, reader  set up, borrowed
          first_update   updates the weights have seen before the reader's step 0
          stop        set to non-zero (by a signal handler) when this rank is asked to stop; borrowed
*/
PetscErrorCode TrsPipelineCreate(TrsComm control, TrsOptions options, TrsModelParallel model,
                                 TrsReader reader, int64_t first_update, const volatile int *stop,
                                 TrsPipeline *pipeline);

/* For an evaluation: one pass of the reader. options NULL: batch by batch, as -pipeline base; stop NULL: never; else as above. Not collective. */
PetscErrorCode TrsPipelineCreateEvaluation(TrsComm control, TrsOptions options, TrsModelParallel model,
                                           TrsReader reader, const volatile int *stop, TrsPipeline *pipeline);

/*
  Is told of every batch of this rank, before its step ends: predictions host [B], loss_sum that of TrsModelParallelLoss(), seconds from the start of its input
  dist until these were there. An error of its is agreed on. Collective if the observer is: all ranks call
  it in the same step.
*/
typedef struct {
  PetscErrorCode (*batch)(void *context, const TrsBatch *batch, const float *predictions, double loss_sum,
                          double seconds);
  void *context;
} TrsBatchObserver;

/* Before the first step. Copied; context borrowed. Not collective. */
PetscErrorCode TrsPipelineSetObserver(TrsPipeline pipeline, const TrsBatchObserver *observer);

/*
  TrsPipelineProgress - One step: a batch is trained on, or evaluated.

  Collective. Out: more  PETSC_FALSE when there was no batch left (nothing was done; result unchanged), the same on all ranks
  Errors (agreed): those of TrsReaderNext and of the observer on any rank
*/
PetscErrorCode TrsPipelineProgress(TrsPipeline pipeline, TrsStepResult *result, PetscBool *more);

/* Collective: exchanges ahead of the last step are completed, where it ended before its data. */
PetscErrorCode TrsPipelineDestroy(TrsPipeline *pipeline);
