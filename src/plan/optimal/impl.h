/* SPDX-License-Identifier: BSD-3-Clause */
/* The search over plan states that the files of the optimal proposer share. */
#pragma once

#include "plan/optimal/optimal.h"
#include "plan/optimal/optimal_state.h"

typedef struct {
  const TrsSearchSpace *space;
  TrsPlanState state;
  TrsBestPlan *best; /* its tables are in the order of the space */
  double best_ms;    /* path of the best plan */
  double bound_ms;   /* no plan is below this */
  double end_s;      /* time limit, by TrsPlanCpuClock() */
  int64_t end_work;  /* the budget: the search ends at this state.work */
  int64_t round_end; /* a round ends at this state.work, however large the budget is */
  uint64_t random;
  int *ruined;                      /* tables that were taken out */
  const TrsPlanOption **old_option; /* options of the tables taken out */
  int **old_rank, *old_capacity;
  int *critical, n_critical; /* tables that may be taken out */
  int *order;                /* order of insertion */
  double *weight;            /* [n_tables] least total ms of a table's options */
  int *by_weight;            /* [n_tables] tables, the largest weight first */
  int *index_of;             /* [tables] index of a table in the space */
} TrsSearch;

/* A random number below n (xorshift64*), the same on every machine. Not collective. */
int TrsSearchDraw(TrsSearch *s, int n);

/*
  Copy the state, which must be complete, to s->best if it is the shortest so far. Not collective.
*/
PetscErrorCode TrsSearchKeep(TrsSearch *s);

/*
  Tell whether the best plan is at the bound, or the budget or the time is used up. Not collective.
*/
PetscBool TrsSearchIsOver(const TrsSearch *s);

/*
  Tell whether the time is over. Ask this before insertion k of many: it looks at the clock only now
  and then.
*/
PetscBool TrsSearchIsLate(const TrsSearch *s, int k);

/*
  Put table t, which is out, on its best option and ranks. Not collective. Out: placed, false if
  there is no place.
*/
PetscErrorCode TrsSearchInsert(TrsSearch *s, int t, PetscBool *placed);

/* Sort a few tables by their least cost, the largest first. Not collective. */
void TrsSearchSort(const TrsSearch *s, int n, int *table);

/* Order tables by their keys, the largest first, equal ones by number. Not collective. */
PetscErrorCode TrsSearchOrder(int n, const double *key, int *table);

/*
  TrsSearchWalk - Ruin and recreate from the state on, until some work is done or the search is
    over.

  Not collective. Half of the moves take out tables that determine the length of a part of the path.
  Some of these moves forbid the sharding type of that part to all tables taken out, so that several
  tables change their types at once.

  In:     work  in units of state.work
*/
PetscErrorCode TrsSearchWalk(TrsSearch *s, int64_t work);

/*
  TrsSearchConstruct - Build a plan if no proposer has one.

  Not collective. Tables go in one by one. A table without a place goes in earlier in the next
  attempt (Joslin and Clements, Squeaky Wheel Optimization, J. Artif. Intell. Res. 10, 1999).
  Attempts that look at the critical path alternate with attempts that only pack memory.

  Out:    found     whether the state is complete now
          attempts  number of attempts
*/
PetscErrorCode TrsSearchConstruct(TrsSearch *s, PetscBool *found, int *attempts);

/*
  TrsSearchRestart - Build a state from nothing.

  Not collective.

  In:     forbidden  sharding types that may not be used, one bit each
          price_ms   price of memory
          wanted     [n_tables] options to take if they fit; NULL: any
  Out:    found      whether the state is complete now; the time may end it before
*/
PetscErrorCode TrsSearchRestart(TrsSearch *s, unsigned forbidden, double price_ms,
                                const TrsPlanOption *const *wanted, PetscBool *found);
