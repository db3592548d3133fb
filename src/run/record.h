/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of metrics in the results. */
#pragma once

#include "io/results.h"
#include "train/running_metrics.h"

/* Append a row to /eval/...; step: updates the weights have seen. */
PetscErrorCode TrsRecordMetrics(TrsResults results, int64_t step, const TrsMetricValues *values);

/* Append a row to /metrics/...; step likewise. */
PetscErrorCode TrsRecordRunningMetrics(TrsResults results, int64_t step, const TrsRunningValues *values);
