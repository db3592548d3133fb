/* SPDX-License-Identifier: BSD-3-Clause */
/* The plan for a machine, made by the planner or read from -plan_input, and checked for a run. */
#pragma once

#include "api/machine.h"
#include "plan/planner.h"

/* The inputs of the planner, besides the tables. */
typedef struct {
  /* number of the model's dense features, if -num_dense is not given */
  int num_dense;
  TrsDenseModel describe_dense; /* describes the dense layers; NULL if they have no parameters */
  TrsPlanWriter write;          /* writes the planner's files; NULL if no files are written */
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
