/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Train pipelines: what of batches i, i+1 and i+2 runs at the same time. Numbers never depend on it.
  Source: TorchRec TrainPipelineBase, TrainPipelineSparseDist, PrefetchTrainPipelineSparseDist (torchrec.distributed.train_pipeline).

  base          everything of batch i, one after the other; the reader alone is ahead
  sparse_dist   fetch of i+2 | input dist of i+1 | forward and backward of i
  prefetch_sparse_dist  fetch of i+2 | ids of i+1 | forward of i | cache fill of i+1 | backward of i; then ids of i+2 start. An evaluation's caches, and LFU's, are
                filled in the forward under any pipeline

  Each step the ranks agree, in one small all-reduce that travels under the backward, on the loss, on whether somebody's reader failed, on
  whether somebody was asked to stop and on how much bad data was let pass; so no rank ever leaves a step alone.
*/
#pragma once

#include "train/model_parallel.h"
#include "train/running_metrics.h"

typedef struct {
  int64_t step; /* of the reader: from 0 in this training */
  int64_t epoch;
  int64_t global_batch; /* samples of all ranks */
  int64_t position;     /* samples of the epoch before this step */
  double loss;          /* mean over the global batch, before this step's update; the same on all ranks */
  PetscBool stop;       /* some rank was asked to stop */
  int64_t bad_ids;      /* of all ranks: ids that the bounds check made 0 under mode warning */
  TrsBadId first_bad;   /* one of them, the same on all ranks; only where there are any */
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

/* Every step's predictions go to these metrics, borrowed; NULL (the default): nowhere. Not collective. */
PetscErrorCode TrsPipelineSetMetrics(TrsPipeline pipeline, TrsRunningMetrics metrics);

/*
  TrsPipelineProgress - One training step.

  Collective. Out: more  PETSC_FALSE when there was no batch left (nothing was done; result unchanged), the same on all ranks
  Errors (agreed): those of TrsReaderNext on any rank
*/
PetscErrorCode TrsPipelineProgress(TrsPipeline pipeline, TrsStepResult *result, PetscBool *more);

/* Collective: exchanges ahead of the last step are completed, where the training ended before its data. */
PetscErrorCode TrsPipelineDestroy(TrsPipeline *pipeline);
