/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the optimal proposer share: a search over plan states. */
#pragma once

#include "plan/optimal.h"
#include "plan/optimal_state.h"

typedef struct {
  const TrsSearchSpace *space;
  TrsPlanState state;
  TrsBestPlan *best; /* in space order of tables */
  double best_ms;    /* its path */
  double bound_ms;   /* no plan is below */
  double end_s;      /* time limit, by TrsPlanCpuClock() */
  int64_t end_work;  /* the budget: state.work where the search ends */
  uint64_t random;
  int *ruined;                      /* tables that are out */
  const TrsPlanOption **old_option; /* what they were */
  int **old_rank, *old_capacity;
  int *critical, n_critical; /* tables to take out */
  int *order;                /* of insertion */
  double *weight;            /* [n_tables] least total ms of a table's options */
  int *slot_of;              /* [tables] index in the space */
} TrsSearch;

/* A random number below n: xorshift64*, the same on every machine. Not collective. */
int TrsSearchDraw(TrsSearch *s, int n);

/* Copy the state, which is complete, to a plan; to s->best if it is the shortest so far. Not collective. */
PetscErrorCode TrsSearchSave(TrsSearch *s, TrsBestPlan *plan);
PetscErrorCode TrsSearchKeep(TrsSearch *s);

/* Make the state that of a plan. Not collective. */
PetscErrorCode TrsSearchLoad(TrsSearch *s, const TrsBestPlan *plan);

/* Is the best plan at the bound, or the budget or the time over? Not collective. */
PetscBool TrsSearchIsOver(const TrsSearch *s);

/* Put table t, which is out, on its best option and ranks. Not collective. Out: placed, false when it has no place. */
PetscErrorCode TrsSearchInsert(TrsSearch *s, int t, PetscBool *placed);

/* Sort tables by their least cost, the largest first. Not collective. */
void TrsSearchSort(const TrsSearch *s, int n, int *table);

/*
  TrsSearchWalk - Ruin and recreate from the state on, until some work is done or the search is over.

  Not collective. Half of the moves take out tables that make a part of the path as long as it is, some of these forbid the
  sharding type of that part to all of them, so that several tables change their types at once.

  In:     work  of state.work
*/
PetscErrorCode TrsSearchWalk(TrsSearch *s, int64_t work);

/*
  TrsSearchConstruct - Build a plan where no proposer has one.

  Not collective. Tables go in one by one; when one has no place, it goes in earlier in the next attempt (Joslin and Clements,
  Squeaky Wheel Optimization, J. Artif. Intell. Res. 10, 1999). Attempts that look at the critical path take turns with attempts
  that only pack memory.

  Out:    found     whether the state is complete now
          attempts  that were made
*/
PetscErrorCode TrsSearchConstruct(TrsSearch *s, PetscBool *found, int *attempts);

/*
  TrsSearchRestart - Build a state from nothing with sharding types forbidden (a bit each), and at a price of memory.

  Not collective.
  In:     wanted  [n_tables] options to take where they fit; NULL: any
  Out:    found   whether the state is complete now
*/
PetscErrorCode TrsSearchRestart(TrsSearch *s, unsigned forbidden, double price_ms,
                                const TrsPlanOption *const *wanted, PetscBool *found);
