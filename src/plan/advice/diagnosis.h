/* SPDX-License-Identifier: BSD-3-Clause */
/* Explains in sentences why there is no plan. */
#pragma once

#include "plan/advice/failure.h"

/* TorchRec's kinds of errors. */
typedef enum {
  TRS_PLAN_OK,
  TRS_PLAN_INSUFFICIENT_STORAGE,
  TRS_PLAN_STRICT_CONSTRAINTS,
  TRS_PLAN_INVALID_COMPUTE_KERNEL,
  TRS_PLAN_OTHER
} TrsPlanError;

const char *TrsPlanErrorName(TrsPlanError error);
TrsPlanError TrsPlanErrorOf(const TrsFailure *failure);

/*
  TrsPlanDiagnose - Explain why planning failed, and try changes that may help.

  Not collective. The message names the table or the memory that is short, the missing bytes, and
  the options that relax the shortage.

  InOut:  message  the explanation is appended
          changes  a line is appended for each change that gives a plan
*/
PetscErrorCode TrsPlanDiagnose(const TrsProblem *problem, const TrsSolution *solution,
                               const TrsFailure *failure, TrsText *message, TrsText *changes);
