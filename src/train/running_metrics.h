/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Metrics of a training while it goes on: over the last samples (window) and over all since the weights' beginning (lifetime).

  A step only keeps its predictions and labels, in memory made at creation, and adds them to sums; ranks meet when values are asked for.
  Every rank keeps its own last window / W samples, 12 bytes each. Where TorchRec drops whole batches from its windowed sums, this drops samples:
  equal where the window is a multiple of the global batch. There is no lifetime AUC (as in TorchRec): it would need all samples.
  Source: torchrec.metrics.rec_metric (WindowBuffer), throughput; src/RULES.md, section 18
*/
#pragma once

#include "core/options.h"
#include "train/metrics.h"

typedef struct {
  TrsMetricValues window,
      lifetime; /* loss is the mean cross entropy of clamped predictions; lifetime.auc is NaN, window.auprc exact */
  int64_t total_examples;   /* since the weights' beginning, */
  int64_t attempt_examples; /* and of this run */
  double window_throughput; /* samples/s of all ranks since the last values; NaN in the first */
  double lifetime_throughput,
      attempt_throughput; /* without each run's first steps; NaN where there are no others */
} TrsRunningValues;

typedef struct TrsRunningMetricsImpl *TrsRunningMetrics;

extern const TrsOptionGroup trs_metrics_options; /* -metrics_every -metrics_window_samples */

/* window_samples: of all ranks together, at least 1. Collective on comm (duplicated). Errors: MEMORY */
PetscErrorCode TrsRunningMetricsCreate(MPI_Comm comm, int64_t window_samples, TrsRunningMetrics *metrics);

/* Add n samples of this rank: predictions, labels, weights (NULL: 1) host [n]. Not collective, no allocation. */
PetscErrorCode TrsRunningMetricsAdd(TrsRunningMetrics metrics, int64_t n, const float *predictions,
                                    const float *labels, const float *weights);

/* A step over global_batch samples of all ranks has ended at this time of a monotonic clock. Not collective. */
PetscErrorCode TrsRunningMetricsStep(TrsRunningMetrics metrics, int64_t global_batch, double now_s);

/* Values of all ranks, the same on each (throughput: rank 0's clock). Collective. */
PetscErrorCode TrsRunningMetricsCompute(TrsRunningMetrics metrics, TrsRunningValues *values);

/*
  What a checkpoint keeps: the lifetime's sums over all ranks, as *n numbers borrowed until the next Save (collective); and taken back, on all ranks
  alike. The window begins anew, as in TorchRec. Load: not collective; path: where they are from, for messages; Errors: DATA if these are not n such numbers
*/
PetscErrorCode TrsRunningMetricsSave(TrsRunningMetrics metrics, int *n, double **numbers);
PetscErrorCode TrsRunningMetricsLoad(TrsRunningMetrics metrics, const char *path, int n,
                                     const double *numbers);

/* Collective on comm. */
PetscErrorCode TrsRunningMetricsDestroy(TrsRunningMetrics *metrics);
