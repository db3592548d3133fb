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

  The planner is a pure function of numbers: a single rank can plan for 16,384 devices.

  Source: TorchRec EmbeddingShardingPlanner
*/
#pragma once

#include "plan/plan_settings.h"
#include "plan/planner_inputs.h"
#include "plan/topology.h"
#include "spec/sharding_plan.h"

typedef struct TrsPlannerImpl *TrsPlanner;

/*
  Write a text as the whole file `path`, or to stdout. text NULL: only check that the file can be
  made. The planner itself does not access disks. Called on rank 0 only, not collective. Errors:
  CANT_CREATE, IO with `option` and the path.
*/
typedef PetscErrorCode (*TrsPlanWriter)(TrsOptions options, const char *option, const char *path,
                                        const TrsText *text);

/* Create a planner. Collective on comm (keeps a reference). */
PetscErrorCode TrsPlannerCreate(MPI_Comm comm, TrsPlanner *planner);

/*
  TrsPlannerSetFromOptions - Read -topology_, -plan_ and the model's options that the cost model
    needs.

  Not collective: the result is the same on all ranks.

  Errors: OPTION for contradictions
*/
PetscErrorCode TrsPlannerSetFromOptions(TrsPlanner planner, TrsOptions options);

/* Set the tables, borrowed until TrsPlannerDestroy(). Not collective. */
PetscErrorCode TrsPlannerSetTables(TrsPlanner planner, const TrsTableConfigs *tables);

/*
  Declare a real run on this machine, with the communicator's ranks as the world. Without this call
  the planner does a dry run. Not collective.
*/
PetscErrorCode TrsPlannerSetMachine(TrsPlanner planner, const TrsPlannerMachine *machine);

/*
  Set the writer for -plan_output, -plan_search_space, -plan_report and -plan_explain. Without this
  call the planner writes nothing. Not collective.
*/
PetscErrorCode TrsPlannerSetWriter(TrsPlanner planner, TrsPlanWriter writer);

/*
  Make TrsPlannerSolve() first write about ten lines on the plan's value, or, without a plan, the
  changes that would make the tables fit. The writer gets stdout as the path. This takes
  -plan_advice_seconds. Not collective.

  In:  read_tables  reads the tables again, because advice tries other table options
       context      argument of read_tables; borrowed until TrsPlannerDestroy()
*/
PetscErrorCode TrsPlannerSetSummary(TrsPlanner planner, TrsTablesReader read_tables, void *context);

/*
  Set the function that describes the dense layers, and the dataset's number of dense features,
  which -num_dense overrides. The function is called if -plan_dense_parameter_bytes is not given,
  and for the measured cost model. Without this call the model has no dense parameters. Not
  collective.
*/
PetscErrorCode TrsPlannerSetDenseModel(TrsPlanner planner, TrsDenseModel model, int num_dense);

/*
  Check the options against each other and fix the topology. Not collective. Errors: OPTION, in a
  real run also for a table whose device group is not the run's device.
*/
PetscErrorCode TrsPlannerSetUp(TrsPlanner planner);

/*
  TrsPlannerSolve - Make the plan on rank 0, or read it (-plan_input), and send it to all ranks.

  Collective on the planner's communicator. Rank 0 checks the output paths before the search, and
  writes each file once its text is complete.

  Out:    plan  the same on all ranks; free with TrsShardingPlanFree()
  Errors: NO_PLAN with the missing bytes of memory and the options that relax the shortage; OPTION;
          DATA, NO_INPUT for -plan_input; CANT_CREATE, IO for the outputs
*/
PetscErrorCode TrsPlannerSolve(TrsPlanner planner, TrsShardingPlan *plan);

/* The world of all copies of the tables. The plan describes one copy. */
typedef struct {
  int replicas;      /* number of copies: -plan_replicas, or the planner's choice */
  int ranks;         /* ranks of all copies together */
  double between_bw; /* bytes/ms between these ranks; between hosts if there are several */
  double sync_ms;    /* time per step to keep the copies equal */
} TrsPlannedWorld;

/* The world of the last TrsPlannerSolve(). Not collective (same result everywhere). */
TrsPlannedWorld TrsPlannerWorld(TrsPlanner planner);

PetscErrorCode TrsPlannerDestroy(TrsPlanner *planner);
