/* SPDX-License-Identifier: BSD-3-Clause */
/* The tensors of changed rows in deltas, checkpoints and increments. */
#include "embed/changes_impl.h"

#include <inttypes.h>
#include <string.h>

static const char *const names[TRS_CHANGES_N_TENSORS] = {"delta/rows",    "delta/ids",  "delta/held",
                                                         "delta/lost",    "delta/used", "weight",
                                                         "delta/changed", "delta/rows", "weights or states"};
/*
  Columns of the tensor of checkpoints if the table keeps ids: the row, the id that it had at the
  last delta, and whether it had an id.
*/
enum { TRS_CHANGES_OPEN_COLUMNS = 3 };
enum { TRS_CHANGES_AHEAD = 16 }; /* rows from a fetch of memory to its use */

/* The changed rows of shard i that a tensor has. */
static const TrsChangesSet *set_of(const TrsChangesContext *c, int i)
{
  return &c->changes->shard[i]
              .set[c->tensor >= TRS_CHANGES_SINCE_FILE ? TRS_CHANGES_OF_INCREMENTS : TRS_CHANGES_OF_DELTAS];
}

/* --- the start of a training --- */

/*
  Fill the last row of the tensor of checkpoints. It is no row of the table. A resumed run compares
  its numbers to find out if the rows still have the same numbers.
*/
static void fill_last(const TrsTableConfig *config, int64_t *row)
{
  row[0] = -1;
  if (!TrsTableKeepsIds(config)) return;
  row[1] = TrsTableBuckets(config);
  row[2] = config->num_embeddings;
}

static int64_t open_columns(const TrsTableConfig *config)
{
  return TrsTableKeepsIds(config) ? TRS_CHANGES_OPEN_COLUMNS : 1;
}

