/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Fills in what a plan's file may leave out: the rectangles of shards, the world's sizes, and the
  costs.
*/
#include "spec/sharding_plan.h"

#include <limits.h>
#include <string.h>

/*
  From the sharding type and the number of the plan's ranks, compute the number of column blocks and
  of shards in each block.
*/
static PetscErrorCode count_cuts(const TrsTablePlan *plan, int group, const char *source, int *n_cols,
                                 int *n_rows)
{
  const int n = plan->n_shards;

  PetscFunctionBegin;
  *n_cols = *n_rows = 1;
  switch (plan->sharding_type) {
  case TRS_SHARDING_DATA_PARALLEL: break;
  case TRS_SHARDING_TABLE_WISE:
    PetscCheck(n == 1, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: table_wise table \"%s\" has %d ranks, not 1",
               source, plan->name, n);
    break;
  case TRS_SHARDING_COLUMN_WISE:
  case TRS_SHARDING_TABLE_COLUMN_WISE: *n_cols = n; break;
  case TRS_SHARDING_ROW_WISE:
  case TRS_SHARDING_TABLE_ROW_WISE: *n_rows = n; break;
  case TRS_SHARDING_GRID_SHARD:
    PetscCheck(n % group == 0, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: grid_shard table \"%s\" has %d ranks, not a multiple of the %d ranks of a host", source,
               plan->name, n, group);
    *n_cols = n / group;
    *n_rows = group;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Cut a table over its ranks. A shard has ceil(R / n) rows, rounded up to the table's row unit.
  Columns are cut as evenly as possible.
*/
static PetscErrorCode cut_table(const TrsTableConfig *table, int group, const char *source,
                                TrsTablePlan *plan)
{
  const int64_t R = table->num_embeddings, D = table->embedding_dim, unit = TrsTableRowUnit(table);
  int64_t block, col = 0;
  int n_cols, n_rows;

  PetscFunctionBegin;
  PetscCall(count_cuts(plan, group, source, &n_cols, &n_rows));
  PetscCheck(n_cols <= D, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: table \"%s\" has %" PetscInt64_FMT " columns, too few for %d column shards", source,
             plan->name, (PetscInt64)D, n_cols);
  block = (R / unit + n_rows - 1) / n_rows * unit;
  for (int i = 0; i < plan->n_shards; i++) {
    const int c = plan->sharding_type == TRS_SHARDING_DATA_PARALLEL ? 0 : i / n_rows, r = i % n_rows;
    TrsShard *shard = &plan->shard[i];

    shard->row_offset = PetscMin(r * block, R);
    shard->rows = PetscMin(block, R - shard->row_offset);
    shard->cols = D / n_cols + (c < D % n_cols);
    shard->col_offset = n_cols == 1 ? 0 : col;
    if (r == n_rows - 1) col += shard->cols;
  }
  plan->only_ranks = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingPlanNoCosts(TrsShardingPlan *plan)
{
  PetscFunctionBegin;
  if (plan->has_costs || plan->n_devices > 0) PetscFunctionReturn(PETSC_SUCCESS);
  plan->n_devices = plan->world_size;
  PetscCall(PetscCalloc1(plan->n_devices, &plan->device_storage));
  PetscCall(PetscCalloc1(plan->n_devices, &plan->device_perf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingPlanComplete(const TrsTableConfigs *tables, const TrsPlanWorld *world,
                                       const char *source, TrsShardingPlan *plan)
{
  PetscFunctionBegin;
  if (!plan->world_size) plan->world_size = world->world_size;
  if (!plan->pod_size) plan->pod_size = plan->local_world_size ? 1 : world->pod_size;
  if (!plan->local_world_size) plan->local_world_size = world->local_world_size;
  PetscCheck(plan->pod_size <= INT_MAX / plan->local_world_size, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: pod_size %d and local_world_size %d: their product overflows", source, plan->pod_size,
             plan->local_world_size);
  PetscCall(TrsShardingPlanNoCosts(plan));
  for (int t = 0; t < tables->n; t++) {
    TrsTablePlan *found = NULL;

    for (int i = 0; i < plan->n_tables && !found; i++)
      if (strcmp(plan->table[i].name, tables->table[t].name) == 0) found = &plan->table[i];
    if (found && found->only_ranks)
      PetscCall(cut_table(&tables->table[t], plan->local_world_size * plan->pod_size, source, found));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
