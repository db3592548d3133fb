/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Check that the plan fits into the memory that is free here and now, before tables are allocated.
  The planner knows how much a device has, but not how much others use of it.
*/
#pragma once

#include "api/machine.h"
#include "spec/sharding_plan.h"

/*
  TrsMemoryCheck - Compare the tables and states that the ranks will allocate with the free memory.

  Collective on the machine's communicator. Only certain needs count: the rows of tables (of cached
  ones, those in the cache), and on a GPU their optimizer states. A host makes pages of zeros only
  when they are first used. Buffers of exchanges, sorted ids and dense layers come on top, as the
  data want them; if they do not fit, their allocation fails with an error. Ranks that share a
  device, or on CPUs the host's memory with its swap, are added up.

  In:     training   the tables have optimizer states
          quantised  the tables are quantised
  Errors: MEMORY on all ranks, with host, ranks, needed and free memory, and the options that help
*/
PetscErrorCode TrsMemoryCheck(const TrsMachine *machine, const TrsTableConfigs *tables,
                              const TrsShardingPlan *plan, PetscBool training, PetscBool quantised);
