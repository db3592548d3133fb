/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sequence tables whose rows come from other ranks, in two families.

  By tables (table_wise, column_wise, table_column_wise): a shard has all rows, so a feature's ids go, as they are, to every shard of its
  table, and come back as that shard's columns.
    own ids --permute--> [rank q][features of q's shards][B] --all-to-all--> [my features][G] --lookup--> a row for each id
    --all-to-all--> rows in the order of the ids sent

  By rows (row_wise, table_row_wise, grid_shard): ids are cut into buckets; where each one went says which row is its own.
    own ids --bucketize--> [rank q][column block, feature][B] --all-to-all--> my rows' ids --lookup, all-to-all--> as above
  Where a table lies on one host, the other hosts' buckets are empty.

  Source: TorchRec TwSequenceEmbeddingSharding, CwSequenceEmbeddingSharding, RwSequenceEmbeddingSharding.
*/
#include "dist/sequence_all_to_all.h"
#include "shard/row_split.h"
#include "shard/sequence.h"

/* A feature of a column shard (by rows: of a column block). */
typedef struct {
  int table, index; /* the group's table; its plan's shard, the first one of a column block */
  int place;        /* of the feature in the group */
} TrsSequenceEntry;

typedef struct {
  TrsSequence sequence;
  PetscBool by_rows;
  int n_entries;
  int *place;             /* [n_entries] feature of the group at each place sent (by rows: in each bucket) */
  TrsSequenceRows *where; /* [pieces] of the batch under way */
  TrsRowsCopy *found;     /* [pieces] by rows: ids' rows */
  TrsRowSplit split;      /* by rows */
  TrsKjt blocks;          /* by rows: the group's features for each column block */
  TrsSequenceAllToAll dist;
  const float *arrived; /* rows of this rank's ids, until the next batch's */
  TrsDeviceBuffer rows, ordered;
} TrsSequenceDist;

/* Shards of a column block: consecutive ones that begin at the same column. */
static int shards_of_block(const TrsTablePlan *plan, int s)
{
  int n = 1;
  while (s + n < plan->n_shards && plan->shard[s + n].col_offset == plan->shard[s].col_offset) n++;
  return n;
}

/* Entries (of shards on rank q, or of column blocks when q < 0) in order of table, shard, feature, and their pieces. */
static void visit(TrsSharding sharding, int q, int *n_entries, TrsSequenceEntry *entry, int *n_pieces,
                  TrsSequencePiece *piece)
{
  int first = 0;

  for (int i = 0; i < sharding->n_tables; i++) {
    const TrsTablePlan *plan = TrsShardingTablePlan(sharding, i);
    const int n_features = TrsShardingTableConfig(sharding, i)->n_features;
    for (int s = 0; s < plan->n_shards; s += q < 0 ? shards_of_block(plan, s) : 1) {
      const TrsShard *shard = &plan->shard[s];
      if (q >= 0 && shard->rank != q) continue;
      if (piece)
        piece[*n_pieces] = (TrsSequencePiece){
            .table = i, .columns = shard->cols, .column = shard->col_offset};
      ++*n_pieces;
      for (int k = 0; k < n_features; k++, ++*n_entries)
        if (entry) entry[*n_entries] = (TrsSequenceEntry){.table = i, .index = s, .place = first + k};
    }
    first += n_features;
  }
}

/* This rank's shard of an entry, or -1. */
static int local_shard(TrsSharding sharding, const TrsSequenceDist *d, const TrsSequenceEntry *entry)
{
  const TrsTablePlan *plan = TrsShardingTablePlan(sharding, entry->table);
  const int rank = sharding->context->groups->world->rank;
  const int n = d->by_rows ? shards_of_block(plan, entry->index) : 1;

  for (int s = entry->index; s < entry->index + n; s++)
    if (plan->shard[s].rank == rank)
      return TrsEmbeddingShardsFind(sharding->context->shards, sharding->table[entry->table], s);
  return -1;
}

static PetscErrorCode create_lookup(TrsSharding sharding, const TrsSequenceDist *d, int n,
                                    const TrsSequenceEntry *entry)
{
  const TrsShardingContext *context = sharding->context;
  TrsLookupFeature *lookup;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)PetscMax(n, 1), &lookup));
  for (int e = 0; e < n; e++) lookup[e] = (TrsLookupFeature){.shard = local_shard(sharding, d, &entry[e])};
  PetscCall(TrsLookupCreate(context->compute, context->shards, n, lookup, &sharding->lookup));
  PetscCall(PetscFree(lookup));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Each column block's rows over the ranks: its shards lie on consecutive ones. */
