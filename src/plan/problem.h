/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A planning problem and its solution on one rank. The planner solves the user's problem; advice
  solves variants that differ in a few options.
*/
#pragma once

#include "plan/optimal/optimal.h"
#include "plan/planner_inputs.h"
#include "plan/replica_choice.h"

typedef struct {
  /* Inputs, all borrowed. */
  TrsOptions options;
  const TrsTableConfigs *tables;
  int n_ranks; /* world size if the options give none */
  PetscBool has_machine;
  TrsPlannerMachine machine;
  TrsDenseModel describe_dense; /* NULL: no dense layers */
  int num_dense;                /* the dataset's dense features */
  TrsTablesReader read_tables;  /* NULL: advice cannot try other table options */
  void *context;                /* argument of read_tables */
  /* Set by TrsProblemSetUp(). */
  PetscBool chooses_replicas;
  TrsTopologyDefaults defaults;
  TrsTopology topology;
  TrsPlanSettings settings;
  double *shared_miss; /* [tables->n] or NULL */
  TrsCostModel model;  /* points to tables, topology, settings and shared_miss */
} TrsProblem;

typedef struct {
  TrsReservation reservation;
  TrsSearchSpace space;
  int table_alone; /* from TrsEnumerate() */
  TrsPlanSearch search;
  TrsOptimum optimum;     /* the optimal proposer's result; no bound if it did not run */
  double default_path_ms; /* critical path before the optimal proposer; 0: no plan, or not run */
  TrsReplicaChoice choice;
} TrsSolution;

/*
  TrsProblemSetUp - Read the options and check them.

  Not collective. The caller must set the inputs; all other fields are overwritten. Free with
  TrsProblemFree().

  Errors: OPTION, in a real run also for a table whose device group is not the run's device
*/
PetscErrorCode TrsProblemSetUp(TrsProblem *problem);
PetscErrorCode TrsProblemFree(TrsProblem *problem);

/* Set the number of copies of the tables; 0: use the options' value. Not collective. */
PetscErrorCode TrsProblemSetReplicas(TrsProblem *problem, int replicas);

/*
  TrsProblemSolve - Choose the number of copies, reserve, enumerate, search, and run the optimal
    proposer if it is set.

  Not collective. If there is no plan, solution->search.best.found is false (TrsPlanDiagnose()).

  InOut: problem   its topology becomes the topology for the chosen number of copies
         solution  freed first; free it with TrsSolutionFree()
*/
PetscErrorCode TrsProblemSolve(TrsProblem *problem, TrsSolution *solution);
PetscErrorCode TrsSolutionFree(TrsSolution *solution);

/*
  TrsProblemTryOptimal - Estimate the result of -plan_proposers optimal instead of the problem's
    proposers.

  Not collective. The search takes advice_s, but at most half of -plan_optimal_seconds. So it is the
  beginning of the search that a user gets with this option.

  Out:  optimum  path_ms is 0 if the proposer was not tried, because the user already uses it,
                 advice_s is 0, there is no plan to compare with, or a time limit stopped a
                 proposer list
*/
PetscErrorCode TrsProblemTryOptimal(const TrsProblem *problem, const TrsSolution *solution,
                                    TrsOptimum *optimum);
