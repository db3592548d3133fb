/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/results.h"

#include "core/buffer.h"
#include "io/atomic_file.h"
#include "io/hdf5_util.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* A dataset, or a root attribute (text or integer). */
typedef enum {
  TRS_ITEM_REAL,
  TRS_ITEM_INT,
  TRS_ITEM_FLOAT,
  TRS_ITEM_ATTRIBUTE_TEXT,
  TRS_ITEM_ATTRIBUTE_INT
} TrsItemKind;

typedef struct {
  char *name;
  TrsItemKind kind;
  int64_t rows, cols; /* cols 0: one dimension */
  int64_t n_bytes;
  TrsBuffer data;
} TrsItem;

enum { TRS_MAX_EXPECTED_ROWS = 1 << 20 }; /* 8 MiB a column; longer ones grow now and then */

struct TrsResultsImpl {
  MPI_Comm comm;
  int rank, size;
  char *path; /* NULL: collect nothing */
  int64_t expected_rows;
  int n, capacity;
  TrsItem *items; /* [n] rank 0's */
  TrsBuffer gathered;
};

PetscErrorCode TrsResultsCreate(MPI_Comm comm, const char *path, TrsResults *results)
{
  TrsResults r;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(1, &r));
  r->comm = comm;
  PetscCallMPI(MPI_Comm_rank(comm, &r->rank));
  PetscCallMPI(MPI_Comm_size(comm, &r->size));
  if (path) {
    PetscErrorCode ierr = TrsAgree(comm, r->rank == 0 ? TrsAtomicTry(path) : PETSC_SUCCESS);

    if (ierr != PETSC_SUCCESS) PetscCall(PetscFree(r));
    PetscCall(ierr);
    PetscCall(PetscStrallocpy(path, &r->path));
  }
  *results = r;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsDestroy(TrsResults *results)
{
  TrsResults r = *results;

  PetscFunctionBegin;
  if (!r) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < r->n; i++) {
    PetscCall(PetscFree(r->items[i].name));
    PetscCall(TrsBufferFree(&r->items[i].data));
  }
  PetscCall(TrsBufferFree(&r->gathered));
  PetscCall(PetscFree(r->items));
  PetscCall(PetscFree(r->path));
  PetscCall(PetscFree(*results));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool collects(TrsResults results)
{
  return results->path && results->rank == 0 ? PETSC_TRUE : PETSC_FALSE;
}

