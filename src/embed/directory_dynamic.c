/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The directory of tables with id_map dynamic: its functions, and its tensors in checkpoints.

  A checkpoint has only the rows in use, bucket after bucket, of the weights, the states and the
  tensor `ids`, which has the ids of these rows. So a table of another cap or number of buckets can
  read it: all ranks read all ids, and then the rows that became theirs.
*/
#include "core/buffer.h"
#include "core/names.h"
#include "core/radix.h"
#include "embed/dynamic.h"

#include <inttypes.h>
#include <string.h>

typedef enum {
  TRS_DYNAMIC_TENSOR_BUCKETS, /* [B, TRS_DYNAMIC_NUMBERS] */
  TRS_DYNAMIC_TENSOR_IDS,     /* [rows in use, 3] */
  TRS_DYNAMIC_TENSOR_CANDIDATES,
  TRS_DYNAMIC_TENSOR_SKETCH,
  TRS_DYNAMIC_N_TENSORS
} TrsDynamicTensor;
static const char *const names[TRS_DYNAMIC_N_TENSORS] = {"buckets", "ids", "candidates", "sketch"};

/* The rows of a list as they are read, and later their order by the table's buckets. */
typedef struct {
  TrsBuffer rows;
  int64_t n;
  int64_t *begin, *order; /* [B + 1], [n] */
} TrsDynamicList;

typedef struct TrsDynamicStates TrsDynamicStates;

/* A tensor of a table, for the functions that give and take its rows. */
typedef struct {
  TrsDynamicStates *states;
  TrsDynamicTensor tensor;
} TrsDynamicContext;

/* Rows of the file that belong to a bucket: from the file's row to the bucket's. */
typedef struct {
  int64_t n;
  int64_t *from, *to; /* [n]; `to` lies behind `from` in one block */
} TrsDynamicMoves;

/* Memory of a table's directories for checkpoints. The table's first shard here owns it. */
struct TrsDynamicStates {
  const TrsEmbeddingShards *shards;
  int table;
  TrsDynamicContext context[TRS_DYNAMIC_N_TENSORS];
  TrsDynamicList read[TRS_DYNAMIC_N_TENSORS]; /* the file's rows, all of them */
  PetscBool is_set;                           /* the buckets have the file's ids */
  TrsDynamicMoves *moves;                     /* [buckets of the table] */
};

static TrsDynamic bucket_of(const TrsDirectory *d, int64_t b)
{
  return (TrsDynamic)d->bucket[b];
}

/* --- a batch --- */

