/* SPDX-License-Identifier: BSD-3-Clause */
/* A critical path that no plan of a search space can beat. */
#pragma once

#include "plan/search_space.h"
#include "plan/storage_reservation.h"

/*
  TrsPlanLowerBound - Least critical path, in ms, proven by relaxation.

  Not collective. Let a plan's critical path be Z. Then no shard of it takes longer than Z, and the mean load of the devices is at most Z: the sum over
  tables of the chosen options' times, subject to the sum of their memory, divided by the number of devices. The bound is the
  least Z for which options with shards up to Z have such a sum, where the choice of one option a table under a memory limit is
  bounded by its Lagrangian dual (Fisher, Management Science 27(1), 1981).
*/
PetscErrorCode TrsPlanLowerBound(const TrsCostModel *model, const TrsSearchSpace *space,
                                 const TrsReservation *reservation, double *bound_ms);

/* May a plan have this option: a caching kernel needs 0 < load factor < 1, and no memory may be negative. */
PetscBool TrsOptionIsValid(const TrsPlanOption *option);

/* ms of one shard as the critical path counts it: without prefetch. */
static inline double TrsShardPathMs(const TrsShardClass *shard)
{
  return shard->perf.fwd_compute + shard->perf.bwd_compute + shard->perf.fwd_comms + shard->perf.bwd_comms;
}
