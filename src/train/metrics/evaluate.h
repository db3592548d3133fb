/* SPDX-License-Identifier: BSD-3-Clause */
/*
  An evaluation runs the forward over a dataset once. It gives metrics over all ranks and
  predictions in dataset order.
*/
#pragma once

#include "io/results.h"
#include "train/metrics/task_metrics.h"
#include "train/pipeline.h"

/* Where an evaluation puts what it computes of each sample. */
typedef struct {
  TrsResults results; /* destination of predictions, or NULL */
  int64_t n_total;    /* samples of the dataset */
  TrsOptions metrics; /* -metrics_group, -metrics_at: metrics of groups; NULL for none */
} TrsEvaluationTarget;

typedef struct TrsEvaluationImpl *TrsEvaluation;

/*
  TrsEvaluationCreate - Prepare the forward of every batch of the reader.

  Collective. Needs a fresh reader (one pass). Labels may be missing in the data; then the metrics
  have no meaning. Memory beside the model's: metrics keep 16 bytes for each sample
  (train/metrics/auc.h), and exchanges keep the ids of the batches in flight. The results do not
  depend on the pipeline.

  In:     control   all ranks
          options   -pipeline says what overlaps; NULL runs one batch after the other
          reader    borrowed, and destroyed after the evaluation
          target    destinations of what is computed, copied
          observer  copied; or NULL
          stop      a signal handler sets it to non-zero to stop this rank; NULL: never. Borrowed
  Out:    evaluation  free with TrsEvaluationDestroy()
  Source: TorchRec EvalPipelineSparseDist (torchrec.distributed.train_pipeline)
*/
PetscErrorCode TrsEvaluationCreate(TrsComm control, TrsOptions options, TrsModelParallel model,
                                   TrsReader reader, const TrsEvaluationTarget *target,
                                   const TrsBatchObserver *observer, const volatile int *stop,
                                   TrsEvaluation *evaluation);

/*
  Run it, once. Collective.

  Out:    values    [tasks] the same on every rank; unchanged after a stop
          stopped   ended early because a rank was asked to stop, the same on every rank
  Errors (agreed): those of the reader and of the observer
*/
PetscErrorCode TrsEvaluationRun(TrsEvaluation evaluation, TrsMetricValues *values, PetscBool *stopped);

/* Collective, also after an error. NULL is allowed. */
PetscErrorCode TrsEvaluationDestroy(TrsEvaluation *evaluation);
