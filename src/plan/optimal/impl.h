/* SPDX-License-Identifier: BSD-3-Clause */
/* The search over plan states, shared by the optimal proposer's files. */
#pragma once

#include "plan/optimal/optimal.h"
#include "plan/optimal/optimal_state.h"

typedef struct {
  const TrsSearchSpace *space;
  TrsPlanState state;
  TrsBestPlan *best; /* its tables are in the space's order */
  double best_ms;    /* the best plan's path */
  double bound_ms;   /* no plan has a shorter path */
  double end_s;      /* time limit, by TrsPlanCpuClock() */
  int64_t end_work;  /* the budget: the search ends when state.work reaches this */
  int64_t round_end; /* the round ends when state.work reaches this, whatever the budget */
  uint64_t random;
  int *ruined;                      /* tables that were taken out */
  const TrsPlanOption **old_option; /* options of the ruined tables */
  int **old_rank, *old_capacity;
  int *critical, n_critical; /* tables that may be taken out */
  int *order;                /* insertion order */
  double *weight;            /* [n_tables] least total ms among the table's options */
  int *by_weight;            /* [n_tables] tables, largest weight first */
  int *index_of;             /* [tables] the table's index in the space */
} TrsSearch;

/* A random number below n (xorshift64*), the same on every machine. Not collective. */
int TrsSearchDraw(TrsSearch *s, int n);

/*
  Copy the state to s->best if its path is the shortest so far. The state must be complete. Not
  collective.
*/
PetscErrorCode TrsSearchKeep(TrsSearch *s);

/* True if the best plan has reached the bound, or the budget or the time is used up. Not
   collective. */
PetscBool TrsSearchIsOver(const TrsSearch *s);

/*
  True if the time is over. For use before insertion k of many: reads the clock only for some k. Not
  collective.
*/
PetscBool TrsSearchIsLate(const TrsSearch *s, int k);

/*
  Insert table t with its best option and ranks. The table must be out. *placed is false if nothing
  fits. Not collective.
*/
PetscErrorCode TrsSearchInsert(TrsSearch *s, int t, PetscBool *placed);

/* Sort a few tables by weight, largest first. Not collective. */
void TrsSearchSort(const TrsSearch *s, int n, int *table);

/* List all tables by descending key; equal keys by table number. Not collective. */
PetscErrorCode TrsSearchOrder(int n, const double *key, int *table);

/*
  TrsSearchWalk - Ruin and recreate, starting from the state, until `work` is done or the search is
    over.

  Not collective. Half of the moves take out tables that determine the length of a part of the path.
  Some of these moves forbid this part's sharding type for all tables taken out, so that several
  tables change their types at once.

  In:     work  in units of state.work
*/
PetscErrorCode TrsSearchWalk(TrsSearch *s, int64_t work);

/*
  TrsSearchConstruct - Build a plan if no proposer found one.

  Not collective. Tables are inserted one by one. A table that does not fit is inserted earlier in
  the next attempt (Joslin and Clements, Squeaky Wheel Optimization, J. Artif. Intell. Res. 10,
  1999). Attempts that minimise the critical path alternate with attempts that only pack memory.

  Out:    found     set if the state is now complete
          attempts  number of attempts
*/
PetscErrorCode TrsSearchConstruct(TrsSearch *s, PetscBool *found, int *attempts);

/*
  TrsSearchRestart - Build a state from nothing.

  Not collective.

  In:     forbidden  sharding types to avoid if possible, one bit each
          price_ms   price of memory
          wanted     [n_tables] options to use if they fit; NULL: no preference
  Out:    found      set if the state is now complete; false if a table does not fit or the time
                     ends
*/
PetscErrorCode TrsSearchRestart(TrsSearch *s, unsigned forbidden, double price_ms,
                                const TrsPlanOption *const *wanted, PetscBool *found);
