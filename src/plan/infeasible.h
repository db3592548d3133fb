/* SPDX-License-Identifier: BSD-3-Clause */
/* Why there is no plan, and what would help. */
#pragma once

#include "plan/plan_search.h"

typedef enum {
  TRS_PLAN_OK,
  TRS_PLAN_INSUFFICIENT_STORAGE,
  TRS_PLAN_STRICT_CONSTRAINTS,
  TRS_PLAN_INVALID_COMPUTE_KERNEL,
  TRS_PLAN_OTHER
} TrsPlanError;

const char *TrsPlanErrorName(TrsPlanError error);

/*
  TrsPlanDiagnose - Whether and why planning failed, as TorchRec classes it, and a text for the user: which table or device is short, by
  how many bytes, which options relax it.

  Not collective.
  In:     search       after TrsPlanSearchRun(); NULL when the planner ended before
          table_alone  of TrsEnumerate()
  Out:    error        TRS_PLAN_OK when there is a valid plan (or nothing to plan)
  InOut:  message      the text is added
*/
PetscErrorCode TrsPlanDiagnose(const TrsCostModel *model, const TrsReservation *reservation,
                               const TrsSearchSpace *space, int table_alone, const TrsPlanSearch *search,
                               TrsPlanError *error, TrsText *message);
