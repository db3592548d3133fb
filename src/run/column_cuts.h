/* SPDX-License-Identifier: BSD-3-Clause */
/* What of a plan shows in the results: columns that are cut under an optimizer that takes a row as a whole. */
#pragma once

#include "core/options.h"
#include "spec/sharding_plan.h"

/*
  TrsColumnCutsTell - Print one line when the plan cuts columns of tables whose optimizer acts on whole rows. Each column shard then has row-wise
  statistics of its own, as in TorchRec, so that results are not those of an uncut plan. Nothing with -reproducible, whose shards share them.

  Collective on comm.
*/
PetscErrorCode TrsColumnCutsTell(MPI_Comm comm, TrsOptions options, const TrsTableConfigs *tables,
                                 const TrsShardingPlan *plan);