/* Go on with the changed rows that a checkpoint has for table t. */
static PetscErrorCode take_changes(TrsChanges c, int t, const char *path, PetscBool *other)
{
  const TrsTableConfig *config = &c->shards->tables->table[t];
  const int64_t columns = open_columns(config), *rows = (const int64_t *)c->table[t].read.data;
  int64_t last[TRS_CHANGES_OPEN_COLUMNS];

  PetscFunctionBegin;
  fill_last(config, last);
  if (c->table[t].n_read == 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (memcmp(rows + (c->table[t].n_read - 1) * columns, last, (size_t)columns * sizeof(*last)) != 0) {
    *other = PETSC_TRUE;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int64_t i = 0; i < c->table[t].n_read - 1; i++) {
    PetscCheck(rows[i * columns] >= 0 && rows[i * columns] < config->num_embeddings, PETSC_COMM_SELF,
               TRS_ERR_DATA,
               "%s: /embedding/%s/%s: row %" PRId64 " is %" PRId64 ", expected a row of the table's %" PRId64,
               path, config->name, names[TRS_CHANGES_OPEN], i, rows[i * columns], config->num_embeddings);
    TrsChangesMark(c, t, rows + i * columns);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsChangesStart(TrsChanges c, PetscBool resumed, const char *path, PetscBool *other)
{
  PetscFunctionBegin;
  *other = TrsChangesMoved(c);
  TrsChangesForget(c, TRS_CHANGES_OF_DELTAS);
  for (int i = 0; i < c->shards->n; i++) TrsChangesRemember(c, i);
  for (int t = 0; t < c->shards->tables->n; t++) {
    if (resumed) PetscCall(take_changes(c, t, path, other));
    PetscCall(TrsBufferFree(&c->table[t].read));
    c->table[t].n_read = 0;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- tensors --- */

/* Do only the shards with the table's first columns have parts of the tensor? */
static PetscBool is_of_first_columns(TrsChangesTensor tensor)
{
  return (PetscBool)(tensor != TRS_CHANGES_WEIGHT && tensor != TRS_CHANGES_COPIED);
}

/* Does shard i have parts of this tensor? Each of its units is one part. */
static PetscBool has_parts(const TrsChangesContext *c, int i)
{
  const TrsEmbeddingShard *shard = &c->changes->shards->shard[i];

  return (PetscBool)(shard->table == c->table && (shard->column == 0 || !is_of_first_columns(c->tensor)));
}

/* Find the shard and its unit that are part number `part`. */
static PetscErrorCode find_part(const TrsChangesContext *c, int part, int *i, int64_t *unit)
{
  *unit = part;
  PetscFunctionBegin;
  for (*i = 0; *i < c->changes->shards->n; ++*i) {
    if (!has_parts(c, *i)) continue;
    if (*unit < c->changes->shard[*i].n_units) PetscFunctionReturn(PETSC_SUCCESS);
    *unit -= c->changes->shard[*i].n_units;
  }
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a table has no part %d of %s here", part, names[c->tensor]);
}

/* TrsStateCount for all tensors. */
static PetscErrorCode count_rows(void *context, int64_t *rows)
{
  const TrsChangesContext *c = (const TrsChangesContext *)context;
  const TrsChangesTable *table = &c->changes->table[c->table];

  PetscFunctionBegin;
  for (int i = 0; i < c->changes->shards->n; i++) {
    const TrsChangesShard *s = &c->changes->shard[i];
    const int64_t *at = c->tensor == TRS_CHANGES_LOST ? s->lost_at : set_of(c, i)->at;

    if (!has_parts(c, i)) continue;
    for (int64_t u = 0; u < s->n_units; u++)
      rows[s->first_unit + u] = c->tensor == TRS_CHANGES_USED ? 1 : at[u + 1] - at[u];
    if (c->tensor == TRS_CHANGES_OPEN && s->n_units && s->first_unit + s->n_units == table->n_units)
      rows[table->n_units] = 1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy n rows of a part from one type to another. */
static PetscErrorCode copy_rows(const TrsStatePart *part, TrsDType from, TrsDType dtype, int64_t n,
                                const int64_t *rows, char *to)
{
  const int64_t bytes = part->stride * TrsDTypeBytes(from), to_bytes = part->cols * TrsDTypeBytes(dtype);
  const TrsComputeOps *host;
  float *wide;

  PetscFunctionBegin;
  PetscCall(TrsComputeFind("cpu", &host));
  PetscCall(TrsAlloc(part->cols, sizeof(*wide), &wide));
  for (int64_t i = 0; i < n; i++, to += to_bytes) {
    const char *row = (const char *)part->data + rows[i] * bytes;

    /* rows of a large table are not in the processor's caches */
    if (i + TRS_CHANGES_AHEAD < n)
      __builtin_prefetch((const char *)part->data + rows[i + TRS_CHANGES_AHEAD] * bytes);
    if (dtype == from) {
      memcpy(to, row, (size_t)to_bytes);
    } else if (dtype == TRS_FP32 || from == TRS_FP32) {
      PetscCall(host->convert(NULL, part->cols, from, row, dtype, to));
    } else { /* from one half precision to the other */
      PetscCall(host->convert(NULL, part->cols, from, row, TRS_FP32, wide));
      PetscCall(host->convert(NULL, part->cols, TRS_FP32, wide, dtype, to));
    }
  }
  PetscCall(TrsFree(&wide));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the tensor's numbers for n rows of shard i. */
static void give_numbers(const TrsChangesContext *c, int i, int64_t n, const int64_t *rows, void *to)
{
  const TrsEmbeddingShard *shard = &c->changes->shards->shard[i];
  const TrsTableConfig *config = &c->changes->shards->tables->table[c->table];
  const TrsDirectory *d = TrsDirectoryOf(c->changes->shards, i);
  const TrsChangesShard *s = &c->changes->shard[i];
  const int64_t columns = open_columns(config);
  uint8_t held;

  for (int64_t k = 0; k < n; k++) {
    const int64_t row = shard->tbe.row_offset + rows[k];

    if (c->tensor == TRS_CHANGES_OPEN) {
      ((int64_t *)to)[k * columns] = row;
      if (columns > 1) ((int64_t *)to)[k * columns + 1] = s->before[rows[k]];
      if (columns > 2) ((int64_t *)to)[k * columns + 2] = TrsChangesIsSet(s->had, rows[k]);
    } else if (c->tensor == TRS_CHANGES_IDS) {
      ((int64_t *)to)[k] = TrsChangesIdOf(d, rows[k], &held);
    } else if (c->tensor == TRS_CHANGES_HELD) {
      (void)TrsChangesIdOf(d, rows[k], (uint8_t *)to + k);
    } else if (config->num_embeddings <= INT32_MAX) {
      ((int32_t *)to)[k] = (int32_t)row;
    } else {
      ((int64_t *)to)[k] = row;
    }
  }
}

/* TrsStateGive for all tensors. */
static PetscErrorCode give_rows(void *context, int part, int64_t first, int64_t n, void *to)
{
  const TrsChangesContext *c = (const TrsChangesContext *)context;
  const TrsChangesTable *table = &c->changes->table[c->table];
  const TrsChangesShard *s;
  const int64_t *rows;
  int64_t unit;
  int i;

  PetscFunctionBegin;
  PetscCall(find_part(c, part, &i, &unit));
  s = &c->changes->shard[i];
  rows = (const int64_t *)set_of(c, i)->rows.data + set_of(c, i)->at[unit] + first;
  switch (c->tensor) {
  case TRS_CHANGES_WEIGHT: {
    const TrsTbeTable *tbe = &c->changes->shards->shard[i].tbe;
    const TrsStatePart weight = {.data = tbe->weight, .cols = tbe->dim, .stride = tbe->stride};

    PetscCall(copy_rows(&weight, tbe->dtype, table->dtype, n, rows, (char *)to));
    break;
  }
  case TRS_CHANGES_COPIED: {
    const TrsChangesCopied *copied = (const TrsChangesCopied *)context;

    PetscCall(copy_rows(&copied->source[i], copied->dtype, copied->dtype, n, rows, (char *)to));
    break;
  }
  case TRS_CHANGES_LOST:
    memcpy(to, (const int64_t *)s->lost.data + s->lost_at[unit] + first, (size_t)n * sizeof(int64_t));
    break;
  case TRS_CHANGES_USED: {
    const TrsDirectory *d = TrsDirectoryOf(c->changes->shards, i);

    *(int64_t *)to = d->ops->in_use(d->bucket[unit]);
    break;
  }
  default: give_numbers(c, i, n, rows, to);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* TrsStateGive for the tensor of checkpoints. Its last part is the row that fill_last() fills. */
static PetscErrorCode give_open(void *context, int part, int64_t first, int64_t n, void *to)
{
  const TrsChangesContext *c = (const TrsChangesContext *)context;
  int64_t n_parts = 0;

  PetscFunctionBegin;
  for (int i = 0; i < c->changes->shards->n; i++)
    if (has_parts(c, i)) n_parts += c->changes->shard[i].n_units;
  if (part < n_parts)
    PetscCall(give_rows(context, part, first, n, to));
  else
    fill_last(&c->changes->shards->tables->table[c->table], (int64_t *)to);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* TrsStateTake: keep all rows of the file. */
static PetscErrorCode take_rows(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                const void *rows)
{
  const TrsChangesContext *c = (const TrsChangesContext *)context;
  TrsChangesTable *table = &c->changes->table[c->table];
  const int64_t row_bytes = open_columns(&c->changes->shards->tables->table[c->table]) *
                            (int64_t)sizeof(int64_t);

  PetscFunctionBegin;
  (void)part;
  (void)dtype;
  (void)first;
  PetscCall(TrsBufferReserve(&table->read, (table->n_read + n) * row_bytes, PETSC_TRUE));
  memcpy((char *)table->read.data + table->n_read * row_bytes, rows, (size_t)(n * row_bytes));
  table->n_read += n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void add_attribute(TrsStateTensor *tensor, const char *name, int64_t number)
{
  tensor->attribute[tensor->n_attributes++] = (TrsStateAttribute){.name = name, .number = number};
}

/* Add a tensor with the parts of this rank's shards. */
static PetscErrorCode add_tensor(TrsChangesContext *c, TrsDType dtype, int64_t cols, TrsState *state,
                                 TrsStateTensor **added)
{
  const TrsEmbeddingShards *shards = c->changes->shards;
  const TrsTableConfig *config = &shards->tables->table[c->table];
  char path[PETSC_MAX_PATH_LEN];
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(path, sizeof(path), "embedding/%s/%s", config->name, names[c->tensor]));
  PetscCall(TrsStateAdd(state, path, dtype, cols ? 2 : 1, 0, cols ? cols : 1, added));
  tensor = *added;
  if (c->tensor == TRS_CHANGES_ROWS || c->tensor == TRS_CHANGES_SINCE_FILE) {
    add_attribute(tensor, "num_embeddings", config->num_embeddings);
    if (TrsTableKeepsIds(config)) add_attribute(tensor, "buckets", TrsTableBuckets(config));
  }
  tensor->count = count_rows;
  tensor->give = give_rows;
  tensor->n_units = c->changes->table[c->table].n_units;
  tensor->list_context = tensor->give_context = tensor->take_context = c;
  for (int i = 0; i < shards->n; i++) {
    const TrsEmbeddingShard *shard = &shards->shard[i];
    const PetscBool cut = (PetscBool)!is_of_first_columns(c->tensor);

    if (!has_parts(c, i)) continue;
    if (shard->whole) tensor->replicated = PETSC_TRUE;
    for (int64_t u = 0; u < c->changes->shard[i].n_units; u++) {
      PetscCall(TrsStateAddPart(tensor, 0, cut ? shard->tbe.col_offset : 0, 0,
                                cut ? shard->tbe.dim : tensor->cols, NULL, tensor->cols));
      tensor->part[tensor->n_parts - 1].unit = c->changes->shard[i].first_unit + u;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_open(TrsChanges changes, int t, TrsState *state)
{
  const TrsTableConfig *config = &changes->shards->tables->table[t];
  TrsChangesContext *c = &changes->table[t].context[TRS_CHANGES_OPEN];
  const int64_t columns = open_columns(config);
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(add_tensor(c, TRS_INT64, columns > 1 ? columns : 0, state, &tensor));
  tensor->optional = PETSC_TRUE;
  tensor->give = give_open;
  tensor->take = take_rows;
  tensor->n_units++;
  PetscCall(TrsStateAddPart(tensor, 0, 0, 0, columns, NULL, columns));
  tensor->part[tensor->n_parts - 1].unit = tensor->n_units - 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsChangesAddState(TrsChanges changes, TrsState *state)
{
  PetscFunctionBegin;
  for (int t = 0; t < changes->shards->tables->n; t++) PetscCall(add_open(changes, t, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsChangesIsTensor(const TrsStateTensor *tensor)
{
  return (PetscBool)(tensor->take == take_rows);
}

/* Add the numbers of the changed rows. */
static PetscErrorCode add_numbers(TrsChangesContext *c, TrsState *state)
{
  const TrsTableConfig *config = &c->changes->shards->tables->table[c->table];
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(add_tensor(c, config->num_embeddings <= INT32_MAX ? TRS_INT32 : TRS_INT64, 0, state, &tensor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_delta(TrsChanges changes, int t, TrsDType dtype, TrsState *state)
{
  const TrsTableConfig *config = &changes->shards->tables->table[t];
  const TrsDType type = dtype == TRS_N_DTYPES ? config->data_type : dtype;
  TrsChangesContext *c = changes->table[t].context;
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(add_numbers(&c[TRS_CHANGES_ROWS], state));
  if (TrsTableKeepsIds(config)) {
    PetscCall(add_tensor(&c[TRS_CHANGES_IDS], TRS_INT64, 0, state, &tensor));
    PetscCall(add_tensor(&c[TRS_CHANGES_HELD], TRS_UINT8, 0, state, &tensor));
    PetscCall(add_tensor(&c[TRS_CHANGES_LOST], TRS_INT64, 0, state, &tensor));
  }
  if (config->id_map.kind == TRS_ID_MAP_DYNAMIC)
    PetscCall(add_tensor(&c[TRS_CHANGES_USED], TRS_INT64, 0, state, &tensor));
  changes->table[t].dtype = type;
  PetscCall(add_tensor(&c[TRS_CHANGES_WEIGHT], type, config->embedding_dim, state, &tensor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsChangesAddDelta(TrsChanges changes, TrsDType dtype, TrsState *state)
{
  PetscFunctionBegin;
  for (int t = 0; t < changes->shards->tables->n; t++) PetscCall(add_delta(changes, t, dtype, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- incremental checkpoints --- */

/* Create the context of a tensor `from` of a checkpoint, whose changed rows are copied. */
static PetscErrorCode create_copied(TrsChanges changes, int t, const TrsStateTensor *from,
                                    TrsChangesCopied **copied)
{
  const TrsEmbeddingShards *shards = changes->shards;
  const int64_t unit = from->count ? TrsTableRowUnit(&shards->tables->table[t]) : 0;
  int64_t part = 0;

  PetscFunctionBegin;
  PetscCall(PetscCalloc(sizeof(**copied) + (size_t)shards->n * sizeof(TrsStatePart), copied));
  PetscCall(PetscRealloc((size_t)(changes->n_copied + 1) * sizeof(*changes->copied), &changes->copied));
  changes->copied[changes->n_copied++] = *copied;
  (*copied)->context = (TrsChangesContext){changes, t, TRS_CHANGES_COPIED};
  (*copied)->dtype = from->dtype;
  for (int i = 0; i < shards->n; i++) {
    const TrsEmbeddingShard *shard = &shards->shard[i];

    if (shard->table != t || shard->tbe.rows == 0) continue;
    (*copied)->source[i] = from->part[part];
    part += unit ? (shard->tbe.rows + unit - 1) / unit : 1;
  }
  PetscCheck(part == from->n_parts, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s has %d parts, expected %" PRId64,
             from->path, from->n_parts, part);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the changed rows of a tensor `from` of a checkpoint, the weights or a state of table t. */
static PetscErrorCode add_copied(TrsChanges changes, int t, const TrsStateTensor *from, TrsState *state)
{
  TrsStateTensor *tensor;
  TrsChangesCopied *copied;

  PetscFunctionBegin;
  PetscCall(create_copied(changes, t, from, &copied));
  PetscCall(TrsStateCopy(from, state, &tensor));
  tensor->rows = 0;
  tensor->n_parts = 0;
  tensor->find = NULL;
  tensor->count = count_rows;
  tensor->give = give_rows;
  tensor->n_units = changes->table[t].n_units;
  tensor->list_context = tensor->give_context = copied;
  for (int i = 0; i < changes->shards->n; i++) {
    const TrsStatePart *source = &copied->source[i];

    if (!has_parts(&copied->context, i)) continue;
    for (int64_t u = 0; u < changes->shard[i].n_units; u++) {
      PetscCall(TrsStateAddPart(tensor, 0, source->col_offset, 0, source->cols, NULL, source->cols));
      tensor->part[tensor->n_parts - 1].copy = source->copy;
      tensor->part[tensor->n_parts - 1].unit = changes->shard[i].first_unit + u;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsChangesAddIncrement(TrsChanges changes, const TrsState *full, TrsState *state)
{
  const TrsTableConfigs *tables = changes->shards->tables;
  int last = -1;

  PetscFunctionBegin;
  state->memory = full->memory;
  for (int k = 0; k < full->n; k++) {
    const TrsStateTensor *from = &full->tensor[k];
    TrsStateTensor *tensor;
    int t = 0;

    while (from->rows_of && strcmp(tables->table[t].name, from->rows_of) != 0) t++;
    if (!from->rows_of) {
      PetscCall(TrsStateCopy(from, state, &tensor));
      continue;
    }
    if (t != last) PetscCall(add_numbers(&changes->table[t].context[TRS_CHANGES_SINCE_FILE], state));
    last = t;
    PetscCall(add_copied(changes, t, from, state));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
