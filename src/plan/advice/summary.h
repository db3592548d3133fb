/* SPDX-License-Identifier: BSD-3-Clause */
/* The first lines of -task plan: whether the plan fits, its cost, and better plans. */
#pragma once

#include "plan/problem.h"
#include "plan/report.h"

/*
  TrsSummaryWrite - Add the plan in a few lines.

  Not collective. The first line is that of TrsShardingPlanView().
*/
PetscErrorCode TrsSummaryWrite(const TrsReportInput *in, TrsText *text);

/*
  TrsSummaryWriteNoPlan - Add how much memory is missing for a plan, and the changes of
    TrsPlanDiagnose().

  Not collective.
*/
PetscErrorCode TrsSummaryWriteNoPlan(const TrsProblem *problem, const TrsSolution *solution,
                                     const TrsText *changes, TrsText *text);

/*
  TrsExplain - Add the options of a table, the cost of the plan with each of them, and the reason
    for the choice (-plan_explain).

  Not collective. Errors: OPTION for an unknown table
*/
PetscErrorCode TrsExplain(const TrsReportInput *in, const char *table, TrsText *text);
