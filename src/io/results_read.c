/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/hdf5_util.h"
#include "io/preflight.h"
#include "io/result_items.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TRS_MAX_PATH = 256, TRS_MOST_ROWS = 1000000 };

/* The state of one pass over the file. */
typedef struct {
  TrsResults results;
  int n;
  const TrsResultsRange *ranges; /* [n] */
  TrsHDF5File *file;
  const TrsResultsRange *range; /* the group whose columns are being loaded */
  int64_t rows;                 /* number of the group's rows to load */
} TrsLoad;

/*
  Open a column. It has one dimension, or it is a matrix of real numbers.
  Out: kind of the column; shape, whose dims[1] is 0 for one dimension
*/
static PetscErrorCode open_column(const TrsLoad *load, const char *name, hid_t *dataset, TrsHDF5Shape *shape,
                                  TrsItemKind *kind)
{
  hid_t type, space;
  hsize_t extent = 0;

  PetscFunctionBegin;
  PetscCall(TrsHDF5Open(load->file, name, H5I_DATASET, dataset));
  PetscCheck(*dataset >= 0, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s is missing", load->file->path, name);
  TrsReadHDF5(load->file, type = H5Dget_type(*dataset));
  if (H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) > 0) {
    *kind = TRS_ITEM_TEXT;
    TrsReadHDF5(load->file, space = H5Dget_space(*dataset));
    PetscCheck(H5Sget_simple_extent_ndims(space) == 1 &&
                   H5Sget_simple_extent_dims(space, &extent, NULL) == 1 && extent <= TRS_MOST_ROWS,
               PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s is no list of texts", load->file->path, name);
    TrsReadHDF5(load->file, H5Sclose(space));
    shape->dims[0] = (int64_t)extent;
    shape->dims[1] = 0;
  } else {
    PetscCall(TrsHDF5CheckDataset(load->file, name, *dataset, shape));
    *kind = shape->type_class == H5T_INTEGER ? TRS_ITEM_INT : TRS_ITEM_REAL;
    if (shape->ndim == 1) shape->dims[1] = 0;
    PetscCheck(shape->type_bytes == 8 &&
                   (shape->ndim == 1 || (shape->ndim == 2 && *kind == TRS_ITEM_REAL && shape->dims[1] >= 1 &&
                                         shape->dims[1] <= TRS_COLUMN_BLOCK_ROWS)),
               PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s is no column of 8-byte numbers", load->file->path,
               name);
  }
  TrsReadHDF5(load->file, H5Tclose(type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read n rows of `cols` numbers each, at most one block. cols = 0 means one number per row. */
static PetscErrorCode read_rows(const TrsLoad *load, const char *name, hid_t dataset, TrsItemKind kind,
                                int64_t cols, int64_t first, int64_t n, void *values)
{
  const hsize_t begin[2] = {(hsize_t)first, 0}, count[2] = {(hsize_t)n, (hsize_t)cols};
  hid_t memory, space;

  PetscFunctionBegin;
  TrsReadHDF5(load->file, memory = H5Screate_simple(cols ? 2 : 1, count, NULL));
  TrsReadHDF5(load->file, space = H5Dget_space(dataset));
  TrsReadHDF5(load->file, H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL));
  PetscCheck(H5Dread(dataset, kind == TRS_ITEM_INT ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, memory, space,
                     H5P_DEFAULT, values) >= 0,
             PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s cannot be read%s", load->file->path, name,
             TrsHDF5Error());
  TrsReadHDF5(load->file, H5Sclose(space));
  TrsReadHDF5(load->file, H5Sclose(memory));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Count the rows to load: from the first row on, as long as `key` is below the range's end. */
static PetscErrorCode count_rows(TrsLoad *load)
{
  int64_t block[TRS_COLUMN_BLOCK_ROWS];
  PetscBool is_below = PETSC_TRUE;
  TrsHDF5Shape shape;
  TrsItemKind kind;
  hid_t dataset;

  PetscFunctionBegin;
  load->rows = 0;
  PetscCall(TrsHDF5Open(load->file, load->range->group, H5I_GROUP, &dataset));
  if (dataset < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(open_column(load, load->range->key, &dataset, &shape, &kind));
  PetscCheck(kind == TRS_ITEM_INT, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s is no column of integers",
             load->file->path, load->range->key);
  for (int64_t row = 0; row < shape.dims[0] && is_below; row += TRS_COLUMN_BLOCK_ROWS) {
    const int64_t n = PetscMin(shape.dims[0] - row, TRS_COLUMN_BLOCK_ROWS);

    PetscCall(read_rows(load, load->range->key, dataset, kind, 0, row, n, block));
    for (int64_t i = 0; i < n && is_below; i++) {
      PetscCheck(block[i] >= 0 && block[i] <= TRS_MOST_COUNT, PETSC_COMM_SELF, TRS_ERR_DATA,
                 "%s: /%s has %" PRId64 ", expected 0 to %" PRId64, load->file->path, load->range->key,
                 block[i], TRS_MOST_COUNT);
      is_below = (PetscBool)(block[i] < load->range->end);
      load->rows += is_below;
    }
  }
  TrsReadHDF5(load->file, H5Dclose(dataset));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_texts(TrsLoad *load, const char *name, hid_t dataset, int64_t n)
{
  char **texts;
  hid_t type;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)n, &texts));
  PetscCall(TrsResultsTextType(&type));
  PetscCheck(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts) >= 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s cannot be read%s", load->file->path, name, TrsHDF5Error());
  for (int64_t i = 0; i < n; i++) {
    if (i < load->rows)
      PetscCall(TrsResultsAppendAny(load->results, name, TRS_ITEM_TEXT, 0, texts[i] ? texts[i] : ""));
    if (texts[i]) (void)H5free_memory(texts[i]);
  }
  TrsReadHDF5(load->file, H5Tclose(type));
  PetscCall(PetscFree(texts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode path_of(const TrsLoad *load, const char *name, char path[TRS_MAX_PATH])
{
  PetscFunctionBegin;
  PetscCheck(snprintf(path, TRS_MAX_PATH, "%s/%s", load->range->group, name) < TRS_MAX_PATH, PETSC_COMM_SELF,
             TRS_ERR_DATA, "%s: /%s has a column with a name of more than %d bytes", load->file->path,
             load->range->group, TRS_MAX_PATH);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Load one array of real numbers. A callback of TrsHDF5EachDataset, like take_column(). */
static PetscErrorCode take_array(void *context, const char *name)
{
  TrsLoad *load = (TrsLoad *)context;
  char path[TRS_MAX_PATH];
  TrsHDF5Shape shape;
  TrsItemKind kind;
  double *values;
  hid_t dataset;

  PetscFunctionBegin;
  PetscCall(path_of(load, name, path));
  PetscCall(open_column(load, path, &dataset, &shape, &kind));
  PetscCheck(kind == TRS_ITEM_REAL && shape.dims[0] <= TRS_MOST_ROWS, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s is no array of real numbers of a run's ranks", load->file->path, path);
  PetscCall(PetscMalloc1((size_t)(shape.dims[0] * PetscMax(shape.dims[1], 1)), &values));
  PetscCall(read_rows(load, path, dataset, kind, shape.dims[1], 0, shape.dims[0], values));
  PetscCall(TrsResultsSetArray(load->results, path, shape.dims[0], shape.dims[1], values));
  PetscCall(PetscFree(values));
  TrsReadHDF5(load->file, H5Dclose(dataset));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Load the attributes that describe arrays. */
static PetscErrorCode take_attributes(const TrsLoad *load)
{
  static const char *const texts[] = {"stage_names", "held_names", "memory_names", "predicted_names"},
                           *const ints[] = {"peak_memory_bytes", "allocations_after_warm_up"};
  PetscBool found;
  int64_t value;
  char *text;

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
    PetscCall(TrsHDF5ReadString(load->file, load->file->id, "", texts[i], &found, &text));
    if (found) PetscCall(TrsResultsSetText(load->results, texts[i], text));
    if (found) PetscCall(PetscFree(text));
  }
  for (size_t i = 0; i < sizeof(ints) / sizeof(ints[0]); i++) {
    PetscCall(TrsHDF5ReadInts(load->file, load->file->id, "", ints[i], 1, &found, &value));
    if (found) PetscCall(TrsResultsSetInt(load->results, ints[i], value));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Load one column. A callback of TrsHDF5EachDataset; `name` is relative to the group. */
static PetscErrorCode take_column(void *context, const char *name)
{
  TrsLoad *load = (TrsLoad *)context;
  /* integers are read into it as well, because they also have 8 bytes */
  double block[TRS_COLUMN_BLOCK_ROWS];
  char path[TRS_MAX_PATH];
  int64_t cols, block_rows;
  TrsHDF5Shape shape;
  TrsItemKind kind;
  hid_t dataset;

  PetscFunctionBegin;
  PetscCall(path_of(load, name, path));
  PetscCall(open_column(load, path, &dataset, &shape, &kind));
  PetscCheck(shape.dims[0] >= load->rows, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s has %" PRId64 " rows, /%s has more", load->file->path, path, shape.dims[0],
             load->range->key);
  if (kind == TRS_ITEM_TEXT) PetscCall(take_texts(load, path, dataset, shape.dims[0]));
  cols = shape.dims[1];
  block_rows = TRS_COLUMN_BLOCK_ROWS / PetscMax(cols, 1);
  for (int64_t row = 0; row < load->rows && kind != TRS_ITEM_TEXT; row += block_rows) {
    const int64_t n = PetscMin(load->rows - row, block_rows);

    PetscCall(read_rows(load, path, dataset, kind, cols, row, n, block));
    for (int64_t i = 0; i < n; i++)
      PetscCall(TrsResultsAppendAny(load->results, path, kind, cols, &block[i * PetscMax(cols, 1)]));
  }
  TrsReadHDF5(load->file, H5Dclose(dataset));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode load_open(TrsLoad *load)
{
  PetscFunctionBegin;
  PetscCall(TrsHDF5CheckFormat(load->file, "trshard-run", 1));
  for (int r = 0; r < load->n; r++) {
    load->range = &load->ranges[r];
    if (load->range->key) PetscCall(count_rows(load));
    if (!load->range->key || load->rows)
      PetscCall(TrsHDF5EachDataset(load->file, load->range->group,
                                   load->range->key ? take_column : take_array, load));
  }
  PetscCall(take_attributes(load));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode load_file(void *context)
{
  TrsLoad *load = (TrsLoad *)context;
  TrsHDF5File file;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsHDF5FileOpen(load->results->path, &file));
  load->file = &file;
  ierr = load_open(load);
  load->file = NULL;
  PetscCall(TrsHDF5FileClose(&file));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Record the loaded groups. If another column of such a group gets its first row later, its earlier
  rows must be filled in.
*/
static PetscErrorCode note_groups(TrsResults results, int n, const TrsResultsRange *ranges)
{
  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)n, &results->loaded));
  for (results->n_loaded = 0; results->n_loaded < n; results->n_loaded++) {
    const TrsResultsRange *range = &ranges[results->n_loaded];
    TrsLoadedGroup *group = &results->loaded[results->n_loaded];
    const size_t size = strlen(range->group) + 2;

    PetscCall(PetscMalloc1(size, &group->prefix));
    snprintf(group->prefix, size, "%s/", range->group);
    group->rows = range->key ? TrsResultsRows(results, range->key) : 0;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsLoad(TrsResults results, int n, const TrsResultsRange *ranges)
{
  TrsLoad load = {.results = results, .n = n, .ranges = ranges};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (!results->path || results->rank != 0) PetscFunctionReturn(PETSC_SUCCESS);
  TrsHDF5Lock();
  ierr = TrsPreflight(results->path, load_file, &load);
  if (ierr == PETSC_SUCCESS) ierr = load_file(&load);
  TrsHDF5Unlock();
  for (int r = 0; r < n && ierr != PETSC_SUCCESS; r++) PetscCall(TrsResultsForget(results, ranges[r].group));
  PetscCall(ierr);
  PetscCall(note_groups(results, n, ranges));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- outputs of a candidate tower --- */

static const char rows_name[] = "towers/candidate", ids_name[] = "towers/candidate_id";

struct TrsCandidateRowsImpl {
  char *path;
  TrsHDF5File file;
  hid_t rows, ids; /* datasets; ids is -1 if the file has none */
  int64_t n, D;
};

/* Open a dataset of numbers. It is -1 if the file lacks it. */
static PetscErrorCode open_numbers(const TrsHDF5File *file, const char *name, hid_t *dataset,
                                   TrsHDF5Shape *shape)
{
  PetscFunctionBegin;
  PetscCall(TrsHDF5Open(file, name, H5I_DATASET, dataset));
  if (*dataset >= 0) PetscCall(TrsHDF5CheckDataset(file, name, *dataset, shape));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_file(void *context)
{
  TrsCandidateRows r = (TrsCandidateRows)context;
  TrsHDF5Shape shape;
  char text[64];

  PetscFunctionBegin;
  PetscCall(TrsHDF5FileOpen(r->path, &r->file));
  PetscCall(TrsHDF5CheckFormat(&r->file, "trshard-run", 1));
  PetscCall(open_numbers(&r->file, rows_name, &r->rows, &shape));
  PetscCheck(r->rows >= 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s has no /%s: -task predict writes it with -predict_towers candidate", r->path, rows_name);
  TrsHDF5ShapeText(&shape, text, sizeof(text));
  PetscCheck(shape.ndim == 2 && shape.type_class == H5T_FLOAT && shape.type_bytes == sizeof(float) &&
                 shape.dims[1] >= 1,
             PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s is %s, expected a matrix of float32", r->path, rows_name,
             text);
  r->n = shape.dims[0];
  r->D = shape.dims[1];
  PetscCall(open_numbers(&r->file, ids_name, &r->ids, &shape));
  if (r->ids < 0) PetscFunctionReturn(PETSC_SUCCESS);
  TrsHDF5ShapeText(&shape, text, sizeof(text));
  PetscCheck(shape.ndim == 1 && shape.type_class == H5T_INTEGER && shape.dims[0] == r->n, PETSC_COMM_SELF,
             TRS_ERR_DATA, "%s: /%s is %s, expected %" PRId64 " integers, as /%s has rows", r->path, ids_name,
             text, r->n, rows_name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCandidateRowsOpen(const char *path, TrsCandidateRows *rows, int64_t *n, int64_t *D,
                                    PetscBool *has_ids)
{
  PetscErrorCode ierr;
  TrsCandidateRows r;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(1, &r));
  *rows = r;
  r->rows = r->ids = -1;
  PetscCall(PetscStrallocpy(path, &r->path));
  TrsHDF5Lock();
  ierr = TrsPreflight(path, open_file, r);
  if (!ierr) ierr = open_file(r);
  TrsHDF5Unlock();
  PetscCall(ierr);
  *n = r->n;
  *D = r->D;
  *has_ids = (PetscBool)(r->ids >= 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read `count` rows from row `first` on, of `cols` numbers each; 0 for one dimension. */
static PetscErrorCode read_candidates(TrsCandidateRows r, hid_t dataset, hid_t type, int64_t cols,
                                      int64_t first, int64_t count, void *values)
{
  const hsize_t begin[2] = {(hsize_t)first, 0}, size[2] = {(hsize_t)count, (hsize_t)cols};
  hid_t memory, space;

  PetscFunctionBegin;
  TrsReadHDF5(&r->file, memory = H5Screate_simple(cols ? 2 : 1, size, NULL));
  TrsReadHDF5(&r->file, space = H5Dget_space(dataset));
  TrsReadHDF5(&r->file, H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, size, NULL));
  TrsReadHDF5(&r->file, H5Dread(dataset, type, memory, space, H5P_DEFAULT, values));
  TrsReadHDF5(&r->file, H5Sclose(space));
  TrsReadHDF5(&r->file, H5Sclose(memory));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCandidateRowsIds(TrsCandidateRows r, int64_t *ids)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (r->n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  TrsHDF5Lock();
  ierr = read_candidates(r, r->ids, H5T_NATIVE_INT64, 0, 0, r->n, ids);
  TrsHDF5Unlock();
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCandidateRowsRead(TrsCandidateRows r, int64_t first, int64_t count, float *values)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  TrsHDF5Lock();
  ierr = read_candidates(r, r->rows, H5T_NATIVE_FLOAT, r->D, first, count, values);
  TrsHDF5Unlock();
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCandidateRowsClose(TrsCandidateRows *rows)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (!*rows) PetscFunctionReturn(PETSC_SUCCESS);
  TrsHDF5Lock();
  ierr = TrsHDF5FileClose(&(*rows)->file); /* also closes the datasets */
  TrsHDF5Unlock();
  PetscCall(PetscFree((*rows)->path));
  PetscCall(PetscFree(*rows));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
