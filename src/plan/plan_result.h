/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Makes the planner's result, a ShardingPlan, from the best proposal and its placement.
*/
#pragma once

#include "plan/search/plan_search.h"

/*
  TrsPlanResult - Make the plan, including shards, devices and critical path.

  If the search found nothing, the plan has no tables. Not collective.

  Out:    plan  free with TrsShardingPlanFree()
*/
PetscErrorCode TrsPlanResult(const TrsCostModel *model, const TrsPlanSearch *search, TrsShardingPlan *plan);

/*
  TrsPlanCost - Compute the costs of all shards with the cost model, for a plan file without costs.

  Not collective.

  InOut: plan  must have been checked against the model's tables
*/
PetscErrorCode TrsPlanCost(const TrsCostModel *model, TrsShardingPlan *plan);

/*
  TrsPlanSum - Compute each device's sums and the critical path from the shards' costs.

  Used for new plans, and for plans from a file because a user may have moved their shards. Not
  collective.

  InOut:  plan  tables and device arrays must be allocated
  Errors: DATA if a device's bytes exceed 64 bits
*/
PetscErrorCode TrsPlanSum(const TrsTableConfigs *tables, TrsShardingPlan *plan);

/*
  TrsPlanDescribe - Set the facts of a plan that do not depend on the placement: each table's
    module, each device's capacity, and the memory that the reservation leaves.

  A plan from a file gets the facts of this machine. Not collective.

  InOut: plan  all other fields must be set
*/
PetscErrorCode TrsPlanDescribe(const TrsCostModel *model, const TrsReservation *reservation,
                               TrsShardingPlan *plan);

/*
  Compute the parts of the critical path: the compute time, and the slowest rank's communication
  time in each direction, summed over the kinds of exchange.
*/
PetscErrorCode TrsPlanCriticalPath(const TrsTableConfigs *tables, const TrsShardingPlan *plan,
                                   double *comms_ms, double *compute_ms);

/* Get the configs of the plan's tables: config[plan->n_tables]. Not collective. */
PetscErrorCode TrsPlanTables(const TrsTableConfigs *tables, const TrsShardingPlan *plan,
                             const TrsTableConfig **config);
