/* SPDX-License-Identifier: BSD-3-Clause */
/* The reasons why there is no plan, and advice. */
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
  TrsPlanDiagnose - Tell whether and why planning failed, and how to help.

  Not collective. The kinds of errors are TorchRec's. The text for the user says which table or
  device is short, by how many bytes, and which options relax the shortage.

  In:     search       after TrsPlanSearchRun(); NULL if the planner ended before
          table_alone  of TrsEnumerate()
  Out:    error        TRS_PLAN_OK if there is a valid plan (or nothing to plan)
  InOut:  message      the text is added
*/
PetscErrorCode TrsPlanDiagnose(const TrsCostModel *model, const TrsReservation *reservation,
                               const TrsSearchSpace *space, int table_alone, const TrsPlanSearch *search,
                               TrsPlanError *error, TrsText *message);
