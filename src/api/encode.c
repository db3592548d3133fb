/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/encode.h"

#include "api/encode_value.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The memory of TrshardEncoded, whose pointers point to these arrays. */
typedef struct {
  TrshardEncoded encoded; /* the first member, which has the same address */
  int32_t *lengths;
  int64_t *values;
  float *weights, *dense;
  size_t most_lengths, most_values, most_weights, most_dense; /* capacities */
} TrsEncodedMemory;

/* The call of TrsEncode() that is under way. */
typedef struct {
  const TrsEncodeRules *rules;
  int64_t rows;
  const TrshardColumn *columns;
  TrsEncodedMemory *to;
  int64_t n_values; /* number of ids so far */
} TrsEncoding;

/* The values of a row in a column, as the caller passed them. */
typedef struct {
  TrsEncodePlace at;
  PetscBool is_list;
  PetscBool is_absent; /* the rows lack the column; the value is the mapping's */
  int64_t n;
  const TrshardValue *values;
} TrsCell;

/* The values of a cell, one after the other. */
typedef struct {
  PetscBool in_bag;
  int64_t n; /* number of values that are left, including all pieces of the text */
  const TrshardValue *values;
  const char *text, *end; /* the part of a text that is not yet split; NULL without a text */
  char separator;
} TrsPieces;

/* --- rules --- */

/*
  Return the place of a column in the list. The first use of a column adds it, and determines the
  kind of values that it must have.
*/
static int add_column(TrsEncodeRules *rules, const TrsMappingEntry *entry, const char *name,
                      TrshardWanted wants)
{
  TrshardColumnInfo *info;
  int i = 0;

  while (i < rules->n_columns && strcmp(rules->column[i].name, name) != 0) i++;
  if (i < rules->n_columns) return i;
  info = &rules->column[rules->n_columns++];
  *info = (TrshardColumnInfo){
      .name = name, .wants = wants, .unit = entry->unit, .width = entry->width, .is_bag = entry->bag ? 1 : 0};
  for (int k = 0; k < rules->entries.n_absent; k++) {
    const char *word = rules->entries.absent[k].value;

    if (strcmp(rules->entries.absent[k].column, name) != 0) continue;
    info->may_lack = 1;
    if (word)
      rules->absent[i] = (TrshardValue){
          .kind = TRSHARD_TEXT, .n_bytes = (int64_t)strlen(word), .as.text = word};
  }
  return i;
}

