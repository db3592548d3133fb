/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/sharding.h"

#include "shard/whole_rows.h"

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

int TrsShardingFirstFeature(TrsSharding sharding, int i)
{
  return sharding->context->first_feature[sharding->table[i]];
}

int TrsShardingFeatures(TrsSharding sharding, int *feature)
{
  int n = 0;
  for (int i = 0; i < sharding->n_tables; i++) {
    const int first = TrsShardingFirstFeature(sharding, i);
    for (int k = 0; k < TrsShardingTableConfig(sharding, i)->n_features; k++, n++)
      if (feature) feature[n] = first + k;
  }
  return n;
}

PetscErrorCode TrsShardingAddRun(TrsSharding sharding, int block, int64_t block_column, int64_t column,
                                 int64_t width)
{
  TrsColumnRun *last = sharding->n_runs ? &sharding->run[sharding->n_runs - 1] : NULL;

  PetscFunctionBegin;
  if (last && last->block == block && last->block_column + last->width == block_column &&
      last->column + last->width == column) {
    last->width += width;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscRealloc(sizeof(*sharding->run) * (size_t)(sharding->n_runs + 1), &sharding->run));
  PetscCall(PetscRealloc(sizeof(*sharding->copy) * (size_t)(sharding->n_runs + 1), &sharding->copy));
  sharding->run[sharding->n_runs++] = (TrsColumnRun){
      .block = block, .block_column = block_column, .column = column, .width = width};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingCreateExchanges(TrsSharding sharding, const int *n_features,
                                          const int *source_order, PetscBool in_turn)
{
  const TrsCommGroups *groups = sharding->context->groups;
  TrsShardingSlot *slot = sharding->slot;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    PetscCall(TrsKjtExchangeCreate(groups->input, n_features, n_features[groups->world->rank],
                                   sharding->weighted, source_order, &slot[s].exchange));
    if (in_turn && s > 0 && s != TRS_TRAINING_SLOTS)
      PetscCall(TrsKjtExchangeShare(slot[s].exchange,
                                    slot[(int64_t)TrsShardingTurn(s) * TRS_TRAINING_SLOTS].exchange));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Bytes of the loan, on cache lines; NULL: it has not so many left. */
static void *take_loan(TrsLoan *loan, int64_t bytes)
{
  void *taken = loan->data + loan->taken;

  bytes = (bytes + 63) / 64 * 64;
  if (bytes > loan->bytes - loan->taken) return NULL;
  loan->taken += bytes;
  return taken;
}

PetscErrorCode TrsShardingLookup(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream)
{
  const int64_t bytes = slot->recv.batch * sharding->local_dim * (int64_t)sizeof(float);

  PetscFunctionBegin;
  sharding->rows = (float *)take_loan(sharding->context->loan, bytes);
  if (!sharding->rows) {
    PetscCall(TrsDeviceBufferReserveShared(sharding->context->device, &sharding->pooled, bytes));
    sharding->rows = (float *)sharding->pooled.data;
  }
  PetscCall(TrsLookupForward(sharding->lookup, stream, &slot->recv, sharding->rows, sharding->local_dim));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingScatterRuns(TrsSharding sharding, TrsStream stream, int64_t B,
                                      const float *const *block, const int64_t *dims,
                                      const TrsPooledMatrix *pooled)
{
  PetscFunctionBegin;
  for (int i = 0; i < sharding->n_runs; i++) {
    const TrsColumnRun *run = &sharding->run[i];
    sharding->copy[i] = (TrsColumnCopy){.from = block[run->block] + run->block_column,
                                        .from_stride = dims[run->block],
                                        .to = pooled->data + run->column,
                                        .to_stride = pooled->stride,
                                        .cols = run->width};
  }
  PetscCall(sharding->context->compute->copy_columns(stream, B, sharding->n_runs, sharding->copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NOLINTNEXTLINE(readability-function-size): matrices and their strides */
PetscErrorCode TrsShardingGatherRuns(TrsSharding sharding, TrsStream stream, int64_t B,
                                     const TrsPooledMatrix *pooled, float *blocks, const int64_t *displs,
                                     const int64_t *dims, float *own)
{
  const int rank = sharding->context->groups->world->rank;

  PetscFunctionBegin;
  for (int i = 0; i < sharding->n_runs; i++) {
    const TrsColumnRun *run = &sharding->run[i];
    float *block = own && run->block == rank ? own : blocks + displs[run->block];

    sharding->copy[i] = (TrsColumnCopy){.from = pooled->data + run->column,
                                        .from_stride = pooled->stride,
                                        .to = block + run->block_column,
                                        .to_stride = dims[run->block],
                                        .cols = run->width};
  }
  PetscCall(sharding->context->compute->copy_columns(stream, B, sharding->n_runs, sharding->copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingUpdate(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                 const float *grad, int64_t stride, const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  if (sharding->whole)
    PetscCall(TrsWholeRowsUpdate(sharding->whole, slot, stream, grad, stride, args));
  else
    PetscCall(TrsLookupBackward(sharding->lookup, stream, &slot->recv, grad, stride, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingDivideMeans(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                      const TrsPooledMatrix *pooled)
{
  const TrsShardingContext *context = sharding->context;
  const TrsKjt *batch = slot->batch;
  int n = 0;

  PetscFunctionBegin;
  for (int i = 0; i < sharding->n_tables; i++) {
    const TrsTableConfig *config = TrsShardingTableConfig(sharding, i);
    const int first = TrsShardingFirstFeature(sharding, i);
    if (!TrsShardingIsMean(config)) continue;
    for (int f = first; f < first + config->n_features; f++)
      sharding->mean[n++] = (TrsMeanColumns){.data = pooled->data + pooled->columns[f],
                                             .lengths = batch->jagged.lengths + f * batch->batch,
                                             .cols = config->embedding_dim};
  }
  PetscCall(context->compute->divide_columns(stream, batch->batch, n, sharding->mean, pooled->stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}
