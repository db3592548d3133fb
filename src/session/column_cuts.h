/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A plan can change the results in only one way: it may cut columns under an optimizer that treats a
  row as a whole. This module informs the user.
*/
#pragma once

#include "core/options/options.h"
#include "spec/sharding_plan.h"

/*
  TrsColumnCutsTell - Print one line if the plan cuts columns under an optimizer of whole rows.

  Each column shard then has its own row-wise statistics, as in TorchRec, so results differ from
  those of an uncut plan. With -reproducible the shards share the statistics, and nothing is
  printed. Collective on comm.
*/
PetscErrorCode TrsColumnCutsTell(MPI_Comm comm, TrsOptions options, const TrsTableConfigs *tables,
                                 const TrsShardingPlan *plan);
