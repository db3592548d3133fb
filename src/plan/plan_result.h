/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Turns the best proposal and its placement into the ShardingPlan that leaves the planner.
*/
#pragma once

#include "plan/plan_search.h"

/*
  TrsPlanResult - Make the plan with all its shards, devices and critical path.

  If the search found nothing, the plan has no tables. Not collective.

  Out:    plan  free with TrsShardingPlanFree()
*/
PetscErrorCode TrsPlanResult(const TrsCostModel *model, const TrsPlanSearch *search, TrsShardingPlan *plan);

/*
  TrsPlanCost - Set all shards' costs by the cost model, for a plan whose file has no costs.

  Not collective.

  InOut: plan  checked against the model's tables
*/
PetscErrorCode TrsPlanCost(const TrsCostModel *model, TrsShardingPlan *plan);

/*
  TrsPlanSum - Compute each device's sums and the critical path from the shards' costs.

  Used for new plans and for plans from a file, whose shards a user may have moved. Not collective.

  InOut:  plan  tables and device arrays must be allocated
  Errors: DATA if a device's bytes exceed 64 bits
*/
PetscErrorCode TrsPlanSum(const TrsTableConfigs *tables, TrsShardingPlan *plan);

/*
  TrsPlanDescribe - Set a plan's facts apart from the placement: each table's module, each device's
    capacity, and the memory that the reservation leaves.

  A plan from a file gets this machine's facts. Not collective.

  InOut: plan  everything else is set
*/
PetscErrorCode TrsPlanDescribe(const TrsCostModel *model, const TrsReservation *reservation,
                               TrsShardingPlan *plan);

/*
  Compute the parts of the critical path: compute, and the slowest rank's comms in each direction,
  summed over the kinds of exchange.
*/
PetscErrorCode TrsPlanCriticalPath(const TrsTableConfigs *tables, const TrsShardingPlan *plan,
                                   double *comms_ms, double *compute_ms);

/* The configs of the plan's tables: config[plan->n_tables]. Not collective. */
PetscErrorCode TrsPlanTables(const TrsTableConfigs *tables, const TrsShardingPlan *plan,
                             const TrsTableConfig **config);
