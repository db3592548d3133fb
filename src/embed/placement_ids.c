/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Placement of tables that keep ids: raw ids to rows, by the tables' directories. The directories
  are in host memory, also for tables on a GPU: few rows change hands in a batch, and its ids are 8
  bytes each beside rows of hundreds. The ids of such tables make one trip to the host and back.
*/
#include "compute/changed_rows.h"
#include "compute/for_each.h"
#include "compute/random_rows.h"
#include "embed/directory.h"
#include "embed/placement.h"

#include <string.h>

enum {
  TRS_IDS_AT_ONCE = 1 << 14,   /* ids that a thread looks up at a time */
  TRS_ROWS_AT_ONCE = 1 << 6,   /* rows that a thread writes at a time */
  TRS_COLUMNS_AT_ONCE = 1 << 9 /* numbers that a thread draws and converts at a time */
};

/* New contents for a row: drawn for an id, the table's initial values, or zeros. */
typedef enum { TRS_ROW_GIVEN, TRS_ROW_INITIAL, TRS_ROW_ZERO } TrsNewRowKind;
typedef struct {
  TrsNewRowKind kind;
  int shard;
  int64_t row;       /* of the shard */
  int64_t id, times; /* TRS_ROW_GIVEN */
} TrsNewRow;

typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *host;
  const TrsEmbeddingShards *shards;
  int n_tables;
  int *shard;                              /* [n_tables]; -1: the table has no directory here */
  TrsEmbeddingStates *states;              /* [shards->n] the optimizer states of each shard */
  TrsDeviceBuffer rows[TRS_CACHE_BATCHES]; /* by slot: the rows of all ids of the batch */
  /* the batch's ids, offsets and rows on the host, if the device's memory is its own */
  TrsPinnedBuffer host_ids, host_offsets, host_rows, host_weights;
  TrsBuffer ids, found, bucket, order; /* of a table's ids */
  TrsBuffer pending;                   /* TrsNewRow: rows without their contents yet */
  int64_t n_pending;
  PetscBool repeats; /* a row may be in `pending` twice */
  TrsNewRow *kept;   /* [n_kept] rows of unknown ids that do not learn */
  int64_t n_kept;
  PetscBool kept_used; /* an update may have changed them */
} TrsIdPlacement;

static PetscBool treats_table(const TrsEmbeddingShards *shards, int table)
{
  return TrsTableKeepsIds(&shards->tables->table[table]);
}

static const TrsDirectoryOps *ops_of(const TrsTableConfig *table)
{
  return table->id_map.kind == TRS_ID_MAP_DYNAMIC ? &trs_directory_dynamic : &trs_directory_zch;
}

/* --- the directories of shards --- */

