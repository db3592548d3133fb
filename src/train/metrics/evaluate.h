/* SPDX-License-Identifier: BSD-3-Clause */
/*
  An evaluation runs the forward over a dataset once. It computes metrics over all ranks, and
  predictions in dataset order.
*/
#pragma once

#include "io/results.h"
#include "train/metrics/task_metrics.h"
#include "train/pipeline.h"

/* Destinations of an evaluation's results for each sample. */
typedef struct {
  TrsResults results; /* destination of predictions, or NULL */
  int64_t n_total;    /* samples of the dataset */
  TrsOptions metrics; /* -metrics_group, -metrics_at: metrics of groups; NULL: none */
} TrsEvaluationTarget;

typedef struct TrsEvaluationImpl *TrsEvaluation;

/*
  TrsEvaluationCreate - Prepare the forward of every batch of the reader.

  Collective. The reader must be fresh (one pass). Labels may be missing in the data. The metrics
  are then meaningless. Memory besides the model's: metrics keep 16 bytes per sample
  (train/metrics/auc.h), and exchanges keep the ids of the batches in flight. The results do not
  depend on the pipeline.

  In:     control   all ranks
          options   -pipeline sets the overlap; NULL runs one batch after the other
          reader    borrowed, and destroyed after the evaluation
          target    destinations of the results, copied
          observer  copied; or NULL
          stop      a signal handler sets it to non-zero to stop this rank; NULL: never stops.
                    Borrowed
  Out:    evaluation  free with TrsEvaluationDestroy()
  Source: TorchRec EvalPipelineSparseDist (torchrec.distributed.train_pipeline)
*/
PetscErrorCode TrsEvaluationCreate(TrsComm control, TrsOptions options, TrsModelParallel model,
                                   TrsReader reader, const TrsEvaluationTarget *target,
                                   const TrsBatchObserver *observer, const volatile int *stop,
                                   TrsEvaluation *evaluation);

/*
  Run the evaluation. Must be called once. Collective.

  Out:    values    [tasks] the same on every rank; unchanged after a stop
          stopped   true if it ended early because a rank was asked to stop, the same on every rank
  Errors (agreed): those of the reader and of the observer
*/
PetscErrorCode TrsEvaluationRun(TrsEvaluation evaluation, TrsMetricValues *values, PetscBool *stopped);

/* Collective, even after an error. Accepts NULL. */
PetscErrorCode TrsEvaluationDestroy(TrsEvaluation *evaluation);
