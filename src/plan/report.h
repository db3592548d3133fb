/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports for people. Source: TorchRec EmbeddingStats; src/plan/RULES.md, section 11 */
#pragma once

#include "plan/optimal.h"
#include "plan/plan_result.h"

/* All that a report draws on; search and space are empty for a plan from a file. */
typedef struct {
  const TrsCostModel *model;
  const TrsReservation *reservation;
  const TrsSearchSpace *space;
  const TrsPlanSearch *search;
  const TrsShardingPlan *plan;
  const TrsOptimum *optimum; /* of the optimal proposer; bound_ms 0: none */
  double default_path_ms;
} TrsReportInput;

/* The report: ranks, tables, imbalance, maxima, critical path. Not collective. */
PetscErrorCode TrsReportWrite(const TrsReportInput *in, TrsText *text);

/* Why a table is split as it is. Not collective. Errors: OPTION for an unknown table. */
PetscErrorCode TrsExplain(const TrsReportInput *in, const char *table, TrsText *text);
