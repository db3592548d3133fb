/* SPDX-License-Identifier: BSD-3-Clause */
#include "reversed_rows.h"

typedef struct {
  const TrsDeviceOps *device;
  TrsDeviceBuffer values[TRS_CACHE_BATCHES];
} reversed;

static PetscBool treats(const TrsEmbeddingShards *shards, int table)
{
  return (PetscBool)(shards->plan->table[table].sharding_type != TRS_SHARDING_DATA_PARALLEL);
}

static PetscErrorCode create(TrsPlacement self, const TrsPlacementTables *tables)
{
  reversed *r;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n_tables; t++)
    if (tables->shard[t] >= 0 && !treats(tables->shards, tables->shards->shard[tables->shard[t]].table))
      PetscFunctionReturn(PETSC_SUCCESS); /* such a group has only replicas or no shards */
  PetscCall(PetscNew(&r));
  r->device = tables->device;
  self->data = r;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(TrsPlacement self)
{
  reversed *r = (reversed *)self->data;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_CACHE_BATCHES; s++) PetscCall(TrsDeviceBufferFree(r->device, &r->values[s]));
  PetscCall(PetscFree(self->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy bytes between host and device memory. The copy is complete on return. */
static PetscErrorCode copy(const TrsDeviceOps *device, TrsStream stream, void *to, const void *from,
                           int64_t bytes)
{
  PetscFunctionBegin;
  if (bytes > 0) PetscCall(device->copy(to, from, bytes, stream));
  PetscCall(device->stream_synchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take(TrsPlacement self, TrsStream stream, const TrsPlacementBatch *batch)
{
  reversed *r = (reversed *)self->data;
  TrsKjt *ids = batch->ids;
  const int64_t n = ids->jagged.n_values, n_offsets = (int64_t)batch->tbe->n_features * ids->batch + 1;
  const int64_t id_bytes = n * (int64_t)sizeof(int64_t), offset_bytes = n_offsets * (int64_t)sizeof(int64_t);
  int64_t *values, *offsets;

  PetscFunctionBegin;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc2((size_t)n, &values, (size_t)n_offsets, &offsets));
  PetscCall(copy(r->device, stream, values, ids->jagged.values, id_bytes));
  PetscCall(copy(r->device, stream, offsets, ids->jagged.offsets, offset_bytes));
  for (int f = 0; f < batch->tbe->n_features; f++) {
    const int64_t rows = batch->tbe->table[batch->tbe->feature[f].table].rows;

    for (int64_t i = offsets[f * ids->batch]; i < offsets[(f + 1) * ids->batch]; i++)
      if (values[i] >= 0 && values[i] < rows) values[i] = rows - 1 - values[i];
  }
  PetscCall(TrsDeviceBufferReserve(r->device, &r->values[batch->slot], id_bytes));
  PetscCall(copy(r->device, stream, r->values[batch->slot].data, values, id_bytes));
  ids->jagged.values = (int64_t *)r->values[batch->slot].data;
  PetscCall(PetscFree2(values, offsets));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const TrsPlacementOps reversed_rows = {
    .name = "reversed rows", .treats = treats, .create = create, .destroy = destroy, .take = take};
static const TrsPlacementOps *const placements[] = {&reversed_rows, NULL};

int64_t reversed_rows_place(const TrsEmbeddingShards *shards, const TrsEmbeddingShard *shard, int64_t row)
{
  return shards->placements == placements && treats(shards, shard->table) ? shard->tbe.rows - 1 - row : row;
}

PetscErrorCode reversed_rows_set(TrsEmbeddingShards *shards)
{
  PetscFunctionBegin;
  shards->placements = placements;
  for (int i = 0; i < shards->n; i++) {
    const TrsTbeTable *t = &shards->shard[i].tbe;
    const size_t row_bytes = (size_t)t->stride * (size_t)TrsDTypeBytes(t->dtype);
    char *rows, *turned;

    if (t->rows == 0) continue;
    PetscCall(PetscMalloc2((size_t)t->rows * row_bytes, &rows, (size_t)t->rows * row_bytes, &turned));
    PetscCall(copy(shards->device, NULL, rows, t->weight, t->rows * (int64_t)row_bytes));
    for (int64_t row = 0; row < t->rows; row++)
      PetscCall(PetscMemcpy(turned + (size_t)reversed_rows_place(shards, &shards->shard[i], row) * row_bytes,
                            rows + (size_t)row * row_bytes, row_bytes));
    PetscCall(copy(shards->device, NULL, t->weight, turned, t->rows * (int64_t)row_bytes));
    PetscCall(PetscFree2(rows, turned));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
