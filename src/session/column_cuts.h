/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Informs the user if a plan changes the results. A plan can do so in only one way: it may cut
  columns of a table whose optimizer updates a row as a whole.
*/
#pragma once

#include "core/options/options.h"
#include "spec/sharding_plan.h"

/*
  TrsColumnCutsTell - Print one line if the plan cuts columns of a table whose optimizer updates a
    row as a whole.

  Each column shard then has row-wise statistics of its own, as in TorchRec, so the results differ
  from those of a plan without cuts. With -reproducible the shards share the statistics, and nothing
  is printed. Collective on comm.
*/
PetscErrorCode TrsColumnCutsTell(MPI_Comm comm, TrsOptions options, const TrsTableConfigs *tables,
                                 const TrsShardingPlan *plan);
