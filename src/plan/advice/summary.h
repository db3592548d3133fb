/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes the first lines of -task plan: memory, the plan's cost, and better plans. */
#pragma once

#include "plan/problem.h"
#include "plan/report.h"

/*
  TrsSummaryWrite - Append a summary of the plan in a few lines.

  Not collective. The first line is TrsShardingPlanView()'s line.
*/
PetscErrorCode TrsSummaryWrite(const TrsReportInput *in, TrsText *text);

/*
  TrsSummaryWriteNoPlan - Append the memory that is missing for a plan, and the changes from
    TrsPlanDiagnose().

  Not collective.
*/
PetscErrorCode TrsSummaryWriteNoPlan(const TrsProblem *problem, const TrsSolution *solution,
                                     const TrsText *changes, TrsText *text);

/*
  TrsExplain - Append a table's options, the plan's cost with each option, and the reason for the
    choice (-plan_explain).

  Not collective. Errors: OPTION for an unknown table
*/
PetscErrorCode TrsExplain(const TrsReportInput *in, const char *table, TrsText *text);