static PetscErrorCode create(const TrsTableConfig *table, int64_t rows, void **bucket)
{
  TrsDynamic dynamic;

  PetscFunctionBegin;
  PetscCall(TrsDynamicCreate(&table->dynamic, TrsNameHash(table->name), rows, &dynamic));
  *bucket = dynamic;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(void **bucket)
{
  TrsDynamic dynamic = (TrsDynamic)*bucket;

  PetscFunctionBegin;
  PetscCall(TrsDynamicDestroy(&dynamic));
  *bucket = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode begin(void *bucket, int64_t n, const int64_t *ids, TrsGivenRows *given)
{
  PetscFunctionBegin;
  (void)n;
  (void)ids;
  (void)given;
  PetscCall(TrsDynamicBegin((TrsDynamic)bucket));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int64_t find_rows(void *bucket, PetscBool training, int64_t place, int64_t n, const int64_t *ids,
                         int64_t *rows)
{
  (void)place;
  return TrsDynamicFind((TrsDynamic)bucket, training, n, ids, rows);
}

static PetscErrorCode end(void *bucket, int64_t n, const int64_t *ids, int64_t *rows, int64_t *n_known,
                          TrsGivenRows *given)
{
  PetscFunctionBegin;
  PetscCall(TrsDynamicAdmit((TrsDynamic)bucket, n, ids, rows, n_known, given));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode gaps(void *bucket, TrsGivenRows *rows)
{
  PetscFunctionBegin;
  PetscCall(TrsDynamicGaps((TrsDynamic)bucket, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int64_t in_use(void *bucket)
{
  int64_t number[TRS_DYNAMIC_NUMBERS];

  TrsDynamicNumbers((TrsDynamic)bucket, number);
  return number[TRS_DYNAMIC_USED];
}

static int64_t id_of(void *bucket, int64_t row, uint8_t *held)
{
  TrsDynamicRow found;

  TrsDynamicRows((TrsDynamic)bucket, row, 1, &found);
  *held = found.last > 0;
  return *held ? found.id : 0;
}

static int64_t unknown_row(int64_t rows)
{
  (void)rows;
  return 0;
}

static void count(void *bucket, PetscBool anew, TrsDirectoryCounts *counts)
{
  *counts = TrsDynamicCount((TrsDynamic)bucket, anew);
}

static PetscErrorCode change_rows(void *bucket, const TrsDirectoryChange *change)
{
  PetscFunctionBegin;
  PetscCall(TrsDynamicChange((TrsDynamic)bucket, change));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_bucket(const void *bucket, void *to)
{
  PetscFunctionBegin;
  PetscCall(TrsDynamicCopy((const struct TrsDynamicImpl *)bucket, (TrsDynamic)to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- writing checkpoints --- */

/* The directory of bucket b, if this rank writes the bucket's ids; else NULL. */
static const TrsDirectory *writer_of(const TrsDynamicStates *s, int64_t b)
{
  const int i = TrsDirectoryFind(s->shards, s->table, b, PETSC_TRUE);

  return i < 0 ? NULL : TrsDirectoryOf(s->shards, i);
}

/* Number of rows in use of bucket b, or 0 if this rank has no columns of it. */
static int64_t used_of(const TrsDynamicStates *s, int64_t b)
{
  const int i = TrsDirectoryFind(s->shards, s->table, b, PETSC_FALSE);
  int64_t number[TRS_DYNAMIC_NUMBERS] = {0};

  if (i >= 0)
    TrsDynamicNumbers(bucket_of(TrsDirectoryOf(s->shards, i), b - TrsDirectoryOf(s->shards, i)->first),
                      number);
  return number[TRS_DYNAMIC_USED];
}

/* TrsStateCount for tensors of rows in use. */
static PetscErrorCode count_rows(void *context, int64_t *rows)
{
  const TrsDynamicContext *c = (const TrsDynamicContext *)context;
  const int64_t n = c ? TrsTableBuckets(&c->states->shards->tables->table[c->states->table]) : 0;

  PetscFunctionBegin;
  for (int64_t b = 0; b < n; b++) rows[b] = used_of(c->states, b);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  TrsStateCount for the directory's own tensors. Lists that may be empty have a last unit of one row
  of zeros.
*/
static PetscErrorCode count_own(void *context, int64_t *rows)
{
  const TrsDynamicContext *c = (const TrsDynamicContext *)context;
  const int64_t n = c ? TrsTableBuckets(&c->states->shards->tables->table[c->states->table]) : 0;

  PetscFunctionBegin;
  for (int64_t b = 0; b < n; b++) {
    const TrsDirectory *d = writer_of(c->states, b);

    if (!d) continue;
    switch (c->tensor) {
    case TRS_DYNAMIC_TENSOR_BUCKETS: rows[b] = 1; break;
    case TRS_DYNAMIC_TENSOR_IDS: rows[b] = used_of(c->states, b); break;
    case TRS_DYNAMIC_TENSOR_CANDIDATES:
      rows[b] = TrsDynamicCountCandidates(bucket_of(d, b - d->first));
      break;
    case TRS_DYNAMIC_TENSOR_SKETCH: rows[b] = TrsDynamicCountCells(bucket_of(d, b - d->first)); break;
    case TRS_DYNAMIC_N_TENSORS: break;
    }
    if (b == n - 1 && c->tensor >= TRS_DYNAMIC_TENSOR_CANDIDATES) rows[n] = 1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write all rows of a list of bucket b. */
static PetscErrorCode give_list(const TrsDynamicContext *c, const TrsDirectory *d, int64_t b, int64_t first,
                                int64_t n, void *rows)
{
  const TrsDynamic bucket = bucket_of(d, b - d->first);
  const PetscBool candidates = (PetscBool)(c->tensor == TRS_DYNAMIC_TENSOR_CANDIDATES);
  const int64_t n_all = candidates ? TrsDynamicCountCandidates(bucket) : TrsDynamicCountCells(bucket);
  const int64_t row_bytes = TRS_DYNAMIC_ROW_COLUMNS * (int64_t)sizeof(int64_t);
  char *all;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(n_all, (size_t)row_bytes, &all));
  if (candidates)
    PetscCall(TrsDynamicCandidates(bucket, (TrsDynamicRow *)(void *)all));
  else
    TrsDynamicCells(bucket, b, (TrsDynamicCell *)(void *)all);
  memcpy(rows, all + first * row_bytes, (size_t)(n * row_bytes));
  PetscCall(TrsFree(&all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode give_rows(void *context, int part, int64_t first, int64_t n, void *rows)
{
  const TrsDynamicContext *c = (const TrsDynamicContext *)context;
  const TrsDirectory *d = writer_of(c->states, part);

  PetscFunctionBegin;
  if (part == TrsTableBuckets(&c->states->shards->tables->table[c->states->table]))
    memset(rows, 0, (size_t)n * TRS_DYNAMIC_ROW_COLUMNS * sizeof(int64_t));
  else if (c->tensor == TRS_DYNAMIC_TENSOR_BUCKETS)
    TrsDynamicNumbers(bucket_of(d, part - d->first), (int64_t *)rows);
  else if (c->tensor == TRS_DYNAMIC_TENSOR_IDS)
    TrsDynamicRows(bucket_of(d, part - d->first), first, n, (TrsDynamicRow *)rows);
  else
    PetscCall(give_list(c, d, part, first, n, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- reading checkpoints --- */

/* TrsStateTake: keep all rows of the file. */
static PetscErrorCode take_rows(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                const void *rows)
{
  const TrsDynamicContext *c = (const TrsDynamicContext *)context;
  const int64_t row_bytes = TRS_DYNAMIC_ROW_COLUMNS * (int64_t)sizeof(int64_t);
  TrsDynamicList *list;

  PetscFunctionBegin;
  (void)part;
  (void)dtype;
  (void)first;
  if (!c) PetscFunctionReturn(PETSC_SUCCESS); /* this rank has no shard of the table */
  list = &c->states->read[c->tensor];
  PetscCall(TrsBufferReserve(&list->rows, (list->n + n) * row_bytes, PETSC_TRUE));
  memcpy((char *)list->rows.data + list->n * row_bytes, rows, (size_t)(n * row_bytes));
  list->n += n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_read(TrsDynamicStates *s)
{
  const int64_t n = TrsTableBuckets(&s->shards->tables->table[s->table]);

  PetscFunctionBegin;
  for (int t = 0; t < TRS_DYNAMIC_N_TENSORS; t++) {
    PetscCall(TrsBufferFree(&s->read[t].rows));
    PetscCall(TrsFree(&s->read[t].begin));
    PetscCall(TrsFree(&s->read[t].order));
    s->read[t].n = 0;
  }
  for (int64_t b = 0; s->moves && b < n; b++) PetscCall(TrsFree(&s->moves[b].from));
  PetscCall(PetscFree(s->moves));
  s->is_set = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_state(TrsDirectory *d)
{
  TrsDynamicStates *s = (TrsDynamicStates *)d->state;

  PetscFunctionBegin;
  if (s) PetscCall(free_read(s));
  PetscCall(PetscFree(d->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The numbers of bucket b of the file. */
static const int64_t *numbers_of(const TrsDynamicStates *s, int64_t b)
{
  return (const int64_t *)s->read[TRS_DYNAMIC_TENSOR_BUCKETS].rows.data + b * TRS_DYNAMIC_NUMBERS;
}

/* The table's bucket that a row of a list belongs to; -1: none, it is a gap or the row of zeros. */
static int64_t bucket_of_row(TrsDynamicTensor tensor, const TrsIdBuckets *rule, const TrsDynamicRow *row)
{
  if (tensor == TRS_DYNAMIC_TENSOR_SKETCH) { /* a TrsDynamicCell: its bucket, and its count */
    const int64_t n = (int64_t)rule->n.value;

    return row->count > 0 && row->id >= 0 && row->id < n ? row->id : -1;
  }
  return row->last > 0 ? TrsIdBucket(rule, row->id) : -1;
}

/*
  Bring the rows of a list that was read into the order of the table's buckets. Errors: DATA if an
  id has a negative batch
*/
static PetscErrorCode group_rows(TrsDynamicStates *s, TrsDynamicTensor tensor, const TrsIdBuckets *rule,
                                 const char *path)
{
  const int64_t n = (int64_t)rule->n.value;
  TrsDynamicList *list = &s->read[tensor];
  const TrsDynamicRow *row = (const TrsDynamicRow *)list->rows.data;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(n + 1, sizeof(*list->begin), &list->begin));
  PetscCall(TrsAlloc(list->n, sizeof(*list->order), &list->order));
  for (int64_t i = 0; i < list->n; i++) {
    const int64_t b = bucket_of_row(tensor, rule, &row[i]);

    PetscCheck(tensor == TRS_DYNAMIC_TENSOR_SKETCH || row[i].last >= 0, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: /embedding/%s/dynamic/%s: row %" PRId64 " has the last batch %" PRId64
               ", expected 0 or more",
               path, s->shards->tables->table[s->table].name, names[tensor], i, row[i].last);
    if (b >= 0) list->begin[b + 1]++;
  }
  for (int64_t b = 0; b < n; b++) list->begin[b + 1] += list->begin[b];
  for (int64_t i = 0; i < list->n; i++) {
    const int64_t b = bucket_of_row(tensor, rule, &row[i]);

    if (b >= 0) list->order[list->begin[b]++] = i;
  }
  memmove(list->begin + 1, list->begin, (size_t)n * sizeof(*list->begin));
  list->begin[0] = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of a list that belong to a bucket. */
typedef struct {
  int64_t n;
  TrsDynamicRow *row; /* [n] */
  int64_t *from;      /* [n] the file's row, ascending */
  int64_t *place;     /* [n] the bucket's row */
} TrsDynamicIds;

static PetscErrorCode list_ids(const TrsDynamicStates *s, TrsDynamicTensor tensor, int64_t b,
                               TrsDynamicIds *ids)
{
  const TrsDynamicList *list = &s->read[tensor];
  const int64_t *order = list->order + list->begin[b];

  PetscFunctionBegin;
  ids->n = list->begin[b + 1] - list->begin[b];
  PetscCall(TrsAlloc(ids->n, sizeof(*ids->row), &ids->row));
  PetscCall(TrsAlloc(ids->n, sizeof(*ids->from), &ids->from));
  PetscCall(TrsAlloc(ids->n, sizeof(*ids->place), &ids->place));
  for (int64_t i = 0; i < ids->n; i++) {
    ids->from[i] = order[i];
    ids->row[i] = ((const TrsDynamicRow *)list->rows.data)[order[i]];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_ids(TrsDynamicIds *ids)
{
  PetscFunctionBegin;
  PetscCall(TrsFree(&ids->row));
  PetscCall(TrsFree(&ids->from));
  PetscCall(TrsFree(&ids->place));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Keep only the n ids that the policy keeps longest, in their order. Among equals the first stay.
*/
static PetscErrorCode keep_best(const TrsDynamicRule *rule, int64_t n, TrsDynamicIds *ids)
{
  TrsRadixPair *pair, *spare;
  char *stays;
  int64_t kept = 0;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(ids->n, sizeof(*pair), &pair));
  PetscCall(TrsAlloc(ids->n, sizeof(*spare), &spare));
  PetscCall(TrsAlloc(ids->n, 1, &stays));
  for (int64_t i = 0; i < ids->n; i++) {
    const uint64_t count = rule->policy == TRS_DYNAMIC_LFU ? (uint64_t)ids->row[i].count : 0;

    pair[i] = (TrsRadixPair){~(count << 32 | (uint64_t)ids->row[i].last), i};
  }
  TrsRadixSort(ids->n, pair, spare);
  for (int64_t i = 0; i < n; i++) stays[pair[i].value] = 1;
  for (int64_t i = 0; i < ids->n; i++) {
    if (!stays[i]) continue;
    ids->row[kept] = ids->row[i];
    ids->from[kept++] = ids->from[i];
  }
  ids->n = kept;
  PetscCall(TrsFree(&pair));
  PetscCall(TrsFree(&spare));
  PetscCall(TrsFree(&stays));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Note which rows of the file bucket b gets: its ids' rows, and row `shared` for ids without one.
*/
static PetscErrorCode note_moves(TrsDynamicStates *s, int64_t b, const TrsDynamicIds *ids, int64_t shared)
{
  TrsDynamicMoves *moves = &s->moves[b];
  PetscBool is_there = PETSC_FALSE;

  PetscFunctionBegin;
  if (moves->from) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(2 * (ids->n + 1), sizeof(int64_t), &moves->from));
  moves->to = moves->from + ids->n + 1;
  for (int64_t i = 0; i <= ids->n; i++) {
    if (!is_there && (i == ids->n || ids->from[i] > shared)) {
      moves->from[moves->n++] = shared; /* to row 0 */
      is_there = PETSC_TRUE;
    }
    if (i == ids->n) break;
    moves->from[moves->n] = ids->from[i];
    moves->to[moves->n++] = ids->place[i];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find places for the ids of bucket k of a directory. `first` is the file's first row of the same
  bucket. The rows stay as they are if the file has as many buckets, and no more rows than here.
*/
static PetscErrorCode place_ids(const TrsDynamicStates *s, TrsDirectory *d, int64_t k, int64_t first,
                                TrsDynamicIds *ids, int64_t number[TRS_DYNAMIC_NUMBERS])
{
  const TrsTableConfig *config = &s->shards->tables->table[s->table];
  const int64_t b = d->first + k, n = PetscMin(ids->n, d->rule.rows - 1);

  PetscFunctionBegin;
  number[TRS_DYNAMIC_TIME] = numbers_of(s, 0)[TRS_DYNAMIC_TIME];
  if (s->read[TRS_DYNAMIC_TENSOR_BUCKETS].n == TrsTableBuckets(config) &&
      numbers_of(s, b)[TRS_DYNAMIC_USED] <= d->rule.rows) {
    memcpy(number, numbers_of(s, b), TRS_DYNAMIC_NUMBERS * sizeof(*number));
    for (int64_t i = 0; i < ids->n; i++) ids->place[i] = ids->from[i] - first;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  d->moved = PETSC_TRUE;
  d->dropped += ids->n - n;
  if (n < ids->n) PetscCall(keep_best(&config->dynamic, n, ids));
  for (int64_t i = 0; i < n; i++) ids->place[i] = i + 1;
  number[TRS_DYNAMIC_USED] = n + 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Empty bucket k of a directory, which may have been trained before a file is read. */
static PetscErrorCode empty_bucket(const TrsTableConfig *table, TrsDirectory *d, int64_t k)
{
  int64_t number[TRS_DYNAMIC_NUMBERS];

  PetscFunctionBegin;
  TrsDynamicNumbers(bucket_of(d, k), number);
  if (number[TRS_DYNAMIC_TIME] == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(destroy(&d->bucket[k]));
  PetscCall(create(table, d->rule.rows, &d->bucket[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Give the file's ids to bucket k of a directory. */
static PetscErrorCode set_bucket(TrsDynamicStates *s, TrsDirectory *d, int64_t k, const char *path)
{
  const TrsDynamicList *buckets = &s->read[TRS_DYNAMIC_TENSOR_BUCKETS];
  /*
    The file's bucket with this number; with fewer buckets in the file, one that gives its row 0.
  */
  const int64_t b = d->first + k, first = buckets->begin[b % buckets->n];
  TrsDynamicIds ids, candidates, cells;
  TrsDynamicState state = {.n_rows = 0};
  TrsDirectoryFault fault;

  PetscFunctionBegin;
  PetscCall(list_ids(s, TRS_DYNAMIC_TENSOR_IDS, b, &ids));
  PetscCall(list_ids(s, TRS_DYNAMIC_TENSOR_CANDIDATES, b, &candidates));
  PetscCall(list_ids(s, TRS_DYNAMIC_TENSOR_SKETCH, b, &cells));
  PetscCall(place_ids(s, d, k, first, &ids, state.number));
  state.n_rows = ids.n;
  state.row = ids.row;
  state.place = ids.place;
  state.n_candidates = candidates.n;
  state.candidate = candidates.row;
  if (buckets->n == TrsTableBuckets(&s->shards->tables->table[s->table])) state.n_cells = cells.n;
  state.cell = (const TrsDynamicCell *)(const void *)cells.row;
  PetscCall(empty_bucket(&s->shards->tables->table[s->table], d, k));
  PetscCall(TrsDynamicSet(bucket_of(d, k), &state, &fault));
  PetscCall(note_moves(s, b, &ids, first));
  PetscCall(free_ids(&ids));
  PetscCall(free_ids(&candidates));
  PetscCall(free_ids(&cells));
  PetscCheck(!fault.what, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /embedding/%s/dynamic/%s, bucket %" PRId64 ": %s", path,
             s->shards->tables->table[s->table].name, fault.tensor, b, fault.what);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the first row of each of the file's buckets. They must have as many rows as there are ids.
*/
static PetscErrorCode find_buckets(TrsDynamicStates *s, const char *path)
{
  const char *table = s->shards->tables->table[s->table].name;
  const int64_t n = s->read[TRS_DYNAMIC_TENSOR_IDS].n;
  TrsDynamicList *buckets = &s->read[TRS_DYNAMIC_TENSOR_BUCKETS];
  int64_t rows = 0;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(buckets->n, sizeof(*buckets->begin), &buckets->begin));
  for (int64_t b = 0; b < buckets->n; b++) {
    const int64_t used = numbers_of(s, b)[TRS_DYNAMIC_USED];

    PetscCheck(used >= 1 && used <= n - rows, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: /embedding/%s/dynamic/buckets: bucket %" PRId64 " has %" PRId64
               " rows, but /embedding/%s/dynamic/ids has %" PRId64,
               path, table, b, used, table, n);
    buckets->begin[b] = rows;
    rows += used;
  }
  PetscCheck(rows == n, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /embedding/%s/dynamic/buckets has %" PRId64
             " rows in all, and /embedding/%s/dynamic/ids %" PRId64,
             path, table, rows, table, n);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Give the file's ids to the table's buckets here, once its tensors were read. */
static PetscErrorCode set_buckets(TrsDynamicStates *s, const char *path)
{
  const TrsIdBuckets rule = TrsDirectoryBuckets(&s->shards->tables->table[s->table]);
  const int64_t n = (int64_t)rule.n.value;

  PetscFunctionBegin;
  if (s->is_set || (s->read[TRS_DYNAMIC_TENSOR_IDS].n == 0 && s->read[TRS_DYNAMIC_TENSOR_BUCKETS].n == 0))
    PetscFunctionReturn(PETSC_SUCCESS);
  s->is_set = PETSC_TRUE;
  PetscCall(find_buckets(s, path));
  for (int t = TRS_DYNAMIC_TENSOR_IDS; t < TRS_DYNAMIC_N_TENSORS; t++)
    PetscCall(group_rows(s, (TrsDynamicTensor)t, &rule, path));
  PetscCall(PetscCalloc1((size_t)n, &s->moves));
  for (int i = 0; i < s->shards->n; i++) {
    TrsDirectory *d = TrsDirectoryOf(s->shards, i);

    if (s->shards->shard[i].table != s->table) continue;
    for (int64_t b = 0; b < d->n; b++) PetscCall(set_bucket(s, d, b, path));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* TrsStateFind for tensors of rows. The parts are the buckets of this rank's shards. */
static PetscErrorCode find_moves(void *context, int part, const char *path, int64_t *n, const int64_t **from,
                                 const int64_t **to)
{
  TrsDynamicStates *s = ((const TrsDynamicContext *)context)->states;
  int64_t b = part;

  PetscFunctionBegin;
  PetscCall(set_buckets(s, path));
  *n = 0;
  for (int i = 0; i < s->shards->n; i++) {
    const TrsDirectory *d = TrsDirectoryOf(s->shards, i);

    if (s->shards->shard[i].table != s->table) continue;
    if (b < d->n) {
      b += d->first;
      break;
    }
    b -= d->n;
  }
  if (!s->moves) PetscFunctionReturn(PETSC_SUCCESS);
  *n = s->moves[b].n;
  *from = s->moves[b].from;
  *to = s->moves[b].to;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The states of a table; NULL if this rank has no shard of it. */
static TrsDynamicStates *states_of(const TrsEmbeddingShards *shards, int table)
{
  for (int i = 0; i < shards->n; i++)
    if (shards->shard[i].table == table) return (TrsDynamicStates *)TrsDirectoryOf(shards, i)->state;
  return NULL;
}

static PetscErrorCode prepare(const TrsEmbeddingShards *shards, int table)
{
  TrsDynamicStates *s = states_of(shards, table);

  PetscFunctionBegin;
  for (int i = 0; i < shards->n && !s; i++) {
    if (shards->shard[i].table != table) continue;
    PetscCall(PetscNew(&s));
    TrsDirectoryOf(shards, i)->state = s;
    s->shards = shards;
    s->table = table;
    for (int t = 0; t < TRS_DYNAMIC_N_TENSORS; t++)
      s->context[t] = (TrsDynamicContext){s, (TrsDynamicTensor)t};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_tensor(const TrsEmbeddingShards *shards, int table, TrsDynamicTensor which,
                                 TrsState *state)
{
  const TrsTableConfig *config = &shards->tables->table[table];
  TrsDynamicStates *s = states_of(shards, table);
  char path[PETSC_MAX_PATH_LEN];
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(path, sizeof(path), "embedding/%s/dynamic/%s", config->name, names[which]));
  PetscCall(TrsStateAdd(state, path, TRS_INT64, 2, 0, TRS_DYNAMIC_ROW_COLUMNS, &tensor));
  tensor->optional = (PetscBool)(which >= TRS_DYNAMIC_TENSOR_CANDIDATES);
  tensor->count = count_own;
  tensor->give = give_rows;
  tensor->take = take_rows;
  if (s) tensor->give_context = tensor->take_context = tensor->list_context = &s->context[which];
  tensor->n_units = config->dynamic.buckets + (which >= TRS_DYNAMIC_TENSOR_CANDIDATES);
  for (int64_t b = 0; b < tensor->n_units; b++) {
    PetscCall(TrsStateAddPart(tensor, 0, 0, 0, TRS_DYNAMIC_ROW_COLUMNS, NULL, TRS_DYNAMIC_ROW_COLUMNS));
    tensor->part[b].unit = b;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_state(const TrsEmbeddingShards *shards, int table, TrsState *state)
{
  PetscFunctionBegin;
  PetscCall(prepare(shards, table));
  for (int t = 0; t < TRS_DYNAMIC_N_TENSORS; t++)
    PetscCall(add_tensor(shards, table, (TrsDynamicTensor)t, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode state_was_read(const TrsEmbeddingShards *shards, int table, const char *path)
{
  TrsDynamicStates *s = states_of(shards, table);

  PetscFunctionBegin;
  if (!s) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(set_buckets(s, path));
  PetscCall(free_read(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void list_rows(const TrsEmbeddingShards *shards, int table, TrsStateTensor *tensor)
{
  TrsDynamicStates *s = states_of(shards, table);

  tensor->rows = 0;
  tensor->count = count_rows;
  tensor->find = find_moves;
  tensor->n_units = TrsTableBuckets(&shards->tables->table[table]);
  if (s) tensor->list_context = &s->context[TRS_DYNAMIC_TENSOR_IDS];
}

const TrsDirectoryOps trs_directory_dynamic = {
    .name = "dynamic",
    .create = create,
    .destroy = destroy,
    .destroy_state = destroy_state,
    .begin = begin,
    .find = find_rows,
    .end = end,
    .gaps = gaps,
    .in_use = in_use,
    .id_of = id_of,
    .unknown_row = unknown_row,
    .change = change_rows,
    .copy = copy_bucket,
    .count = count,
    .add_state = add_state,
    .state_was_read = state_was_read,
    .list_rows = list_rows,
};
