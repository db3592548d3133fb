/* SPDX-License-Identifier: BSD-3-Clause */
/* Appends rows of steps and metrics to the results. */
#pragma once

#include "io/results.h"
#include "optim/schedule.h"
#include "train/metrics/running_metrics.h"
#include "train/pipeline.h"

/* The learning rates that the options set, before the schedule changes them. */
typedef struct {
  TrsSchedule schedule;
  /* The rates of the dense layers, and of tables that have no rate of their own. */
  double dense, embedding;
} TrsLearningRates;

/*
  Read the learning rates. Free them with TrsLearningRatesFree(). Not collective. Errors: OPTION,
  errors of TrsScheduleFromOptions()
*/
PetscErrorCode TrsLearningRatesFromOptions(TrsOptions options, TrsLearningRates *rates);
PetscErrorCode TrsLearningRatesFree(TrsLearningRates *rates);

/*
  Append a row to /train/... `step` is the number of updates before this step. `seconds` is the time
  of the step.
*/
PetscErrorCode TrsRecordStep(TrsResults results, int64_t step, const TrsStepResult *result,
                             const TrsLearningRates *rates, double seconds);

/*
  Append a row to /eval/... `step` is the number of updates so far. `values` has an entry for each
  task. With several tasks, the columns are /eval/<task>_<metric>.
*/
PetscErrorCode TrsRecordMetrics(TrsResults results, int64_t step, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values);

/*
  Append a row to /ahead/..., for a file that was evaluated before the training used its samples.
  `position` is the number of samples that the stream has before the file. `step` and `values` are
  as in TrsRecordMetrics().
*/
PetscErrorCode TrsRecordAhead(TrsResults results, int64_t step, const char *file, int64_t position,
                              const TrsTaskConfigs *tasks, const TrsMetricValues *values);

/* Append a row to /metrics/..., with `step` and `values` as in TrsRecordMetrics(). */
PetscErrorCode TrsRecordRunningMetrics(TrsResults results, int64_t step, const TrsTaskConfigs *tasks,
                                       const TrsRunningValues *values);
