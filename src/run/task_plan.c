/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/task_plan.h"

#include "plan/planner.h"

enum { SHOWN_TABLES = 50 };

PetscErrorCode TrsRunPlan(MPI_Comm comm, TrsOptions options)
{
  TrsTableConfigs tables = {0};
  TrsShardingPlan plan = {0};
  TrsPlanner planner;
  PetscBool reported, explained;
  const char *text;

  PetscFunctionBegin;
  PetscCall(TrsTableConfigsFromOptions(options, NULL, &tables));
  PetscCall(TrsPlannerCreate(comm, &planner));
  PetscCall(TrsPlannerSetFromOptions(planner, options));
  PetscCall(TrsPlannerSetTables(planner, &tables));
  PetscCall(TrsPlannerSolve(planner, &plan));
  PetscCall(TrsOptionsGetString(options, "-plan_report", &text, &reported));
  PetscCall(TrsOptionsGetString(options, "-plan_explain", &text, &explained));
  if (!reported && !explained) PetscCall(TrsShardingPlanView(&plan, comm, SHOWN_TABLES));
  PetscCall(TrsPlannerDestroy(&planner));
  PetscCall(TrsShardingPlanFree(&plan));
  PetscCall(TrsTableConfigsFree(&tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}
