/* SPDX-License-Identifier: BSD-3-Clause */
/* The reasons why there is no plan, in sentences. */
#pragma once

#include "plan/advice/failure.h"

/* The kinds of TorchRec. */
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
  TrsPlanDiagnose - Explain why planning failed, and try what would help.

  Not collective. The message says which table or device is short, by how many bytes, and which
  options relax the shortage.

  InOut:  message  the text is added
          changes  a line is added for each change that gives a plan
*/
PetscErrorCode TrsPlanDiagnose(const TrsProblem *problem, const TrsSolution *solution,
                               const TrsFailure *failure, TrsText *message, TrsText *changes);