static PetscErrorCode create_keys(const TrsEmbeddingShards *shards, int i)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_TABLES);
  TrsEmbeddingShard *shard = &shards->shard[i];
  const TrsTableConfig *table = &shards->tables->table[shard->table];
  TrsDirectory *d;

  PetscFunctionBegin;
  PetscCall(PetscNew(&d));
  shard->keys = d;
  d->ops = ops_of(table);
  d->rule = TrsDirectoryBuckets(table);
  d->n = shard->tbe.rows / d->rule.rows;
  d->first = shard->tbe.row_offset / d->rule.rows;
  PetscCall(PetscCalloc1((size_t)PetscMax(d->n, 1), &d->bucket));
  for (int64_t b = 0; b < d->n; b++) PetscCall(d->ops->create(table, d->rule.rows, &d->bucket[b]));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_keys(const TrsEmbeddingShards *shards, int i)
{
  TrsDirectory *d = TrsDirectoryOf(shards, i);

  PetscFunctionBegin;
  if (!d) PetscFunctionReturn(PETSC_SUCCESS);
  for (int64_t b = 0; b < d->n; b++) PetscCall(d->ops->destroy(&d->bucket[b]));
  PetscCall(d->ops->destroy_state(d));
  PetscCall(PetscFree(d->bucket));
  PetscCall(PetscFree(shards->shard[i].keys));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* List the rows of unknown ids that keep their values. */
static PetscErrorCode list_kept(TrsIdPlacement *z)
{
  int64_t n = 0;

  PetscFunctionBegin;
  for (int t = 0; t < z->n_tables; t++)
    if (z->shard[t] >= 0) n += TrsDirectoryOf(z->shards, z->shard[t])->n;
  PetscCall(PetscMalloc1((size_t)n, &z->kept));
  for (int t = 0; t < z->n_tables; t++) {
    const int i = z->shard[t];
    const TrsDirectory *d = i >= 0 ? TrsDirectoryOf(z->shards, i) : NULL;
    const TrsUnknownRow unknown = d ? z->shards->tables->table[z->shards->shard[i].table].unknown
                                    : TRS_UNKNOWN_SHARED;

    for (int64_t b = 0; unknown != TRS_UNKNOWN_SHARED && b < d->n; b++)
      z->kept[z->n_kept++] = (TrsNewRow){.kind = unknown == TRS_UNKNOWN_ZERO ? TRS_ROW_ZERO : TRS_ROW_INITIAL,
                                         .shard = i,
                                         .row = b * d->rule.rows + d->ops->unknown_row(d->rule.rows)};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_ids(TrsPlacement self, const TrsPlacementTables *tables)
{
  PetscBool any = PETSC_FALSE;
  TrsIdPlacement *z;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n_tables; t++)
    if (tables->shard[t] >= 0 && TrsDirectoryOf(tables->shards, tables->shard[t])) any = PETSC_TRUE;
  if (!any) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&z));
  self->data = z;
  z->device = tables->device;
  z->shards = tables->shards;
  z->n_tables = tables->n_tables;
  PetscCall(TrsComputeFind("cpu", &z->host));
  PetscCall(PetscMalloc2((size_t)z->n_tables, &z->shard, (size_t)z->shards->n, &z->states));
  for (int i = 0; i < z->shards->n; i++)
    z->states[i] = TrsEmbeddingShardsStates(z->shards, z->shards->shard[i].table);
  for (int t = 0; t < z->n_tables; t++) {
    const int i = tables->shard[t];

    z->shard[t] = i >= 0 && TrsDirectoryOf(z->shards, i) && TrsDirectoryOf(z->shards, i)->n ? i : -1;
  }
  PetscCall(list_kept(z));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_ids(TrsPlacement self)
{
  TrsIdPlacement *z = (TrsIdPlacement *)self->data;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_CACHE_BATCHES; s++) PetscCall(TrsDeviceBufferFree(z->device, &z->rows[s]));
  PetscCall(TrsPinnedBufferFree(z->device, &z->host_ids));
  PetscCall(TrsPinnedBufferFree(z->device, &z->host_offsets));
  PetscCall(TrsPinnedBufferFree(z->device, &z->host_rows));
  PetscCall(TrsPinnedBufferFree(z->device, &z->host_weights));
  PetscCall(TrsBufferFree(&z->ids));
  PetscCall(TrsBufferFree(&z->found));
  PetscCall(TrsBufferFree(&z->bucket));
  PetscCall(TrsBufferFree(&z->order));
  PetscCall(TrsBufferFree(&z->pending));
  PetscCall(PetscFree(z->kept));
  PetscCall(PetscFree2(z->shard, z->states));
  PetscCall(PetscFree(self->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- a batch --- */

/* A batch on the host: its ids, and the place for their rows. */
typedef struct {
  const TrsPlacementBatch *batch;
  const int64_t *ids, *offsets;
  int64_t *rows;
} TrsIdHostBatch;

/* A list of ids, and the results for them, that threads treat piece by piece. */
typedef struct {
  const TrsDirectory *directory;
  void *bucket;
  PetscBool training;
  int64_t n, n_known;
  const int64_t *ids;
  int64_t *rows;
  int32_t *number; /* [n] the ids' buckets */
} TrsIdList;

static void find_piece(void *context, int64_t i)
{
  TrsIdList *list = (TrsIdList *)context;
  const int64_t first = i * TRS_IDS_AT_ONCE, n = PetscMin((int64_t)TRS_IDS_AT_ONCE, list->n - first);
  const int64_t n_known = list->directory->ops->find(list->bucket, list->training, first, n,
                                                     list->ids + first, list->rows + first);

  (void)__atomic_fetch_add(&list->n_known, n_known, __ATOMIC_RELAXED);
}

static void number_piece(void *context, int64_t i)
{
  const TrsIdList *list = (const TrsIdList *)context;
  const int64_t end = PetscMin((i + 1) * (int64_t)TRS_IDS_AT_ONCE, list->n);

  for (int64_t k = i * TRS_IDS_AT_ONCE; k < end; k++)
    list->number[k] = (int32_t)(TrsIdBucket(&list->directory->rule, list->ids[k]) - list->directory->first);
}

/* Treat all pieces of a list, by all threads. */
static void each_piece(TrsIdList *list, void (*body)(void *context, int64_t i))
{
  TrsForEach((list->n + TRS_IDS_AT_ONCE - 1) / TRS_IDS_AT_ONCE, body, list);
}

/* Note the rows that bucket b of a shard has given away. */
static PetscErrorCode note_rows(TrsIdPlacement *z, TrsNewRowKind kind, int shard, int64_t b,
                                const TrsGivenRows *given)
{
  const int64_t first = b * TrsDirectoryOf(z->shards, shard)->rule.rows;
  TrsNewRow *pending;

  PetscFunctionBegin;
  if (given->n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsBufferReserve(&z->pending, (z->n_pending + given->n) * (int64_t)sizeof(*pending), PETSC_TRUE));
  pending = (TrsNewRow *)z->pending.data + z->n_pending;
  for (int64_t i = 0; i < given->n; i++)
    pending[i] = (TrsNewRow){.kind = kind,
                             .shard = shard,
                             .row = first + given->row[i].row,
                             .id = given->row[i].id,
                             .times = given->row[i].times};
  z->n_pending += given->n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Bucket b of a shard treats its n ids of the batch. */
static PetscErrorCode treat_bucket(TrsIdPlacement *z, int shard, int64_t b, PetscBool training, int64_t n,
                                   const int64_t *ids, int64_t *rows)
{
  TrsDirectory *d = TrsDirectoryOf(z->shards, shard);
  TrsIdList list = {
      .directory = d, .bucket = d->bucket[b], .training = training, .n = n, .ids = ids, .rows = rows};
  TrsGivenRows given = {.n = 0};

  PetscFunctionBegin;
  if (training && d->ops->begin) PetscCall(d->ops->begin(list.bucket, n, ids, &given));
  PetscCall(note_rows(z, TRS_ROW_GIVEN, shard, b, &given));
  each_piece(&list, find_piece);
  if (!training) PetscFunctionReturn(PETSC_SUCCESS);
  if (d->ops->end && list.n_known < n) {
    PetscCall(d->ops->end(list.bucket, n, ids, rows, &list.n_known, &given));
    PetscCall(note_rows(z, TRS_ROW_GIVEN, shard, b, &given));
  }
  if (d->ops->gaps) {
    PetscCall(d->ops->gaps(list.bucket, &given));
    PetscCall(note_rows(z, TRS_ROW_ZERO, shard, b, &given));
  }
  d->lookups += n;
  d->unknown += n - list.n_known;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Bring n ids into the order of their buckets. begin [n_buckets + 1]; order [n]: the ids' places
  before.
*/
static void sort_by_bucket(const TrsDirectory *d, int64_t n, const int64_t *ids, int64_t *begin,
                           int32_t *bucket, int64_t *order)
{
  each_piece(&(TrsIdList){.directory = d, .n = n, .ids = ids, .number = bucket}, number_piece);
  memset(begin, 0, (size_t)(d->n + 1) * sizeof(*begin));
  for (int64_t i = 0; i < n; i++) begin[bucket[i] + 1]++;
  for (int64_t b = 0; b < d->n; b++) begin[b + 1] += begin[b];
  for (int64_t i = 0; i < n; i++) order[begin[bucket[i]]++] = i;
  memmove(begin + 1, begin, (size_t)d->n * sizeof(*begin));
  begin[0] = 0;
}

/* Treat the n ids of a shard: rows [n] receives the shard's rows. */
static PetscErrorCode treat_ids(TrsIdPlacement *z, int shard, PetscBool training, int64_t n,
                                const int64_t *ids, int64_t *rows)
{
  const TrsDirectory *d = TrsDirectoryOf(z->shards, shard);
  int64_t *begin, *order, *sorted, *found;

  PetscFunctionBegin;
  if (d->n == 1) {
    PetscCall(treat_bucket(z, shard, 0, training, n, ids, rows));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsBufferReserve(&z->bucket, n * (int64_t)sizeof(int32_t), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&z->order, (n + d->n + 1) * (int64_t)sizeof(*order), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&z->found, 2 * n * (int64_t)sizeof(*found), PETSC_FALSE));
  order = (int64_t *)z->order.data;
  begin = order + n;
  found = (int64_t *)z->found.data;
  sorted = found + n;
  sort_by_bucket(d, n, ids, begin, (int32_t *)z->bucket.data, order);
  for (int64_t i = 0; i < n; i++) sorted[i] = ids[order[i]];
  for (int64_t b = 0; b < d->n; b++)
    PetscCall(
        treat_bucket(z, shard, b, training, begin[b + 1] - begin[b], sorted + begin[b], found + begin[b]));
  for (int64_t b = 0; b < d->n; b++)
    for (int64_t i = begin[b]; i < begin[b + 1]; i++) rows[order[i]] = b * d->rule.rows + found[i];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The number of the block of samples that comes from rank q. */
static int block_of(const TrsPlacementSources *sources, int q)
{
  int i = 0;

  while (sources->rank[i] != q) i++;
  return i;
}

/*
  Copy a feature's ids to `to`, in the order of the global batch. If `back` is true, copy the rows
  for these ids from `to` back to host->rows. A loop is needed because the blocks of samples do not
  always arrive in the order of their ranks.
*/
static int64_t copy_feature(const TrsIdHostBatch *host, int f, PetscBool back, int64_t *to)
{
  const TrsPlacementSources *sources = &host->batch->sources;
  const int64_t *offsets = host->offsets + f * host->batch->ids->batch;
  int64_t n = 0;

  if (!sources->n || !sources->rank) {
    n = offsets[host->batch->ids->batch] - offsets[0];
    if (back)
      memcpy(host->rows + offsets[0], to, (size_t)n * sizeof(*to));
    else
      memcpy(to, host->ids + offsets[0], (size_t)n * sizeof(*to));
    return n;
  }
  for (int q = 0; q < sources->n; q++) {
    const int block = block_of(sources, q);
    int64_t bag = 0, n_ids;

    for (int i = 0; i < block; i++) bag += sources->batch[i];
    n_ids = offsets[bag + sources->batch[block]] - offsets[bag];
    if (back)
      memcpy(host->rows + offsets[bag], to + n, (size_t)n_ids * sizeof(*to));
    else
      memcpy(to + n, host->ids + offsets[bag], (size_t)n_ids * sizeof(*to));
    n += n_ids;
  }
  return n;
}

/*
  If a table has one feature whose ids are in the order of the global batch, return its number,
  otherwise -1.
*/
static int only_feature(const TrsIdHostBatch *host, int t)
{
  const TrsTbe *tbe = host->batch->tbe;
  int found = -1;

  if (host->batch->sources.n && host->batch->sources.rank) return -1;
  for (int f = 0; f < tbe->n_features; f++) {
    if (tbe->feature[f].table != t) continue;
    if (found >= 0) return -1;
    found = f;
  }
  return found;
}

/* Treat all features of a table as one list of ids, feature after feature. */
static PetscErrorCode treat_table(TrsIdPlacement *z, const TrsIdHostBatch *host, int t)
{
  const TrsTbe *tbe = host->batch->tbe;
  const int64_t n_values = host->batch->ids->jagged.n_values, B = host->batch->ids->batch;
  const int only = n_values ? only_feature(host, t) : -1;
  int64_t n = 0, *ids, *rows;

  PetscFunctionBegin;
  if (only >= 0) {
    const int64_t begin = host->offsets[only * B];

    PetscCall(treat_ids(z, z->shard[t], host->batch->training, host->offsets[(only + 1) * B] - begin,
                        host->ids + begin, host->rows + begin));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsBufferReserve(&z->ids, 2 * n_values * (int64_t)sizeof(*ids), PETSC_FALSE));
  ids = (int64_t *)z->ids.data;
  rows = ids + n_values;
  for (int f = 0; f < tbe->n_features && n_values; f++)
    if (tbe->feature[f].table == t) n += copy_feature(host, f, PETSC_FALSE, ids + n);
  PetscCall(treat_ids(z, z->shard[t], host->batch->training, n, ids, rows));
  n = 0;
  for (int f = 0; f < tbe->n_features && n_values; f++)
    if (tbe->feature[f].table == t) n += copy_feature(host, f, PETSC_TRUE, rows + n);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy the values of features whose tables have no map. */
static void copy_others(const TrsIdPlacement *z, const TrsIdHostBatch *host)
{
  const TrsTbe *tbe = host->batch->tbe;
  const int64_t B = host->batch->ids->batch;

  for (int f = 0; f < tbe->n_features && host->batch->ids->jagged.n_values; f++) {
    const int64_t begin = host->offsets[f * B], end = host->offsets[(f + 1) * B];

    if (z->shard[tbe->feature[f].table] < 0)
      memcpy(host->rows + begin, host->ids + begin, (size_t)(end - begin) * sizeof(*host->rows));
  }
}

/* Bring the batch's ids and offsets to the host, if they are not there. */
static PetscErrorCode fetch(TrsIdPlacement *z, TrsStream stream, TrsIdHostBatch *host)
{
  const TrsJagged *jagged = &host->batch->ids->jagged;
  const int64_t n_bags = host->batch->tbe->n_features * host->batch->ids->batch;
  const int64_t bytes = jagged->n_values * (int64_t)sizeof(*jagged->values);
  const int64_t offset_bytes = (n_bags + 1) * (int64_t)sizeof(*jagged->offsets);

  PetscFunctionBegin;
  host->ids = jagged->values;
  host->offsets = jagged->offsets;
  host->rows = (int64_t *)z->rows[host->batch->slot].data;
  if (z->device->host_memory || jagged->n_values == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPinnedBufferReserve(z->device, &z->host_ids, bytes));
  PetscCall(TrsPinnedBufferReserve(z->device, &z->host_offsets, offset_bytes));
  PetscCall(TrsPinnedBufferReserve(z->device, &z->host_rows, bytes));
  PetscCall(z->device->copy(z->host_ids.data, jagged->values, bytes, stream));
  PetscCall(z->device->copy(z->host_offsets.data, jagged->offsets, offset_bytes, stream));
  PetscCall(z->device->stream_synchronize(stream)); /* also waits for the last use of host_rows */
  host->ids = (const int64_t *)z->host_ids.data;
  host->offsets = (const int64_t *)z->host_offsets.data;
  host->rows = (int64_t *)z->host_rows.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_ids(TrsPlacement self, TrsStream stream, const TrsPlacementBatch *batch)
{
  TrsIdPlacement *z = (TrsIdPlacement *)self->data;
  TrsJagged *jagged = &batch->ids->jagged;
  const int64_t bytes = jagged->n_values * (int64_t)sizeof(*jagged->values);
  TrsIdHostBatch host = {.batch = batch};

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(z->device, &z->rows[batch->slot], bytes));
  PetscCall(fetch(z, stream, &host));
  copy_others(z, &host);
  if (batch->training) {
    z->repeats = (PetscBool)(z->n_pending > 0);
    z->kept_used = PETSC_TRUE;
  }
  for (int t = 0; t < z->n_tables; t++)
    if (z->shard[t] >= 0) PetscCall(treat_table(z, &host, t));
  if (jagged->n_values == 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (!z->device->host_memory)
    PetscCall(z->device->copy(z->rows[batch->slot].data, host.rows, bytes, stream));
  jagged->values = (int64_t *)z->rows[batch->slot].data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- new contents --- */

/* A list of rows to write. Threads write pieces of it. */
typedef struct {
  const TrsIdPlacement *placement;
  int64_t n;
  const TrsNewRow *row;
  char *stage; /* device memory of its own: the weights, row_bytes for each row; else NULL */
  int64_t row_bytes;
} TrsNewRows;

/* Draw columns first .. first + n - 1 of a row. */
static void draw_columns(const TrsEmbeddingShards *shards, const TrsNewRow *fresh, int64_t first, int n,
                         float *numbers)
{
  const TrsTbeTable *t = &shards->shard[fresh->shard].tbe;
  const TrsRandomLaw *law = &shards->tables->table[shards->shard[fresh->shard].table].init;
  const uint64_t key = TrsMix(t->key ^ TrsMix((uint64_t)fresh->id ^ TrsMix((uint64_t)fresh->times)));

  switch (fresh->kind) {
  case TRS_ROW_GIVEN:
    TrsRandomFill(shards->seed, TRS_RANDOM_GIVEN_ROW, key, (uint64_t)(t->col_offset + first), n, law,
                  numbers);
    break;
  case TRS_ROW_INITIAL:
    TrsRandomFill(shards->seed, TRS_RANDOM_TABLE_INIT, t->key,
                  (uint64_t)((t->row_offset + fresh->row) * t->table_dim + t->col_offset + first), n, law,
                  numbers);
    break;
  case TRS_ROW_ZERO: memset(numbers, 0, (size_t)n * sizeof(*numbers)); break;
  }
}

/*
  The numbers of a row's state, or 0 if the row keeps them. With zch_torchrec a given row loses only
  the states of rowwise_adagrad, as in TorchRec.
*/
static int64_t state_width(const TrsEmbeddingShards *shards, const TrsNewRow *fresh,
                           const TrsEmbeddingStates *states, int s)
{
  const TrsEmbeddingShard *shard = &shards->shard[fresh->shard];

  if (s >= states->n) return 0;
  if (fresh->kind == TRS_ROW_GIVEN && shards->tables->table[shard->table].zch.torchrec &&
      TrsSparseOptimizersOf(shards->optimizers, shard->table)->kind != TRS_OPTIM_ROWWISE_ADAGRAD)
    return 0;
  return states->rowwise[s] ? 1 : shard->tbe.dim;
}

/* Write a row's weights in the table's type, to the stage or the table, and clear its states. */
static void write_row(const TrsNewRows *list, int64_t i)
{
  const TrsIdPlacement *z = list->placement;
  const TrsNewRow *fresh = &list->row[i];
  const TrsTbeTable *t = &z->shards->shard[fresh->shard].tbe;
  const int64_t bytes = TrsDTypeBytes(t->dtype);
  const TrsEmbeddingStates *states = &z->states[fresh->shard];
  char *to = list->stage ? list->stage + i * list->row_bytes
                         : (char *)t->weight + fresh->row * t->stride * bytes;
  float numbers[TRS_COLUMNS_AT_ONCE];

  TrsRowSave(t->to_save, fresh->row);
  if (t->changed) TrsChangedMark(t->changed, fresh->row);
  for (int64_t c = 0; c < t->dim; c += TRS_COLUMNS_AT_ONCE) {
    const int n = (int)PetscMin((int64_t)TRS_COLUMNS_AT_ONCE, t->dim - c);

    draw_columns(z->shards, fresh, c, n, numbers);
    (void)z->host->convert(NULL, n, TRS_FP32, numbers, t->dtype, to + c * bytes);
  }
  for (int s = 0; s < states->n && !list->stage; s++) {
    const int64_t width = state_width(z->shards, fresh, states, s);

    memset(t->state[s] + fresh->row * width, 0, (size_t)width * sizeof(float));
  }
}

static void write_piece(void *context, int64_t i)
{
  const TrsNewRows *list = (const TrsNewRows *)context;
  const int64_t end = PetscMin((i + 1) * (int64_t)TRS_ROWS_AT_ONCE, list->n);

  for (int64_t k = i * TRS_ROWS_AT_ONCE; k < end; k++) write_row(list, k);
}

/* Copy the staged rows to the device, and clear their states there. */
static PetscErrorCode copy_staged(const TrsNewRows *list, TrsStream stream)
{
  const TrsIdPlacement *z = list->placement;

  PetscFunctionBegin;
  for (int64_t i = 0; i < list->n; i++) {
    const TrsNewRow *fresh = &list->row[i];
    const TrsEmbeddingShard *shard = &z->shards->shard[fresh->shard];
    const TrsEmbeddingStates *states = &z->states[fresh->shard];
    const TrsTbeTable *t = &shard->tbe;
    const int64_t bytes = TrsDTypeBytes(t->dtype);

    PetscCall(z->device->copy((char *)t->weight + fresh->row * t->stride * bytes,
                              list->stage + i * list->row_bytes, t->dim * bytes, stream));
    for (int s = 0; s < states->n; s++) {
      const int64_t width = state_width(z->shards, fresh, states, s);

      if (width)
        PetscCall(z->device->zero(t->state[s] + fresh->row * width, width * (int64_t)sizeof(float), stream));
    }
  }
  PetscCall(z->device->stream_synchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write new rows. `repeats`: a row may be in the list twice, and the last one counts. */
static PetscErrorCode write_rows(TrsIdPlacement *z, TrsStream stream, int64_t n, const TrsNewRow *row,
                                 PetscBool repeats)
{
  TrsNewRows list = {.placement = z, .n = n, .row = row};

  PetscFunctionBegin;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (!z->device->host_memory) {
    for (int64_t i = 0; i < n; i++) {
      const TrsTbeTable *t = &z->shards->shard[row[i].shard].tbe;

      list.row_bytes = PetscMax(list.row_bytes, t->dim * (int64_t)TrsDTypeBytes(t->dtype));
    }
    PetscCall(TrsPinnedBufferReserve(z->device, &z->host_weights, n * list.row_bytes));
    list.stage = (char *)z->host_weights.data;
  }
  if (repeats && !list.stage)
    for (int64_t i = 0; i < n; i++) write_row(&list, i);
  else
    TrsForEach((n + TRS_ROWS_AT_ONCE - 1) / TRS_ROWS_AT_ONCE, write_piece, &list);
  if (list.stage) PetscCall(copy_staged(&list, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write the contents of rows that were given to ids, and the rows of unknown ids that must not
  learn. Rows above go to their tables first.
*/
static PetscErrorCode write_new(TrsPlacement self, TrsStream stream, const TrsTbe *tbe)
{
  TrsIdPlacement *z = (TrsIdPlacement *)self->data;
  const int64_t n_kept = z->kept_used ? z->n_kept : 0;

  PetscFunctionBegin;
  if (z->n_pending == 0 && n_kept == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPlacementSettle(self->above, stream, tbe, PETSC_TRUE));
  if (z->device->host_memory) PetscCall(z->device->stream_synchronize(stream));
  PetscCall(write_rows(z, stream, z->n_pending, (const TrsNewRow *)z->pending.data, z->repeats));
  PetscCall(write_rows(z, stream, n_kept, z->kept, PETSC_FALSE));
  z->n_pending = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_ids(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input)
{
  PetscFunctionBegin;
  (void)input;
  PetscCall(write_new(self, stream, tbe));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode settle_ids(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, PetscBool drop)
{
  PetscFunctionBegin;
  (void)drop;
  PetscCall(write_new(self, stream, tbe));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- checkpoints --- */

static PetscErrorCode add_state(const TrsEmbeddingShards *shards, int table, TrsState *state)
{
  PetscFunctionBegin;
  PetscCall(ops_of(&shards->tables->table[table])->add_state(shards, table, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode state_was_read(const TrsEmbeddingShards *shards, int table, const char *path)
{
  PetscFunctionBegin;
  PetscCall(ops_of(&shards->tables->table[table])->state_was_read(shards, table, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode list_rows(const TrsEmbeddingShards *shards, int table, TrsStateTensor *tensor)
{
  const TrsDirectoryOps *ops = ops_of(&shards->tables->table[table]);

  PetscFunctionBegin;
  if (ops->list_rows) ops->list_rows(shards, table, tensor);
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsPlacementOps trs_placement_ids = {
    .name = "ids",
    .treats = treats_table,
    .create = create_ids,
    .destroy = destroy_ids,
    .take = take_ids,
    .forward = forward_ids,
    .settle = settle_ids,
    .create_keys = create_keys,
    .destroy_keys = destroy_keys,
    .add_state = add_state,
    .state_was_read = state_was_read,
    .list_rows = list_rows,
};
