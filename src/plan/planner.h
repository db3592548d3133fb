/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Planner: from options, tables and a topology to a ShardingPlan.

    TrsPlannerCreate(comm, &planner);
    TrsPlannerSetFromOptions(planner, options);
    TrsPlannerSetTables(planner, &tables);
    TrsPlannerSetMachine(planner, &machine);      a real run only
    TrsPlannerSetUp(planner);
    TrsPlannerSolve(planner, &plan);              rank 0 plans, all ranks get it
    TrsPlannerDestroy(&planner);

  A pure function of numbers: rank 0 alone can plan for 16,384 devices. Source: TorchRec EmbeddingShardingPlanner.
*/
#pragma once

#include "spec/sharding_plan.h"

typedef struct TrsPlannerImpl *TrsPlanner;

extern const TrsOptionGroup trs_planner_options, trs_topology_options;

/* What a real run knows of itself; the options' own values win where they are given. */
typedef struct {
  PetscBool is_cuda;
  int local_world_size;         /* ranks a host; 0: unknown */
  int64_t hbm_bytes, ddr_bytes; /* of one rank; 0: unknown */
  int num_dense;                /* dense features of the dataset; -num_dense wins */
} TrsPlannerMachine;

/* Collective on comm (keeps a reference). */
PetscErrorCode TrsPlannerCreate(MPI_Comm comm, TrsPlanner *planner);

/*
  TrsPlannerSetFromOptions - Read -topology_, -plan_ and what the cost model needs of the model's options.

  Not collective (same result everywhere).
  Errors: OPTION for contradictions
*/
PetscErrorCode TrsPlannerSetFromOptions(TrsPlanner planner, TrsOptions options);

/* The tables, borrowed until TrsPlannerDestroy(). Not collective. */
PetscErrorCode TrsPlannerSetTables(TrsPlanner planner, const TrsTableConfigs *tables);

/* This is a real run on this machine: the world is the communicator's. Without this call it is a dry run. Not collective. */
PetscErrorCode TrsPlannerSetMachine(TrsPlanner planner, const TrsPlannerMachine *machine);

/* Check options against each other and fix the topology. Not collective. Errors: OPTION. */
PetscErrorCode TrsPlannerSetUp(TrsPlanner planner);

/*
  TrsPlannerSolve - Make the plan, or read it (-plan_input), on rank 0 and hand it to all ranks.

  Collective on the planner's communicator. Writes -plan_output, -plan_search_space and -plan_report on rank 0.

  Out:    plan  the same on all ranks; free with TrsShardingPlanFree()
  Errors: NO_PLAN with what is short, by how many bytes, and the options that relax it; OPTION; DATA, NO_INPUT for -plan_input;
          CANT_CREATE, IO for the outputs
*/
PetscErrorCode TrsPlannerSolve(TrsPlanner planner, TrsShardingPlan *plan);

PetscErrorCode TrsPlannerDestroy(TrsPlanner *planner);
