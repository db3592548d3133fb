/* SPDX-License-Identifier: BSD-3-Clause */
/* A critical path that no plan of a search space can beat. */
#pragma once

#include "plan/search_space.h"
#include "plan/storage_reservation.h"

/*
  TrsPlanLowerBound - Least critical path, in ms, proven by relaxation and branching.

  Not collective. The slowest rank's load in each part of the path (compute, and comms of each
  module and sharding type, forward and backward) lies in some box of bound_dual.h. The box with the
  lowest bound is split in two by one part, again and again: plans whose load there is above a
  value, which then counts, and plans below, which cannot have longer shards. What is left undone
  when the work or the time ends makes the bound lower, never wrong.

  In:     upper_ms  the path of a known plan, HUGE_VAL without one
          work      budget, in options looked at: the same on every machine
          end_s     time limit, by TrsPlanCpuClock()
  Out:    wanted    [n_tables] the options of the box with the lowest bound, unchanged if no box is
                    open or the time is over
          bound_ms  HUGE_VAL: there is no plan at all, proven; only without a known plan
*/
PetscErrorCode TrsPlanLowerBound(const TrsCostModel *model, const TrsSearchSpace *space,
                                 const TrsReservation *reservation, double upper_ms, int64_t work,
                                 double end_s, const TrsPlanOption **wanted, double *bound_ms);
