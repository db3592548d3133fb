/* SPDX-License-Identifier: BSD-3-Clause */
/* Evaluation: forward over a dataset once, metrics over all ranks, predictions in dataset order. */
#pragma once

#include "io/results.h"
#include "train/metrics.h"
#include "train/pipeline.h"

/*
  TrsEvaluate - Forward of every batch of the reader.

  Collective. Needs a fresh reader (one pass); labels may be missing in the data, then the metrics are not meaningful. Memory beside the model's: metrics
  keep 16 bytes a sample (train/auc.h), and exchanges the ids of the batches in flight. Nothing of it depends on the pipeline.

  In:     control   all ranks
          options   whose -pipeline says what overlaps; NULL: nothing, one batch after the other
          results   where predictions go; NULL: not kept
          n_total   samples of the dataset
          observer  or NULL
          stop      not 0 once this rank is asked to stop, by a signal handler; NULL: never. Borrowed
  Out:    values    on every rank the same; unchanged after a stop
          stopped   ended early because a rank was asked to, the same on every rank
  Errors (agreed): those of the reader and of the observer
  Source: TorchRec EvalPipelineSparseDist (torchrec.distributed.train_pipeline)
*/
PetscErrorCode TrsEvaluate(TrsComm control, TrsOptions options, TrsModelParallel model, TrsReader reader,
                           TrsResults results, int64_t n_total, const TrsBatchObserver *observer,
                           const volatile int *stop, TrsMetricValues *values, PetscBool *stopped);
