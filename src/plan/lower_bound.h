/* SPDX-License-Identifier: BSD-3-Clause */
/* A critical path that no plan of a search space can beat. */
#pragma once

#include "plan/search_space.h"
#include "plan/storage_reservation.h"

/*
  TrsPlanLowerBound - Least critical path, in ms, proven by relaxation.

  Not collective. Let C be the longest compute of a shard in a plan, K its longest comms. The path is at least C + K; at least the mean over devices of
  all compute and comms; and at least either mean with the other's longest shard. A mean is a sum over tables of the chosen options'
  times, bounded from below over all choices that respect C, K and the sum of memory by its Lagrangian dual (Fisher, Management Science 27(1),
  1981). The bound is the least of all this over a mesh of C and K that covers every plan.

  In:     upper_ms  the path of a known plan, HUGE_VAL without one
*/
PetscErrorCode TrsPlanLowerBound(const TrsCostModel *model, const TrsSearchSpace *space,
                                 const TrsReservation *reservation, double upper_ms, double *bound_ms);

/* May a plan have this option: a caching kernel needs 0 < load factor < 1, and no memory may be negative. */
PetscBool TrsOptionIsValid(const TrsPlanOption *option);
