/* SPDX-License-Identifier: BSD-3-Clause */
/*
  data_parallel: every rank holds the table and looks up its own samples' ids; only gradients travel.

  A row is updated once with the sum of all ranks' gradients for it (rule A13; TorchRec hands the dense gradient to the dense optimizer
  instead). Ranks exchange lists of (row, gradient), merge them in row order with equal rows in rank order, and update: the same additions in
  the same order on every rank, so the replicas stay equal bit for bit.

  Sequence tables whose rows are not averaged: a batch's distinct rows are looked up once, and their gradients are those lists.
*/
#include "shard/sequence.h"

typedef struct {
  int n_features, n_tables;
  int *feature;
  const TrsTbeTable *table; /* [n_tables] as the lookup numbers them */
  int64_t row_stride;       /* floats from row gradient to row gradient: the widest table's dim */
  int64_t *row_begin;       /* [n_tables + 1] of this rank's lists */
  int64_t *all_begin;       /* [W, n_tables + 1] everybody's */
  int64_t *counts, *displs; /* [W] rows of each rank */
  int64_t *n_merged;        /* [n_tables] distinct rows of each rank added up */
  TrsDeviceBuffer rows, grads, all_rows, all_grads;
  TrsPinnedBuffer host_rows; /* int64: all_rows where the host can read them */
  TrsBuffer merged[2];       /* TrsRowEntry */
  TrsPinnedBuffer sorted;    /* int64 [2, total]: the merged entries' rows, then where their gradients are */
  TrsDeviceBuffer on_device; /* the same */
  TrsRequest rows_request, grads_request;
  TrsWorkspace update; /* apart from the group's, which the next batch's input dist uses */
  /* of sequence tables */
  TrsSequence sequence;
  TrsSequenceRows *where;        /* [tables of the group] of the batch under way */
  TrsDeviceBuffer distinct_rows; /* rows themselves, distinct within each table */
} TrsDataParallel;

/* An entry of a merged list: a row and where its gradient is. */
typedef struct {
  int64_t row, index;
} TrsRowEntry;

