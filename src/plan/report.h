/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports for people. Source: TorchRec EmbeddingStats */
#pragma once

#include "plan/plan_result.h"

/* All that a report draws on; search, space and reservation are empty for a plan from a file. */
typedef struct {
  const TrsCostModel *model;
  const TrsReservation *reservation;
  const TrsSearchSpace *space;
  const TrsPlanSearch *search;
  const TrsShardingPlan *plan;
  PetscBool has_bound; /* of the optimal proposer */
  double lower_bound_ms, default_critical_path_ms;
} TrsReportInput;

/* The report: ranks, tables, imbalance, maxima, critical path. Not collective. */
PetscErrorCode TrsReportWrite(const TrsReportInput *in, TrsText *text);

/* Why a table is split as it is. Not collective. Errors: OPTION for an unknown table. */
PetscErrorCode TrsExplain(const TrsReportInput *in, const char *table, TrsText *text);

/* How unevenly n shares are spread, each 0 for even. Source: TorchRec EmbeddingStats imbalance measures */
typedef struct {
  double total_variation, total_distance, chi, kl;
} TrsImbalance;
void TrsMeasureImbalance(int n, const double *share, TrsImbalance *imbalance);

/* "2.001 (0.001,0,0.5,2,0)": the total and its five parts. */
void TrsPerfText(const TrsPerf *perf, char *text, size_t n);
