/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The metrics of each learning task, over all samples of an evaluation or during a training.

  A sample without a task's label (NaN) is not in the task's metrics. Tasks whose labels are not
  probabilities have no metrics of groups.
*/
#pragma once

#include "data/reader.h"
#include "spec/task_configs.h"
#include "train/metrics/running_metrics.h"

/* Check that -metrics_group applies to a task. Not collective. Errors: OPTION */
PetscErrorCode TrsTaskMetricsCheck(const TrsTaskConfigs *tasks, TrsOptions options);

/* The sum of the losses in values [tasks] with the tasks' weights: NaN if a task has no labels. */
double TrsTaskLoss(const TrsTaskConfigs *tasks, const TrsMetricValues *values);

typedef struct TrsTaskMetricsImpl *TrsTaskMetrics;

/*
  Create the metrics of an evaluation, including those of groups; options NULL: without groups. With
  -reproducible sums are exact. Collective on comm. Errors: OPTION, MEMORY.
*/
PetscErrorCode TrsTaskMetricsCreate(MPI_Comm comm, const TrsTaskConfigs *tasks, TrsOptions options,
                                    TrsTaskMetrics *metrics);

/* Add a batch with labels: predictions [B, columns], losses [n_losses, tasks]. Not collective. */
PetscErrorCode TrsTaskMetricsAdd(TrsTaskMetrics metrics, const TrsBatch *batch, const float *predictions,
                                 int64_t n_losses, const double *losses);

/* Compute the metrics of all samples on all ranks, values [tasks]. Collective. */
PetscErrorCode TrsTaskMetricsCompute(TrsTaskMetrics metrics, TrsMetricValues *values);
PetscErrorCode TrsTaskMetricsDestroy(TrsTaskMetrics *metrics);

typedef struct TrsTaskRunningImpl *TrsTaskRunning;

/*
  All tasks' numbers for a checkpoint: rounded sums, exact sums and windows. n_exact and n_window
  are 0 without exact sums. Only rank 0 gets the windows.
*/
typedef struct {
  int n, n_exact, n_window;
  double *value, *exact, *window;
} TrsTaskRunningNumbers;

/*
  The metrics of a training: a TrsRunningMetrics for each task. Values are [tasks]. Save and Load
  have the numbers of one task after the other.
*/
PetscErrorCode TrsTaskRunningCreate(MPI_Comm comm, const TrsTaskConfigs *tasks, TrsOptions options,
                                    int64_t window_samples, TrsTaskRunning *metrics);
PetscErrorCode TrsTaskRunningAdd(TrsTaskRunning metrics, const TrsBatch *batch, const float *predictions);
PetscErrorCode TrsTaskRunningStep(TrsTaskRunning metrics, int64_t global_batch, double now_s);
PetscErrorCode TrsTaskRunningCompute(TrsTaskRunning metrics, TrsRunningValues *values);
PetscErrorCode TrsTaskRunningSave(TrsTaskRunning metrics, TrsTaskRunningNumbers *numbers);
PetscErrorCode TrsTaskRunningLoad(TrsTaskRunning metrics, const char *path,
                                  const TrsTaskRunningNumbers *numbers);
PetscErrorCode TrsTaskRunningDestroy(TrsTaskRunning *metrics);
