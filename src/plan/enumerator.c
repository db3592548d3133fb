/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lists every way to split every table.

  Source: TorchRec EmbeddingEnumerator, calculate_shard_sizes_and_offsets; src/plan/RULES.md,
          section 3
*/
#include "plan/search/search_space.h"

#include <string.h>

enum { TRS_DEFAULT_MIN_WIDTH = 128, TRS_MAX_OPTIONS = TRS_N_SHARDINGS * 3, TRS_MAX_COMPARED_CLASSES = 64 };

static const TrsShardingType pooled_types[] = {
    TRS_SHARDING_DATA_PARALLEL,     TRS_SHARDING_TABLE_WISE, TRS_SHARDING_COLUMN_WISE,
    TRS_SHARDING_TABLE_COLUMN_WISE, TRS_SHARDING_ROW_WISE,   TRS_SHARDING_TABLE_ROW_WISE,
    TRS_SHARDING_GRID_SHARD,
};
static const TrsShardingType sequence_types[] = {TRS_SHARDING_DATA_PARALLEL, TRS_SHARDING_TABLE_WISE,
                                                 TRS_SHARDING_COLUMN_WISE, TRS_SHARDING_ROW_WISE};
static const TrsShardingType quant_types[] = {TRS_SHARDING_TABLE_WISE, TRS_SHARDING_ROW_WISE,
                                              TRS_SHARDING_COLUMN_WISE};
#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

int TrsSharderTypes(const TrsCostModel *model, const TrsTableConfig *table, const TrsShardingType **types)
{
  if (model->settings->is_quant) {
    *types = quant_types;
    return COUNT(quant_types);
  }
  if (TrsTableModule(table) == TRS_MODULE_EC) {
    *types = sequence_types;
    return COUNT(sequence_types);
  }
  *types = pooled_types;
  return COUNT(pooled_types);
}

/*
  True if the sharder offers a kernel for a sharding type. Without cuda, the quantised sharder
  offers only quant.
*/
static PetscBool kernel_offered(const TrsCostModel *model, TrsShardingType type, TrsComputeKernel kernel)
{
  const TrsKernelUse use = type == TRS_SHARDING_DATA_PARALLEL ? TRS_USE_REPLICAS
                           : model->settings->is_quant        ? TRS_USE_QUANTISED
                                                              : TRS_USE_TRAINED;

  return (PetscBool)(TrsKernelUseOf(kernel) == use && (use != TRS_USE_QUANTISED || model->topology->is_cuda ||
                                                       TrsKernelHome(kernel) == TRS_ROWS_DEVICE));
}

/*
  True if a kernel is allowed. TorchRec's sharder offers fused_uvm and fused_uvm_caching only on
  cuda. trshard can also run them on cpu. On cpu they are allowed only if the user names them.
*/
static PetscBool kernel_allowed(const TrsCostModel *model, const TrsTableConfig *table,
                                TrsComputeKernel kernel)
{
  const unsigned named = table->constraints.compute_kernels;

  if (named) return (PetscBool)((named >> kernel) & 1u);
  return (PetscBool)(model->topology->is_cuda || TrsKernelHome(kernel) == TRS_ROWS_DEVICE);
}

static PetscBool type_allowed(const TrsCostModel *model, const TrsTableConfig *table, TrsShardingType type)
{
  PetscBool named = (PetscBool)((table->constraints.sharding_types >> type) & 1u);
  PetscBool by_host_rows = (PetscBool)(type == TRS_SHARDING_ROW_WISE || type == TRS_SHARDING_TABLE_ROW_WISE);

  /* Refuse data_parallel, because each replica would need all ids in one order. */
  if (TrsTableKeepsIds(table) && type == TRS_SHARDING_DATA_PARALLEL) return PETSC_FALSE;
  if (type == TRS_SHARDING_GRID_SHARD) return named;
  /* TorchRec's pooled sharder does not offer these types on cpu. trshard supports them there,
     but only if the user names them. */
  if (by_host_rows && !model->topology->is_cuda && !model->settings->is_quant &&
      TrsTableModule(table) != TRS_MODULE_EC)
    return named;
  return (PetscBool)(named || table->constraints.sharding_types == 0);
}

static TrsPartitionBy partition_by(TrsShardingType type)
{
  switch (type) {
  case TRS_SHARDING_TABLE_WISE:
  case TRS_SHARDING_COLUMN_WISE: return TRS_PARTITION_DEVICE;
  case TRS_SHARDING_TABLE_ROW_WISE:
  case TRS_SHARDING_TABLE_COLUMN_WISE: return TRS_PARTITION_HOST;
  case TRS_SHARDING_GRID_SHARD: return TRS_PARTITION_MULTI_HOST;
  case TRS_SHARDING_DATA_PARALLEL:
  case TRS_SHARDING_ROW_WISE: break;
  }
  return TRS_PARTITION_UNIFORM;
}

