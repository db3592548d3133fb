/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The planner makes a ShardingPlan from options, tables and a topology.

    TrsPlannerCreate(comm, &planner);
    TrsPlannerSetFromOptions(planner, options);
    TrsPlannerSetTables(planner, &tables);
    TrsPlannerSetMachine(planner, &machine);      only in a real run, not in a dry run
    TrsPlannerSetWriter(planner, write);          only if files are wanted
    TrsPlannerSetSummary(planner, read, context); only if a person reads the answer
    TrsPlannerSetDenseModel(planner, describe, n);  only if there are dense layers
    TrsPlannerSetUp(planner);
    TrsPlannerSolve(planner, &plan);              rank 0 plans, all ranks receive the plan
    TrsPlannerDestroy(&planner);

  The planner only computes, so a single rank can plan for 16,384 devices.

  Source: TorchRec EmbeddingShardingPlanner
*/
#pragma once

#include "plan/cost/topology.h"
#include "plan/plan_settings.h"
#include "plan/planner_inputs.h"
#include "spec/sharding_plan.h"

typedef struct TrsPlannerImpl *TrsPlanner;

/*
  A function that writes a text as the whole file `path`, or to stdout. If `text` is NULL, it only
  checks that the file can be created. The planner itself does not access disks. Called on rank 0
  only, not collective. Errors: CANT_CREATE, IO with `option` and the path.
*/
typedef PetscErrorCode (*TrsPlanWriter)(TrsOptions options, const char *option, const char *path,
                                        const TrsText *text);

/* Create a planner. Collective on comm. The planner keeps a reference to comm. */
PetscErrorCode TrsPlannerCreate(MPI_Comm comm, TrsPlanner *planner);

/*
  TrsPlannerSetFromOptions - Read the -topology_ and -plan_ options, and the model's options that
    the cost model uses.

  Not collective: the result is the same on all ranks.

  Errors: OPTION for contradictions
*/
PetscErrorCode TrsPlannerSetFromOptions(TrsPlanner planner, TrsOptions options);

/* Set the tables, borrowed until TrsPlannerDestroy(). Not collective. */
PetscErrorCode TrsPlannerSetTables(TrsPlanner planner, const TrsTableConfigs *tables);

/*
  Declare a real run on this machine, in which the communicator's ranks are the world. Without this
  call, the planner does a dry run. Not collective.
*/
PetscErrorCode TrsPlannerSetMachine(TrsPlanner planner, const TrsPlannerMachine *machine);

/*
  Set the function that writes the files of -plan_output, -plan_search_space, -plan_report and
  -plan_explain. Without this call, the planner writes no files. Not collective.
*/
PetscErrorCode TrsPlannerSetWriter(TrsPlanner planner, TrsPlanWriter writer);

/*
  Make TrsPlannerSolve() first write about ten lines on the plan's value. If there is no plan, it
  writes the changes that would make the tables fit. The writer gets stdout as the path. The search
  for this advice takes -plan_advice_seconds. Not collective.

  In:  read_tables  reads the tables again, because advice tries other table options
       context      argument of read_tables; borrowed until TrsPlannerDestroy()
*/
PetscErrorCode TrsPlannerSetSummary(TrsPlanner planner, TrsTablesReader read_tables, void *context);

/*
  Set the function that describes the dense layers, and the number of dense features in the dataset.
  -num_dense overrides this number. The planner calls the function for the measured cost model, and
  if -plan_dense_parameter_bytes is not given. Without this call, the model has no dense parameters.
  Not collective.
*/
PetscErrorCode TrsPlannerSetDenseModel(TrsPlanner planner, TrsDenseModel model, int num_dense);

/*
  Check that the options fit each other, and set the topology. Not collective. Errors: OPTION, in a
  real run also for a table whose device group is not the run's device.
*/
PetscErrorCode TrsPlannerSetUp(TrsPlanner planner);

/*
  TrsPlannerSolve - Make the plan on rank 0 or read it there (-plan_input), and send it to all
    ranks.

  Collective on the planner's communicator. Rank 0 checks the output paths before the search, and
  writes each file as soon as its text is complete.

  Out:    plan  the same on all ranks; free with TrsShardingPlanFree()
  Errors: NO_PLAN with the missing bytes of memory and the options that relax the shortage; OPTION;
          DATA, NO_INPUT for -plan_input; CANT_CREATE, IO for the outputs
*/
PetscErrorCode TrsPlannerSolve(TrsPlanner planner, TrsShardingPlan *plan);

/* All ranks of all copies of the tables. The plan describes one copy. */
typedef struct {
  int replicas; /* number of copies: -plan_replicas, or the number that the planner chose */
  int ranks;    /* ranks of all copies together */
  /* bandwidth between the copies in bytes/ms; between hosts if there are several hosts */
  double between_bw;
  double sync_ms; /* time per step for keeping the copies equal */
} TrsPlannedWorld;

/*
  The ranks and copies of the last TrsPlannerSolve(). Not collective, because the result is the same
  on all ranks.
*/
TrsPlannedWorld TrsPlannerWorld(TrsPlanner planner);

PetscErrorCode TrsPlannerDestroy(TrsPlanner *planner);