static PetscErrorCode create_split(TrsSharding sharding, TrsSequenceDist *d, const TrsSequenceEntry *entry)
{
  const int W = sharding->context->groups->world->size;

  PetscFunctionBegin;
  PetscCall(TrsRowSplitCreate(W, d->n_entries, &d->split));
  for (int e = 0; e < d->n_entries; e++) {
    const TrsTablePlan *plan = TrsShardingTablePlan(sharding, entry[e].table);
    const TrsShard *shard = &plan->shard[entry[e].index];
    const int n = shards_of_block(plan, entry[e].index);
    if (n == W)
      PetscCall(TrsRowSplitSet(&d->split, e, shard));
    else
      PetscCall(TrsRowSplitSetPart(&d->split, e, shard->rank, n, shard));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_sequence(TrsSharding sharding)
{
  const PetscBool by_rows = (PetscBool)(sharding->ops == &trs_sequence_by_rows);
  const TrsShardingContext *context = sharding->context;
  const TrsComm comm = context->groups->world;
  int n_pieces = 0, *n_features;
  TrsSequenceEntry *entry;
  TrsSequencePiece *piece;
  TrsSequenceDist *d;

  PetscFunctionBegin;
  PetscCall(PetscNew(&d));
  sharding->data = d;
  d->by_rows = by_rows;
  for (int q = by_rows ? -1 : 0; q < (by_rows ? 0 : comm->size); q++)
    visit(sharding, q, &d->n_entries, NULL, &n_pieces, NULL);
  PetscCall(
      PetscMalloc3((size_t)d->n_entries, &entry, (size_t)n_pieces, &piece, (size_t)comm->size, &n_features));
  PetscCall(PetscMalloc3((size_t)d->n_entries, &d->place, (size_t)n_pieces, &d->where, (size_t)n_pieces,
                         &d->found));
  d->n_entries = n_pieces = 0;
  for (int q = 0; q < comm->size; q++) {
    const int first = by_rows ? 0 : d->n_entries;
    if (!by_rows || q == 0) visit(sharding, by_rows ? -1 : q, &d->n_entries, entry, &n_pieces, piece);
    n_features[q] = d->n_entries - first;
    if (q == comm->rank) PetscCall(create_lookup(sharding, d, n_features[q], entry + first));
  }
  for (int e = 0; e < d->n_entries; e++) d->place[e] = entry[e].place;
  if (by_rows) PetscCall(create_split(sharding, d, entry));
  PetscCall(TrsSequenceCreate(sharding, context->index_dedup, n_pieces, piece, &d->sequence));
  PetscCall(TrsSequenceAllToAllCreate(comm, d->sequence.dim, &context->sequence, &d->dist));
  PetscCall(TrsShardingCreateExchanges(sharding, n_features, NULL, PETSC_FALSE));
  PetscCall(PetscFree3(entry, piece, n_features));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_sequence(TrsSharding sharding)
{
  const TrsDeviceOps *device = sharding->context->device;
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsSequenceDestroy(sharding, &d->sequence));
  PetscCall(TrsSequenceAllToAllDestroy(&d->dist));
  PetscCall(TrsRowSplitDestroy(&d->split));
  PetscCall(TrsKjtFree(device, &d->blocks));
  PetscCall(TrsDeviceBufferFree(device, &d->rows));
  PetscCall(TrsDeviceBufferFree(device, &d->ordered));
  PetscCall(PetscFree3(d->place, d->where, d->found));
  PetscCall(PetscFree(d));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_by_tables(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;
  const TrsKjt *ids;

  PetscFunctionBegin;
  PetscCall(TrsSequencePrepare(sharding, &d->sequence, slot, stream, &ids));
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, ids, d->n_entries,
                          d->place, &slot->send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The row of every id of the group, piece after piece: from the id to its table's distinct one, from there to where that went. */
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

static PetscErrorCode prepare_by_rows(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;
  TrsSequenceBatch *batch = TrsSequenceBatchOf(sharding, &d->sequence, slot);
  const TrsKjt *ids;

  PetscFunctionBegin;
  PetscCall(TrsSequencePrepare(sharding, &d->sequence, slot, stream, &ids));
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, ids, d->n_entries,
                          d->place, &d->blocks));
  PetscCall(TrsDeviceBufferReserve(context->device, &batch->places,
                                   d->blocks.jagged.n_values * (int64_t)sizeof(int64_t)));
  PetscCall(TrsRowSplitBucketize(&d->split, context->device, context->compute, stream, sharding->workspace,
                                 &d->blocks, &slot->send, (int64_t *)batch->places.data));
  if (d->sequence.dedup) PetscCall(compose(sharding, d, batch, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where each piece's rows arrive; host arithmetic alone. */
static void find_rows(const TrsSharding sharding, TrsSequenceDist *d, const TrsShardingSlot *slot)
{
  const TrsSequence *sequence = &d->sequence;
  const TrsSequenceBatch *batch = TrsSequenceBatchOf(sharding, &d->sequence, slot);
  int64_t at = 0, at_id = 0; /* first row, first id of the group, of the piece */

  for (int p = 0; p < sequence->n_pieces; p++) {
    const int i = sequence->piece[p].table;
    const int64_t n = TrsSequenceIds(sequence, batch, i), first = batch->begin[i];
    TrsSequenceRows *where = &d->where[p];
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
  find_rows(sharding, d, slot);
  PetscCall(TrsSequenceAllToAllWait(d->dist, stream, &d->arrived));
  PetscCall(TrsSequencePool(sharding, &d->sequence, slot, stream, d->where, d->arrived, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_sequence(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                              const TrsPooledMatrix *grad)
{
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;
  float *send;

  PetscFunctionBegin;
  PetscCall(TrsSequenceAllToAllGradBuffer(d->dist, &send));
  PetscCall(TrsSequenceUnpool(sharding, &d->sequence, slot, stream, d->where, d->arrived, grad,
                              slot->send.jagged.n_values, send));
  PetscCall(TrsSequenceAllToAllGradStart(d->dist, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_update_sequence(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                               const TrsPooledMatrix *grad,
                                               const TrsSparseOptimizerArgs *args)
{
  TrsSequenceDist *d = (TrsSequenceDist *)sharding->data;
  const float *arrived;

  PetscFunctionBegin;
  (void)grad;
  PetscCall(TrsSequenceAllToAllGradWait(d->dist, stream, &arrived));
  PetscCall(
      TrsKjtExchangeRowsFromArrival(slot->exchange, stream, d->sequence.dim, arrived, (float *)d->rows.data));
  PetscCall(TrsLookupBackwardRows(sharding->lookup, stream, &slot->recv, (const float *)d->rows.data,
                                  d->sequence.dim, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_sequence_by_tables = {
    .name = "sequences by tables",
    .setup = setup_sequence,
    .destroy = destroy_sequence,
    .prepare = prepare_by_tables,
    .forward_start = forward_start_sequence,
    .forward_wait = forward_wait_sequence,
    .backward_start = backward_start_sequence,
    .backward_update = backward_update_sequence,
};

const TrsShardingOps trs_sequence_by_rows = {
    .name = "sequences by rows",
    .setup = setup_sequence,
    .destroy = destroy_sequence,
    .prepare = prepare_by_rows,
    .forward_start = forward_start_sequence,
    .forward_wait = forward_wait_sequence,
    .backward_start = backward_start_sequence,
    .backward_update = backward_update_sequence,
};
