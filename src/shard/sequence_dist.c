/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Payload: rows by id, for sequence tables whose rows come from other ranks.

  TRS_GRID_RANKS (table_wise, column_wise, table_column_wise): a shard has all rows. A feature's ids
  are sent unchanged to every shard of its table, and each shard's columns come back.

    own ids --route--> [my features][G] --lookup--> a row for each id
    --all-to-all--> rows in the order of the ids sent

  TRS_GRID_WORLD (row_wise, table_row_wise, grid_shard): ids are cut into buckets by rows. The
  position at which an id was sent is also the position at which its row arrives. If a table lies on
  one host, the buckets of the other hosts are empty.

  Source: TorchRec TwSequenceEmbeddingSharding, CwSequenceEmbeddingSharding,
          RwSequenceEmbeddingSharding
*/
#include "dist/sequence_all_to_all.h"
#include "shard/sequence.h"

typedef struct {
  TrsSequence sequence;
  PetscBool by_rows;  /* true: ids are cut into buckets by rows */
  TrsRowsCopy *found; /* [pieces] with by_rows: copies that look up each id's row */
  TrsSequenceAllToAll dist;
  const float *arrived; /* the rows of this rank's ids, valid until the next batch's rows arrive */
  TrsDeviceBuffer rows, ordered;
} TrsSequenceDist;

