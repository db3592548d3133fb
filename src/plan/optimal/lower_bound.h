/* SPDX-License-Identifier: BSD-3-Clause */
/* A critical path that no plan of a search space can beat. */
#pragma once

#include "plan/cost/storage_reservation.h"
#include "plan/search/search_space.h"

/*
  TrsPlanLowerBound - Prove a lower bound on the critical path, in ms, by relaxation and branching.

  Not collective. The path's parts are compute, and comms of each module and sharding type, forward
  and backward. The slowest rank's loads in the parts lie in some box of bound_dual.h. The function
  repeatedly splits the box with the lowest bound in two by one part's load. Plans above the split
  value count at least this value; plans below it cannot have longer shards. If the work or the time
  ends early, the bound is lower but still valid.

  In:     upper_ms  a known plan's path; HUGE_VAL: no plan is known
          work      budget in options looked at, the same on every machine
          end_s     time limit, by TrsPlanCpuClock()
  Out:    wanted    [n_tables] the options of the box with the lowest bound; unchanged if no box is
                    open or the time is over
          bound_ms  HUGE_VAL: proven that there is no plan at all; only if no plan is known
*/
PetscErrorCode TrsPlanLowerBound(const TrsCostModel *model, const TrsSearchSpace *space,
                                 const TrsReservation *reservation, double upper_ms, int64_t work,
                                 double end_s, const TrsPlanOption **wanted, double *bound_ms);
