/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Check that the plan fits into the memory that is currently free, before tables are allocated. The
  planner uses the device's total memory, without subtracting what other programs use.
*/
#pragma once

#include "api/batch_memory.h"

/*
  TrsMemoryCheck - Compare the memory that tables and batches will need with the free memory.

  Collective on the machine's communicator. The need consists of the tables' rows; of a cached
  table, only the rows in the cache count. On a GPU, the optimizer states and the batches under way
  with their ids (batch_memory.h) are added. On a host they are not, because a host allocates zeroed
  pages only at their first use. Rows and gradients in exchanges, and the dense layers, are not
  counted; if they do not fit, their allocation fails with an error. The needs of all ranks that
  share a GPU are added up. On CPUs, so are the needs of all ranks of a host, and its free memory
  includes swap.

  In:     shape      this rank's batches, and whether it trains: only then the tables have optimizer
                     states
          quantised  the tables are quantised
  Errors: MEMORY on all ranks, with host, ranks, needed and free memory, and the options that help
*/
PetscErrorCode TrsMemoryCheck(const TrsMachine *machine, const TrsTableConfigs *tables,
                              const TrsShardingPlan *plan, const TrsBatchShape *shape, PetscBool quantised);
