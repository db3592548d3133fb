/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of metrics: of an evaluation, and of a training at its end. */
#pragma once

#include "spec/task_configs.h"
#include "train/metrics/metrics.h"
#include "train/metrics/running_metrics.h"

/*
  Print the training's metrics at its end in two lines, window and lifetime. Logically collective.
*/
PetscErrorCode TrsReportRunningMetrics(MPI_Comm comm, const TrsTaskConfigs *tasks,
                                       const TrsRunningValues *values);

/* Print the line of an evaluation. Logically collective. */
PetscErrorCode TrsReportMetrics(MPI_Comm comm, const char *what, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values);
