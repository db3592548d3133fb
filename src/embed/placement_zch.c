/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Placement of tables with id_map zch: raw ids to rows. The maps are in host memory, also for tables
  on a GPU: an eviction is rare and moves little, and a batch's ids are 8 bytes each beside rows of
  hundreds. The ids of such tables make one trip to the host and back.
*/
#include "compute/for_each.h"
#include "core/events.h"
#include "embed/placement.h"
#include "embed/zch.h"

#include <string.h>

enum { TRS_ZCH_FIND_IDS = 1 << 14 }; /* ids that a thread looks up at a time */

/* The tensors of a table: those of rows, the buckets' numbers, and the histories. */
typedef enum {
  TRS_ZCH_TENSOR_RAW,
  TRS_ZCH_TENSOR_SLOT,
  TRS_ZCH_TENSOR_COUNT,
  TRS_ZCH_TENSOR_LAST,
  TRS_ZCH_TENSOR_TIMES,
  TRS_ZCH_TENSOR_NUMBERS,
  TRS_ZCH_TENSOR_SEEN,
  TRS_ZCH_N_TENSORS
} TrsZchTensor;
static const char *const names[TRS_ZCH_N_TENSORS] = {"raw",   "slot",    "count", "last",
                                                     "times", "numbers", "seen"};

/* A tensor of a table, for the functions that give and take its rows. */
typedef struct {
  const TrsEmbeddingShards *shards;
  int table;
  TrsZchTensor tensor;
} TrsZchContext;

/* The map of a shard: its buckets. */
typedef struct {
  int64_t n, first; /* number of buckets, and the first one's number in the table */
  TrsIdBuckets rule;
  TrsZch *bucket; /* [n] */
  TrsZchContext context[TRS_ZCH_N_TENSORS];
  /*
    While a checkpoint is read: [rows] for each tensor of rows, [n, TRS_ZCH_NUMBERS], the histories.
  */
  int64_t *read[TRS_ZCH_N_TENSORS];
  int64_t n_seen, seen_capacity;
} TrsZchKeys;

/* A row that was given away, and has not got its new contents yet. */
typedef struct {
  int shard;
  int64_t row; /* of the shard */
  int64_t id, times;
} TrsZchPending;

typedef struct {
  const TrsDeviceOps *device;
  const TrsEmbeddingShards *shards;
  int n_tables;
  int *shard;                              /* [n_tables]; -1: the table has no map here */
  TrsDeviceBuffer rows[TRS_CACHE_BATCHES]; /* by slot: the rows of all ids of the batch */
  /* the batch's ids, offsets and rows on the host, if the device's memory is its own */
  TrsPinnedBuffer host_ids, host_offsets, host_rows;
  TrsBuffer ids, found, bucket, order; /* of a table's ids */
  TrsBuffer pending;
  int64_t n_pending;
} TrsZchPlacement;

static TrsZchKeys *keys_of(const TrsEmbeddingShards *shards, int i)
{
  return (TrsZchKeys *)shards->shard[i].keys;
}

static PetscBool treats_table(const TrsEmbeddingShards *shards, int table)
{
  return (PetscBool)(shards->tables->table[table].id_map.kind == TRS_ID_MAP_ZCH);
}

/* --- the maps of shards --- */

