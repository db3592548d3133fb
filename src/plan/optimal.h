/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Better plans than TorchRec's proposers find, under the same cost model, and a proof of how much better any plan could be.
*/
#pragma once

#include "plan/plan_result.h"

/*
  TrsOptimise - Improve a plan by local search over all options and placements until nothing helps or the time is over.

  Not collective. The result is never worse: neither its critical path nor its slowest rank.

  In:     time_s  limit
  InOut:  plan    a valid plan from this search space
  Out:    lower_bound_ms  no plan of this search space has a shorter critical path
*/
PetscErrorCode TrsOptimise(const TrsCostModel *model, const TrsSearchSpace *space,
                           const TrsReservation *reservation, double time_s, TrsShardingPlan *plan,
                           double *lower_bound_ms);
