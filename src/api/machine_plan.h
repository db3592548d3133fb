/* SPDX-License-Identifier: BSD-3-Clause */
/* The plan of a machine: the planner's result or the file of -plan_input, checked for a run. */
#pragma once

#include "api/machine.h"
#include "plan/planner.h"

/* Inputs of the plan besides the tables. */
typedef struct {
  int num_dense;                /* dense features of the model; -num_dense wins */
  TrsDenseModel describe_dense; /* describes the dense layers; NULL: they have no parameters */
  TrsPlanWriter write;          /* writer of the planner's files; NULL: nothing is written */
  PetscBool quantised;          /* the tables are quantised */
} TrsPlanWishes;

/*
  TrsMachinePlan - Plan the tables for the machine, and refuse a plan that a run cannot follow.

  Collective on the machine's communicator.

  InOut:  machine  gets the communicators for the plan's copies
          tables   get the plan's choices
  Out:    plan     the same on all ranks; free with TrsShardingPlanFree()
  Errors: OPTION, DATA, NO_INPUT, NO_PLAN, UNAVAILABLE
*/
PetscErrorCode TrsMachinePlan(TrsMachine *machine, const TrsPlanWishes *wishes, TrsTableConfigs *tables,
                              TrsShardingPlan *plan);
