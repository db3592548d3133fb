/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/sharded_ebc.h"

#include "shard/whole_rows.h"

enum { TRS_MAX_GROUPS = 8 }; /* four families, weighted or not */

struct TrsShardedEbcImpl {
  TrsShardingContext context;
  int n_groups;
  struct TrsShardingImpl group[TRS_MAX_GROUPS];
  /* the groups with an exchange, as TrsKjtExchangeStartSplits takes them */
  int n_exchanges[TRS_SHARD_SLOTS];
  TrsKjtExchange exchange[TRS_SHARD_SLOTS][TRS_MAX_GROUPS];
  const TrsKjt *send[TRS_SHARD_SLOTS][TRS_MAX_GROUPS];
};

static const TrsShardingOps *const family_of[TRS_N_SHARDINGS] = {
    [TRS_SHARDING_DATA_PARALLEL] = &trs_sharding_data_parallel,
    [TRS_SHARDING_TABLE_WISE] = &trs_sharding_table_wise,
    [TRS_SHARDING_COLUMN_WISE] = &trs_sharding_table_wise,
    [TRS_SHARDING_TABLE_COLUMN_WISE] = &trs_sharding_table_wise,
    [TRS_SHARDING_ROW_WISE] = &trs_sharding_row_wise,
    [TRS_SHARDING_TABLE_ROW_WISE] = &trs_sharding_table_row_wise,
    [TRS_SHARDING_GRID_SHARD] = &trs_sharding_table_row_wise,
};

/* Where the split must not show in the bits: table_wise and column_wise make their sums in one place as they are. */
static const TrsShardingOps *const ordered_family_of[TRS_N_SHARDINGS] = {
    [TRS_SHARDING_DATA_PARALLEL] = &trs_sharding_ordered_replicas,
    [TRS_SHARDING_TABLE_WISE] = &trs_sharding_table_wise,
    [TRS_SHARDING_COLUMN_WISE] = &trs_sharding_table_wise,
    [TRS_SHARDING_TABLE_COLUMN_WISE] = &trs_sharding_table_wise,
    [TRS_SHARDING_ROW_WISE] = &trs_sharding_ordered_rows,
    [TRS_SHARDING_TABLE_ROW_WISE] = &trs_sharding_ordered_rows,
    [TRS_SHARDING_GRID_SHARD] = &trs_sharding_ordered_rows,
};

