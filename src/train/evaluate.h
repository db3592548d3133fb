/* SPDX-License-Identifier: BSD-3-Clause */
/* Evaluation: forward over a dataset once, metrics over all ranks, predictions in dataset order. */
#pragma once

#include "io/results.h"
#include "train/metrics.h"
#include "train/model_parallel.h"

/* The slot an evaluation uses, so that a training pipeline's batches stay in theirs. */
enum { TRS_EVALUATION_SLOT = TRS_SHARD_SLOTS - 1 };

/* Is told of every batch on every rank, after its forward: seconds from having the batch to having its
   predictions. Its errors are agreed on before the next batch. Not collective. */
typedef struct {
  PetscErrorCode (*batch)(void *context, const TrsBatch *batch, const float *predictions, double seconds);
  void *context;
} TrsEvaluateObserver;

/*
  TrsEvaluate - Forward of every batch of the reader.

  Collective. Needs a fresh reader (one pass); labels may be missing in the data, then the metrics are not meaningful.

  In:     comm      all ranks
          results   where predictions go; NULL: not kept
          n_total   samples of the dataset
          observer  or NULL
  Out:    values    on every rank the same
  Errors (agreed): those of the reader
*/
PetscErrorCode TrsEvaluate(MPI_Comm comm, TrsModelParallel model, TrsReader reader, TrsResults results,
                           int64_t n_total, const TrsEvaluateObserver *observer, TrsMetricValues *values);
