/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of steps and metrics in the results. */
#pragma once

#include "io/results.h"
#include "optim/schedule.h"
#include "train/metrics/running_metrics.h"
#include "train/pipeline.h"

/* The learning rates that the options of a training give, before the schedule. */
typedef struct {
  TrsSchedule schedule;
  /* Those of the dense layers, and of tables without a rate of their own. */
  double dense, embedding;
} TrsLearningRates;

/*
  Read the learning rates. Free them with TrsLearningRatesFree(). Not collective. Errors: OPTION,
  those of TrsScheduleFromOptions().
*/
PetscErrorCode TrsLearningRatesFromOptions(TrsOptions options, TrsLearningRates *rates);
PetscErrorCode TrsLearningRatesFree(TrsLearningRates *rates);

/*
  Append a row to /train/... `step` counts the updates that the weights had seen before, and
  `seconds` is the time of the step.
*/
PetscErrorCode TrsRecordStep(TrsResults results, int64_t step, const TrsStepResult *result,
                             const TrsLearningRates *rates, double seconds);

/*
  Append a row to /eval/... `step` counts the updates that the weights have seen. values: [tasks];
  columns of one of several tasks are /eval/<task>_<metric>.
*/
PetscErrorCode TrsRecordMetrics(TrsResults results, int64_t step, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values);

/* Append a row to /metrics/... with the same meaning of `step` and values. */
PetscErrorCode TrsRecordRunningMetrics(TrsResults results, int64_t step, const TrsTaskConfigs *tasks,
                                       const TrsRunningValues *values);