static PetscErrorCode setup_sequence(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  TrsSequenceDist *d;

  PetscFunctionBegin;
  PetscCall(PetscNew(&d));
  sharding->data = d;
  d->by_rows = (PetscBool)(sharding->route.grid == TRS_GRID_WORLD);
  PetscCall(TrsRouteCreateLookup(sharding, PETSC_FALSE, PETSC_FALSE, &sharding->lookup, NULL));
  PetscCall(TrsSequenceCreate(sharding, context->index_dedup, &d->sequence));
  PetscCall(PetscMalloc1((size_t)d->sequence.n_pieces, &d->found));
  PetscCall(
      TrsSequenceAllToAllCreate(context->groups->world, d->sequence.dim, &sharding->sequence, &d->dist));
  PetscCall(TrsRouteCreateExchanges(sharding, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_sequence(TrsSharding sharding)
{
  const TrsDeviceOps *device = sharding->context->device;
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsSequenceDestroy(sharding, &d->sequence));
  PetscCall(TrsSequenceAllToAllDestroy(&d->dist));
  PetscCall(TrsDeviceBufferFree(device, &d->rows));
  PetscCall(TrsDeviceBufferFree(device, &d->ordered));
  PetscCall(PetscFree(d->found));
  PetscCall(PetscFree(d));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the row of every id, piece by piece. It is at the position at which the distinct id was sent.
*/
static PetscErrorCode compose(TrsSharding sharding, TrsSequenceDist *d, TrsSequenceBatch *batch,
                              TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  const TrsSequence *sequence = &d->sequence;
  int64_t n = 0, at = 0, at_id = 0;

  PetscFunctionBegin;
  for (int p = 0; p < sequence->n_pieces; p++)
    n += batch->begin[sequence->piece[p].table + 1] - batch->begin[sequence->piece[p].table];
  PetscCall(TrsDeviceBufferReserve(context->device, &batch->row, n * (int64_t)sizeof(int64_t)));
  for (int p = 0; p < sequence->n_pieces; p++) {
    const int i = sequence->piece[p].table;
    n = batch->begin[i + 1] - batch->begin[i];
    d->found[p] = (TrsRowsCopy){.n = n,
                                .row_bytes = sizeof(int64_t),
                                .from = (const int64_t *)batch->places.data + at,
                                .from_stride = sizeof(int64_t),
                                .from_index = (const int64_t *)batch->reverse.data + batch->begin[i],
                                .to = (int64_t *)batch->row.data + at_id,
                                .to_stride = sizeof(int64_t)};
    at += TrsSequenceIds(sequence, batch, i);
    at_id += n;
  }
  PetscCall(context->compute->copy_rows(stream, sharding->workspace, sequence->n_pieces, d->found));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the positions at which each piece's rows arrive. They are computed on the host. */
static void find_rows(const TrsSequenceDist *d, const TrsShardingSlot *slot, TrsSequenceBatch *batch)
{
  const TrsSequence *sequence = &d->sequence;
  /* index of the piece's first row, and index of the group's first id in the piece */
  int64_t at = 0, at_id = 0;

  for (int p = 0; p < sequence->n_pieces; p++) {
    const int i = sequence->piece[p].table;
    const int64_t n = TrsSequenceIds(sequence, batch, i), first = batch->begin[i];
    TrsSequenceRows *where = &batch->where[p];
    if (!d->by_rows && sequence->dedup)
      *where = (TrsSequenceRows){.index = (const int64_t *)batch->reverse.data, .shift = at, .n = n};
    else if (!d->by_rows)
      *where = (TrsSequenceRows){.shift = at - first};
    else if (sequence->dedup)
      *where = (TrsSequenceRows){.index = (const int64_t *)batch->row.data + at_id - first,
                                 .n = slot->send.jagged.n_values};
    else
      *where = (TrsSequenceRows){.index = (const int64_t *)batch->places.data + at - first};
    at += n;
    at_id += batch->begin[i + 1] - first;
  }
}

static PetscErrorCode prepare_sequence(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;
  TrsSequenceBatch *batch = TrsSequenceBatchOf(sharding, &d->sequence, slot);
  const TrsKjt *ids;

  PetscFunctionBegin;
  PetscCall(TrsSequencePrepare(sharding, &d->sequence, slot, stream, &ids));
  PetscCall(TrsRouteSend(sharding, stream, ids, sharding->route.place, &sharding->route.entries,
                         &batch->places, &slot->send));
  if (d->by_rows && d->sequence.dedup) PetscCall(compose(sharding, d, batch, stream));
  find_rows(d, slot, batch);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode sort_sequence(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsSequenceSort(sharding, &((TrsSequenceDist *)sharding->data)->sequence, slot, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_start_sequence(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                             const TrsPooledMatrix *pooled)
{
  const TrsDeviceOps *device = sharding->context->device;
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;
  const int64_t dim = d->sequence.dim, bytes = slot->recv.jagged.n_values * dim * (int64_t)sizeof(float);
  const int64_t *sent, *received;

  PetscFunctionBegin;
  (void)pooled;
  PetscCall(TrsDeviceBufferReserve(device, &d->rows, bytes));
  PetscCall(TrsDeviceBufferReserveShared(device, &d->ordered, bytes));
  if (d->sequence.padded || d->by_rows) PetscCall(device->zero(d->rows.data, bytes, stream));
  PetscCall(TrsLookupForwardRows(sharding->lookup, stream, &slot->recv, (float *)d->rows.data, dim));
  PetscCall(TrsKjtExchangeRowsToArrival(slot->exchange, stream, dim, (const float *)d->rows.data,
                                        (float *)d->ordered.data));
  PetscCall(TrsKjtExchangeIds(slot->exchange, &sent, &received));
  PetscCall(TrsSequenceAllToAllStart(d->dist, stream, (float *)d->ordered.data, received, sent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_wait_sequence(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                            const TrsPooledMatrix *pooled)
{
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsSequenceAllToAllWait(d->dist, stream, &d->arrived));
  PetscCall(TrsSequencePool(sharding, &d->sequence, slot, stream, d->arrived, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_sequence(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                              const TrsPooledMatrix *grad)
{
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;
  float *send;

  PetscFunctionBegin;
  PetscCall(TrsSequenceAllToAllGradBuffer(d->dist, &send));
  PetscCall(TrsSequenceUnpool(sharding, &d->sequence, slot, stream, d->arrived, grad,
                              slot->send.jagged.n_values, send));
  PetscCall(TrsSequenceAllToAllGradStart(d->dist, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_wait_sequence(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                             const TrsPooledMatrix *grad, TrsMatrix *arrived)
{
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;
  const float *by_source;

  PetscFunctionBegin;
  (void)grad;
  PetscCall(TrsSequenceAllToAllGradWait(d->dist, stream, &by_source));
  PetscCall(TrsKjtExchangeRowsFromArrival(slot->exchange, stream, d->sequence.dim, by_source,
                                          (float *)d->rows.data));
  *arrived = TrsFloats((const float *)d->rows.data, d->sequence.dim);
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_payload_sequence = {
    .name = "sequences",
    .setup = setup_sequence,
    .destroy = destroy_sequence,
    .prepare = prepare_sequence,
    .sort = sort_sequence,
    .forward_start = forward_start_sequence,
    .forward_wait = forward_wait_sequence,
    .backward_start = backward_start_sequence,
    .backward_wait = backward_wait_sequence,
};
