/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A planning problem, and its solution on one rank. The planner solves the problem that a user
  gives, and advice solves others that differ in a few options.
*/
#pragma once

#include "plan/optimal/optimal.h"
#include "plan/planner_inputs.h"
#include "plan/replica_choice.h"

typedef struct {
  /* Inputs, all borrowed. */
  TrsOptions options;
  const TrsTableConfigs *tables;
  int n_ranks; /* the world's size if the options give none */
  PetscBool has_machine;
  TrsPlannerMachine machine;
  TrsDenseModel describe_dense; /* NULL: no dense layers */
  int num_dense;                /* of the dataset */
  TrsTablesReader read_tables;  /* NULL: the options of tables cannot be tried */
  void *context;                /* of read_tables */
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
  int table_alone; /* of TrsEnumerate() */
  TrsPlanSearch search;
  TrsOptimum optimum;     /* of the optimal proposer; without a bound if it did not run */
  double default_path_ms; /* the path from which the optimal proposer started, 0 without one */
  TrsReplicaChoice choice;
} TrsSolution;

/*
  TrsProblemSetUp - Read the options and check them.

  Not collective. Nothing of *problem but its inputs counts. Free it with TrsProblemFree().

  Errors: OPTION, in a real run also for a table with a device group that is not the run's device
*/
PetscErrorCode TrsProblemSetUp(TrsProblem *problem);
PetscErrorCode TrsProblemFree(TrsProblem *problem);

/* Plan for so many copies of the tables; 0: as the options say. Not collective. */
PetscErrorCode TrsProblemSetReplicas(TrsProblem *problem, int replicas);

/*
  TrsProblemSolve - Choose the number of copies, reserve, enumerate, search, and let the optimal
    proposer go on.

  Not collective. solution->search.best is not found if there is no plan (TrsPlanDiagnose()).

  InOut: problem   its topology is that of the chosen number of copies
         solution  freed first; free it with TrsSolutionFree()
*/
PetscErrorCode TrsProblemSolve(TrsProblem *problem, TrsSolution *solution);
PetscErrorCode TrsSolutionFree(TrsSolution *solution);

/*
  TrsProblemTryOptimal - Find out what -plan_proposers optimal would give in the place of the
    problem's proposers.

  Not collective. The search takes advice_s, and at most half of -plan_optimal_seconds, so that it
  is the beginning of the search that a user with this option gets.

  Out:  optimum  path_ms is 0 if the proposer was not tried: the user has it already, advice_s is 0,
                 there is no plan to compare with, or a time limit cut a list of proposers
*/
PetscErrorCode TrsProblemTryOptimal(const TrsProblem *problem, const TrsSolution *solution,
                                    TrsOptimum *optimum);
