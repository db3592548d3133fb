/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Check that the plan fits into the memory that is currently free, before tables are allocated. The
  planner uses the device's total memory, without subtracting what other programs use.
*/
#pragma once

#include "api/batch_memory.h"

/*
  TrsMemoryCheck - Compare the memory that tables and batches will need with the free memory.

  Collective on the machine's communicator. This counts the tables' rows (in a cached table, the
  rows in the cache). On a CPU it also counts the directories of tables that keep ids, and on a GPU
  the optimizer states and the batches under way with their ids (batch_memory.h). A host allocates
  zeroed pages only at their first use. Not counted are rows and gradients in exchanges, and the
  dense layers; if they do not fit, their allocation fails with an error. The needs of ranks that
  share a GPU, or on CPUs a host's memory with its swap, are added up.

  In:     shape      this rank's batches, and whether it trains: only then the tables have optimizer
                     states
          quantised  the tables are quantised
  Errors: MEMORY on all ranks, with host, ranks, needed and free memory, and the options that help
*/
PetscErrorCode TrsMemoryCheck(const TrsMachine *machine, const TrsTableConfigs *tables,
                              const TrsShardingPlan *plan, const TrsBatchShape *shape, PetscBool quantised);
