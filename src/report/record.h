/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of steps and metrics in the results. */
#pragma once

#include "io/results.h"
#include "optim/schedule.h"
#include "train/metrics/running_metrics.h"
#include "train/pipeline.h"

/* A training's learning rates from the options, before the schedule. */
typedef struct {
  TrsSchedule schedule;
  /* Rates of the dense layers, and of tables without their own rate. */
  double dense, embedding;
} TrsLearningRates;

/*
  Read the learning rates. Free them with TrsLearningRatesFree(). Not collective. Errors: OPTION,
  errors of TrsScheduleFromOptions()
*/
PetscErrorCode TrsLearningRatesFromOptions(TrsOptions options, TrsLearningRates *rates);
PetscErrorCode TrsLearningRatesFree(TrsLearningRates *rates);

/*
  Append a row to /train/... `step` is the number of updates before this step, and `seconds` is the
  step's time.
*/
PetscErrorCode TrsRecordStep(TrsResults results, int64_t step, const TrsStepResult *result,
                             const TrsLearningRates *rates, double seconds);

/*
  Append a row to /eval/... `step` is the number of updates so far. values: [tasks]; with several
  tasks, the columns are /eval/<task>_<metric>.
*/
PetscErrorCode TrsRecordMetrics(TrsResults results, int64_t step, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values);

/* Append a row to /metrics/... `step` and `values` are as for TrsRecordMetrics(). */
PetscErrorCode TrsRecordRunningMetrics(TrsResults results, int64_t step, const TrsTaskConfigs *tasks,
                                       const TrsRunningValues *values);
