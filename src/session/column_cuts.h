/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A plan can change the results in one way: if it cuts columns under an optimizer that takes a row
  as a whole. This module tells the user.
*/
#pragma once

#include "core/options/options.h"
#include "spec/sharding_plan.h"

/*
  TrsColumnCutsTell - Print one line if the plan cuts columns under an optimizer of whole rows.

  Each column shard then has row-wise statistics of its own, as in TorchRec, so results differ from
  those of an uncut plan. With -reproducible the shards share the statistics, and nothing is
  printed. Collective on comm.
*/
PetscErrorCode TrsColumnCutsTell(MPI_Comm comm, TrsOptions options, const TrsTableConfigs *tables,
                                 const TrsShardingPlan *plan);