static PetscErrorCode setup_data_parallel(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  const size_t W = (size_t)context->groups->world->size;
  TrsLookupFeature *lookup;
  TrsDataParallel *dp;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(PetscNew(&dp));
  sharding->data = dp;
  dp->n_features = TrsShardingFeatures(sharding, NULL);
  PetscCall(PetscMalloc1((size_t)dp->n_features, &dp->feature));
  TrsShardingFeatures(sharding, dp->feature);
  PetscCall(PetscMalloc1((size_t)dp->n_features, &lookup));
  for (int i = 0; i < sharding->n_tables; i++) {
    const TrsTableConfig *config = TrsShardingTableConfig(sharding, i);
    dp->row_stride = PetscMax(dp->row_stride, config->embedding_dim);
    for (int k = 0; k < config->n_features; k++, n++)
      lookup[n] = (TrsLookupFeature){
          .shard = TrsEmbeddingShardsFind(context->shards, sharding->table[i], context->groups->world->rank),
          .mean = TrsShardingIsMean(config),
          .out_column = context->columns[dp->feature[n]],
          .position = TrsShardingPosition(sharding, dp->feature[n])};
  }
  PetscCall(TrsLookupCreate(context->compute, context->shards, dp->n_features, lookup, &sharding->lookup));
  PetscCall(PetscFree(lookup));
  PetscCall(TrsLookupTables(sharding->lookup, &dp->n_tables, &dp->table));
  PetscCall(context->compute->workspace_create(&dp->update));
  PetscCall(PetscCalloc5((size_t)dp->n_tables + 1, &dp->row_begin, W * ((size_t)dp->n_tables + 1),
                         &dp->all_begin, W, &dp->counts, W, &dp->displs, (size_t)dp->n_tables,
                         &dp->n_merged));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_data_parallel(TrsSharding sharding)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  TrsDeviceBuffer *buffers[] = {&dp->rows, &dp->grads, &dp->all_rows, &dp->all_grads, &dp->on_device};
  const TrsDeviceOps *device = sharding->context->device;

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
    PetscCall(TrsDeviceBufferFree(device, buffers[i]));
  PetscCall(TrsPinnedBufferFree(device, &dp->host_rows));
  PetscCall(TrsPinnedBufferFree(device, &dp->sorted));
  for (int i = 0; i < 2; i++) PetscCall(TrsBufferFree(&dp->merged[i]));
  PetscCall(sharding->context->compute->workspace_destroy(&dp->update));
  PetscCall(PetscFree(dp->feature));
  PetscCall(PetscFree5(dp->row_begin, dp->all_begin, dp->counts, dp->displs, dp->n_merged));
  PetscCall(PetscFree(dp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_data_parallel(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  const TrsDataParallel *dp = (const TrsDataParallel *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, slot->batch,
                          dp->n_features, dp->feature, &slot->recv));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_start_data_parallel(TrsSharding sharding, TrsShardingSlot *slot,
                                                  TrsStream stream, const TrsPooledMatrix *pooled)
{
  PetscFunctionBegin;
  PetscCall(TrsLookupForward(sharding->lookup, stream, &slot->recv, pooled->data, pooled->stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_wait_data_parallel(TrsSharding sharding, TrsShardingSlot *slot,
                                                 TrsStream stream, const TrsPooledMatrix *pooled)
{
  PetscFunctionBegin;
  (void)sharding;
  (void)slot;
  (void)stream;
  (void)pooled;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* This rank's lists, rows and dp->grads, row_begin set, to everybody. */
static PetscErrorCode exchange_lists(TrsSharding sharding, TrsStream stream, const int64_t *rows)
{
  const TrsShardingContext *context = sharding->context;
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const TrsComm comm = context->groups->world;
  const int64_t row_bytes = dp->row_stride * (int64_t)sizeof(float);
  int64_t total = 0;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allgather(dp->row_begin, dp->n_tables + 1, MPI_INT64_T, dp->all_begin, dp->n_tables + 1,
                             MPI_INT64_T, comm->mpi));
  for (int q = 0; q < comm->size; q++) {
    dp->displs[q] = total;
    dp->counts[q] = dp->all_begin[(int64_t)q * (dp->n_tables + 1) + dp->n_tables];
    total += dp->counts[q];
  }
  PetscCall(TrsDeviceBufferReserve(context->device, &dp->all_rows, total * (int64_t)sizeof(int64_t)));
  PetscCall(TrsDeviceBufferReserve(context->device, &dp->all_grads, total * row_bytes));
  PetscCall(TrsCommAllgatherv(comm, stream, rows, dp->all_rows.data, dp->counts, dp->displs, sizeof(int64_t),
                              &dp->rows_request));
  PetscCall(TrsCommAllgatherv(comm, stream, dp->grads.data, dp->all_grads.data, dp->counts, dp->displs,
                              row_bytes, &dp->grads_request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_data_parallel(TrsSharding sharding, TrsShardingSlot *slot,
                                                   TrsStream stream, const TrsPooledMatrix *grad)
{
  const TrsDeviceOps *device = sharding->context->device;
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const int64_t capacity = slot->recv.jagged.n_values;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(device, &dp->rows, capacity * (int64_t)sizeof(int64_t)));
  PetscCall(
      TrsDeviceBufferReserveShared(device, &dp->grads, capacity * dp->row_stride * (int64_t)sizeof(float)));
  PetscCall(TrsLookupRowGradients(sharding->lookup, stream, &slot->recv, grad->data, grad->stride,
                                  dp->row_begin, (int64_t *)dp->rows.data, (float *)dp->grads.data,
                                  dp->row_stride));
  PetscCall(exchange_lists(sharding, stream, (const int64_t *)dp->rows.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Stable merge of two neighbouring sorted runs. */
static void merge_runs(const TrsRowEntry *a, int64_t na, const TrsRowEntry *b, int64_t nb, TrsRowEntry *out)
{
  int64_t i = 0, j = 0;
  while (i < na && j < nb) *out++ = b[j].row < a[i].row ? b[j++] : a[i++];
  while (i < na) *out++ = a[i++];
  while (j < nb) *out++ = b[j++];
}

/* All ranks' entries of table t, sorted by row, then rank; in one of the two merge buffers. Returns their number. */
static int64_t merge_table(const TrsDataParallel *dp, int W, int t, const int64_t *all_rows,
                           const TrsRowEntry **merged)
{
  TrsRowEntry *from = (TrsRowEntry *)dp->merged[0].data, *to = (TrsRowEntry *)dp->merged[1].data;
  int64_t n = 0;

  for (int q = 0; q < W; q++) {
    const int64_t *begin = dp->all_begin + (int64_t)q * (dp->n_tables + 1);
    for (int64_t i = begin[t]; i < begin[t + 1]; i++, n++)
      from[n] = (TrsRowEntry){.row = all_rows[dp->displs[q] + i], .index = dp->displs[q] + i};
  }
  for (int width = 1; width < W; width *= 2) { /* runs of `width` ranks are sorted */
    int64_t at = 0;
    for (int q = 0; q < W; q += 2 * width) {
      int64_t length[2] = {0, 0};
      for (int p = q; p < PetscMin(W, q + 2 * width); p++) {
        const int64_t *begin = dp->all_begin + (int64_t)p * (dp->n_tables + 1);
        length[p >= q + width] += begin[t + 1] - begin[t];
      }
      merge_runs(from + at, length[0], from + at + length[0], length[1], to + at);
      at += length[0] + length[1];
    }
    TrsRowEntry *swap = from;
    from = to;
    to = swap;
  }
  *merged = from;
  return n;
}

/* All ranks' rows on the host. */
static PetscErrorCode read_rows(TrsDataParallel *dp, const TrsDeviceOps *device, TrsStream stream,
                                int64_t total, const int64_t **all_rows)
{
  const int64_t bytes = total * (int64_t)sizeof(**all_rows);

  PetscFunctionBegin;
  *all_rows = (const int64_t *)dp->all_rows.data;
  if (device->host_memory) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPinnedBufferReserve(device, &dp->host_rows, bytes));
  PetscCall(device->copy(dp->host_rows.data, *all_rows, bytes, stream));
  PetscCall(device->stream_synchronize(stream));
  *all_rows = (const int64_t *)dp->host_rows.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Every table's entries, merged, one table after the other: rows, then indices as the kernel takes them. */
static PetscErrorCode merge_tables(TrsDataParallel *dp, const TrsDeviceOps *device, TrsStream stream, int W,
                                   int64_t total, const int64_t **sorted)
{
  const int64_t bytes = 2 * total * (int64_t)sizeof(**sorted);
  const int64_t *all_rows = NULL;
  int64_t *rows, at = 0;

  PetscFunctionBegin;
  PetscCall(read_rows(dp, device, stream, total, &all_rows));
  for (int i = 0; i < 2; i++)
    PetscCall(TrsBufferReserve(&dp->merged[i], total * (int64_t)sizeof(TrsRowEntry), PETSC_FALSE));
  PetscCall(TrsPinnedBufferReserve(device, &dp->sorted, bytes));
  rows = (int64_t *)dp->sorted.data;
  for (int t = 0; t < dp->n_tables; t++) {
    const TrsRowEntry *merged;
    const int64_t n = merge_table(dp, W, t, all_rows, &merged), begin = at;

    for (int64_t i = 0; i < n; i++) {
      if ((uint64_t)merged[i].row >= (uint64_t)dp->table[t].rows)
        continue; /* a sequence's id that is no row */
      rows[at] = merged[i].row;
      rows[total + at++] = merged[i].index;
    }
    dp->n_merged[t] = at - begin;
  }
  *sorted = rows;
  if (device->host_memory) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferReserve(device, &dp->on_device, bytes));
  PetscCall(device->copy(dp->on_device.data, rows, bytes, stream));
  *sorted = (const int64_t *)dp->on_device.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_update_data_parallel(TrsSharding sharding, TrsShardingSlot *slot,
                                                    TrsStream stream, const TrsPooledMatrix *grad,
                                                    const TrsSparseOptimizerArgs *args)
{
  const TrsShardingContext *context = sharding->context;
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const int W = context->groups->world->size;
  const int64_t total = dp->displs[W - 1] + dp->counts[W - 1];
  const int64_t *sorted = NULL;

  PetscFunctionBegin;
  (void)grad;
  (void)slot;
  PetscCall(TrsRequestWait(&dp->rows_request, stream));
  PetscCall(TrsRequestWait(&dp->grads_request, stream));
  PetscCall(merge_tables(dp, context->device, stream, W, total, &sorted));
  for (int t = 0; t < dp->n_tables; t++) {
    const int64_t n = dp->n_merged[t];
    PetscCall(context->compute->tbe_update_rows(stream, dp->update, &dp->table[t], n, sorted, sorted + total,
                                                (const float *)dp->all_grads.data, dp->row_stride, args));
    sorted += n;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_sharding_data_parallel = {
    .name = "data_parallel",
    .setup = setup_data_parallel,
    .destroy = destroy_data_parallel,
    .prepare = prepare_data_parallel,
    .forward_start = forward_start_data_parallel,
    .forward_wait = forward_wait_data_parallel,
    .backward_start = backward_start_data_parallel,
    .backward_update = backward_update_data_parallel,
};

/* --- sequences --- */

static PetscErrorCode setup_sequences(TrsSharding sharding)
{
  TrsSequencePiece *piece;
  TrsDataParallel *dp;

  PetscFunctionBegin;
  PetscCall(setup_data_parallel(sharding));
  dp = (TrsDataParallel *)sharding->data;
  PetscCall(PetscMalloc1((size_t)sharding->n_tables, &piece));
  PetscCall(PetscCalloc1((size_t)sharding->n_tables, &dp->where));
  for (int i = 0; i < sharding->n_tables; i++)
    piece[i] = (TrsSequencePiece){.table = i, .columns = TrsShardingTableConfig(sharding, i)->embedding_dim};
  PetscCall(TrsSequenceCreate(sharding, PETSC_TRUE, sharding->n_tables, piece, &dp->sequence));
  PetscCall(PetscFree(piece));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_sequences(TrsSharding sharding)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsSequenceDestroy(sharding, &dp->sequence));
  PetscCall(TrsDeviceBufferFree(sharding->context->device, &dp->distinct_rows));
  PetscCall(PetscFree(dp->where));
  PetscCall(destroy_data_parallel(sharding));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_sequences(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const TrsKjt *ids;

  PetscFunctionBegin;
  PetscCall(TrsSequencePrepare(sharding, &dp->sequence, slot, stream, &ids));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_start_sequences(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                              const TrsPooledMatrix *pooled)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const TrsSequenceBatch *batch = TrsSequenceBatchOf(sharding, &dp->sequence, slot);

  PetscFunctionBegin;
  for (int i = 0; i < sharding->n_tables; i++)
    dp->where[i] = (TrsSequenceRows){.index = (const int64_t *)batch->reverse.data,
                                     .shift = batch->unique_begin[i],
                                     .n = TrsSequenceIds(&dp->sequence, batch, i)};
  PetscCall(TrsDeviceBufferReserve(sharding->context->device, &dp->distinct_rows,
                                   batch->unique.jagged.n_values * dp->row_stride * (int64_t)sizeof(float)));
  PetscCall(TrsLookupForwardRows(sharding->lookup, stream, &batch->unique, (float *)dp->distinct_rows.data,
                                 dp->row_stride));
  PetscCall(TrsSequencePool(sharding, &dp->sequence, slot, stream, dp->where,
                            (const float *)dp->distinct_rows.data, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_sequences(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                               const TrsPooledMatrix *grad)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const TrsSequenceBatch *batch = TrsSequenceBatchOf(sharding, &dp->sequence, slot);
  const int64_t n = batch->unique.jagged.n_values;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(sharding->context->device, &dp->grads,
                                         n * dp->row_stride * (int64_t)sizeof(float)));
  PetscCall(TrsSequenceUnpool(sharding, &dp->sequence, slot, stream, dp->where,
                              (const float *)dp->distinct_rows.data, grad, n, (float *)dp->grads.data));
  PetscCall(PetscArraycpy(dp->row_begin, batch->unique_begin, (size_t)dp->n_tables + 1));
  PetscCall(exchange_lists(sharding, stream, batch->unique.jagged.values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_sequence_data_parallel = {
    .name = "sequences on every rank",
    .setup = setup_sequences,
    .destroy = destroy_sequences,
    .prepare = prepare_sequences,
    .forward_start = forward_start_sequences,
    .forward_wait = forward_wait_data_parallel,
    .backward_start = backward_start_sequences,
    .backward_update = backward_update_data_parallel,
};
