/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the lines of metrics of an evaluation, and of the end of a training. */
#pragma once

#include "spec/task_configs.h"
#include "train/metrics/metrics.h"
#include "train/metrics/running_metrics.h"

/*
  At the end of a training, print its metrics in two lines: for the window and for the whole
  training. Logically collective.
*/
PetscErrorCode TrsReportRunningMetrics(MPI_Comm comm, const TrsTaskConfigs *tasks,
                                       const TrsRunningValues *values);

/* Print the lines of an evaluation. Logically collective. */
PetscErrorCode TrsReportMetrics(MPI_Comm comm, const char *what, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values);