/*
  The smallest divisor of cols that is a multiple of 4, at least `least` and less than cols. If
  there is none, the result is cols.
*/
static int64_t column_width(int64_t cols, int64_t least)
{
  int64_t width = cols;

  for (int64_t d = 1; d * d <= cols; d++) {
    if (cols % d) continue;
    for (int side = 0; side < 2; side++) {
      int64_t i = side ? cols / d : d;

      if (i >= least && i % 4 == 0 && i < width) width = i;
    }
  }
  return width;
}

static PetscErrorCode set_class(TrsPlanOption *option, PetscSegBuffer classes, int n, const int64_t *rows)
{
  PetscFunctionBegin;
  option->n_classes = n;
  PetscCall(PetscSegBufferGet(classes, (size_t)n, &option->shard_class));
  for (int i = 0; i < n; i++) option->shard_class[i] = (TrsShardClass){.rows = rows[i]};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Split R rows over n shards in blocks of ceil(R / n), rounded up to whole units. */
static PetscErrorCode split_rows(TrsPlanOption *option, PetscSegBuffer classes, int64_t R, int64_t unit,
                                 int n)
{
  int64_t block = (R / unit + n - 1) / n * unit, full = R / block;
  const int64_t rows[3] = {block, R - block * full, 0};

  PetscFunctionBegin;
  option->row_shards = n;
  option->n_full = (int)full;
  PetscCall(set_class(option, classes, full >= n ? 1 : (full + 1 >= n ? 2 : 3), rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Split rows in proportion to the devices' memory. The last device gets the rows that remain. */
static PetscErrorCode split_rows_unevenly(const TrsTopology *topology, TrsPlanOption *option,
                                          TrsSearchSpace *space, int64_t R, int64_t unit)
{
  const int64_t *caps = topology->is_cuda ? topology->hbm : topology->ddr;
  int W = topology->world_size, n = 0, *class_of;
  int64_t left = R, *rows;
  double sum = 0;

  PetscFunctionBegin;
  for (int r = 0; r < W; r++) sum += (double)caps[r];
  PetscCall(PetscMalloc1(W, &rows));
  PetscCall(PetscSegBufferGet(space->class_of, (size_t)W, &class_of));
  for (int r = 0; r < W; r++) {
    int64_t mine = r < W - 1 ? (int64_t)((double)R * ((double)caps[r] / sum)) / unit * unit : left;
    int k = PetscMax(0, n - TRS_MAX_COMPARED_CLASSES);

    while (k < n && rows[k] != mine) k++;
    rows[k] = mine;
    n = PetscMax(n, k + 1);
    class_of[r] = k;
    left -= mine;
  }
  option->row_shards = W;
  option->class_of = class_of;
  PetscCall(set_class(option, space->classes, n, rows));
  PetscCall(PetscFree(rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_shards(const TrsCostModel *model, const TrsTableConfig *table,
                                 TrsPlanOption *option, TrsSearchSpace *space)
{
  const TrsTopology *topology = model->topology;
  int64_t R = table->num_embeddings, C = table->embedding_dim, least = table->constraints.min_partition;
  int64_t unit = TrsTableRowUnit(table);
  int64_t cut = column_width(C, least ? least : TRS_DEFAULT_MIN_WIDTH);
  double caps = 0;

  PetscFunctionBegin;
  option->width = C;
  option->row_shards = option->n_shards = option->n_full = 1;
  switch (option->type) {
  case TRS_SHARDING_ROW_WISE:
    option->n_shards = topology->world_size;
    for (int r = 0; r < topology->world_size; r++)
      caps += (double)(topology->is_cuda ? topology->hbm[r] : topology->ddr[r]);
    if (topology->uneven_own && caps > 0) {
      PetscCall(split_rows_unevenly(topology, option, space, R, unit));
    } else {
      PetscCall(split_rows(option, space->classes, R, unit, topology->world_size));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  case TRS_SHARDING_TABLE_ROW_WISE:
    option->n_shards = topology->group;
    PetscCall(split_rows(option, space->classes, R, unit, topology->group));
    PetscFunctionReturn(PETSC_SUCCESS);
  case TRS_SHARDING_GRID_SHARD:
    option->width = cut;
    option->n_shards = (int)(C / cut) * topology->group;
    PetscCall(split_rows(option, space->classes, R, unit, topology->group));
    PetscFunctionReturn(PETSC_SUCCESS);
  case TRS_SHARDING_COLUMN_WISE:
  case TRS_SHARDING_TABLE_COLUMN_WISE:
    option->width = cut;
    option->n_shards = (int)(C / cut);
    break;
  case TRS_SHARDING_DATA_PARALLEL: option->n_shards = topology->world_size; break;
  case TRS_SHARDING_TABLE_WISE: break;
  }
  PetscCall(set_class(option, space->classes, 1, &R));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_options(const TrsCostModel *model, int t, TrsSearchSpace *space)
{
  const TrsTableConfig *table = &model->tables->table[t];
  const TrsShardingType *types;
  int n_types = TrsSharderTypes(model, table, &types);

  PetscFunctionBegin;
  for (int i = 0; i < n_types; i++) {
    if (!type_allowed(model, table, types[i])) continue;
    for (int k = 0; k < TRS_N_KERNELS; k++) {
      const TrsComputeKernel kernel = (TrsComputeKernel)k;
      TrsPlanOption *option = &space->option[space->n_options];

      if (!kernel_offered(model, types[i], kernel) || !kernel_allowed(model, table, kernel)) continue;
      *option = (TrsPlanOption){.table = t,
                                .module = TrsTableModule(table),
                                .type = types[i],
                                .kernel = kernel,
                                .partition_by = partition_by(types[i]),
                                .has_load_factor = table->constraints.has_cache_load_factor,
                                .load_factor = table->constraints.cache_load_factor,
                                .same_perf = PETSC_TRUE};
      PetscCall(set_shards(model, table, option, space));
      PetscCall(TrsCostOption(model, option));
      space->n_options++;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The group of a table for the quantised sharder, which keeps the tables of a group together. Pooled
  tables are grouped by pooling mode, sequence tables by data type.
*/
static int quant_group(const TrsTableConfig *table)
{
  return TrsTableModule(table) == TRS_MODULE_EC ? (int)table->data_type : (int)table->pooling;
}

void TrsPlanTableOrder(const TrsCostModel *model, PetscBool first_to_last, int *order)
{
  const TrsTableConfigs *tables = model->tables;
  int n = 0;

  for (int i = 0; i < TRS_N_MODULES; i++) {
    TrsModule module = (TrsModule)(first_to_last ? i : TRS_N_MODULES - 1 - i);
    int start = n;

    for (int t = 0; t < tables->n; t++) {
      if (TrsTableModule(&tables->table[t]) == module) order[n++] = t;
    }
    if (!model->settings->is_quant) continue;
    /* Move the tables that are in the first table's group forward, and keep their order. */
    for (int done = start; done < n;) {
      int group = quant_group(&tables->table[order[done++]]);

      for (int j = done; j < n; j++) {
        int t = order[j];

        if (quant_group(&tables->table[t]) != group) continue;
        memmove(&order[done + 1], &order[done], (size_t)(j - done) * sizeof(*order));
        order[done++] = t;
      }
    }
  }
}

PetscErrorCode TrsEnumerate(const TrsCostModel *model, TrsSearchSpace *space, int *table_alone)
{
  const char *device = model->topology->is_cuda ? "cuda" : "cpu";
  int *order, n = model->tables->n;

  PetscFunctionBegin;
  *space = (TrsSearchSpace){0};
  *table_alone = -1;
  PetscCall(PetscSegBufferCreate(sizeof(TrsShardClass), 4096, &space->classes));
  PetscCall(PetscSegBufferCreate(sizeof(int), 4096, &space->class_of));
  PetscCall(PetscMalloc1((size_t)n * TRS_MAX_OPTIONS, &space->option));
  PetscCall(PetscMalloc1(n, &space->table));
  PetscCall(PetscMalloc1(n, &order));
  TrsPlanTableOrder(model, model->settings->exact_enumerate_order, order);
  for (int i = 0; i < n; i++) {
    const char *device_group = model->tables->table[order[i]].constraints.device_group;
    TrsTableOptions *mine = &space->table[space->n_tables];

    if (device_group && strcmp(device_group, device) != 0) continue;
    mine->table = order[i];
    mine->first = space->n_options;
    PetscCall(add_options(model, order[i], space));
    mine->n = space->n_options - mine->first;
    space->n_tables++;
    if (mine->n == 0) {
      *table_alone = order[i];
      space->n_options = space->n_tables = 0;
      break;
    }
  }
  PetscCall(PetscFree(order));
  PetscFunctionReturn(PETSC_SUCCESS);
}
