/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/atomic_file.h"
#include "io/result_items.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

PetscErrorCode TrsResultsCreate(MPI_Comm comm, const char *path, TrsResults *results)
{
  TrsResults r;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(1, &r));
  r->comm = comm;
  r->spill.fd = -1;
  PetscCallMPI(MPI_Comm_rank(comm, &r->rank));
  PetscCallMPI(MPI_Comm_size(comm, &r->size));
  if (path) {
    PetscErrorCode ierr = TrsAgree(comm, r->rank == 0 ? TrsAtomicTry(path) : PETSC_SUCCESS);

    if (ierr != PETSC_SUCCESS) PetscCall(PetscFree(r));
    PetscCall(ierr);
    PetscCall(PetscStrallocpy(path, &r->path));
    r->spill.beside = r->path;
  }
  *results = r;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- items --- */

int64_t TrsItemRows(const TrsItem *it)
{
  return it->kind == TRS_ITEM_REAL || it->kind == TRS_ITEM_INT ? it->column.rows : it->rows;
}

static PetscBool is_column(const TrsItem *it)
{
  return (PetscBool)(it->kind == TRS_ITEM_REAL || it->kind == TRS_ITEM_INT || it->kind == TRS_ITEM_TEXT);
}

static PetscErrorCode drop_text(TrsItem *it)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(it->text[it->rows - 1]));
  it->rows--;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode clear_item(TrsItem *it)
{
  PetscFunctionBegin;
  while (it->text && it->rows) PetscCall(drop_text(it));
  TrsColumnClear(&it->column);
  it->rows = it->n_bytes = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_item(TrsItem *it)
{
  PetscFunctionBegin;
  PetscCall(clear_item(it));
  PetscCall(PetscFree(it->name));
  PetscCall(PetscFree(it->text));
  PetscCall(TrsColumnFree(&it->column));
  PetscCall(TrsBufferFree(&it->data));
  TrsSpillClose(&it->file);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsDestroy(TrsResults *results)
{
  TrsResults r = *results;

  PetscFunctionBegin;
  if (!r) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < r->n; i++) PetscCall(free_item(&r->items[i]));
  for (int g = 0; g < r->n_loaded; g++) PetscCall(PetscFree(r->loaded[g].prefix));
  TrsSpillClose(&r->spill);
  PetscCall(TrsBufferFree(&r->gathered));
  PetscCall(PetscFree(r->items));
  PetscCall(PetscFree(r->loaded));
  PetscCall(PetscFree(r->path));
  PetscCall(PetscFree(*results));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsSetOutput(TrsResults results, TrsOutput *output)
{
  PetscFunctionBegin;
  results->output = output;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool collects(TrsResults results)
{
  return results->path && results->rank == 0 ? PETSC_TRUE : PETSC_FALSE;
}

/* Find the item of this name, or NULL. */
static TrsItem *item_named(TrsResults results, const char *name)
{
  for (int i = 0; i < results->n; i++)
    if (strcmp(results->items[i].name, name) == 0) return &results->items[i];
  return NULL;
}

/* Find the item of this name, or add it. */
static PetscErrorCode find_item(TrsResults results, const char *name, TrsItemKind kind, TrsItem **found)
{
  PetscFunctionBegin;
  *found = item_named(results, name);
  if (!*found) {
    if (results->n == results->capacity) {
      results->capacity = results->capacity ? 2 * results->capacity : 16;
      PetscCall(PetscRealloc((size_t)results->capacity * sizeof(*results->items), &results->items));
    }
    *found = &results->items[results->n++];
    memset(*found, 0, sizeof(**found));
    PetscCall(PetscStrallocpy(name, &(*found)->name));
    (*found)->kind = kind;
    (*found)->file.fd = -1;
  }
  PetscCheck((*found)->kind == kind, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "result %s changes its type", name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- rows --- */

PetscErrorCode TrsResultsForget(TrsResults results, const char *prefix)
{
  PetscFunctionBegin;
  for (int i = 0; i < results->n; i++)
    if (strncmp(results->items[i].name, prefix, strlen(prefix)) == 0)
      PetscCall(clear_item(&results->items[i]));
  for (int g = 0; g < results->n_loaded; g++)
    if (strcmp(results->loaded[g].prefix, prefix) == 0) results->loaded[g].rows = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsDropLast(TrsResults results, const char *group, const char *key, int64_t value)
{
  const TrsItem *keys = item_named(results, key);
  const int64_t *last = keys ? (const int64_t *)TrsColumnLast(&keys->column) : NULL;
  const int64_t rows = keys ? TrsItemRows(keys) : 0;

  PetscFunctionBegin;
  if (!last || *last < value) PetscFunctionReturn(PETSC_SUCCESS);
  for (int g = 0; g < results->n_loaded; g++)
    if (strcmp(results->loaded[g].prefix, group) == 0)
      results->loaded[g].rows = PetscMin(results->loaded[g].rows, rows - 1);
  for (int i = 0; i < results->n; i++) {
    TrsItem *it = &results->items[i];

    if (!is_column(it) || strncmp(it->name, group, strlen(group)) != 0 || TrsItemRows(it) < rows) continue;
    if (it->kind == TRS_ITEM_TEXT)
      PetscCall(drop_text(it));
    else
      (void)TrsColumnDropLast(&it->column);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsResultsRows(TrsResults results, const char *path)
{
  const TrsItem *it = item_named(results, path);

  return it ? TrsItemRows(it) : 0;
}

int64_t TrsResultsLastInt(TrsResults results, const char *path, int64_t otherwise)
{
  const TrsItem *it = item_named(results, path);
  const int64_t *last = it ? (const int64_t *)TrsColumnLast(&it->column) : NULL;

  return last ? *last : otherwise;
}

const char *TrsResultsLastText(TrsResults results, const char *path)
{
  const TrsItem *it = item_named(results, path);
  int64_t row = it ? it->rows - 1 : -1;

  while (row >= 0 && !it->text[row][0]) row--;
  return row >= 0 ? it->text[row] : "";
}

static PetscErrorCode append_one(TrsResults results, TrsItem *it, const void *value)
{
  PetscFunctionBegin;
  if (it->kind != TRS_ITEM_TEXT) {
    PetscCall(TrsColumnAppend(&it->column, &results->spill, value));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscRealloc((size_t)(it->rows + 1) * sizeof(*it->text), &it->text));
  PetscCall(PetscStrallocpy((const char *)value, &it->text[it->rows]));
  it->rows++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Append empty rows until the item has the given number of rows. */
static PetscErrorCode pad(TrsResults results, TrsItem *it, int64_t rows)
{
  double nan[TRS_COLUMN_BLOCK_ROWS];
  const int64_t zero = 0;
  const void *value = "";

  PetscFunctionBegin;
  if (it->kind == TRS_ITEM_REAL) {
    for (int64_t i = 0; i < PetscMax(it->cols, 1); i++) nan[i] = (double)NAN;
    value = nan;
  }
  if (it->kind == TRS_ITEM_INT) value = &zero;
  while (TrsItemRows(it) < rows) PetscCall(append_one(results, it, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the width of a column to `cols` numbers per row. Rows that had another width become NaN. */
static PetscErrorCode set_width(TrsResults results, TrsItem *it, int64_t cols)
{
  const int64_t rows = TrsItemRows(it);

  PetscFunctionBegin;
  if (it->cols == cols) PetscFunctionReturn(PETSC_SUCCESS);
  TrsColumnClear(&it->column);
  it->cols = cols;
  it->column.width = (int)cols;
  PetscCall(pad(results, it, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAppendAny(TrsResults results, const char *path, TrsItemKind kind, int64_t cols,
                                   const void *value)
{
  TrsItem *it;

  PetscFunctionBegin;
  if (!collects(results)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(find_item(results, path, kind, &it));
  PetscCall(set_width(results, it, cols));
  for (int g = 0; g < results->n_loaded && TrsItemRows(it) == 0; g++)
    if (strncmp(path, results->loaded[g].prefix, strlen(results->loaded[g].prefix)) == 0)
      PetscCall(pad(results, it, results->loaded[g].rows));
  PetscCall(append_one(results, it, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAppend(TrsResults results, const char *path, double value)
{
  PetscFunctionBegin;
  PetscCall(TrsResultsAppendAny(results, path, TRS_ITEM_REAL, 0, &value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAppendInt(TrsResults results, const char *path, int64_t value)
{
  PetscFunctionBegin;
  PetscCall(TrsResultsAppendAny(results, path, TRS_ITEM_INT, 0, &value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAppendText(TrsResults results, const char *path, const char *text)
{
  PetscFunctionBegin;
  PetscCall(TrsResultsAppendAny(results, path, TRS_ITEM_TEXT, 0, text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAppendRow(TrsResults results, const char *path, int n, const double *values)
{
  PetscFunctionBegin;
  PetscCheck(n >= 1 && n <= TRS_COLUMN_BLOCK_ROWS, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "result %s has rows of %d numbers", path, n);
  PetscCall(TrsResultsAppendAny(results, path, TRS_ITEM_REAL, n, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- arrays and attributes --- */

static PetscErrorCode replace(TrsResults results, const char *name, TrsItemKind kind, int64_t rows,
                              int64_t cols, const void *data, int64_t n_bytes)
{
  TrsItem *it;

  PetscFunctionBegin;
  if (!collects(results)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(find_item(results, name, kind, &it));
  PetscCall(TrsBufferReserve(&it->data, n_bytes, PETSC_FALSE));
  if (n_bytes) memcpy(it->data.data, data, (size_t)n_bytes);
  it->n_bytes = n_bytes;
  it->rows = rows;
  it->cols = cols;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsSetText(TrsResults results, const char *name, const char *text)
{
  PetscFunctionBegin;
  PetscCall(replace(results, name, TRS_ITEM_ATTRIBUTE_TEXT, 0, 0, text, (int64_t)strlen(text) + 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsSetInt(TrsResults results, const char *name, int64_t value)
{
  PetscFunctionBegin;
  PetscCall(replace(results, name, TRS_ITEM_ATTRIBUTE_INT, 0, 0, &value, (int64_t)sizeof(value)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsSetArray(TrsResults results, const char *path, int64_t rows, int64_t cols,
                                  const double *values)
{
  PetscFunctionBegin;
  PetscCall(replace(results, path, TRS_ITEM_ARRAY_REAL, rows, cols, values,
                    rows * (cols ? cols : 1) * (int64_t)sizeof(*values)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An array with one number per sample, float32 or int64. */
typedef struct {
  const char *path;
  TrsItemKind kind;
  int bytes; /* bytes of one number */
  int64_t n_total;
} TrsSampleArray;

/* Find the array on rank 0. If it is new, fill it with the value for missing samples: NaN or 0. */
static PetscErrorCode find_array(TrsResults results, const TrsSampleArray *array, TrsItem **found)
{
  PetscFunctionBegin;
  PetscCall(find_item(results, array->path, array->kind, found));
  if ((*found)->rows == array->n_total) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsBufferReserve(&(*found)->data, array->n_total * array->bytes, PETSC_FALSE));
  (*found)->rows = array->n_total;
  (*found)->n_bytes = array->n_total * array->bytes;
  memset((*found)->data.data, 0, (size_t)(*found)->n_bytes);
  if (array->kind == TRS_ITEM_ARRAY_FLOAT) {
    float *to = (*found)->data.data;

    for (int64_t i = 0; i < array->n_total; i++) to[i] = NAN;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On rank 0, copy every rank's values to the indices of their samples. */
static PetscErrorCode place_samples(TrsResults results, const TrsSampleArray *array, const int64_t *range)
{
  const char *from = results->gathered.data;
  TrsItem *it;

  PetscFunctionBegin;
  PetscCall(find_array(results, array, &it));
  for (int r = 0; r < results->size; r++) {
    const int64_t first = range[2 * (size_t)r], n = range[2 * (size_t)r + 1];

    PetscCheck(first >= 0 && n >= 0 && n <= array->n_total - first, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "samples %" PRId64 " .. +%" PRId64 " of %" PRId64 " in /%s", first, n, array->n_total,
               array->path);
    if (n) memcpy((char *)it->data.data + first * array->bytes, from, (size_t)(n * array->bytes));
    from += n * array->bytes;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Gather every rank's rows of `row_bytes` on rank 0, rank after rank. Collective.
  Out: range  on rank 0, [2 size]: first sample and number of rows of each rank. Free it with
              PetscFree()
*/
static PetscErrorCode gather_rows(TrsResults results, int64_t first, int64_t n, int row_bytes,
                                  const void *values, int64_t **range)
{
  int64_t mine[2] = {first, n}, total = 0;
  int *counts = NULL, *places = NULL;
  MPI_Datatype row;

  PetscFunctionBegin;
  *range = NULL;
  if (results->rank == 0) {
    PetscCall(PetscMalloc1(2 * (size_t)results->size, range));
    PetscCall(PetscMalloc2((size_t)results->size, &counts, (size_t)results->size, &places));
  }
  PetscCallMPI(MPI_Gather(mine, 2, MPI_INT64_T, *range, 2, MPI_INT64_T, 0, results->comm));
  for (int r = 0; counts && r < results->size; r++) {
    PetscCheck(total + (*range)[2 * r + 1] <= INT_MAX, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "a step makes too many predictions");
    counts[r] = (int)(*range)[2 * r + 1];
    places[r] = (int)total;
    total += counts[r];
  }
  PetscCall(TrsBufferReserve(&results->gathered, total * row_bytes, PETSC_FALSE));
  PetscCallMPI(MPI_Type_contiguous(row_bytes, MPI_BYTE, &row));
  PetscCallMPI(MPI_Type_commit(&row));
  PetscCallMPI(
      MPI_Gatherv(values, (int)n, row, results->gathered.data, counts, places, row, 0, results->comm));
  PetscCallMPI(MPI_Type_free(&row));
  if (counts) PetscCall(PetscFree2(counts, places));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add this rank's part of an array. Collective. */
static PetscErrorCode add_samples(TrsResults results, const TrsSampleArray *array, int64_t first, int64_t n,
                                  const void *values)
{
  int64_t *range;

  PetscFunctionBegin;
  if (!results->path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(gather_rows(results, first, n, array->bytes, values, &range));
  if (results->rank == 0) PetscCall(place_samples(results, array, range));
  PetscCall(PetscFree(range));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAddPredictions(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                        int64_t n, const float *values)
{
  const TrsSampleArray array = {path, TRS_ITEM_ARRAY_FLOAT, (int)sizeof(*values), n_total};

  PetscFunctionBegin;
  PetscCall(add_samples(results, &array, first, n, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAddSampleInts(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                       int64_t n, const int64_t *values)
{
  const TrsSampleArray array = {path, TRS_ITEM_ARRAY_INT, (int)sizeof(*values), n_total};

  PetscFunctionBegin;
  PetscCall(add_samples(results, &array, first, n, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On rank 0, write every rank's rows to the array's file, at the indices of their samples. */
static PetscErrorCode place_rows(TrsResults results, const TrsSampleArray *array, int cols,
                                 const int64_t *range)
{
  const int64_t row_bytes = cols * (int64_t)array->bytes, n_total = array->n_total;
  const char *path = array->path;
  const char *from = results->gathered.data;
  TrsItem *it;

  PetscFunctionBegin;
  PetscCall(find_item(results, path, array->kind, &it));
  it->rows = n_total;
  it->cols = cols;
  it->file_row_bytes = row_bytes;
  it->file.beside = results->path;
  PetscCheck(TrsSpillOpen(&it->file), PETSC_COMM_SELF, TRS_ERR_CANT_CREATE,
             "no temporary file for /%s can be created in the folder of %s", path, results->path);
  for (int r = 0; r < results->size; r++) {
    const int64_t first = range[2 * (size_t)r], bytes = range[2 * (size_t)r + 1] * row_bytes;
    int error;

    PetscCheck(first >= 0 && range[2 * (size_t)r + 1] <= n_total - first, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "rows from %" PRId64 " on of %" PRId64, first, n_total);
    error = bytes ? TrsWriteFully(it->file.fd, from, bytes, first * row_bytes) : 0;
    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: rows of /%s cannot be written: %s", results->path,
               path, strerror(error));
    from += bytes;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_rows(TrsResults results, const TrsSampleArray *array, int64_t first, int64_t n,
                               int cols, const void *values)
{
  PetscErrorCode ierr = PETSC_SUCCESS;
  int64_t *range;

  PetscFunctionBegin;
  if (!results->path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(gather_rows(results, first, n, cols * array->bytes, values, &range));
  if (results->rank == 0) ierr = place_rows(results, array, cols, range);
  PetscCall(PetscFree(range));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAddRows(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                 int64_t n, int cols, const float *values)
{
  const TrsSampleArray array = {path, TRS_ITEM_ARRAY_FLOAT, (int)sizeof(*values), n_total};

  PetscFunctionBegin;
  PetscCall(add_rows(results, &array, first, n, cols, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAddIntRows(TrsResults results, const char *path, int64_t n_total, int64_t first,
                                    int64_t n, int cols, const int64_t *values)
{
  const TrsSampleArray array = {path, TRS_ITEM_ARRAY_INT, (int)sizeof(*values), n_total};

  PetscFunctionBegin;
  PetscCall(add_rows(results, &array, first, n, cols, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- contents of the file --- */

int64_t TrsResultsBytes(TrsResults results)
{
  int64_t bytes = 0;

  for (int i = 0; i < results->n; i++) {
    const TrsItem *it = &results->items[i];

    bytes += it->n_bytes + TrsColumnRowBytes(&it->column) * it->column.rows;
    if (it->file.fd >= 0) bytes += it->rows * it->file_row_bytes;
  }
  return bytes;
}

/*
  Some columns of an earlier part of the run may get no more rows. Extend them to the number of rows
  of their group.
*/
PetscErrorCode TrsResultsEven(TrsResults results)
{
  PetscFunctionBegin;
  for (int g = 0; g < results->n_loaded; g++) {
    const char *prefix = results->loaded[g].prefix;
    int64_t rows = 0;

    for (int i = 0; i < results->n; i++)
      if (is_column(&results->items[i]) && strncmp(results->items[i].name, prefix, strlen(prefix)) == 0)
        rows = PetscMax(rows, TrsItemRows(&results->items[i]));
    for (int i = 0; i < results->n; i++)
      if (is_column(&results->items[i]) && strncmp(results->items[i].name, prefix, strlen(prefix)) == 0)
        PetscCall(pad(results, &results->items[i], rows));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
