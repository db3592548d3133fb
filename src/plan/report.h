/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports for people. Source: TorchRec EmbeddingStats; src/plan/RULES.md, section 11. */
#pragma once

#include "plan/optimal/optimal.h"
#include "plan/plan_result.h"

/* The inputs of a report. search and space are empty for a plan from a file. */
typedef struct {
  const TrsCostModel *model;
  const TrsReservation *reservation;
  const TrsSearchSpace *space;
  const TrsPlanSearch *search;
  const TrsShardingPlan *plan;
  const TrsOptimum *optimum;     /* of the optimal proposer; bound_ms is 0 without a bound */
  const TrsOptimum *alternative; /* of TrsProblemTryOptimal() */
  double default_path_ms;
} TrsReportInput;

/* Write the report: ranks, tables, imbalance, maxima, critical path. Not collective. */
PetscErrorCode TrsReportWrite(const TrsReportInput *in, TrsText *text);
