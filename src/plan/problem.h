/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A planning problem and its solution on one rank. The planner solves the user's problem. To give
  advice, it also solves variants that differ in a few options.
*/
#pragma once

#include "plan/optimal/optimal.h"
#include "plan/planner_inputs.h"
#include "plan/replica_choice.h"

typedef struct {
  /* The inputs. All of them are borrowed. */
  TrsOptions options;
  const TrsTableConfigs *tables;
  int n_ranks; /* number of ranks, used if no option sets it */
  PetscBool has_machine;
  TrsPlannerMachine machine;
  TrsDenseModel describe_dense; /* NULL: no dense layers */
  int num_dense;                /* number of dense features in the dataset */
  TrsTablesReader read_tables;  /* NULL: advice cannot try other table options */
  void *context;                /* argument of read_tables */
  /* The following fields are set by TrsProblemSetUp(). */
  PetscBool chooses_replicas;
  TrsTopologyDefaults defaults;
  TrsTopology topology;
  TrsPlanSettings settings;
  double *shared_miss; /* [tables->n] miss rates in shared caches, or NULL */
  TrsCostModel model;  /* its pointers refer to tables, topology, settings and shared_miss */
} TrsProblem;

typedef struct {
  TrsReservation reservation;
  TrsSearchSpace space;
  int table_alone; /* the result of TrsEnumerate() */
  TrsPlanSearch search;
  /* the optimal proposer's result; if the proposer did not run, the result has no bound */
  TrsOptimum optimum;
  /* critical path of the best plan before the optimal proposer ran; 0 if there was no plan, or if
     the proposer did not run */
  double default_path_ms;
  TrsReplicaChoice choice;
} TrsSolution;

/*
  TrsProblemSetUp - Read the options and check them.

  Not collective. The caller must set the inputs. The call overwrites all other fields. Free with
  TrsProblemFree().

  Errors: OPTION, in a real run also for a table whose device group is not the run's device
*/
PetscErrorCode TrsProblemSetUp(TrsProblem *problem);
PetscErrorCode TrsProblemFree(TrsProblem *problem);

/* Set the number of copies of the tables; 0: use the options' value. Not collective. */
PetscErrorCode TrsProblemSetReplicas(TrsProblem *problem, int replicas);

/*
  TrsProblemSolve - Choose the number of copies, compute the reservation, list the options, run the
    proposers, and run the optimal proposer if the settings name it.

  Not collective. If there is no plan, solution->search.best.found is false. Then
  TrsPlanDiagnose() can explain the failure.

  InOut: problem   its topology is replaced by the topology for the chosen number of copies
         solution  the call frees the old contents; free the result with TrsSolutionFree()
*/
PetscErrorCode TrsProblemSolve(TrsProblem *problem, TrsSolution *solution);
PetscErrorCode TrsSolutionFree(TrsSolution *solution);

/*
  TrsProblemTryOptimal - Estimate the result that -plan_proposers optimal would give.

  Not collective. The search takes advice_s, but at most half of -plan_optimal_seconds. It is
  thus the first part of the search that the user would get with -plan_proposers optimal.

  Out:  optimum  path_ms is 0 if the proposer was not tried. This is the case if the user already
                 uses it, advice_s is 0, there is no plan to compare with, or a time limit stopped
                 the proposers
*/
PetscErrorCode TrsProblemTryOptimal(const TrsProblem *problem, const TrsSolution *solution,
                                    TrsOptimum *optimum);
