/* SPDX-License-Identifier: BSD-3-Clause */
/* From the best proposal and its placement to the ShardingPlan that leaves the planner. */
#pragma once

#include "plan/plan_search.h"

/*
  TrsPlanResult - The plan with all its shards, devices and critical path. A search that found nothing gives the plan of no tables.

  Not collective.
  Out:    plan  free with TrsShardingPlanFree()
*/
PetscErrorCode TrsPlanResult(const TrsCostModel *model, const TrsPlanSearch *search, TrsShardingPlan *plan);

/* The parts of the critical path: the slowest rank's comms, direction by direction and by kind of exchange, and compute. */
PetscErrorCode TrsPlanCriticalPath(const TrsTableConfigs *tables, const TrsShardingPlan *plan,
                                   double *comms_ms, double *compute_ms);

/* The configs of the plan's tables: config[plan->n_tables]. Not collective. */
PetscErrorCode TrsPlanTables(const TrsTableConfigs *tables, const TrsShardingPlan *plan,
                             const TrsTableConfig **config);
