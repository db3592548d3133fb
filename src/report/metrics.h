/* SPDX-License-Identifier: BSD-3-Clause */
/* Print lines of metrics for an evaluation, and at the end of a training. */
#pragma once

#include "spec/task_configs.h"
#include "train/metrics/metrics.h"
#include "train/metrics/running_metrics.h"

/*
  At the end of a training, print its metrics in two lines, window and lifetime. Logically
  collective.
*/
PetscErrorCode TrsReportRunningMetrics(MPI_Comm comm, const TrsTaskConfigs *tasks,
                                       const TrsRunningValues *values);

/* Print an evaluation's line. Logically collective. */
PetscErrorCode TrsReportMetrics(MPI_Comm comm, const char *what, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values);
