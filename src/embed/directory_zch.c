/* SPDX-License-Identifier: BSD-3-Clause */
/* The directory of tables with id_map zch: its functions, and its tensors in checkpoints. */
#include "core/buffer.h"
#include "embed/zch.h"

#include <inttypes.h>
#include <string.h>

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

/* Memory of a directory for checkpoints. */
typedef struct {
  TrsZchContext context[TRS_ZCH_N_TENSORS];
  /*
    While a checkpoint is read: [rows] for each tensor of rows, [n, TRS_ZCH_NUMBERS], the histories.
  */
  int64_t *read[TRS_ZCH_N_TENSORS];
  int64_t n_seen, seen_capacity;
} TrsZchState;

static TrsZch bucket_of(const TrsDirectory *d, int64_t b)
{
  return (TrsZch)d->bucket[b];
}

static TrsZchState *state_of(const TrsDirectory *d)
{
  return (TrsZchState *)d->state;
}

/* --- a batch --- */

static PetscErrorCode create(const TrsTableConfig *table, int64_t rows, void **bucket)
{
  TrsZch zch;

  PetscFunctionBegin;
  PetscCall(TrsZchCreate(&table->zch, rows, &zch));
  *bucket = zch;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(void **bucket)
{
  TrsZch zch = (TrsZch)*bucket;

  PetscFunctionBegin;
  PetscCall(TrsZchDestroy(&zch));
  *bucket = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode begin(void *bucket, int64_t n, const int64_t *ids, TrsGivenRows *given)
{
  TrsZch zch = (TrsZch)bucket;
  int64_t *rows;

  PetscFunctionBegin;
  PetscCall(TrsZchBegin(zch, n));
  given->n = 0;
  if (!TrsZchIsDue(zch)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(n, sizeof(*rows), &rows));
  (void)TrsZchFind(zch, PETSC_TRUE, 0, n, ids, rows);
  PetscCall(TrsZchEnd(zch, ids, rows));
  PetscCall(TrsFree(&rows));
  PetscCall(TrsZchEvict(zch, given));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int64_t find_rows(void *bucket, PetscBool training, int64_t place, int64_t n, const int64_t *ids,
                         int64_t *rows)
{
  return TrsZchFind((TrsZch)bucket, training, place, n, ids, rows);
}

static PetscErrorCode end(void *bucket, int64_t n, const int64_t *ids, int64_t *rows,
                          int64_t *n_known, /* NOLINT(readability-non-const-parameter): a slot */
                          TrsGivenRows *given)
{
  PetscFunctionBegin;
  (void)n;
  (void)n_known;
  given->n = 0;
  PetscCall(TrsZchEnd((TrsZch)bucket, ids, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int64_t in_use(void *bucket)
{
  return TrsZchRows((TrsZch)bucket);
}

static int64_t id_of(void *bucket, int64_t row, uint8_t *held)
{
  return TrsZchIdOf((TrsZch)bucket, row, held);
}

static int64_t unknown_row(int64_t rows)
{
  return rows - 1;
}

static void count(void *bucket, PetscBool anew, TrsDirectoryCounts *counts)
{
  *counts = TrsZchCount((TrsZch)bucket, anew);
}

static PetscErrorCode change_rows(void *bucket, const TrsDirectoryChange *change)
{
  PetscFunctionBegin;
  PetscCall(TrsZchChange((TrsZch)bucket, change));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_bucket(const void *bucket, void *to)
{
  PetscFunctionBegin;
  PetscCall(TrsZchCopy((const struct TrsZchImpl *)bucket, (TrsZch)to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- checkpoints --- */

static PetscErrorCode free_read(TrsZchState *state)
{
  PetscFunctionBegin;
  for (int t = 0; t < TRS_ZCH_N_TENSORS; t++) PetscCall(TrsFree(&state->read[t]));
  state->n_seen = state->seen_capacity = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_state(TrsDirectory *d)
{
  PetscFunctionBegin;
  if (d->state) PetscCall(free_read(state_of(d)));
  PetscCall(PetscFree(d->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Prepare the directories of a table's shards for checkpoints. */
static PetscErrorCode prepare(const TrsEmbeddingShards *shards, int table)
{
  PetscFunctionBegin;
  for (int i = 0; i < shards->n; i++) {
    TrsDirectory *d = TrsDirectoryOf(shards, i);
    TrsZchState *state;

    if (shards->shard[i].table != table || d->state) continue;
    PetscCall(PetscNew(&state));
    d->state = state;
    for (int t = 0; t < TRS_ZCH_N_TENSORS; t++)
      state->context[t] = (TrsZchContext){shards, table, (TrsZchTensor)t};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Part `part` of a tensor of rows or numbers: bucket *b of this rank's shard *i of the table. */
static PetscErrorCode find_part(const TrsZchContext *c, int part, int *i, int64_t *b)
{
  PetscFunctionBegin;
  for (*i = 0; *i < c->shards->n; ++*i) {
    if (c->shards->shard[*i].table != c->table) continue;
    if (part < TrsDirectoryOf(c->shards, *i)->n) break;
    part -= (int)TrsDirectoryOf(c->shards, *i)->n;
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
  PetscCall(TrsAlloc(TrsDirectoryOf(c->shards, i)->rule.rows, sizeof(*all), &all));
  switch (c->tensor) {
  case TRS_ZCH_TENSOR_RAW: arrays.raw = all; break;
  case TRS_ZCH_TENSOR_SLOT: arrays.slot = all; break;
  case TRS_ZCH_TENSOR_COUNT: arrays.count = all; break;
  case TRS_ZCH_TENSOR_LAST: arrays.last = all; break;
  case TRS_ZCH_TENSOR_TIMES: arrays.times = all; break;
  default: break;
  }
  PetscCall(TrsZchGet(bucket_of(TrsDirectoryOf(c->shards, i), b), number, &arrays));
  if (c->tensor == TRS_ZCH_TENSOR_SLOT)
    for (int64_t r = 0; r < TrsDirectoryOf(c->shards, i)->rule.rows; r++)
      all[r] += (TrsDirectoryOf(c->shards, i)->first + b) * TrsDirectoryOf(c->shards, i)->rule.rows;
  if (c->tensor == TRS_ZCH_TENSOR_NUMBERS)
    memcpy(rows, number, sizeof(number));
  else
    memcpy(rows, all + first, (size_t)n * sizeof(*all));
  PetscCall(TrsFree(&all));
  PetscFunctionReturn(PETSC_SUCCESS);
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
    const int i = TrsDirectoryFind(c->shards, c->table, b, PETSC_TRUE);

    if (i < 0) continue;
    rows[b] = TrsZchCountSeen(
        bucket_of(TrsDirectoryOf(c->shards, i), b - TrsDirectoryOf(c->shards, i)->first));
    if (b == n - 1) rows[n] = 1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode give_seen(void *context, int part, int64_t first, int64_t n, void *rows)
{
  const TrsZchContext *c = (const TrsZchContext *)context;
  const int i = TrsDirectoryFind(c->shards, c->table, part, PETSC_TRUE);
  TrsZchSeen *all;
  TrsZch bucket;

  PetscFunctionBegin;
  if (part == c->shards->tables->table[c->table].zch.buckets) {
    memset(rows, 0, (size_t)n * sizeof(*all));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  bucket = bucket_of(TrsDirectoryOf(c->shards, i), part - TrsDirectoryOf(c->shards, i)->first);
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
  TrsZchState *state;
  TrsDirectory *keys;
  int i;

  PetscFunctionBegin;
  (void)dtype;
  PetscCall(find_part(c, part, &i, &b));
  keys = TrsDirectoryOf(c->shards, i);
  state = state_of(keys);
  all = c->tensor == TRS_ZCH_TENSOR_NUMBERS ? keys->n * columns : keys->n * keys->rule.rows;
  if (!state->read[c->tensor]) PetscCall(TrsAlloc(all, sizeof(int64_t), &state->read[c->tensor]));
  first = c->tensor == TRS_ZCH_TENSOR_NUMBERS ? b * columns : b * keys->rule.rows + first;
  memcpy(state->read[c->tensor] + first, rows, (size_t)(n * columns) * sizeof(int64_t));
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
    TrsDirectory *keys = TrsDirectoryOf(c->shards, i);
    TrsZchState *state;

    if (c->shards->shard[i].table != c->table) continue;
    state = state_of(keys);
    for (int64_t k = 0; k < n; k++) {
      const int64_t b = TrsIdBucket(&keys->rule, seen[k].id) - keys->first;

      if (seen[k].count == 0 || b < 0 || b >= keys->n) continue;
      if (state->n_seen == state->seen_capacity) {
        int64_t *larger;

        state->seen_capacity = 2 * state->seen_capacity + 1024;
        PetscCall(TrsAlloc(state->seen_capacity, sizeof(TrsZchSeen), &larger));
        if (state->n_seen)
          memcpy(larger, state->read[TRS_ZCH_TENSOR_SEEN], (size_t)state->n_seen * sizeof(TrsZchSeen));
        PetscCall(TrsFree(&state->read[TRS_ZCH_TENSOR_SEEN]));
        state->read[TRS_ZCH_TENSOR_SEEN] = larger;
      }
      ((TrsZchSeen *)state->read[TRS_ZCH_TENSOR_SEEN])[state->n_seen++] = seen[k];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add a tensor with a part for each bucket here. */
static PetscErrorCode add_tensor(const TrsEmbeddingShards *shards, int table, TrsZchTensor which,
                                 TrsState *state)
{
  const TrsTableConfig *config = &shards->tables->table[table];
  const TrsIdBuckets rule = TrsDirectoryBuckets(config);
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
    TrsDirectory *keys = TrsDirectoryOf(shards, i);

    if (shards->shard[i].table != table) continue;
    if (!tensor->give_context) tensor->give_context = tensor->take_context = &state_of(keys)->context[which];
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
      tensor->give_context = tensor->take_context = tensor->list_context =
          &state_of(TrsDirectoryOf(shards, i))->context[TRS_ZCH_TENSOR_SEEN];
  tensor->n_units = config->zch.buckets + 1;
  for (int64_t b = 0; b < tensor->n_units; b++) {
    PetscCall(TrsStateAddPart(tensor, 0, 0, 0, TRS_ZCH_SEEN_COLUMNS, NULL, TRS_ZCH_SEEN_COLUMNS));
    tensor->part[b].unit = b;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_state(const TrsEmbeddingShards *shards, int table, TrsState *state)
{
  const TrsZchPolicy policy = shards->tables->table[table].zch.policy;

  PetscFunctionBegin;
  PetscCall(prepare(shards, table));
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
static int64_t seen_of(const TrsDirectory *keys, int64_t b, TrsZchSeen *to)
{
  const TrsZchState *state = state_of(keys);
  const TrsZchSeen *seen = (const TrsZchSeen *)state->read[TRS_ZCH_TENSOR_SEEN];
  int64_t n = 0;

  for (int64_t k = 0; k < state->n_seen; k++)
    if (TrsIdBucket(&keys->rule, seen[k].id) - keys->first == b) to[n++] = seen[k];
  return n;
}

/*
  The ids of a bucket must be those that the table's options give to it. raw [rows of the bucket].
*/
static PetscErrorCode check_bucket(const TrsTableConfig *table, const TrsDirectory *d, int64_t b,
                                   const int64_t *raw, const char *path)
{
  PetscFunctionBegin;
  for (int64_t r = 0; r < d->rule.rows; r++) {
    const int64_t of_id = TrsIdBucket(&d->rule, raw[r]);

    PetscCheck(
        raw[r] == INT64_MAX || of_id == d->first + b, PETSC_COMM_SELF, TRS_ERR_DATA,
        "%s: /embedding/%s/zch/raw, bucket %" PRId64 ": id %" PRId64 " belongs to bucket %" PRId64
        ". Give the -table_%s_zch_buckets and -table_%s_zch_input_hash_size that the file was made with",
        path, table->name, d->first + b, raw[r], of_id, table->name, table->name);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_bucket(const TrsEmbeddingShards *shards, int i, int64_t b, const char *path)
{
  static const int64_t fresh[TRS_ZCH_NUMBERS] = {[TRS_ZCH_CAPACITY] = -1, [TRS_ZCH_LARGEST] = -1};
  TrsDirectory *keys = TrsDirectoryOf(shards, i);
  TrsZchState *state = state_of(keys);
  const int64_t at = b * keys->rule.rows, offset = (keys->first + b) * keys->rule.rows;
  const int64_t *number = state->read[TRS_ZCH_TENSOR_NUMBERS]
                              ? state->read[TRS_ZCH_TENSOR_NUMBERS] + b * TRS_ZCH_NUMBERS
                              : fresh;
  TrsZchArrays arrays = {.raw = state->read[TRS_ZCH_TENSOR_RAW] + at,
                         .slot = state->read[TRS_ZCH_TENSOR_SLOT] + at};
  const TrsTableConfig *table = &shards->tables->table[shards->shard[i].table];
  TrsDirectoryFault fault;
  TrsZchSeen *seen;

  PetscFunctionBegin;
  if (state->read[TRS_ZCH_TENSOR_COUNT]) arrays.count = state->read[TRS_ZCH_TENSOR_COUNT] + at;
  if (state->read[TRS_ZCH_TENSOR_LAST]) arrays.last = state->read[TRS_ZCH_TENSOR_LAST] + at;
  if (state->read[TRS_ZCH_TENSOR_TIMES]) arrays.times = state->read[TRS_ZCH_TENSOR_TIMES] + at;
  for (int64_t r = 0; r < keys->rule.rows; r++)
    arrays.slot[r] = (int64_t)((uint64_t)arrays.slot[r] - (uint64_t)offset); /* may be any number */
  PetscCall(TrsAlloc(PetscMax(state->n_seen, 1), sizeof(*seen), &seen));
  PetscCall(TrsZchSet(bucket_of(keys, b), number, &arrays, seen_of(keys, b, seen), seen, &fault));
  PetscCall(TrsFree(&seen));
  PetscCheck(!fault.what, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /embedding/%s/zch/%s, bucket %" PRId64 ": %s",
             path, table->name, fault.tensor, keys->first + b, fault.what);
  PetscCall(check_bucket(table, keys, b, arrays.raw, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode state_was_read(const TrsEmbeddingShards *shards, int table, const char *path)
{
  PetscFunctionBegin;
  for (int i = 0; i < shards->n; i++) {
    TrsDirectory *keys = TrsDirectoryOf(shards, i);
    TrsZchState *state;

    if (shards->shard[i].table != table) continue;
    state = state_of(keys);
    if (state->read[TRS_ZCH_TENSOR_RAW] && state->read[TRS_ZCH_TENSOR_SLOT])
      for (int64_t b = 0; b < keys->n; b++) PetscCall(set_bucket(shards, i, b, path));
    PetscCall(free_read(state));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsDirectoryOps trs_directory_zch = {
    .name = "zch",
    .create = create,
    .destroy = destroy,
    .destroy_state = destroy_state,
    .begin = begin,
    .find = find_rows,
    .end = end,
    .in_use = in_use,
    .id_of = id_of,
    .unknown_row = unknown_row,
    .change = change_rows,
    .copy = copy_bucket,
    .count = count,
    .add_state = add_state,
    .state_was_read = state_was_read,
};