/* The item of that name, made if it is new. */
static PetscErrorCode find_item(TrsResults results, const char *name, TrsItemKind kind, TrsItem **found)
{
  PetscFunctionBegin;
  *found = NULL;
  for (int i = 0; i < results->n && !*found; i++) {
    if (strcmp(results->items[i].name, name) == 0) *found = &results->items[i];
  }
  if (!*found) {
    if (results->n == results->capacity) {
      results->capacity = results->capacity ? 2 * results->capacity : 16;
      PetscCall(PetscRealloc((size_t)results->capacity * sizeof(*results->items), &results->items));
    }
    *found = &results->items[results->n++];
    memset(*found, 0, sizeof(**found));
    PetscCall(PetscStrallocpy(name, &(*found)->name));
    (*found)->kind = kind;
  }
  PetscCheck((*found)->kind == kind, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "result %s changes its type", name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsExpect(TrsResults results, int64_t rows)
{
  PetscFunctionBegin;
  results->expected_rows = PetscMin(rows, TRS_MAX_EXPECTED_ROWS);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsForget(TrsResults results, const char *prefix)
{
  PetscFunctionBegin;
  for (int i = 0; i < results->n; i++)
    if (strncmp(results->items[i].name, prefix, strlen(prefix)) == 0)
      results->items[i].rows = results->items[i].n_bytes = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode append(TrsResults results, const char *path, TrsItemKind kind, const void *value)
{
  TrsItem *column;

  PetscFunctionBegin;
  if (!collects(results)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(find_item(results, path, kind, &column));
  PetscCall(
      TrsBufferReserve(&column->data, PetscMax(column->n_bytes + 8, 8 * results->expected_rows), PETSC_TRUE));
  memcpy((char *)column->data.data + column->n_bytes, value, 8);
  column->n_bytes += 8;
  column->rows++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAppend(TrsResults results, const char *path, double value)
{
  PetscFunctionBegin;
  PetscCall(append(results, path, TRS_ITEM_REAL, &value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAppendInt(TrsResults results, const char *path, int64_t value)
{
  PetscFunctionBegin;
  PetscCall(append(results, path, TRS_ITEM_INT, &value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

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
  PetscCall(replace(results, path, TRS_ITEM_REAL, rows, cols, values,
                    rows * (cols ? cols : 1) * (int64_t)sizeof(*values)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rank 0: put every rank's values at their places. */
static PetscErrorCode place_predictions(TrsResults results, int64_t n_total, const int64_t *range)
{
  TrsItem *predictions;
  float *to;
  const float *from = results->gathered.data;

  PetscFunctionBegin;
  PetscCall(find_item(results, "predictions", TRS_ITEM_FLOAT, &predictions));
  if (predictions->rows != n_total) {
    PetscCall(TrsBufferReserve(&predictions->data, n_total * (int64_t)sizeof(float), PETSC_FALSE));
    predictions->rows = n_total;
    predictions->n_bytes = n_total * (int64_t)sizeof(float);
    to = predictions->data.data;
    for (int64_t i = 0; i < n_total; i++) to[i] = NAN; /* until it is there */
  }
  to = predictions->data.data;
  for (int r = 0; r < results->size; r++) {
    int64_t first = range[2 * (size_t)r], n = range[2 * (size_t)r + 1];

    PetscCheck(first >= 0 && n >= 0 && n <= n_total - first, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "predictions %" PRId64 " .. +%" PRId64 " of %" PRId64, first, n, n_total);
    if (n) memcpy(to + first, from, (size_t)n * sizeof(float));
    from += n;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsAddPredictions(TrsResults results, int64_t n_total, int64_t first, int64_t n,
                                        const float *values)
{
  int64_t mine[2] = {first, n}, *range = NULL, total = 0;
  int *counts = NULL, *places = NULL;

  PetscFunctionBegin;
  if (!results->path) PetscFunctionReturn(PETSC_SUCCESS);
  if (results->rank == 0)
    PetscCall(PetscMalloc3(2 * (size_t)results->size, &range, (size_t)results->size, &counts,
                           (size_t)results->size, &places));
  PetscCallMPI(MPI_Gather(mine, 2, MPI_INT64_T, range, 2, MPI_INT64_T, 0, results->comm));
  for (int r = 0; range && r < results->size; r++) {
    PetscCheck(total + range[2 * r + 1] <= INT_MAX, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "a step makes too many predictions");
    counts[r] = (int)range[2 * r + 1];
    places[r] = (int)total;
    total += counts[r];
  }
  PetscCall(TrsBufferReserve(&results->gathered, total * (int64_t)sizeof(float), PETSC_FALSE));
  PetscCallMPI(MPI_Gatherv(values, (int)n, MPI_FLOAT, results->gathered.data, counts, places, MPI_FLOAT, 0,
                           results->comm));
  if (results->rank == 0) {
    PetscCall(place_predictions(results, n_total, range));
    PetscCall(PetscFree3(range, counts, places));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_item(hid_t file, const TrsItem *it)
{
  const hid_t types[] = {[TRS_ITEM_REAL] = H5T_NATIVE_DOUBLE,
                         [TRS_ITEM_INT] = H5T_NATIVE_INT64,
                         [TRS_ITEM_FLOAT] = H5T_NATIVE_FLOAT};
  const int64_t dims[2] = {it->rows, it->cols};
  hid_t dataset;

  PetscFunctionBegin;
  if (it->kind == TRS_ITEM_ATTRIBUTE_TEXT) {
    PetscCall(TrsHDF5WriteString(file, it->name, it->data.data, PETSC_FALSE));
  } else if (it->kind == TRS_ITEM_ATTRIBUTE_INT) {
    PetscCall(TrsHDF5WriteInts(file, it->name, 0, it->data.data));
  } else if (it->rows) {
    PetscCall(TrsHDF5CreateDataset(file, it->name, types[it->kind], it->cols ? 2 : 1, dims, NULL, PETSC_FALSE,
                                   &dataset));
    if (it->n_bytes)
      TrsCallHDF5(H5Dwrite(dataset, types[it->kind], H5S_ALL, H5S_ALL, H5P_DEFAULT, it->data.data));
    TrsCallHDF5(H5Dclose(dataset));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_items(TrsResults results, hid_t file)
{
  const int64_t version = 1;

  PetscFunctionBegin;
  PetscCall(TrsHDF5WriteString(file, "format", "trshard-run", PETSC_FALSE));
  PetscCall(TrsHDF5WriteInts(file, "version", 0, &version));
  for (int i = 0; i < results->n; i++) PetscCall(write_item(file, &results->items[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Under the lock. A file that fails half-way is closed all the same. */
static PetscErrorCode make_image(TrsResults results, int *memory)
{
  hid_t file;
  PetscErrorCode ierr;
  herr_t status;

  PetscFunctionBegin;
  PetscCall(TrsHDF5CreateFile(&file, memory));
  ierr = write_items(results, file);
  status = H5Fclose(file);
  PetscCall(ierr);
  PetscCheck(status >= 0, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be laid out%s", results->path,
             TrsHDF5Error());
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_atomically(TrsResults results, TrsAtomicFile *file)
{
  PetscErrorCode ierr;
  int memory = -1;

  PetscFunctionBegin;
  PetscCall(TrsAtomicCreate(results->path, file));
  TrsHDF5Lock();
  ierr = make_image(results, &memory);
  TrsHDF5Unlock();
  if (ierr == PETSC_SUCCESS) ierr = TrsAtomicFill(file, memory);
  if (memory >= 0) (void)close(memory);
  PetscCall(ierr);
  PetscCall(TrsAtomicPublish(file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsWrite(TrsResults results)
{
  TrsAtomicFile file = {NULL, NULL, NULL, -1, PETSC_FALSE};
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  if (!results->path) PetscFunctionReturn(PETSC_SUCCESS);
  if (results->rank == 0) {
    ierr = write_atomically(results, &file);
    PetscCall(TrsAtomicDiscard(&file));
  }
  PetscCall(TrsAgree(results->comm, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}
