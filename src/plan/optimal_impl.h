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
  uint64_t random;
  int *ruined;                      /* tables that are out */
  const TrsPlanOption **old_option; /* what they were */
  int **old_rank, *old_capacity;
  int *critical, n_critical; /* tables with a shard on the slowest rank */
  int *order;                /* of insertion */
  double *weight;            /* [n_tables] least total ms of a table's options */
  int *slot_of;              /* [tables] index in the space */
} TrsSearch;

/* A random number below n: xorshift64*, the same on every machine. Not collective. */
int TrsSearchDraw(TrsSearch *s, int n);

/* Keep the state, which is complete, as the best plan. Not collective. */
PetscErrorCode TrsSearchKeep(TrsSearch *s);

/* Put table t, which is out, on its best option and ranks. Not collective. Out: placed, false when it has no place. */
PetscErrorCode TrsSearchInsert(TrsSearch *s, int t, PetscBool *placed);

/*
  TrsSearchConstruct - Build a plan where no proposer has one.

  Not collective. Tables go in one by one; when one has no place, it goes in earlier in the next attempt (Joslin and Clements,
  Squeaky Wheel Optimization, J. Artif. Intell. Res. 10, 1999). Attempts that look at the critical path take turns with attempts
  that only pack memory.

  Out:    found     whether the state is complete now
          attempts  that were made
*/
PetscErrorCode TrsSearchConstruct(TrsSearch *s, double end_s, PetscBool *found, int *attempts);
