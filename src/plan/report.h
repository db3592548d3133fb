/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes reports for readers. Source: TorchRec EmbeddingStats; src/plan/RULES.md, section 11. */
#pragma once

#include "plan/optimal/optimal.h"
#include "plan/plan_result.h"

/* A report's inputs. For a plan from a file, search and space are empty. */
typedef struct {
  const TrsCostModel *model;
  const TrsReservation *reservation;
  const TrsSearchSpace *space;
  const TrsPlanSearch *search;
  const TrsShardingPlan *plan;
  const TrsOptimum *optimum;     /* result of the optimal proposer; bound_ms 0: no bound */
  const TrsOptimum *alternative; /* result of TrsProblemTryOptimal() */
  double default_path_ms;
} TrsReportInput;

/* Write the report: ranks, tables, imbalance, maxima, critical path. Not collective. */
PetscErrorCode TrsReportWrite(const TrsReportInput *in, TrsText *text);
