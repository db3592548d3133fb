/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The optimal proposer finds better plans than TorchRec's proposers, under the same cost model.

  It is a local search: take some tables out, and put each back where it lengthens the critical path
  least, over all of its options and all ranks. Keep the result if it is not longer (ruin and
  recreate: Schrimpf et al., J. Comput. Phys. 159(2), 2000). Rounds of search, from many starts,
  alternate with rounds that raise the lower bound. The options that the bound chooses are one of
  the next starts.
*/
#pragma once

#include "plan/plan_search.h"

typedef struct {
  double path_ms;  /* path of the plan, HUGE_VAL if none was found */
  double bound_ms; /* no plan is below this; HUGE_VAL if proven that there is no plan */
  double cpu_s;    /* time it took, in seconds of a core */
  int attempts;    /* attempts to build a plan, 0 if there was one */
  /* The time limit ended the search, so a faster machine may find another plan. */
  PetscBool by_time;
} TrsOptimum;

/*
  TrsOptimise - Improve the best plan of a search.

  The function ends when the plan is proven best, the budget of work is used, or the time is over.
  Not collective. The critical path of the result is never longer. If the search found no plan, many
  attempts are made to build one. Their failure proves nothing.

  The budget is counted in steps of the search, a fixed number for each second of the limit. A core
  of today needs about half of the limit for them. Unless the limit ends the search (by_time), the
  result is the same on every machine, however busy. If options prefetch, which the path does not
  count, the slowest rank's total is kept, too.

  Rounds of search do not depend on the budget. So the search is the beginning of each search with a
  larger budget, whose path is never longer.

  In:     time_s  limit, in seconds of a core
  InOut:  best    of a TrsPlanSearch
*/
PetscErrorCode TrsOptimise(const TrsCostModel *model, const TrsSearchSpace *space,
                           const TrsReservation *reservation, double time_s, TrsBestPlan *best,
                           TrsOptimum *optimum);
