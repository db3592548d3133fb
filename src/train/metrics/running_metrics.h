/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Metrics during a training: over the last samples (window) and over all samples since the start of
  the weights (lifetime).

  A step only stores its predictions and labels, in memory allocated at creation, and adds them to
  sums. The ranks communicate when values are computed. Every rank keeps its own last window / W
  samples, 12 bytes each. TorchRec drops whole batches from its windowed sums, while this module
  drops samples. Both are equal if the window is a multiple of the global batch. There is no
  lifetime AUC (as in TorchRec), because it would need all samples.

  With exact sums the window holds the last samples in the order of the global batches, on whichever
  ranks they are. Since they may all be on one rank, each rank keeps its own last `window` samples,
  40 bytes each. So the values' bits are the same for any number of ranks.

  Source: torchrec.metrics.rec_metric (WindowBuffer), throughput; src/RULES.md, section 18
*/
#pragma once

#include "core/options/options.h"
#include "train/metrics/metrics.h"

typedef struct {
  /*
    Loss is the mean cross entropy of clamped predictions, or the mean loss of numbers. lifetime.auc
    is NaN, window.auprc is exact.
  */
  TrsMetricValues window, lifetime;
  int64_t total_examples;   /* samples since the start of the weights */
  int64_t attempt_examples; /* samples of this run */
  /* samples/s on all ranks since the last values; NaN for the first values */
  double window_throughput;
  /* Samples/s without each run's first steps. NaN if there are no other steps. */
  double lifetime_throughput, attempt_throughput;
} TrsRunningValues;

typedef struct TrsRunningMetricsImpl *TrsRunningMetrics;

extern const TrsOptionGroup trs_metrics_options; /* -metrics_every -metrics_window_samples */

/*
  window_samples counts samples on all ranks and must be at least 1. With -metrics_group and
  -metrics_at in `options`, metrics of groups are computed in the window; options NULL: none.
  Collective on comm (duplicated). Errors: OPTION, MEMORY.
*/
PetscErrorCode TrsRunningMetricsCreate(MPI_Comm comm, const TrsMetricKind *kind, TrsOptions options,
                                       int64_t window_samples, TrsRunningMetrics *metrics);

/* This rank's samples, host [n]. */
typedef struct {
  int64_t n;
  const float *predictions, *labels; /* in the format of TrsMetricsAdd() */
  const float *weights;              /* NULL: all 1 */
  const int64_t *group;              /* NULL without -metrics_group */
  /* Increasing places in the step's global batch. Only exact sums use them. */
  const int64_t *place;
} TrsMetricSamples;

/*
  Add samples of the step that the next TrsRunningMetricsStep() ends. Not collective, no allocation.
*/
PetscErrorCode TrsRunningMetricsAdd(TrsRunningMetrics metrics, const TrsMetricSamples *samples);

/*
  Record that a step over global_batch samples on all ranks ended at now_s on a monotonic clock,
  which may stand still between steps. Not collective.
*/
PetscErrorCode TrsRunningMetricsStep(TrsRunningMetrics metrics, int64_t global_batch, double now_s);

/*
  Compute the values over all ranks, the same on each rank (throughput: rank 0's clock). Collective.
*/
PetscErrorCode TrsRunningMetricsCompute(TrsRunningMetrics metrics, TrsRunningValues *values);

/*
  Save gets the lifetime's sums over all ranks for a checkpoint, as *n numbers borrowed until the
  next Save. Collective. Load restores these numbers, the same on all ranks. The window starts
  empty, as in TorchRec, without LoadWindow. Load is not collective; `path` is the source of the
  numbers, for messages. Errors: DATA if the numbers are invalid.
*/
PetscErrorCode TrsRunningMetricsSave(TrsRunningMetrics metrics, int *n, double **numbers);
PetscErrorCode TrsRunningMetricsLoad(TrsRunningMetrics metrics, const char *path, int n,
                                     const double *numbers);

/*
  Do the same for the exact sums, after Save and after Load. *n is 0 without exact sums. LoadExact
  then ignores its numbers. Without LoadExact, new samples are added to the rounded sums of Load.
*/
PetscErrorCode TrsRunningMetricsSaveExact(TrsRunningMetrics metrics, int *n, double **numbers);
PetscErrorCode TrsRunningMetricsLoadExact(TrsRunningMetrics metrics, const char *path, int n,
                                          const double *numbers);

/*
  SaveWindow gets the window of exact sums for a checkpoint, in the order of the samples, as *n
  numbers on rank 0, borrowed until the next call. *n is 0 on other ranks and without exact sums. A
  window that needs more than `most` numbers is saved as empty. Collective. Errors: MEMORY.
  LoadWindow restores the window from the first *used of n numbers, the same on all ranks. Must be
  called before the first Add. It ignores groups that this run does not have. If only this run has
  groups, it ignores the whole window. Not collective. Errors: DATA.
*/
PetscErrorCode TrsRunningMetricsSaveWindow(TrsRunningMetrics metrics, int64_t most, int *n, double **numbers);
PetscErrorCode TrsRunningMetricsLoadWindow(TrsRunningMetrics metrics, const char *path, int n,
                                           const double *numbers, int *used);

/* Collective on comm. */
PetscErrorCode TrsRunningMetricsDestroy(TrsRunningMetrics *metrics);