static PetscErrorCode create_keys(const TrsEmbeddingShards *shards, int i)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_TABLES);
  TrsEmbeddingShard *shard = &shards->shard[i];
  const TrsTableConfig *table = &shards->tables->table[shard->table];
  TrsZchKeys *keys;

  PetscFunctionBegin;
  PetscCall(PetscNew(&keys));
  shard->keys = keys;
  keys->rule = TrsZchBuckets(table);
  keys->n = shard->tbe.rows / keys->rule.rows;
  keys->first = shard->tbe.row_offset / keys->rule.rows;
  PetscCall(PetscCalloc1((size_t)PetscMax(keys->n, 1), &keys->bucket));
  for (int64_t b = 0; b < keys->n; b++)
    PetscCall(TrsZchCreate(&table->zch, keys->rule.rows, &keys->bucket[b]));
  for (int t = 0; t < TRS_ZCH_N_TENSORS; t++)
    keys->context[t] = (TrsZchContext){shards, shard->table, (TrsZchTensor)t};
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_read(TrsZchKeys *keys)
{
  PetscFunctionBegin;
  for (int t = 0; t < TRS_ZCH_N_TENSORS; t++) PetscCall(TrsFree(&keys->read[t]));
  keys->n_seen = keys->seen_capacity = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_keys(const TrsEmbeddingShards *shards, int i)
{
  TrsZchKeys *keys = keys_of(shards, i);

  PetscFunctionBegin;
  if (!keys) PetscFunctionReturn(PETSC_SUCCESS);
  for (int64_t b = 0; b < keys->n; b++) PetscCall(TrsZchDestroy(&keys->bucket[b]));
  PetscCall(free_read(keys));
  PetscCall(PetscFree(keys->bucket));
  PetscCall(PetscFree(shards->shard[i].keys));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_zch(TrsPlacement self, const TrsPlacementTables *tables)
{
  PetscBool any = PETSC_FALSE;
  TrsZchPlacement *z;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n_tables; t++)
    if (tables->shard[t] >= 0 && keys_of(tables->shards, tables->shard[t])) any = PETSC_TRUE;
  if (!any) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&z));
  self->data = z;
  z->device = tables->device;
  z->shards = tables->shards;
  z->n_tables = tables->n_tables;
  PetscCall(PetscMalloc1((size_t)z->n_tables, &z->shard));
  for (int t = 0; t < z->n_tables; t++) {
    const int shard = tables->shard[t];

    z->shard[t] = shard >= 0 && keys_of(tables->shards, shard) && keys_of(tables->shards, shard)->n ? shard
                                                                                                    : -1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_zch(TrsPlacement self)
{
  TrsZchPlacement *z = (TrsZchPlacement *)self->data;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_CACHE_BATCHES; s++) PetscCall(TrsDeviceBufferFree(z->device, &z->rows[s]));
  PetscCall(TrsPinnedBufferFree(z->device, &z->host_ids));
  PetscCall(TrsPinnedBufferFree(z->device, &z->host_offsets));
  PetscCall(TrsPinnedBufferFree(z->device, &z->host_rows));
  PetscCall(TrsBufferFree(&z->ids));
  PetscCall(TrsBufferFree(&z->found));
  PetscCall(TrsBufferFree(&z->bucket));
  PetscCall(TrsBufferFree(&z->order));
  PetscCall(TrsBufferFree(&z->pending));
  PetscCall(PetscFree(z->shard));
  PetscCall(PetscFree(self->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- a batch --- */

/* A batch on the host: its ids, and the place for their rows. */
typedef struct {
  const TrsPlacementBatch *batch;
  const int64_t *ids, *offsets;
  int64_t *rows;
} TrsZchHostBatch;

/* A list of ids, and the results for them, that threads treat piece by piece. */
typedef struct {
  TrsZch bucket;
  const TrsZchKeys *keys;
  int64_t n;
  const int64_t *ids;
  int64_t *rows;
  int32_t *number; /* [n] the ids' buckets */
} TrsZchIdList;

static void find_piece(void *context, int64_t i)
{
  const TrsZchIdList *list = (const TrsZchIdList *)context;
  const int64_t first = i * TRS_ZCH_FIND_IDS;

  (void)TrsZchFind(list->bucket, PetscMin((int64_t)TRS_ZCH_FIND_IDS, list->n - first), list->ids + first,
                   list->rows + first);
}

static void number_piece(void *context, int64_t i)
{
  const TrsZchIdList *list = (const TrsZchIdList *)context;
  const int64_t end = PetscMin((i + 1) * (int64_t)TRS_ZCH_FIND_IDS, list->n);

  for (int64_t k = i * TRS_ZCH_FIND_IDS; k < end; k++)
    list->number[k] = (int32_t)(TrsIdBucket(&list->keys->rule, list->ids[k]) - list->keys->first);
}

/* Treat all pieces of a list, by all threads. */
static void each_piece(TrsZchIdList *list, void (*body)(void *context, int64_t i))
{
  TrsForEach((list->n + TRS_ZCH_FIND_IDS - 1) / TRS_ZCH_FIND_IDS, body, list);
}

/* Note the rows that bucket b of a shard has given away. */
static PetscErrorCode note_given(TrsZchPlacement *z, int shard, int64_t b, int64_t n,
                                 const TrsZchGiven *given)
{
  const int64_t first = b * keys_of(z->shards, shard)->rule.rows;
  TrsZchPending *pending;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&z->pending, (z->n_pending + n) * (int64_t)sizeof(*pending), PETSC_TRUE));
  pending = (TrsZchPending *)z->pending.data + z->n_pending;
  for (int64_t i = 0; i < n; i++)
    pending[i] = (TrsZchPending){shard, first + given[i].row, given[i].id, given[i].times};
  z->n_pending += n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Bucket b of a shard treats its n ids of the batch. */
static PetscErrorCode treat_bucket(TrsZchPlacement *z, int shard, int64_t b, PetscBool training, int64_t n,
                                   const int64_t *ids, int64_t *rows)
{
  const TrsZch bucket = keys_of(z->shards, shard)->bucket[b];
  const TrsZchGiven *given = NULL;
  int64_t n_given;

  PetscFunctionBegin;
  if (training) {
    TrsZchBegin(bucket, n);
    PetscCall(TrsZchLearn(bucket, n, ids));
    PetscCall(TrsZchEvict(bucket, &n_given, &given));
    if (n_given) PetscCall(note_given(z, shard, b, n_given, given));
  }
  each_piece(&(TrsZchIdList){.bucket = bucket, .n = n, .ids = ids, .rows = rows}, find_piece);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Bring n ids into the order of their buckets. begin [n_buckets + 1]; order [n]: the ids' places
  before.
*/
static void sort_by_bucket(const TrsZchKeys *keys, int64_t n, const int64_t *ids, int64_t *begin,
                           int32_t *bucket, int64_t *order)
{
  each_piece(&(TrsZchIdList){.keys = keys, .n = n, .ids = ids, .number = bucket}, number_piece);
  memset(begin, 0, (size_t)(keys->n + 1) * sizeof(*begin));
  for (int64_t i = 0; i < n; i++) begin[bucket[i] + 1]++;
  for (int64_t b = 0; b < keys->n; b++) begin[b + 1] += begin[b];
  for (int64_t i = 0; i < n; i++) order[begin[bucket[i]]++] = i;
  memmove(begin + 1, begin, (size_t)keys->n * sizeof(*begin));
  begin[0] = 0;
}

/* Treat the n ids of a shard: rows [n] receives the shard's rows. */
static PetscErrorCode treat_ids(TrsZchPlacement *z, int shard, PetscBool training, int64_t n,
                                const int64_t *ids, int64_t *rows)
{
  const TrsZchKeys *keys = keys_of(z->shards, shard);
  int64_t *begin, *order, *sorted, *found;

  PetscFunctionBegin;
  if (keys->n == 1) {
    PetscCall(treat_bucket(z, shard, 0, training, n, ids, rows));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsBufferReserve(&z->bucket, n * (int64_t)sizeof(int32_t), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&z->order, (n + keys->n + 1) * (int64_t)sizeof(*order), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&z->found, 2 * n * (int64_t)sizeof(*found), PETSC_FALSE));
  order = (int64_t *)z->order.data;
  begin = order + n;
  found = (int64_t *)z->found.data;
  sorted = found + n;
  sort_by_bucket(keys, n, ids, begin, (int32_t *)z->bucket.data, order);
  for (int64_t i = 0; i < n; i++) sorted[i] = ids[order[i]];
  for (int64_t b = 0; b < keys->n; b++)
    PetscCall(
        treat_bucket(z, shard, b, training, begin[b + 1] - begin[b], sorted + begin[b], found + begin[b]));
  for (int64_t b = 0; b < keys->n; b++)
    for (int64_t i = begin[b]; i < begin[b + 1]; i++) rows[order[i]] = b * keys->rule.rows + found[i];
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
  Copy a feature's ids in the order of the global batch to `to`, or rows in this order from there:
  blocks of samples arrive in another order than that of their ranks.
*/
static int64_t copy_feature(const TrsZchHostBatch *host, int f, PetscBool back, int64_t *to)
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

/* Treat all features of a table as one list of ids, feature after feature. */
static PetscErrorCode treat_table(TrsZchPlacement *z, const TrsZchHostBatch *host, int t)
{
  const TrsTbe *tbe = host->batch->tbe;
  const int64_t n_values = host->batch->ids->jagged.n_values;
  int64_t n = 0, *ids, *rows;

  PetscFunctionBegin;
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
static void copy_others(const TrsZchPlacement *z, const TrsZchHostBatch *host)
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
static PetscErrorCode fetch(TrsZchPlacement *z, TrsStream stream, TrsZchHostBatch *host)
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

static PetscErrorCode take_zch(TrsPlacement self, TrsStream stream, const TrsPlacementBatch *batch)
{
  TrsZchPlacement *z = (TrsZchPlacement *)self->data;
  TrsJagged *jagged = &batch->ids->jagged;
  const int64_t bytes = jagged->n_values * (int64_t)sizeof(*jagged->values);
  TrsZchHostBatch host = {.batch = batch};

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(z->device, &z->rows[batch->slot], bytes));
  PetscCall(fetch(z, stream, &host));
  copy_others(z, &host);
  for (int t = 0; t < z->n_tables; t++)
    if (z->shard[t] >= 0) PetscCall(treat_table(z, &host, t));
  if (jagged->n_values == 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (!z->device->host_memory)
    PetscCall(z->device->copy(z->rows[batch->slot].data, host.rows, bytes, stream));
  jagged->values = (int64_t *)z->rows[batch->slot].data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- new contents --- */

/* Draw the weights of a given row, and bring them to the table's type. */
static PetscErrorCode draw_row(const TrsEmbeddingShards *shards, const TrsZchPending *given, float *numbers,
                               void *weights)
{
  const TrsEmbeddingShard *shard = &shards->shard[given->shard];
  const TrsTbeTable *t = &shard->tbe;
  const uint64_t key = TrsMix(t->key ^ TrsMix((uint64_t)given->id ^ TrsMix((uint64_t)given->times)));
  const TrsComputeOps *host;

  PetscFunctionBegin;
  TrsRandomFill(shards->seed, TRS_RANDOM_GIVEN_ROW, key, (uint64_t)t->col_offset, t->dim,
                &shards->tables->table[shard->table].init, numbers);
  PetscCall(TrsComputeFind("cpu", &host));
  PetscCall(host->convert(NULL, t->dim, TRS_FP32, numbers, t->dtype, weights));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Start the row's optimizer states anew. With zch_torchrec only rowwise_adagrad's, as TorchRec does.
*/
static PetscErrorCode clear_states(const TrsEmbeddingShards *shards, const TrsZchPending *given,
                                   TrsStream stream)
{
  const TrsEmbeddingShard *shard = &shards->shard[given->shard];
  const TrsEmbeddingStates states = TrsEmbeddingShardsStates(shards, shard->table);
  const PetscBool kept = (PetscBool)(shards->tables->table[shard->table].zch.torchrec &&
                                     TrsSparseOptimizersOf(shards->optimizers, shard->table)->kind !=
                                         TRS_OPTIM_ROWWISE_ADAGRAD);

  PetscFunctionBegin;
  for (int s = 0; s < states.n && !kept; s++) {
    const int64_t width = states.rowwise[s] ? 1 : shard->tbe.dim;

    PetscCall(shards->device->zero(shard->tbe.state[s] + given->row * width, width * (int64_t)sizeof(float),
                                   stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write the new contents of all rows that have changed hands. Rows above go to their tables first.
*/
static PetscErrorCode write_given(TrsPlacement self, TrsStream stream, const TrsTbe *tbe)
{
  TrsZchPlacement *z = (TrsZchPlacement *)self->data;
  const TrsZchPending *pending = (const TrsZchPending *)z->pending.data;
  TrsPinnedBuffer weights = {0};
  int64_t row_bytes = 0, widest = 1;
  float *numbers;

  PetscFunctionBegin;
  if (z->n_pending == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPlacementSettle(self->above, stream, tbe, PETSC_TRUE));
  for (int64_t i = 0; i < z->n_pending; i++)
    widest = PetscMax(widest, z->shards->shard[pending[i].shard].tbe.dim);
  row_bytes = widest * (int64_t)sizeof(float);
  PetscCall(TrsAlloc(widest, sizeof(*numbers), &numbers));
  PetscCall(TrsPinnedBufferReserve(z->device, &weights, z->n_pending * row_bytes));
  for (int64_t i = 0; i < z->n_pending; i++) {
    const TrsTbeTable *t = &z->shards->shard[pending[i].shard].tbe;
    const int64_t bytes = TrsDTypeBytes(t->dtype);
    char *to = (char *)weights.data + i * row_bytes;

    PetscCall(draw_row(z->shards, &pending[i], numbers, to));
    PetscCall(
        z->device->copy((char *)t->weight + pending[i].row * t->stride * bytes, to, t->dim * bytes, stream));
    PetscCall(clear_states(z->shards, &pending[i], stream));
  }
  z->n_pending = 0;
  PetscCall(z->device->stream_synchronize(stream));
  PetscCall(TrsPinnedBufferFree(z->device, &weights));
  PetscCall(TrsFree(&numbers));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_zch(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, TrsTbeInput *input)
{
  PetscFunctionBegin;
  (void)input;
  PetscCall(write_given(self, stream, tbe));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode settle_zch(TrsPlacement self, TrsStream stream, const TrsTbe *tbe, PetscBool drop)
{
  PetscFunctionBegin;
  (void)drop;
  PetscCall(write_given(self, stream, tbe));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- checkpoints --- */

/* Part `part` of a tensor of rows or numbers: bucket *b of this rank's shard *i of the table. */
static PetscErrorCode find_part(const TrsZchContext *c, int part, int *i, int64_t *b)
{
  PetscFunctionBegin;
  for (*i = 0; *i < c->shards->n; ++*i) {
    if (c->shards->shard[*i].table != c->table) continue;
    if (part < keys_of(c->shards, *i)->n) break;
    part -= (int)keys_of(c->shards, *i)->n;
  }
  PetscCheck(*i < c->shards->n, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a table has no part %d here", part);
  *b = part;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode give_rows(void *context, int part, int64_t first, int64_t n, void *rows)
{
  const TrsZchContext *c = (const TrsZchContext *)context;
  int64_t number[TRS_ZCH_NUMBERS], *all, b;
  TrsZchArrays arrays = {0};
  int i;

  PetscFunctionBegin;
  PetscCall(find_part(c, part, &i, &b));
  PetscCall(TrsAlloc(keys_of(c->shards, i)->rule.rows, sizeof(*all), &all));
  switch (c->tensor) {
  case TRS_ZCH_TENSOR_RAW: arrays.raw = all; break;
  case TRS_ZCH_TENSOR_SLOT: arrays.slot = all; break;
  case TRS_ZCH_TENSOR_COUNT: arrays.count = all; break;
  case TRS_ZCH_TENSOR_LAST: arrays.last = all; break;
  case TRS_ZCH_TENSOR_TIMES: arrays.times = all; break;
  default: break;
  }
  PetscCall(TrsZchGet(keys_of(c->shards, i)->bucket[b], number, &arrays));
  if (c->tensor == TRS_ZCH_TENSOR_SLOT)
    for (int64_t r = 0; r < keys_of(c->shards, i)->rule.rows; r++)
      all[r] += (keys_of(c->shards, i)->first + b) * keys_of(c->shards, i)->rule.rows;
  if (c->tensor == TRS_ZCH_TENSOR_NUMBERS)
    memcpy(rows, number, sizeof(number));
  else
    memcpy(rows, all + first, (size_t)n * sizeof(*all));
  PetscCall(TrsFree(&all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The shard, of those that are written, that has bucket b of the table, or -1. */
static int find_bucket(const TrsZchContext *c, int64_t b)
{
  for (int i = 0; i < c->shards->n; i++) {
    const TrsZchKeys *keys = keys_of(c->shards, i);

    if (c->shards->shard[i].table == c->table && c->shards->shard[i].column == 0 && keys &&
        b >= keys->first && b < keys->first + keys->n)
      return i;
  }
  return -1;
}

/* The list of histories has a part a bucket, and a last row of zeros, so that it is never empty. */
static PetscErrorCode count_seen(void *context, int64_t *rows)
{
  const TrsZchContext *c = (const TrsZchContext *)context;
  int64_t n;

  PetscFunctionBegin;
  if (!c) PetscFunctionReturn(PETSC_SUCCESS); /* this rank has no shard of the table */
  n = c->shards->tables->table[c->table].zch.buckets;
  for (int64_t b = 0; b < n; b++) {
    const int i = find_bucket(c, b);

    if (i < 0) continue;
    rows[b] = TrsZchCountSeen(keys_of(c->shards, i)->bucket[b - keys_of(c->shards, i)->first]);
    if (b == n - 1) rows[n] = 1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode give_seen(void *context, int part, int64_t first, int64_t n, void *rows)
{
  const TrsZchContext *c = (const TrsZchContext *)context;
  const int i = find_bucket(c, part);
  TrsZchSeen *all;
  TrsZch bucket;

  PetscFunctionBegin;
  if (part == c->shards->tables->table[c->table].zch.buckets) {
    memset(rows, 0, (size_t)n * sizeof(*all));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  bucket = keys_of(c->shards, i)->bucket[part - keys_of(c->shards, i)->first];
  PetscCall(TrsAlloc(TrsZchCountSeen(bucket), sizeof(*all), &all));
  PetscCall(TrsZchGetSeen(bucket, all));
  memcpy(rows, all + first, (size_t)n * sizeof(*all));
  PetscCall(TrsFree(&all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_rows(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                const void *rows)
{
  const TrsZchContext *c = (const TrsZchContext *)context;
  int64_t b, columns = c->tensor == TRS_ZCH_TENSOR_NUMBERS ? TRS_ZCH_NUMBERS : 1, all;
  TrsZchKeys *keys;
  int i;

  PetscFunctionBegin;
  (void)dtype;
  PetscCall(find_part(c, part, &i, &b));
  keys = keys_of(c->shards, i);
  all = c->tensor == TRS_ZCH_TENSOR_NUMBERS ? keys->n * columns : keys->n * keys->rule.rows;
  if (!keys->read[c->tensor]) PetscCall(TrsAlloc(all, sizeof(int64_t), &keys->read[c->tensor]));
  first = c->tensor == TRS_ZCH_TENSOR_NUMBERS ? b * columns : b * keys->rule.rows + first;
  memcpy(keys->read[c->tensor] + first, rows, (size_t)(n * columns) * sizeof(int64_t));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Keep the rows of the histories that are of this rank's buckets. */
static PetscErrorCode take_seen(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                const void *rows)
{
  const TrsZchContext *c = (const TrsZchContext *)context;
  const TrsZchSeen *seen = (const TrsZchSeen *)rows;

  PetscFunctionBegin;
  (void)part;
  (void)dtype;
  (void)first;
  for (int i = 0; c && i < c->shards->n; i++) {
    TrsZchKeys *keys = keys_of(c->shards, i);

    if (c->shards->shard[i].table != c->table) continue;
    for (int64_t k = 0; k < n; k++) {
      const int64_t b = TrsIdBucket(&keys->rule, seen[k].id) - keys->first;

      if (seen[k].count == 0 || b < 0 || b >= keys->n) continue;
      if (keys->n_seen == keys->seen_capacity) {
        int64_t *larger;

        keys->seen_capacity = 2 * keys->seen_capacity + 1024;
        PetscCall(TrsAlloc(keys->seen_capacity, sizeof(TrsZchSeen), &larger));
        if (keys->n_seen)
          memcpy(larger, keys->read[TRS_ZCH_TENSOR_SEEN], (size_t)keys->n_seen * sizeof(TrsZchSeen));
        PetscCall(TrsFree(&keys->read[TRS_ZCH_TENSOR_SEEN]));
        keys->read[TRS_ZCH_TENSOR_SEEN] = larger;
      }
      ((TrsZchSeen *)keys->read[TRS_ZCH_TENSOR_SEEN])[keys->n_seen++] = seen[k];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add a tensor with a part for each bucket here. */
static PetscErrorCode add_tensor(const TrsEmbeddingShards *shards, int table, TrsZchTensor which,
                                 TrsState *state)
{
  const TrsTableConfig *config = &shards->tables->table[table];
  const TrsIdBuckets rule = TrsZchBuckets(config);
  const int64_t rows = which == TRS_ZCH_TENSOR_NUMBERS ? 1 : rule.rows,
                columns = which == TRS_ZCH_TENSOR_NUMBERS ? TRS_ZCH_NUMBERS : 1;
  char path[PETSC_MAX_PATH_LEN];
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(path, sizeof(path), "embedding/%s/zch/%s", config->name, names[which]));
  PetscCall(TrsStateAdd(state, path, TRS_INT64, which == TRS_ZCH_TENSOR_NUMBERS ? 2 : 1,
                        config->zch.buckets * rows, columns, &tensor));
  tensor->optional = (PetscBool)(which != TRS_ZCH_TENSOR_RAW && which != TRS_ZCH_TENSOR_SLOT);
  tensor->give = give_rows;
  tensor->take = take_rows;
  for (int i = 0; i < shards->n; i++) {
    TrsZchKeys *keys = keys_of(shards, i);

    if (shards->shard[i].table != table) continue;
    if (!tensor->give_context) tensor->give_context = tensor->take_context = &keys->context[which];
    for (int64_t b = 0; b < keys->n; b++) {
      PetscCall(TrsStateAddPart(tensor, (keys->first + b) * rows, 0, rows, columns, NULL, columns));
      tensor->part[tensor->n_parts - 1].copy = (PetscBool)(shards->shard[i].column > 0);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_seen(const TrsEmbeddingShards *shards, int table, TrsState *state)
{
  const TrsTableConfig *config = &shards->tables->table[table];
  char path[PETSC_MAX_PATH_LEN];
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(
      PetscSNPrintf(path, sizeof(path), "embedding/%s/zch/%s", config->name, names[TRS_ZCH_TENSOR_SEEN]));
  PetscCall(TrsStateAdd(state, path, TRS_INT64, 2, 0, TRS_ZCH_SEEN_COLUMNS, &tensor));
  tensor->optional = PETSC_TRUE;
  tensor->count = count_seen;
  tensor->give = give_seen;
  tensor->take = take_seen;
  for (int i = 0; i < shards->n && !tensor->give_context; i++)
    if (shards->shard[i].table == table)
      tensor->give_context = tensor->take_context = &keys_of(shards, i)->context[TRS_ZCH_TENSOR_SEEN];
  for (int64_t b = 0; b <= config->zch.buckets; b++)
    PetscCall(TrsStateAddPart(tensor, 0, 0, 0, TRS_ZCH_SEEN_COLUMNS, NULL, TRS_ZCH_SEEN_COLUMNS));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_state(const TrsEmbeddingShards *shards, int table, TrsState *state)
{
  const TrsZchPolicy policy = shards->tables->table[table].zch.policy;

  PetscFunctionBegin;
  PetscCall(add_tensor(shards, table, TRS_ZCH_TENSOR_RAW, state));
  PetscCall(add_tensor(shards, table, TRS_ZCH_TENSOR_SLOT, state));
  if (policy != TRS_ZCH_LRU) PetscCall(add_tensor(shards, table, TRS_ZCH_TENSOR_COUNT, state));
  if (policy != TRS_ZCH_LFU) PetscCall(add_tensor(shards, table, TRS_ZCH_TENSOR_LAST, state));
  PetscCall(add_tensor(shards, table, TRS_ZCH_TENSOR_TIMES, state));
  PetscCall(add_tensor(shards, table, TRS_ZCH_TENSOR_NUMBERS, state));
  PetscCall(add_seen(shards, table, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The history of bucket b of a shard, of those that were read. */
static int64_t seen_of(const TrsZchKeys *keys, int64_t b, TrsZchSeen *to)
{
  const TrsZchSeen *seen = (const TrsZchSeen *)keys->read[TRS_ZCH_TENSOR_SEEN];
  int64_t n = 0;

  for (int64_t k = 0; k < keys->n_seen; k++)
    if (TrsIdBucket(&keys->rule, seen[k].id) - keys->first == b) to[n++] = seen[k];
  return n;
}

static PetscErrorCode set_bucket(const TrsEmbeddingShards *shards, int i, int64_t b, const char *path)
{
  static const int64_t fresh[TRS_ZCH_NUMBERS] = {[TRS_ZCH_CAPACITY] = -1, [TRS_ZCH_LARGEST] = -1};
  TrsZchKeys *keys = keys_of(shards, i);
  const int64_t at = b * keys->rule.rows, offset = (keys->first + b) * keys->rule.rows;
  const int64_t *number = keys->read[TRS_ZCH_TENSOR_NUMBERS]
                              ? keys->read[TRS_ZCH_TENSOR_NUMBERS] + b * TRS_ZCH_NUMBERS
                              : fresh;
  TrsZchArrays arrays = {.raw = keys->read[TRS_ZCH_TENSOR_RAW] + at,
                         .slot = keys->read[TRS_ZCH_TENSOR_SLOT] + at};
  TrsZchSeen *seen;
  const char *what;

  PetscFunctionBegin;
  if (keys->read[TRS_ZCH_TENSOR_COUNT]) arrays.count = keys->read[TRS_ZCH_TENSOR_COUNT] + at;
  if (keys->read[TRS_ZCH_TENSOR_LAST]) arrays.last = keys->read[TRS_ZCH_TENSOR_LAST] + at;
  if (keys->read[TRS_ZCH_TENSOR_TIMES]) arrays.times = keys->read[TRS_ZCH_TENSOR_TIMES] + at;
  for (int64_t r = 0; r < keys->rule.rows; r++) arrays.slot[r] -= offset;
  PetscCall(TrsAlloc(PetscMax(keys->n_seen, 1), sizeof(*seen), &seen));
  PetscCall(TrsZchSet(keys->bucket[b], number, &arrays, seen_of(keys, b, seen), seen, &what));
  PetscCall(TrsFree(&seen));
  PetscCheck(!what, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /embedding/%s/zch, bucket %" PRId64 ": %s", path,
             shards->tables->table[shards->shard[i].table].name, keys->first + b, what);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode state_was_read(const TrsEmbeddingShards *shards, int table, const char *path)
{
  PetscFunctionBegin;
  for (int i = 0; i < shards->n; i++) {
    TrsZchKeys *keys = keys_of(shards, i);

    if (shards->shard[i].table != table) continue;
    if (keys->read[TRS_ZCH_TENSOR_RAW] && keys->read[TRS_ZCH_TENSOR_SLOT])
      for (int64_t b = 0; b < keys->n; b++) PetscCall(set_bucket(shards, i, b, path));
    PetscCall(free_read(keys));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsPlacementOps trs_placement_zch = {
    .name = "zch",
    .treats = treats_table,
    .create = create_zch,
    .destroy = destroy_zch,
    .take = take_zch,
    .forward = forward_zch,
    .settle = settle_zch,
    .create_keys = create_keys,
    .destroy_keys = destroy_keys,
    .add_state = add_state,
    .state_was_read = state_was_read,
};
