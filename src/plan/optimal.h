/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The optimal proposer: better plans than TorchRec's proposers find, under the same cost model.

  Local search: take some tables out, put each back where it lengthens the critical path least, over all of its options and all ranks, keep
  the result if it is not longer (ruin and recreate: Schrimpf et al., J. Comput. Phys. 159(2), 2000). Rounds of search, from many
  starts, take turns with rounds that raise the lower bound; what the bound chooses is one of the next starts.
*/
#pragma once

#include "plan/plan_search.h"

typedef struct {
  double bound_ms;   /* no plan is below; HUGE_VAL: there is none at all, proven */
  int attempts;      /* to build a plan, 0: there was one */
  PetscBool by_time; /* the time limit ended it, so a faster machine may find another plan */
} TrsOptimum;

/*
  TrsOptimise - Improve the best plan of a search until it is proven best, the budget of work is used or the time is over.

  Not collective. The critical path of the result is never longer. Where the search found no plan, one is built in many attempts;
  that none of them succeeds proves nothing. The budget is counted in steps of the search, so many for a second of the limit.
  A core of today needs about half of the limit for them, and unless the limit ends the search (by_time) the result is the same
  on every machine, however busy. Where options prefetch, which the path does not count, the slowest rank's total is kept, too.

  In:     time_s  limit, in seconds of a core
  InOut:  best    of a TrsPlanSearch
*/
PetscErrorCode TrsOptimise(const TrsCostModel *model, const TrsSearchSpace *space,
                           const TrsReservation *reservation, double time_s, TrsBestPlan *best,
                           TrsOptimum *optimum);
