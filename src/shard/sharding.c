/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/sharding.h"

TrsMatrix TrsShardingRows(TrsSharding sharding, const float *data, int64_t stride)
{
  TrsMatrix rows = TrsFloats(data, stride);

  rows.type = sharding->rows_type;
  return rows;
}

int64_t TrsShardingColumn(TrsSharding sharding, int f)
{
  const TrsShardingContext *context = sharding->context;
  TrsMatrixLayout *layout = context->layout;
  int t = 0;

  if (!layout) return context->columns[f];
  if (layout->column[f] < 0) {
    while (t + 1 < context->tables->n && context->first_feature[t + 1] <= f) t++;
    layout->column[f] = layout->width;
    layout->width += context->tables->table[t].embedding_dim;
  }
  return layout->column[f];
}

const TrsTableConfig *TrsShardingTableConfig(TrsSharding sharding, int i)
{
  return &sharding->context->tables->table[sharding->table[i]];
}

const TrsTablePlan *TrsShardingTablePlan(TrsSharding sharding, int i)
{
  return sharding->context->table_plan[sharding->table[i]];
}

PetscBool TrsShardingIsMean(const TrsTableConfig *config)
{
  return (PetscBool)(config->pooling != TRS_POOLING_SUM);
}

TrsPositionWeight TrsShardingPosition(TrsSharding sharding, int f)
{
  const TrsPositionWeight *position = sharding->context->position;
  return position ? position[f] : (TrsPositionWeight){0};
}

/* Reserve bytes of the loan, aligned to cache lines. NULL: not enough bytes are left. */
static void *take_loan(TrsLoan *loan, int64_t bytes)
{
  void *taken = loan->data + loan->taken;

  bytes = (bytes + 63) / 64 * 64;
  if (bytes > loan->bytes - loan->taken) return NULL;
  loan->taken += bytes;
  return taken;
}

PetscErrorCode TrsShardingReserveRows(TrsSharding sharding, int64_t G)
{
  const int64_t bytes = G * sharding->local_dim * TrsDTypeBytes(sharding->rows_type);

  PetscFunctionBegin;
  sharding->rows = sharding->lends_rows ? NULL : (float *)take_loan(sharding->context->loan, bytes);
  if (!sharding->rows) {
    PetscCall(TrsDeviceBufferReserveShared(sharding->context->device, &sharding->pooled, bytes));
    sharding->rows = (float *)sharding->pooled.data;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingLookup(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsShardingReserveRows(sharding, slot->recv.batch));
  PetscCall(TrsLookupForward(sharding->lookup, stream, &slot->recv,
                             TrsShardingRows(sharding, sharding->rows, sharding->local_dim)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingCreateSums(TrsSharding sharding, int64_t dim, TrsPooledChunks *sums)
{
  const TrsCommGroups *groups = sharding->context->groups;
  const TrsPooledDistOptions *options = &sharding->reduce_scatter;

  PetscFunctionBegin;
  *sums = NULL;
  if (sharding->route.grid == TRS_GRID_WORLD_BY_HOSTS)
    PetscCall(TrsPooledHierarchicalCreate(groups->host, groups->cross, dim, options, sums));
  else if (sharding->route.grid != TRS_GRID_RANKS)
    PetscCall(TrsPooledReduceScatterCreate(
        sharding->route.grid == TRS_GRID_WORLD ? groups->world : groups->host, dim, options, sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingDivideMeans(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                      const TrsPooledMatrix *pooled)
{
  const TrsShardingContext *context = sharding->context;
  const TrsRoute *route = &sharding->route;
  const TrsKjt *batch = slot->batch;
  int n = 0;

  PetscFunctionBegin;
  for (int i = 0; i < sharding->n_tables; i++) {
    const TrsTableConfig *config = TrsShardingTableConfig(sharding, i);
    if (!TrsShardingIsMean(config)) continue;
    for (int k = route->table_feature[i]; k < route->table_feature[i + 1]; k++) {
      const int f = route->group_feature[k];
      sharding->mean[n++] = (TrsMeanColumns){.columns = TrsMatrixColumns(pooled->rows, pooled->columns[f]),
                                             .lengths = batch->jagged.lengths + f * batch->batch,
                                             .cols = config->embedding_dim};
    }
  }
  PetscCall(context->compute->divide_columns(stream, batch->batch, n, sharding->mean));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode sort_owner(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsLookupSort(sharding->lookup, stream, &slot->recv, TRS_TBE_BY_BAG, &slot->occurrences));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode sort_owner_by_id(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsLookupSort(sharding->lookup, stream, &slot->recv, TRS_TBE_BY_ID, &slot->occurrences));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode apply_owner(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                  TrsMatrix grad, const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  if (!sharding->context->copied) /* with other copies, the sorted ids are those of all copies */
    PetscCall(TrsLookupPositionGradients(sharding->lookup, stream, &slot->recv, grad));
  PetscCall(TrsLookupBackward(sharding->lookup, stream, &slot->recv, slot->occurrences, grad, NULL, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode apply_owner_by_id(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                        TrsMatrix grad, const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  PetscCall(TrsLookupBackwardRows(sharding->lookup, stream, &slot->recv, slot->occurrences,
                                  (const float *)grad.data, grad.stride, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsUpdateOps trs_update_owner = {.name = "owner", .sort = sort_owner, .apply = apply_owner};
const TrsUpdateOps trs_update_owner_by_id = {
    .name = "owner by id", .sort = sort_owner_by_id, .apply = apply_owner_by_id};
