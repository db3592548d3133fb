/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/plan_result.h"

#include "spec/table_choices.h"

#include <stdlib.h>
#include <string.h>

static PetscErrorCode fill_table(const TrsTableConfigs *tables, const TrsBestPlan *best, int i,
                                 TrsTablePlan *table)
{
  const TrsPlanOption *option = best->proposal.option[i];
  TrsShardPlace place = {0};

  PetscFunctionBegin;
  PetscCall(PetscStrallocpy(tables->table[option->table].name, &table->name));
  table->sharding_type = option->type;
  table->compute_kernel = option->kernel;
  table->has_cache_load_factor = (PetscBool)(option->has_load_factor && TrsKernelIsCaching(option->kernel));
  table->cache_load_factor = option->load_factor;
  TrsTableChoicesForPlan(&tables->table[option->table], option->kernel, table->choice);
  table->n_shards = option->n_shards;
  PetscCall(PetscMalloc1(option->n_shards, &table->shard));
  for (int s = 0; s < option->n_shards; s++) {
    const TrsShardClass *shard = TrsOptionShard(option, s);

    TrsOptionNextPlace(option, s, &place);
    table->shard[s] = (TrsShard){.rank = TrsPlacementRank(&best->placement, i, s),
                                 .row_offset = place.row_offset,
                                 .col_offset = place.col_offset,
                                 .rows = place.rows,
                                 .cols = place.cols,
                                 .storage = shard->storage,
                                 .perf = shard->perf};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int compare_names(const void *a, const void *b)
{
  return strcmp((*(const TrsTableConfig *const *)a)->name, (*(const TrsTableConfig *const *)b)->name);
}

PetscErrorCode TrsPlanTables(const TrsTableConfigs *tables, const TrsShardingPlan *plan,
                             const TrsTableConfig **config)
{
  const TrsTableConfig **by_name;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(tables->n, &by_name));
  for (int t = 0; t < tables->n; t++) by_name[t] = &tables->table[t];
  qsort(by_name, (size_t)tables->n, sizeof(const TrsTableConfig *), compare_names);
  for (int t = 0; t < plan->n_tables; t++) {
    TrsTableConfig key = {.name = plan->table[t].name};
    const TrsTableConfig *wanted = &key, *const * found;

    found = bsearch(&wanted, by_name, (size_t)tables->n, sizeof(const TrsTableConfig *), compare_names);
    PetscCheck(found, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "the plan's table \"%s\" is unknown", key.name);
    config[t] = *found;
  }
  PetscCall(PetscFree(by_name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double largest(int n, const double *x)
{
  double max = 0;

  for (int i = 0; i < n; i++) max = PetscMax(max, x[i]);
  return max;
}

PetscErrorCode TrsPlanCriticalPath(const TrsTableConfigs *tables, const TrsShardingPlan *plan,
                                   double *comms_ms, double *compute_ms)
{
  /* Tables of the same module and sharding type are sent in the same exchange. */
  int W = plan->world_size, *exchange;
  const TrsTableConfig **config;
  double *fwd, *bwd;

  PetscFunctionBegin;
  PetscCall(PetscMalloc4(W, &fwd, W, &bwd, plan->n_tables, &exchange, plan->n_tables, &config));
  PetscCall(TrsPlanTables(tables, plan, config));
  *comms_ms = *compute_ms = 0;
  for (int t = 0; t < plan->n_tables; t++)
    exchange[t] = (int)TrsTableModule(config[t]) * TRS_N_SHARDINGS + (int)plan->table[t].sharding_type;
  /* -1 stands for the compute time, over all tables */
  for (int e = -1; e < TRS_N_MODULES * TRS_N_SHARDINGS; e++) {
    memset(fwd, 0, (size_t)W * sizeof(*fwd));
    memset(bwd, 0, (size_t)W * sizeof(*bwd));
    for (int t = 0; t < plan->n_tables; t++) {
      const TrsTablePlan *table = &plan->table[t];

      if (e >= 0 && exchange[t] != e) continue;
      for (int s = 0; s < table->n_shards; s++) {
        const TrsShard *shard = &table->shard[s];

        fwd[shard->rank] += e < 0 ? shard->perf.fwd_compute : shard->perf.fwd_comms;
        bwd[shard->rank] += e < 0 ? shard->perf.bwd_compute : shard->perf.bwd_comms;
      }
    }
    *(e < 0 ? compute_ms : comms_ms) += largest(W, fwd) + largest(W, bwd);
  }
  PetscCall(PetscFree4(fwd, bwd, exchange, config));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanCost(const TrsCostModel *model, TrsShardingPlan *plan)
{
  const TrsTableConfig **config;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(plan->n_tables, &config));
  PetscCall(TrsPlanTables(model->tables, plan, config));
  for (int t = 0; t < plan->n_tables; t++) {
    const TrsTablePlan *table = &plan->table[t];
    const TrsPlanOption option = TrsPlannedOption(model, config[t], table);

    TrsCostShards(model, &option, table->n_shards, table->shard);
  }
  PetscCall(PetscFree(config));
  plan->has_costs = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add a shard's bytes to its device's sum. */
static PetscErrorCode add_bytes(const TrsTablePlan *table, const TrsShard *shard, TrsStorage *sum)
{
  PetscFunctionBegin;
  PetscCheck(shard->storage.hbm <= INT64_MAX - sum->hbm && shard->storage.ddr <= INT64_MAX - sum->ddr,
             PETSC_COMM_SELF, TRS_ERR_DATA,
             "table \"%s\": with its shards the bytes of rank %d overflow 64-bit sizes", table->name,
             shard->rank);
  sum->hbm += shard->storage.hbm;
  sum->ddr += shard->storage.ddr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanSum(const TrsTableConfigs *tables, TrsShardingPlan *plan)
{
  double comms_ms, compute_ms;

  PetscFunctionBegin;
  PetscCall(PetscArrayzero(plan->device_storage, plan->n_devices));
  PetscCall(PetscArrayzero(plan->device_perf, plan->n_devices));
  for (int t = 0; t < plan->n_tables; t++) {
    for (int s = 0; s < plan->table[t].n_shards; s++) {
      const TrsShard *shard = &plan->table[t].shard[s];

      PetscCall(add_bytes(&plan->table[t], shard, &plan->device_storage[shard->rank]));
      TrsPerfAdd(&plan->device_perf[shard->rank], &shard->perf);
    }
  }
  PetscCall(TrsPlanCriticalPath(tables, plan, &comms_ms, &compute_ms));
  plan->critical_path = comms_ms + compute_ms;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanDescribe(const TrsCostModel *model, const TrsReservation *reservation,
                               TrsShardingPlan *plan)
{
  const TrsTopology *topology = model->topology;
  const TrsTableConfig **config;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(plan->n_tables, &config));
  PetscCall(TrsPlanTables(model->tables, plan, config));
  for (int t = 0; t < plan->n_tables; t++) plan->table[t].module = TrsTableModule(config[t]);
  PetscCall(PetscFree(config));
  if (!plan->device_capacity) PetscCall(PetscMalloc1(plan->n_devices, &plan->device_capacity));
  if (!plan->device_available) PetscCall(PetscMalloc1(plan->n_devices, &plan->device_available));
  for (int d = 0; d < plan->n_devices; d++) {
    plan->device_capacity[d] = (TrsStorage){topology->hbm[d], topology->ddr[d]};
    plan->device_available[d] = reservation->left[d];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanResult(const TrsCostModel *model, const TrsPlanSearch *search, TrsShardingPlan *plan)
{
  const TrsBestPlan *best = &search->best;

  PetscFunctionBegin;
  *plan = (TrsShardingPlan){.has_costs = PETSC_TRUE,
                            .world_size = model->topology->world_size,
                            .local_world_size = model->topology->local_world_size,
                            .pod_size = model->topology->pod_size,
                            .n_tables = best->found ? best->proposal.n : 0,
                            .proposals = search->proposals,
                            .feasible = search->feasible,
                            .partitioned = search->partitioned};
  PetscCall(PetscCalloc1(plan->n_tables, &plan->table));
  for (int i = 0; i < plan->n_tables; i++) PetscCall(fill_table(model->tables, best, i, &plan->table[i]));
  plan->n_devices = plan->world_size;
  PetscCall(PetscMalloc1(plan->n_devices, &plan->device_storage));
  PetscCall(PetscMalloc1(plan->n_devices, &plan->device_perf));
  PetscCall(TrsPlanSum(model->tables, plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}
