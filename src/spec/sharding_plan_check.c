/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks that a plan fits this run's tables and world. The plan may come from a file. */
#include "core/names.h"
#include "spec/sharding_plan.h"
#include "spec/table_choices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FAIL_UNLESS(cond, ...) PetscCheck(cond, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)

/*
  Check that the shards cover the table exactly. They must be listed block by block, and in a block
  in row order. All column blocks must have the same number of shards, `rows_per_block`.
*/
static PetscErrorCode check_tiles(const TrsTablePlan *plan, const TrsTableConfig *table, const char *source,
                                  int *rows_per_block)
{
  int64_t row = 0, col = 0;
  int in_block = 0;

  PetscFunctionBegin;
  *rows_per_block = 0;
  for (int i = 0; i < plan->n_shards; i++) {
    const TrsShard *shard = &plan->shard[i];

    /* then the next column block begins */
    if (row == table->num_embeddings && shard->row_offset == 0) {
      col += plan->shard[i - 1].cols;
      row = 0;
      if (*rows_per_block == 0) *rows_per_block = in_block;
      FAIL_UNLESS(in_block == *rows_per_block, "%s: table \"%s\" is cut into %d and %d row shards", source,
                  plan->name, *rows_per_block, in_block);
      in_block = 0;
    }
    FAIL_UNLESS(shard->row_offset == row && shard->col_offset == col && shard->cols > 0 &&
                    shard->rows <= table->num_embeddings - row && shard->cols <= table->embedding_dim - col &&
                    (in_block == 0 || shard->cols == plan->shard[i - 1].cols),
                "%s: table \"%s\", shard %d: %" PRId64 " x %" PRId64 " at [%" PRId64 ", %" PRId64
                "] leaves a gap, overlaps or sticks out of %" PRId64 " x %d",
                source, plan->name, i, shard->rows, shard->cols, shard->row_offset, shard->col_offset,
                table->num_embeddings, table->embedding_dim);
    FAIL_UNLESS(shard->rows % TrsTableRowUnit(table) == 0,
                "%s: table \"%s\", shard %d: %" PRId64 " rows are not whole buckets of %" PRId64
                " rows (%s_buckets)",
                source, plan->name, i, shard->rows, TrsTableRowUnit(table), TrsIdMapName(table->id_map.kind));
    row += shard->rows;
    in_block++;
  }
  FAIL_UNLESS(plan->n_shards > 0 && row == table->num_embeddings &&
                  col + plan->shard[plan->n_shards - 1].cols == table->embedding_dim,
              "%s: the shards of table \"%s\" do not cover its %" PRId64 " x %d elements (another model?)",
              source, plan->name, table->num_embeddings, table->embedding_dim);
  if (*rows_per_block == 0) *rows_per_block = in_block;
  FAIL_UNLESS(in_block == *rows_per_block, "%s: table \"%s\" is cut into %d and %d row shards", source,
              plan->name, *rows_per_block, in_block);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_data_parallel(const TrsTablePlan *plan, const TrsTableConfig *table,
                                          int world_size, const char *source)
{
  PetscFunctionBegin;
  FAIL_UNLESS(plan->n_shards == world_size, "%s: data_parallel table \"%s\" has %d shard%s for %d rank%s",
              source, plan->name, plan->n_shards, TrsPlural(plan->n_shards, "s"), world_size,
              TrsPlural(world_size, "s"));
  for (int i = 0; i < plan->n_shards; i++) {
    const TrsShard *shard = &plan->shard[i];

    FAIL_UNLESS(shard->rank == i && shard->row_offset == 0 && shard->col_offset == 0 &&
                    shard->rows == table->num_embeddings && shard->cols == table->embedding_dim,
                "%s: data_parallel table \"%s\", shard %d is not the whole table on rank %d", source,
                plan->name, i, i);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check that the shards of each column block are on consecutive ranks of the same host. */
static PetscErrorCode check_on_host(const TrsTablePlan *plan, int n, int group, const char *source)
{
  PetscFunctionBegin;
  FAIL_UNLESS(n == group, "%s: %s table \"%s\" has %d row shards for hosts of %d ranks", source,
              TrsShardingTypeName(plan->sharding_type), plan->name, n, group);
  for (int i = 0; i < plan->n_shards; i++) {
    int first = plan->shard[i - i % n].rank;

    FAIL_UNLESS(first % group == 0 && plan->shard[i].rank == first + i % n,
                "%s: %s table \"%s\", shard %d on rank %d: the row shards do not fill one host in order",
                source, TrsShardingTypeName(plan->sharding_type), plan->name, i, plan->shard[i].rank);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_type(const TrsTablePlan *plan, const TrsShardingPlan *whole, int rows_per_block,
                                 const char *source)
{
  int group = whole->pod_size * whole->local_world_size;
  const char *type = TrsShardingTypeName(plan->sharding_type);

  PetscFunctionBegin;
  switch (plan->sharding_type) {
  case TRS_SHARDING_TABLE_WISE:
    FAIL_UNLESS(plan->n_shards == 1, "%s: table_wise table \"%s\" has %d shards", source, plan->name,
                plan->n_shards);
    break;
  case TRS_SHARDING_TABLE_COLUMN_WISE:
  case TRS_SHARDING_COLUMN_WISE:
    FAIL_UNLESS(rows_per_block == 1, "%s: %s table \"%s\" is cut by rows", source, type, plan->name);
    for (int i = 1; plan->sharding_type == TRS_SHARDING_TABLE_COLUMN_WISE && i < plan->n_shards; i++)
      FAIL_UNLESS(plan->shard[i].rank / group == plan->shard[0].rank / group,
                  "%s: table_column_wise table \"%s\" lies on ranks %d and %d of two hosts", source,
                  plan->name, plan->shard[0].rank, plan->shard[i].rank);
    break;
  case TRS_SHARDING_ROW_WISE:
    FAIL_UNLESS(plan->n_shards == whole->world_size && rows_per_block == plan->n_shards,
                "%s: row_wise table \"%s\" has %d shard%s for %d rank%s", source, plan->name, plan->n_shards,
                TrsPlural(plan->n_shards, "s"), whole->world_size, TrsPlural(whole->world_size, "s"));
    for (int i = 0; i < plan->n_shards; i++)
      FAIL_UNLESS(plan->shard[i].rank == i, "%s: row_wise table \"%s\": shard %d is on rank %d", source,
                  plan->name, i, plan->shard[i].rank);
    break;
  case TRS_SHARDING_TABLE_ROW_WISE:
    FAIL_UNLESS(rows_per_block == plan->n_shards, "%s: table_row_wise table \"%s\" is cut by columns", source,
                plan->name);
    PetscCall(check_on_host(plan, rows_per_block, group, source));
    break;
  case TRS_SHARDING_DATA_PARALLEL:
  case TRS_SHARDING_GRID_SHARD: PetscCall(check_on_host(plan, rows_per_block, group, source));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_table(const TrsShardingPlan *whole, const TrsTablePlan *plan,
                                  const TrsTableConfig *table, const char *source)
{
  int rows_per_block;

  PetscFunctionBegin;
  for (int i = 0; i < plan->n_shards; i++)
    FAIL_UNLESS(plan->shard[i].rank >= 0 && plan->shard[i].rank < whole->world_size,
                "%s: table \"%s\", shard %d: rank %d is outside of %d rank%s", source, plan->name, i,
                plan->shard[i].rank, whole->world_size, TrsPlural(whole->world_size, "s"));
  FAIL_UNLESS((plan->sharding_type == TRS_SHARDING_DATA_PARALLEL) ==
                  (TrsKernelUseOf(plan->compute_kernel) == TRS_USE_REPLICAS),
              "%s: table \"%s\": %s does not go with compute kernel %s", source, plan->name,
              TrsShardingTypeName(plan->sharding_type), TrsComputeKernelName(plan->compute_kernel));
  FAIL_UNLESS(!plan->has_cache_load_factor || (plan->cache_load_factor > 0 && plan->cache_load_factor < 1),
              "%s: table \"%s\": cache_load_factor is %g, which must be above 0 and below 1", source,
              plan->name, plan->cache_load_factor);
  for (int k = 0; k < TRS_N_TABLE_CHOICES; k++)
    FAIL_UNLESS(!plan->choice[k].set || !TrsTableChoiceIsOfCache((TrsTableChoiceKind)k) ||
                    TrsKernelIsCaching(plan->compute_kernel),
                "%s: table \"%s\": %s does not go with compute kernel %s, which has no cache", source,
                plan->name, TrsTableChoiceName((TrsTableChoiceKind)k),
                TrsComputeKernelName(plan->compute_kernel));
  FAIL_UNLESS(!TrsTableKeepsIds(table) || plan->sharding_type != TRS_SHARDING_DATA_PARALLEL,
              "%s: table \"%s\" has id_map %s, whose rows follow the ids of all ranks in one order: "
              "data_parallel replicas do not see them. Choose another sharding type "
              "(-table_%s_sharding_types)",
              source, plan->name, TrsIdMapName(table->id_map.kind), TrsTableOptionName(table));
  if (plan->sharding_type == TRS_SHARDING_DATA_PARALLEL) {
    PetscCall(check_data_parallel(plan, table, whole->world_size, source));
  } else {
    PetscCall(check_tiles(plan, table, source, &rows_per_block));
    PetscCall(check_type(plan, whole, rows_per_block, source));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int compare_plans(const void *a, const void *b)
{
  return strcmp((*(const TrsTablePlan *const *)a)->name, (*(const TrsTablePlan *const *)b)->name);
}

static int compare_configs(const void *a, const void *b)
{
  return strcmp((*(const TrsTableConfig *const *)a)->name, (*(const TrsTableConfig *const *)b)->name);
}

PetscErrorCode TrsShardingPlanCheck(const TrsShardingPlan *plan, const TrsTableConfigs *tables,
                                    int world_size, const char *source)
{
  /* the plans and the tables are sorted by name, so that they can be compared */
  const TrsTablePlan **plans;
  const TrsTableConfig **configs;
  int n_configs = 0, n_common;

  PetscFunctionBegin;
  FAIL_UNLESS(plan->world_size == world_size, "%s: the plan is for %d rank%s, but this run has %d", source,
              plan->world_size, TrsPlural(plan->world_size, "s"), world_size);
  PetscCall(PetscMalloc2(plan->n_tables, &plans, tables->n, &configs));
  for (int t = 0; t < plan->n_tables; t++) plans[t] = &plan->table[t];
  for (int t = 0; t < tables->n; t++) { /* a plan does not contain tables of other device groups */
    const TrsTableConfig *config = &tables->table[t];

    if (!config->constraints.device_group || TrsShardingPlanFind(plan, config->name))
      configs[n_configs++] = config;
  }
  qsort(plans, (size_t)plan->n_tables, sizeof(const TrsTablePlan *), compare_plans);
  qsort(configs, (size_t)n_configs, sizeof(const TrsTableConfig *), compare_configs);
  for (int t = 1; t < plan->n_tables; t++)
    FAIL_UNLESS(strcmp(plans[t - 1]->name, plans[t]->name) != 0, "%s: table \"%s\" appears twice", source,
                plans[t]->name);
  n_common = PetscMin(plan->n_tables, n_configs);
  for (int t = 0; t < n_common; t++) {
    int order = strcmp(plans[t]->name, configs[t]->name);

    FAIL_UNLESS(order <= 0, "%s: the plan has no table \"%s\" (another model?)", source, configs[t]->name);
    FAIL_UNLESS(order >= 0, "%s: table \"%s\" of the plan is not in -tables (another model?)", source,
                plans[t]->name);
  }
  FAIL_UNLESS(plan->n_tables <= n_configs, "%s: table \"%s\" of the plan is not in -tables (another model?)",
              source, plans[n_common]->name);
  FAIL_UNLESS(plan->n_tables >= n_configs, "%s: the plan has no table \"%s\" (another model?)", source,
              configs[n_common]->name);
  for (int t = 0; t < n_configs; t++) PetscCall(check_table(plan, plans[t], configs[t], source));
  PetscCall(PetscFree2(plans, configs));
  PetscFunctionReturn(PETSC_SUCCESS);
}
