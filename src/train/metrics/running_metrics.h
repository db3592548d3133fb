/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Metrics of a training while it goes on: over the last samples (window) and over all samples since
  the weights' beginning (lifetime).

  A step only keeps its predictions and labels, in memory made at creation, and adds them to sums.
  The ranks communicate when values are asked for. Every rank keeps its own last window / W samples,
  12 bytes each. TorchRec drops whole batches from its windowed sums, while this module drops
  samples; both are equal if the window is a multiple of the global batch. There is no lifetime AUC
  (as in TorchRec), because it would need all samples.

  Source: torchrec.metrics.rec_metric (WindowBuffer), throughput; src/RULES.md, section 18
*/
#pragma once

#include "core/options/options.h"
#include "train/metrics/metrics.h"

typedef struct {
  /* Loss is the mean cross entropy of clamped predictions, or the mean loss of numbers.
     lifetime.auc is NaN, window.auprc is exact. */
  TrsMetricValues window, lifetime;
  int64_t total_examples;   /* samples since the weights' beginning */
  int64_t attempt_examples; /* samples of this run */
  double window_throughput; /* samples/s of all ranks since the last values; NaN in the first */
  /* Samples/s without each run's first steps. NaN if there are no other steps. */
  double lifetime_throughput, attempt_throughput;
} TrsRunningValues;

typedef struct TrsRunningMetricsImpl *TrsRunningMetrics;

extern const TrsOptionGroup trs_metrics_options; /* -metrics_every -metrics_window_samples */

/*
  window_samples counts the samples of all ranks and is at least 1. -metrics_group and -metrics_at
  of `options` ask for metrics of groups in the window; NULL asks for none. Collective on comm
  (duplicated). Errors: OPTION, MEMORY.
*/
PetscErrorCode TrsRunningMetricsCreate(MPI_Comm comm, const TrsMetricKind *kind, TrsOptions options,
                                       int64_t window_samples, TrsRunningMetrics *metrics);

/*
  Add n samples of this rank: predictions, labels, weights (NULL: all 1) and groups (NULL without
  -metrics_group), host [n]. Not collective, no allocation.
*/
PetscErrorCode TrsRunningMetricsAdd(TrsRunningMetrics metrics, int64_t n, const float *predictions,
                                    const float *labels, const float *weights, const int64_t *group);

/*
  Record that a step over global_batch samples of all ranks ended at
  now_s of a monotonic clock, which may stand still between steps. Not collective.
*/
PetscErrorCode TrsRunningMetricsStep(TrsRunningMetrics metrics, int64_t global_batch, double now_s);

/* Values over all ranks, the same on each rank (throughput: rank 0's clock). Collective. */
PetscErrorCode TrsRunningMetricsCompute(TrsRunningMetrics metrics, TrsRunningValues *values);

/*
  Save gives the lifetime's sums over all ranks for a checkpoint, as *n numbers borrowed until the
  next Save. Collective. Load takes these numbers back, the same on all ranks. The window begins
  anew, as in TorchRec. Load is not collective; `path` says where the numbers come from, for
  messages. Errors: DATA if they are not such numbers.
*/
PetscErrorCode TrsRunningMetricsSave(TrsRunningMetrics metrics, int *n, double **numbers);
PetscErrorCode TrsRunningMetricsLoad(TrsRunningMetrics metrics, const char *path, int n,
                                     const double *numbers);

/* Collective on comm. */
PetscErrorCode TrsRunningMetricsDestroy(TrsRunningMetrics *metrics);
