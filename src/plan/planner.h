/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The planner makes a ShardingPlan from options, tables and a topology.

    TrsPlannerCreate(comm, &planner);
    TrsPlannerSetFromOptions(planner, options);
    TrsPlannerSetTables(planner, &tables);
    TrsPlannerSetMachine(planner, &machine);      only in a real run
    TrsPlannerSetWriter(planner, write);          only if files are wanted
    TrsPlannerSetSummary(planner, read, context); only if a person reads the answer
    TrsPlannerSetDenseModel(planner, describe, n);  only if there are dense layers
    TrsPlannerSetUp(planner);
    TrsPlannerSolve(planner, &plan);              rank 0 plans, all ranks get the plan
    TrsPlannerDestroy(&planner);

  The planner is a pure function of numbers: rank 0 alone can plan for 16,384 devices. Source:
  TorchRec EmbeddingShardingPlanner.
*/
#pragma once

#include "plan/plan_settings.h"
#include "plan/planner_inputs.h"
#include "plan/topology.h"
#include "spec/sharding_plan.h"

typedef struct TrsPlannerImpl *TrsPlanner;

/*
  Write a text as the whole file `path`, or to stdout. text NULL only checks that the file can be
  made. The planner itself knows nothing of disks. On rank 0, not collective. Errors: CANT_CREATE,
  IO with `option` and the path.
*/
typedef PetscErrorCode (*TrsPlanWriter)(TrsOptions options, const char *option, const char *path,
                                        const TrsText *text);

/* Create a planner. Collective on comm (keeps a reference). */
PetscErrorCode TrsPlannerCreate(MPI_Comm comm, TrsPlanner *planner);

/*
  TrsPlannerSetFromOptions - Read -topology_, -plan_ and the options of the model that the cost
    model needs.

  Not collective: the result is the same on all ranks.

  Errors: OPTION for contradictions
*/
PetscErrorCode TrsPlannerSetFromOptions(TrsPlanner planner, TrsOptions options);

/* Set the tables, borrowed until TrsPlannerDestroy(). Not collective. */
PetscErrorCode TrsPlannerSetTables(TrsPlanner planner, const TrsTableConfigs *tables);

/*
  Declare a real run on this machine, whose world is the communicator's. Without this call it is a
  dry run. Not collective.
*/
PetscErrorCode TrsPlannerSetMachine(TrsPlanner planner, const TrsPlannerMachine *machine);

/*
  Set the writer of -plan_output, -plan_search_space, -plan_report and -plan_explain. Without this
  call nothing is written. Not collective.
*/
PetscErrorCode TrsPlannerSetWriter(TrsPlanner planner, TrsPlanWriter writer);

/*
  Let TrsPlannerSolve() also write the value of the plan in about ten lines before all else, or the
  changes that would make the tables fit. The text goes to stdout by the writer. This takes
  -plan_advice_seconds. Not collective.

  In:  read_tables  reads the tables again, because advice tries other options of tables
       context      of read_tables; borrowed until TrsPlannerDestroy()
*/
PetscErrorCode TrsPlannerSetSummary(TrsPlanner planner, TrsTablesReader read_tables, void *context);

/*
  Set who describes the dense layers, and the number of the dataset's dense features. -num_dense
  wins over that number. The layers are asked for where -plan_dense_parameter_bytes is not given,
  and for the measured cost model. Without this call they have no parameters. Not collective.
*/
PetscErrorCode TrsPlannerSetDenseModel(TrsPlanner planner, TrsDenseModel model, int num_dense);

/*
  Check options against each other and fix the topology. Not collective. Errors: OPTION, in a real
  run also for a table with a device group that is not the run's device.
*/
PetscErrorCode TrsPlannerSetUp(TrsPlanner planner);

/*
  TrsPlannerSolve - Make the plan, or read it (-plan_input), on rank 0 and give it to all ranks.

  Collective on the planner's communicator. Rank 0 checks the files' paths before the search, and
  writes the files when their texts are known.

  Out:    plan  the same on all ranks; free with TrsShardingPlanFree()
  Errors: NO_PLAN with the memory that is short, by how many bytes, and the options that relax the
          shortage; OPTION; DATA, NO_INPUT for -plan_input; CANT_CREATE, IO for the outputs
*/
PetscErrorCode TrsPlannerSolve(TrsPlanner planner, TrsShardingPlan *plan);

/* The world of all copies of the tables. The plan is that of one copy. */
typedef struct {
  int replicas;      /* copies: -plan_replicas, or the planner's choice */
  int ranks;         /* of all copies */
  double between_bw; /* bytes/ms between these ranks, over hosts if there are several */
  double sync_ms;    /* of a step, to keep the copies equal */
} TrsPlannedWorld;

/* What the last TrsPlannerSolve() planned for. Not collective: the same on all ranks. */
TrsPlannedWorld TrsPlannerWorld(TrsPlanner planner);

PetscErrorCode TrsPlannerDestroy(TrsPlanner *planner);
