/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The optimal proposer: better plans than TorchRec's proposers find, under the same cost model.

  Local search: take some tables out, put each back where it lengthens the critical path least, over all of its options and all ranks, keep
  the result if it is not longer (ruin and recreate: Schrimpf et al., J. Comput. Phys. 159(2), 2000).
*/
#pragma once

#include "plan/plan_search.h"

/*
  TrsOptimise - Improve the best plan of a search until nothing helps, the bound is reached or the time is over.

  Not collective. The result is never worse: neither its critical path nor its slowest rank. Where the search found no plan, one is
  built in many attempts; that none of them succeeds proves nothing.

  In:     time_s  limit
          bound_ms  TrsPlanLowerBound()
  InOut:  best    of a TrsPlanSearch
  Out:    attempts  to build a plan, 0: there was one
*/
PetscErrorCode TrsOptimise(const TrsCostModel *model, const TrsSearchSpace *space,
                           const TrsReservation *reservation, double time_s, double bound_ms,
                           TrsBestPlan *best, int *attempts);
