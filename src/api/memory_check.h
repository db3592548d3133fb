/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Check that the plan fits into the memory that is free here and now, before tables are allocated.
  The planner knows how much a device has, but not how much others use of it.
*/
#pragma once

#include "api/batch_memory.h"

/*
  TrsMemoryCheck - Compare what the ranks will allocate for tables and batches with the free memory.

  Collective on the machine's communicator. The rows of tables count (of cached ones, those in the
  cache), and on a GPU their optimizer states and the batches under way with their ids
  (batch_memory.h). A host makes pages of zeros only when they are first used. Rows and gradients on
  their way and the dense layers come on top; if they do not fit, their allocation fails with an
  error. Ranks that share a device, or on CPUs the host's memory with its swap, are added up.

  In:     shape      of this rank's batches; in a training the tables have optimizer states
          quantised  the tables are quantised
  Errors: MEMORY on all ranks, with host, ranks, needed and free memory, and the options that help
*/
PetscErrorCode TrsMemoryCheck(const TrsMachine *machine, const TrsTableConfigs *tables,
                              const TrsShardingPlan *plan, const TrsBatchShape *shape, PetscBool quantised);
