/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Changes that may give a plan if there is none. Each change has a condition, a name, and the
  options to change; to try it, the problem is solved again with these options.
*/
#pragma once

#include "plan/advice/failure.h"

typedef struct TrsRemedies_ *TrsRemedies;

/*
  TrsRemediesFind - List the changes that apply, and try them within the settings' advice_s.

  Not collective. Table options are only tried if the problem can read its tables again.

  Out:  remedies  free with TrsRemediesFree()
*/
PetscErrorCode TrsRemediesFind(const TrsProblem *problem, const TrsFailure *failure, TrsRemedies *remedies);
PetscErrorCode TrsRemediesFree(TrsRemedies *remedies);

/*
  Append the names of all changes that give a plan, relax the shortage, or were not tried:
  ". Relax: -batch_size, ...". Not collective.
*/
PetscErrorCode TrsRemediesName(TrsRemedies remedies, TrsText *message);

/*
  Append a line for each change that gives a plan, in its mildest form, with exactly the options
  that were tried. Not collective.
*/
PetscErrorCode TrsRemediesWrite(TrsRemedies remedies, TrsText *text);