/* Put table t into the group of its family and weightedness, opening it when it is the first. */
static PetscErrorCode add_table(TrsShardedEbc ebc, int t)
{
  const TrsTableConfig *config = &ebc->context.tables->table[t];
  const TrsShardingType type = ebc->context.table_plan[t]->sharding_type;
  const TrsShardingOps *ops = ebc->context.dist.reproducible ? ordered_family_of[type] : family_of[type];
  TrsSharding group;
  int g = 0;

  PetscFunctionBegin;
  while (g < ebc->n_groups && (ebc->group[g].ops != ops || ebc->group[g].weighted != config->is_weighted))
    g++;
  group = &ebc->group[g];
  if (g == ebc->n_groups) {
    ebc->n_groups++;
    group->ops = ops;
    group->context = &ebc->context;
    group->weighted = config->is_weighted;
    PetscCall(PetscMalloc1((size_t)ebc->context.tables->n, &group->table));
    PetscCall(ebc->context.compute->workspace_create(&group->workspace));
  }
  group->table[group->n_tables++] = t;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcCreate(const TrsCommGroups *groups, const TrsDeviceOps *device,
                                   const TrsComputeOps *compute, const TrsTableConfigs *tables,
                                   const TrsShardingPlan *plan, const TrsEmbeddingShards *shards,
                                   const int64_t *columns, const TrsPooledDistOptions *dist,
                                   TrsShardedEbc *ebc)
{
  TrsShardedEbc e;
  TrsShardingContext *context;

  PetscFunctionBegin;
  PetscCall(PetscNew(&e));
  context = &e->context;
  *context = (TrsShardingContext){.groups = groups,
                                  .device = device,
                                  .compute = compute,
                                  .tables = tables,
                                  .shards = shards,
                                  .dist = *dist,
                                  .columns = columns};
  PetscCall(
      PetscMalloc2((size_t)tables->n, &context->table_plan, (size_t)tables->n, &context->first_feature));
  for (int t = 0, f = 0; t < tables->n; f += tables->table[t++].n_features) {
    context->table_plan[t] = TrsShardingPlanFind(plan, tables->table[t].name);
    context->first_feature[t] = f;
    PetscCall(add_table(e, t));
  }
  for (int g = 0; g < e->n_groups; g++) {
    PetscCall(e->group[g].ops->setup(&e->group[g]));
    if (dist->reproducible) PetscCall(TrsWholeRowsCreate(&e->group[g], &e->group[g].whole));
    for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
      TrsShardingSlot *slot = &e->group[g].slot[s];
      if (!slot->exchange) continue;
      e->exchange[s][e->n_exchanges[s]] = slot->exchange;
      e->send[s][e->n_exchanges[s]++] = &slot->send;
    }
  }
  *ebc = e;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcDestroy(TrsShardedEbc *ebc)
{
  TrsShardedEbc e = *ebc;

  PetscFunctionBegin;
  if (!e) PetscFunctionReturn(PETSC_SUCCESS);
  for (int g = 0; g < e->n_groups; g++) {
    TrsSharding group = &e->group[g];
    PetscCall(group->ops->destroy(group));
    PetscCall(TrsWholeRowsDestroy(&group->whole));
    PetscCall(TrsLookupDestroy(&group->lookup));
    PetscCall(TrsDeviceBufferFree(e->context.device, &group->pooled));
    for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
      PetscCall(TrsKjtExchangeDestroy(&group->slot[s].exchange));
      PetscCall(TrsKjtFree(e->context.device, &group->slot[s].send));
      PetscCall(TrsKjtFree(e->context.device, &group->slot[s].recv));
    }
    PetscCall(e->context.compute->workspace_destroy(&group->workspace));
    PetscCall(PetscFree(group->table));
    PetscCall(PetscFree(group->run));
  }
  PetscCall(PetscFree2(e->context.table_plan, e->context.first_feature));
  PetscCall(PetscFree(*ebc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The batch as the group sees it: with the ids' weights only where its tables are weighted. */
static const TrsKjt *batch_of_group(TrsSharding group, TrsShardingSlot *slot, const TrsKjt *batch)
{
  if (!batch->is_weighted || group->weighted) return batch;
  slot->plain = *batch;
  slot->plain.is_weighted = PETSC_FALSE;
  slot->plain.jagged.weights = NULL;
  return &slot->plain;
}

PetscErrorCode TrsShardedEbcInputDistStart(TrsShardedEbc ebc, int slot, const TrsKjt *batch, TrsStream stream)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++) {
    TrsSharding group = &ebc->group[g];
    group->slot[slot].batch = batch_of_group(group, &group->slot[slot], batch);
    PetscCall(group->ops->prepare(group, &group->slot[slot], stream));
  }
  PetscCall(TrsKjtExchangeStartSplits(ebc->n_exchanges[slot], ebc->exchange[slot], ebc->send[slot], stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcInputDistTensors(TrsShardedEbc ebc, int slot, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsKjtExchangeStartTensors(ebc->n_exchanges[slot], ebc->exchange[slot], stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcInputDistWait(TrsShardedEbc ebc, int slot, TrsStream stream)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++) {
    TrsShardingSlot *s = &ebc->group[g].slot[slot];
    if (s->exchange) PetscCall(TrsKjtExchangeWait(s->exchange, stream, &s->recv, &s->source_batch));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcForwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                         const TrsPooledMatrix *pooled)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++)
    PetscCall(ebc->group[g].ops->forward_start(&ebc->group[g], &ebc->group[g].slot[slot], stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcForwardWait(TrsShardedEbc ebc, int slot, TrsStream stream,
                                        const TrsPooledMatrix *pooled)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++)
    PetscCall(ebc->group[g].ops->forward_wait(&ebc->group[g], &ebc->group[g].slot[slot], stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcBackwardStart(TrsShardedEbc ebc, int slot, TrsStream stream,
                                          const TrsPooledMatrix *grad)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++)
    PetscCall(ebc->group[g].ops->backward_start(&ebc->group[g], &ebc->group[g].slot[slot], stream, grad));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcBackwardUpdate(TrsShardedEbc ebc, int slot, TrsStream stream,
                                           const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  for (int g = 0; g < ebc->n_groups; g++)
    PetscCall(
        ebc->group[g].ops->backward_update(&ebc->group[g], &ebc->group[g].slot[slot], stream, grad, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}