/* Build the index of a vocabulary. If a word is in the vocabulary twice, its first place counts. */
static PetscErrorCode index_keys(const TrsMappingEntry *entry, TrsRowIndex *index)
{
  PetscFunctionBegin;
  PetscCheck(entry->n_keys < INT32_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
             "feature \"%.100s\" has a vocabulary of %" PRId64 " words, expected less than 2^31", entry->name,
             entry->n_keys);
  PetscCall(TrsRowIndexCreate(PetscMax(entry->n_keys, 1), entry->keys, sizeof(int64_t), index));
  for (int64_t i = 0; i < entry->n_keys; i++) {
    int64_t found;

    TrsRowIndexFind(index, 1, &entry->keys[i], &found);
    if (found < 0) PetscCall(TrsRowIndexInsert(index, i));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEncodeRulesPrepare(TrsEncodeRules *rules)
{
  static const TrshardWanted wants[] = {TRSHARD_WANTS_INTEGERS, TRSHARD_WANTS_TEXT, TRSHARD_WANTS_ANY};
  const TrsMappingEntries *entries = &rules->entries;
  const size_t n_dense = (size_t)entries->n_dense, n_sparse = (size_t)entries->n_sparse,
               most = n_dense + 2 * n_sparse;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(n_dense, &rules->dense));
  PetscCall(PetscCalloc1(n_sparse, &rules->sparse));
  PetscCall(PetscCalloc1(n_sparse, &rules->index));
  PetscCall(PetscCalloc1(most, &rules->column));
  PetscCall(PetscCalloc1(most, &rules->absent));
  for (int d = 0; d < entries->n_dense; d++) {
    const TrsMappingEntry *entry = &entries->dense[d];

    rules->dense[d] = (TrsEncodeColumns){add_column(rules, entry, entry->column, TRSHARD_WANTS_NUMBERS), -1};
  }
  for (int f = 0; f < entries->n_sparse; f++) {
    const TrsMappingEntry *entry = &entries->sparse[f];

    rules->sparse[f] = (TrsEncodeColumns){add_column(rules, entry, entry->column, wants[entry->kind]), -1};
    if (entry->weights)
      rules->sparse[f].weights = add_column(rules, entry, entry->weights, TRSHARD_WANTS_NUMBERS);
    rules->weighted = (PetscBool)(rules->weighted || entry->weights);
    if (entry->has_vocabulary) PetscCall(index_keys(entry, &rules->index[f]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEncodeRulesFree(TrsEncodeRules *rules)
{
  PetscFunctionBegin;
  for (int f = 0; rules->index && f < rules->entries.n_sparse; f++)
    PetscCall(TrsRowIndexDestroy(&rules->index[f]));
  PetscCall(PetscFree(rules->dense));
  PetscCall(PetscFree(rules->sparse));
  PetscCall(PetscFree(rules->index));
  PetscCall(PetscFree(rules->column));
  PetscCall(PetscFree(rules->absent));
  PetscCall(TrsMappingEntriesFree(&rules->entries));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the caller's rows --- */

/* True if the rows lack the column. */
static PetscBool is_absent(const TrshardColumn *column)
{
  return (PetscBool)(!column->values && !column->lengths && column->n_values == 0);
}

/* Check a column before its values are read. There must be rows. */
static PetscErrorCode check_column(const TrsEncoding *e, int i)
{
  const TrshardColumnInfo *info = &e->rules->column[i];
  const TrshardColumn *column = &e->columns[i];
  int64_t sum = 0;

  PetscFunctionBegin;
  PetscCheck(info->may_lack || !is_absent(column), PETSC_COMM_SELF, TRS_ERR_DATA,
             "the rows have no column %.100s", info->name);
  if (is_absent(column)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(column->n_values >= 0 && (column->values || column->n_values == 0), PETSC_COMM_SELF,
             TRS_ERR_DATA, "column %.100s: n_values is %" PRId64 ", and values is %s", info->name,
             column->n_values, column->values ? "given" : "NULL");
  for (int64_t r = 0; column->lengths && r < e->rows; r++) {
    PetscCheck(column->lengths[r] >= 0 && column->lengths[r] <= column->n_values - sum, PETSC_COMM_SELF,
               TRS_ERR_DATA,
               "row %" PRId64 ", column %.100s: a list of %" PRId32 " values, expected 0 to %" PRId64
               ", the values that are left",
               r, info->name, column->lengths[r], column->n_values - sum);
    sum += column->lengths[r];
  }
  if (!column->lengths) sum = e->rows;
  PetscCheck(sum == column->n_values, PETSC_COMM_SELF, TRS_ERR_DATA,
             "column %.100s has %" PRId64 " values, expected %" PRId64 " for %" PRId64 " rows", info->name,
             column->n_values, sum, e->rows);
  for (int64_t k = 0; k < column->n_values; k++)
    PetscCheck(
        column->values[k].kind != TRSHARD_TEXT ||
            (column->values[k].n_bytes >= 0 && (column->values[k].as.text || !column->values[k].n_bytes)),
        PETSC_COMM_SELF, TRS_ERR_DATA,
        "value %" PRId64 " of column %.100s is a text of %" PRId64 " bytes at NULL, or of negative size", k,
        info->name, column->values[k].n_bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Get the cell of a row. *first is the place of its first value, and becomes the next row's. */
static TrsCell cell_of(const TrsEncoding *e, int i, int64_t row, int64_t *first)
{
  const TrshardColumn *column = &e->columns[i];
  TrsCell cell = {.at = {row, e->rules->column[i].name}, .n = 1};

  if (is_absent(column)) {
    cell.values = &e->rules->absent[i];
    cell.is_absent = PETSC_TRUE;
    return cell;
  }
  cell.is_list = (PetscBool)(column->lengths != NULL);
  if (cell.is_list) cell.n = column->lengths[row];
  cell.values = column->values + *first;
  *first += cell.n;
  return cell;
}

/*
  Choose the value of a cell that has one value in each row, or `width` values. Returns NULL for an
  empty list of a dense feature.
*/
static PetscErrorCode choose_value(const TrsCell *cell, const TrsMappingEntry *entry, PetscBool may_be_empty,
                                   const TrshardValue **value)
{
  PetscFunctionBegin;
  /* the mapping's value of a column, or a missing value, stands for a whole list */
  if (!cell->is_list && (entry->width == 1 || cell->is_absent || cell->values->kind == TRSHARD_MISSING)) {
    *value = cell->values;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCheck((cell->is_list && cell->n == entry->width) || (may_be_empty && cell->n == 0), PETSC_COMM_SELF,
             TRS_ERR_DATA,
             "row %" PRId64 ", column %.100s: a %s of %" PRId64 " values, expected a list of %d",
             cell->at.row, cell->at.column, cell->is_list ? "list" : "cell", cell->n, entry->width);
  *value = cell->n ? cell->values + entry->place : NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- dense features --- */

static PetscErrorCode encode_dense(const TrsEncoding *e, const TrsMappingEntry *entry, const TrsCell *cell,
                                   float *to)
{
  const TrshardValue *value;
  double x = (double)NAN;

  PetscFunctionBegin;
  PetscCall(choose_value(cell, entry, PETSC_TRUE, &value));
  if (value && !TrsEncodeIsMissing(&e->rules->entries, value))
    PetscCall(TrsEncodeNumber(&cell->at, value, &x));
  PetscCheck(!isnan(x) || entry->missing_given, PETSC_COMM_SELF, TRS_ERR_DATA,
             "row %" PRId64 ", column %.100s: a missing value", cell->at.row, cell->at.column);
  if (isnan(x))
    *to = (float)entry->missing;
  else if (entry->log1p)
    *to = x > 0.0 ? (float)log1p(x) : 0.0F;
  else
    *to = (float)x;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode encode_dense_column(const TrsEncoding *e, int d)
{
  const int n = e->rules->entries.n_dense;
  int64_t first = 0;

  PetscFunctionBegin;
  for (int64_t row = 0; row < e->rows; row++) {
    const TrsCell cell = cell_of(e, e->rules->dense[d].values, row, &first);

    PetscCall(encode_dense(e, &e->rules->entries.dense[d], &cell, &e->to->dense[row * n + d]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- sparse features --- */

/* Begin to take the values of a cell: a list, the pieces of a text, or one value. */
static PetscErrorCode begin_pieces(const TrsEncoding *e, const TrsMappingEntry *entry, const TrsCell *cell,
                                   TrsPieces *p)
{
  const TrshardValue *value = cell->values;

  PetscFunctionBegin;
  *p = (TrsPieces){.n = cell->n, .values = value, .separator = entry->separator};
  p->in_bag = (PetscBool)(entry->bag || (cell->is_list && entry->width == 1));
  if (!p->in_bag) {
    PetscCall(choose_value(cell, entry, PETSC_FALSE, &p->values));
    p->n = 1;
  } else if (!cell->is_list && TrsEncodeIsMissing(&e->rules->entries, value)) {
    p->n = 0;
  } else if (!cell->is_list && value->kind == TRSHARD_TEXT) {
    p->text = value->as.text;
    p->end = p->text + value->n_bytes;
    for (const char *at = p->text; at < p->end; at++) p->n += *at == p->separator;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Take the next value. There must be one. */
static TrshardValue next_piece(TrsPieces *p)
{
  const size_t left = p->text ? (size_t)(p->end - p->text) : 0;
  const char *begin = p->text, *end;

  p->n--;
  if (!begin) return *p->values++;
  end = left ? memchr(begin, p->separator, left) : NULL;
  if (!end) end = p->end;
  p->text = end + (end < p->end);
  return (TrshardValue){.kind = TRSHARD_TEXT, .n_bytes = end - begin, .as.text = begin};
}

/* Map an id that is not missing to a row, or to any integer if the feature has no rows. */
static PetscErrorCode map_id(const TrsEncoding *e, int f, const TrsEncodePlace *at, const TrsRawId *raw,
                             int64_t *id)
{
  const TrsMappingEntry *entry = &e->rules->entries.sparse[f];
  const PetscBool is_large = (PetscBool)(raw->is_large && !raw->is_hash);

  PetscFunctionBegin;
  *id = raw->bits;
  if (entry->has_vocabulary) {
    TrsRowIndexFind(&e->rules->index[f], 1, &raw->bits, id);
    (*id)++;
  } else if (entry->rows && (entry->modulo || raw->is_hash)) {
    if (is_large)
      *id = (int64_t)((uint64_t)raw->bits % (uint64_t)entry->rows);
    else
      *id = raw->bits % entry->rows + (raw->bits % entry->rows < 0 ? entry->rows : 0);
  } else if (entry->rows && (is_large || raw->bits < -1 || raw->bits >= entry->rows)) {
    const TrshardValue value = {.kind = is_large ? TRSHARD_UNSIGNED : TRSHARD_INTEGER,
                                .as.integer = raw->bits};

    if (!entry->unknown_given) PetscCall(TrsEncodeRefuse(at, &value, "is not a row of the feature"));
    *id = entry->unknown;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make sure that an array has space for n values. The capacity grows by half. */
static PetscErrorCode reserve(size_t n, size_t size, void *array, size_t *most)
{
  const size_t more = PetscMax(n, *most + *most / 2);
  void *grown;

  PetscFunctionBegin;
  if (n <= *most) PetscFunctionReturn(PETSC_SUCCESS);
  grown = more < SIZE_MAX / size ? realloc(*(void **)array, more * size) : NULL;
  PetscCheck(grown, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory: %zu values", more);
  *(void **)array = grown;
  *most = more;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add an id, whose raw value may be missing. `weight` is NULL if the feature has no weights. */
static PetscErrorCode add_id(TrsEncoding *e, int f, const TrsCell *cell, PetscBool in_bag,
                             const TrshardValue *value, const TrshardValue *weight)
{
  const TrsMappingEntry *entry = &e->rules->entries.sparse[f];
  const TrsMappingEntries *entries = &e->rules->entries;
  const PetscBool missing = TrsEncodeIsMissing(entries, value);
  const TrsEncodePlace of_weight = {cell->at.row, entry->weights};
  const size_t n = (size_t)e->n_values;
  double number = (double)NAN;
  TrsRawId raw;
  int64_t id = entry->missing_id;

  PetscFunctionBegin;
  if (weight && !TrsEncodeIsMissing(entries, weight)) PetscCall(TrsEncodeNumber(&of_weight, weight, &number));
  if (!missing) {
    PetscCall(TrsEncodeRawId(&cell->at, entry, value, &raw));
    PetscCall(map_id(e, f, &cell->at, &raw, &id));
    if (weight && isnan(number)) PetscCall(TrsEncodeRefuse(&of_weight, weight, "is no weight of an id"));
  } else if (in_bag || !entry->missing_given) {
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(reserve(n + 1, sizeof(int64_t), &e->to->values, &e->to->most_values));
  if (e->rules->weighted) PetscCall(reserve(n + 1, sizeof(float), &e->to->weights, &e->to->most_weights));
  e->to->values[n] = id;
  if (e->rules->weighted) e->to->weights[n] = isnan(number) ? 1.0F : (float)number;
  e->n_values++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode encode_cell(TrsEncoding *e, int f, const TrsCell *cell, const TrsCell *weights)
{
  const TrsMappingEntry *entry = &e->rules->entries.sparse[f];
  TrsPieces ids, of_weights = {.n = 0};

  PetscFunctionBegin;
  PetscCall(begin_pieces(e, entry, cell, &ids));
  if (weights) PetscCall(begin_pieces(e, entry, weights, &of_weights));
  /* a missing cell has no ids, so the weight in its row does not matter */
  if (ids.n == 0 && !cell->is_list && cell->values->kind != TRSHARD_TEXT && of_weights.n <= 1)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(!weights || ids.n == of_weights.n, PETSC_COMM_SELF, TRS_ERR_DATA,
             "row %" PRId64 ": the columns %.100s and %.100s have bags of different lengths, %" PRId64
             " and %" PRId64,
             cell->at.row, entry->column, entry->weights, ids.n, of_weights.n);
  while (ids.n > 0) {
    const TrshardValue value = next_piece(&ids);
    const TrshardValue weight = weights ? next_piece(&of_weights) : value;

    PetscCall(add_id(e, f, cell, ids.in_bag, &value, weights ? &weight : NULL));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode encode_feature(TrsEncoding *e, int f)
{
  const TrsEncodeColumns *columns = &e->rules->sparse[f];
  int64_t first = 0, first_weight = 0;

  PetscFunctionBegin;
  for (int64_t row = 0; row < e->rows; row++) {
    const TrsCell cell = cell_of(e, columns->values, row, &first);
    const int64_t before = e->n_values;
    TrsCell weights;

    if (columns->weights >= 0) weights = cell_of(e, columns->weights, row, &first_weight);
    PetscCall(encode_cell(e, f, &cell, columns->weights >= 0 ? &weights : NULL));
    PetscCheck(e->n_values - before <= INT32_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
               "row %" PRId64 ", column %.100s: %" PRId64 " ids, expected less than 2^31", row,
               cell.at.column, e->n_values - before);
    e->to->lengths[f * e->rows + row] = (int32_t)(e->n_values - before);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- a call --- */

static PetscErrorCode encode_all(TrsEncoding *e)
{
  const int n_dense = e->rules->entries.n_dense, n_sparse = e->rules->entries.n_sparse;
  TrsEncodedMemory *to = e->to;

  PetscFunctionBegin;
  for (int i = 0; i < e->rules->n_columns; i++)
    if (e->rows > 0) PetscCall(check_column(e, i));
  PetscCall(reserve((size_t)e->rows * (size_t)n_dense, sizeof(float), &to->dense, &to->most_dense));
  PetscCall(reserve((size_t)e->rows * (size_t)n_sparse, sizeof(int32_t), &to->lengths, &to->most_lengths));
  if (e->rules->weighted) PetscCall(reserve(1, sizeof(float), &to->weights, &to->most_weights));
  for (int d = 0; d < n_dense; d++) PetscCall(encode_dense_column(e, d));
  for (int f = 0; f < n_sparse; f++) PetscCall(encode_feature(e, f));
  to->encoded = (TrshardEncoded){.ids = {.batch = e->rows,
                                         .lengths = to->lengths,
                                         .n_values = e->n_values,
                                         .values = to->values,
                                         .weights = e->rules->weighted ? to->weights : NULL},
                                 .num_dense = n_dense,
                                 .dense = n_dense ? to->dense : NULL};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEncode(const TrsEncodeRules *rules, int64_t rows, const TrshardColumn *columns,
                         TrshardEncoded **encoded)
{
  TrsEncoding e = {.rules = rules, .rows = rows, .columns = columns};

  PetscFunctionBegin;
  if (!*encoded) *encoded = calloc(1, sizeof(TrsEncodedMemory));
  PetscCheck(*encoded, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory");
  e.to = (TrsEncodedMemory *)*encoded;
  /* after an error, there are no rows */
  e.to->encoded = (TrshardEncoded){.num_dense = rules->entries.n_dense};
  PetscCall(encode_all(&e));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsEncodedFree(TrshardEncoded **encoded)
{
  TrsEncodedMemory *memory = encoded ? (TrsEncodedMemory *)*encoded : NULL;

  if (!memory) return;
  free(memory->lengths);
  free(memory->values);
  free(memory->weights);
  free(memory->dense);
  free(memory);
  *encoded = NULL;
}
