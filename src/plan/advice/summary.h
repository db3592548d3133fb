/* SPDX-License-Identifier: BSD-3-Clause */
/* What -task plan says first: does it fit, what does it cost, what would be better. */
#pragma once

#include "plan/report.h"

/*
  TrsSummaryWrite - Write the plan in a few lines.

  Not collective. The first line is that of TrsShardingPlanView().

  In:     alternative  the optimal proposer's result for the search's plan; path_ms is 0 if it was
                       not asked
  Out:    text         the lines are added
*/
PetscErrorCode TrsSummaryWrite(const TrsReportInput *in, const TrsOptimum *alternative, TrsText *text);

/*
  TrsSummaryWriteNoPlan - Write how much memory is missing for a plan, and which single changes of
    the options would help.

  Not collective. Each change is tried with the settings' proposers before it is proposed, as far as
  the settings' advice_s allow.

  Out:    text  the lines are added
*/
PetscErrorCode TrsSummaryWriteNoPlan(const TrsCostModel *model, const TrsReservation *reservation,
                                     const TrsSearchSpace *space, const TrsPlanSearch *search, TrsText *text);
