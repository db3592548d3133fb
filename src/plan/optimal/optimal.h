/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The optimal proposer finds better plans than TorchRec's proposers, under the same cost model.

  It is a local search: take some tables out, and put each table back with the option and ranks that
  lengthen the critical path least. Keep the result if the path is not longer (ruin and recreate:
  Schrimpf et al., J. Comput. Phys. 159(2), 2000). Rounds of search from many starts alternate with
  rounds that raise the lower bound. The options that the bound chooses are one of the next starts.
*/
#pragma once

#include "plan/search/plan_search.h"

typedef struct {
  double path_ms;  /* the plan's path; HUGE_VAL: no plan was found */
  double bound_ms; /* no plan is shorter; HUGE_VAL: proven that there is no plan */
  double cpu_s;    /* CPU seconds of the search */
  int attempts;    /* attempts to build a plan; 0: there was a plan */
  /* The time limit ended the search, so a faster machine may find another plan. */
  PetscBool by_time;
} TrsOptimum;

/*
  TrsOptimise - Improve the best plan of a search.

  Not collective. The function ends when the plan is proven best, the work budget is used, or the
  time is over. The critical path never becomes longer. If the search found no plan, the function
  makes many attempts to build a plan. Their failure proves nothing.

  The budget is a fixed number of search steps for each second of the limit. A current core needs
  about half of the limit for the steps. Unless the limit ends the search (by_time), the result is
  the same on every machine, however busy. The path does not count prefetches; if options prefetch,
  the slowest rank's total does not become longer either.

  Rounds do not depend on the budget. So a search is the beginning of every search with a larger
  budget, and a larger budget never gives a longer path.

  In:     time_s  limit in CPU seconds
  InOut:  best    the best plan of a TrsPlanSearch
*/
PetscErrorCode TrsOptimise(const TrsCostModel *model, const TrsSearchSpace *space,
                           const TrsReservation *reservation, double time_s, TrsBestPlan *best,
                           TrsOptimum *optimum);
