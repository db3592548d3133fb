/* SPDX-License-Identifier: BSD-3-Clause */
/* -task plan: a dry run of the planner. */
#pragma once

#include "core/options/options.h"

/*
  TrsRunPlan - Make a plan for the tables and the topology in the options.

  Collective on comm: rank 0 plans. Needs no GPU. Needs no dataset if the options give the tables.
  Prints a short summary, or the report that -plan_report requests.

  Errors: NO_PLAN, OPTION, DATA, NO_INPUT, CANT_CREATE, IO, as for TrsPlannerSolve()
*/
PetscErrorCode TrsRunPlan(MPI_Comm comm, TrsOptions options);
