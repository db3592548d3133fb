/* SPDX-License-Identifier: BSD-3-Clause */
/*
  This module turns the best proposal and its placement into the ShardingPlan that leaves the
  planner.
*/
#pragma once

#include "plan/plan_search.h"

/*
  TrsPlanResult - The plan with all its shards, devices and critical path.

  A search that found nothing gives a plan without tables. Not collective.

  Out:    plan  free with TrsShardingPlanFree()
*/
PetscErrorCode TrsPlanResult(const TrsCostModel *model, const TrsPlanSearch *search, TrsShardingPlan *plan);

/*
  TrsPlanCost - Set the costs of all shards by the cost model: of a plan whose file has none.

  Not collective.

  InOut: plan  checked against the model's tables
*/
PetscErrorCode TrsPlanCost(const TrsCostModel *model, TrsShardingPlan *plan);

/*
  TrsPlanSum - Set the sums over each device's shards and the critical path by the costs of the
    shards: of a new plan, and of one from a file, whose shards a user may have moved.

  Not collective.

  InOut:  plan  its tables and arrays over devices are there
  Errors: DATA if the bytes of a device exceed 64 bits
*/
PetscErrorCode TrsPlanSum(const TrsTableConfigs *tables, TrsShardingPlan *plan);

/*
  TrsPlanDescribe - Set the facts of a plan beside its placement: each table's module, each device's
    capacity, and the memory that the reservation leaves.

  A plan from a file gets the facts of this machine. Not collective.

  InOut: plan  everything else is set
*/
PetscErrorCode TrsPlanDescribe(const TrsCostModel *model, const TrsReservation *reservation,
                               TrsShardingPlan *plan);

/*
  The parts of the critical path: compute, and the slowest rank's comms for each direction and kind
  of exchange.
*/
PetscErrorCode TrsPlanCriticalPath(const TrsTableConfigs *tables, const TrsShardingPlan *plan,
                                   double *comms_ms, double *compute_ms);

/* The configs of the plan's tables: config[plan->n_tables]. Not collective. */
PetscErrorCode TrsPlanTables(const TrsTableConfigs *tables, const TrsShardingPlan *plan,
                             const TrsTableConfig **config);
