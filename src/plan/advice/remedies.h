/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The changes that may give a plan where there is none: for each a condition, the words that name
  it, and the options to change, with which the problem is solved again.
*/
#pragma once

#include "plan/advice/failure.h"

typedef struct TrsRemedies_ *TrsRemedies;

/*
  TrsRemediesFind - List the changes that apply, and try each within the settings' advice_s.

  Not collective. Changes of tables are only tried if the problem can read its tables again.

  Out:  remedies  free with TrsRemediesFree()
*/
PetscErrorCode TrsRemediesFind(const TrsProblem *problem, const TrsFailure *failure, TrsRemedies *remedies);
PetscErrorCode TrsRemediesFree(TrsRemedies *remedies);

/*
  Add the names of all changes that give a plan or relax the shortage, and of those that were not
  tried: ". Relax: -batch_size, ...". Not collective.
*/
PetscErrorCode TrsRemediesName(TrsRemedies remedies, TrsText *message);

/*
  Add a line for each change that gives a plan, in its mildest form, with the very words that were
  tried. Not collective.
*/
PetscErrorCode TrsRemediesWrite(TrsRemedies remedies, TrsText *text);
