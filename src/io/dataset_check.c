/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/buffer.h"
#include "core/names.h"
#include "io/dataset_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t samples_at_once = 4096;
enum { TRS_MAX_FEATURES = 1000000 };

#define CHECK_DATA(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)

/* The text for messages that tells from where a part's expected number of rows is known. */
static const char *rows_are(TrsColumnKind kind)
{
  if (kind == TRS_COLUMN_OFFSETS) return ": attribute num_samples, and 1";
  return kind == TRS_COLUMN_WEIGHTS ? ", as /sparse/values has" : ": attribute num_samples";
}

/*
  Open one part and compare its type and shape with the format. If ndim is 0, one or two dimensions
  are accepted. If rows or cols is negative, any number is accepted.
*/
static PetscErrorCode open_column(TrsDatasetFile *file, TrsColumnKind kind, const char *name,
                                  H5T_class_t type_class, int ndim, int64_t rows, int64_t cols)
{
  TrsColumn *column = &file->column[kind];
  const TrsHDF5File *h5 = &file->h5;
  TrsHDF5Shape shape;
  char found[96];

  PetscFunctionBegin;
  column->name = name;
  column->rows = -1;
  PetscCall(TrsHDF5Open(h5, name, H5I_DATASET, &column->id));
  if (column->id < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsHDF5CheckDataset(h5, name, column->id, &shape));
  TrsHDF5ShapeText(&shape, found, sizeof(found));
  CHECK_DATA(shape.type_class == type_class, "%s: /%s is %s, expected %s", h5->path, name, found,
             type_class == H5T_FLOAT ? "float32" : "integers");
  CHECK_DATA(ndim == 0 || shape.ndim == ndim, "%s: /%s is %s, expected %d dimension%s", h5->path, name, found,
             ndim, TrsPlural(ndim, "s"));
  if (shape.ndim == 1) shape.dims[1] = 1;
  CHECK_DATA(rows < 0 || shape.dims[0] == rows, "%s: /%s is %s, expected %" PRId64 " row%s%s", h5->path, name,
             found, rows, TrsPlural(rows, "s"), rows_are(kind));
  CHECK_DATA(cols < 0 || shape.dims[1] == cols, "%s: /%s is %s, expected %" PRId64 " column%s", h5->path,
             name, found, cols, TrsPlural(cols, "s"));
  CHECK_DATA(shape.dims[1] > 0 && shape.dims[1] <= TRS_MAX_FEATURES,
             "%s: /%s is %s, expected 1 to %d columns", h5->path, name, found, TRS_MAX_FEATURES);
  column->rows = shape.dims[0];
  column->cols = (int)shape.dims[1];
  column->ndim = shape.ndim;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose how the part is read: directly, directly with conversion to int64, or by HDF5. Direct
  reading needs chunks that consist of whole rows.
*/
static PetscErrorCode place_column(const TrsHDF5File *h5, TrsColumn *column, hid_t memory)
{
  PetscFunctionBegin;
  if (column->rows < 0) PetscFunctionReturn(PETSC_SUCCESS);
  column->memory = memory;
  column->memory_bytes = (int)H5Tget_size(memory);
  PetscCall(TrsExtentGet(column->id, memory, &column->extent));
  if (!column->extent.offset && H5Tequal(memory, H5T_NATIVE_INT64) > 0) {
    PetscCall(TrsExtentFree(&column->extent));
    PetscCall(TrsExtentGet(column->id, H5T_NATIVE_INT32, &column->extent));
    column->widen = column->extent.offset ? PETSC_TRUE : PETSC_FALSE;
  }
  PetscCall(TrsExtentCheck(&column->extent, h5->path, column->name, h5->bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the smallest type that holds the column's ids. For uint64 the type keeps all 64 bits
  unchanged.
*/
static hid_t value_type(TrsColumn *column)
{
  const hid_t type = H5Dget_type(column->id);
  const size_t bytes = H5Tget_size(type);
  const PetscBool has_sign = (PetscBool)(H5Tget_sign(type) == H5T_SGN_2);
  const PetscBool fits = (PetscBool)(bytes < 4 || (bytes == 4 && has_sign));

  (void)H5Tclose(type);
  column->is_unsigned64 = (PetscBool)(bytes == 8 && !has_sign);
  return fits ? H5T_NATIVE_INT32 : column->is_unsigned64 ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64;
}

typedef struct {
  const char *name;
  int place;
} TrsNamed;

static int by_name(const void *a, const void *b)
{
  const TrsNamed *x = a, *y = b;
  int order = strcmp(x->name, y->name);

  return order ? order : x->place - y->place;
}

/*
  Check that no name is empty or occurs twice. `what` is the word for messages: feature or label.
*/
static PetscErrorCode check_names(const TrsHDF5File *file, const char *what, int n, char **names)
{
  TrsNamed *sorted;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, &sorted));
  for (int f = 0; f < n; f++) {
    CHECK_DATA(names[f][0], "%s: %s %d has an empty name", file->path, what, f);
    sorted[f] = (TrsNamed){names[f], f};
  }
  qsort(sorted, (size_t)n, sizeof(*sorted), by_name);
  for (int i = 1; i < n; i++) {
    CHECK_DATA(strcmp(sorted[i - 1].name, sorted[i].name) != 0,
               "%s: %ss %d and %d have the same name \"%.100s\"", file->path, what, sorted[i - 1].place,
               sorted[i].place, sorted[i].name);
  }
  PetscCall(PetscFree(sorted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_features(TrsDatasetFile *file, hid_t sparse)
{
  const TrsHDF5File *h5 = &file->h5;
  int n;

  PetscFunctionBegin;
  PetscCall(TrsHDF5ReadStrings(h5, sparse, "sparse", "features", &n, &file->features));
  CHECK_DATA(n >= 1, "%s: attribute features of /sparse is empty", h5->path);
  PetscCall(check_names(h5, "feature", n, file->features));
  PetscCall(PetscMalloc1(n, &file->num_embeddings));
  PetscCall(TrsHDF5ReadInts(h5, sparse, "sparse", "num_embeddings", n, NULL, file->num_embeddings));
  for (int f = 0; f < n; f++) {
    CHECK_DATA(file->num_embeddings[f] >= 0,
               "%s: num_embeddings of feature \"%.100s\" is %" PRId64
               ", expected at least 1, or 0 for ids without a bound",
               h5->path, file->features[f], file->num_embeddings[f]);
  }
  file->n_features = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Open /labels. It has one dimension with one label per sample, or two dimensions with named labels.
  The names are an attribute.
*/
static PetscErrorCode open_labels(TrsDatasetFile *file)
{
  const TrsColumn *column = &file->column[TRS_COLUMN_LABELS];
  int n;

  PetscFunctionBegin;
  PetscCall(open_column(file, TRS_COLUMN_LABELS, "labels", H5T_FLOAT, 0, file->num_samples, -1));
  if (column->rows < 0 || column->ndim == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsHDF5ReadStrings(&file->h5, column->id, "labels", "names", &n, &file->label_names));
  CHECK_DATA(n == column->cols, "%s: attribute names of /labels has %d entries, expected %d", file->h5.path,
             n, column->cols);
  PetscCall(check_names(&file->h5, "label", n, file->label_names));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Open an optional column with one int64 per sample. */
static PetscErrorCode open_int64(TrsDatasetFile *file, TrsColumnKind kind, const char *name)
{
  const TrsColumn *column = &file->column[kind];
  hid_t type;
  PetscBool too_wide;

  PetscFunctionBegin;
  PetscCall(open_column(file, kind, name, H5T_INTEGER, 1, file->num_samples, 1));
  if (column->rows < 0) PetscFunctionReturn(PETSC_SUCCESS);
  type = H5Dget_type(column->id);
  too_wide = (PetscBool)(H5Tget_size(type) >= sizeof(int64_t) && H5Tget_sign(type) != H5T_SGN_2);
  (void)H5Tclose(type);
  CHECK_DATA(!too_wide, "%s: /%s is uint64, expected int64", file->h5.path, name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode need_column(TrsDatasetFile *file, TrsColumnKind kind)
{
  PetscFunctionBegin;
  CHECK_DATA(file->column[kind].rows >= 0, "%s has no dataset /%s", file->h5.path, file->column[kind].name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_columns(TrsDatasetFile *file)
{
  TrsColumn *column = file->column;
  int64_t n = file->num_samples, n_values;

  PetscFunctionBegin;
  PetscCall(open_column(file, TRS_COLUMN_LENGTHS, "sparse/lengths", H5T_INTEGER, 2, n, file->n_features));
  PetscCall(need_column(file, TRS_COLUMN_LENGTHS));
  PetscCall(open_column(file, TRS_COLUMN_OFFSETS, "sparse/offsets", H5T_INTEGER, 1, n + 1, 1));
  PetscCall(need_column(file, TRS_COLUMN_OFFSETS));
  PetscCall(open_column(file, TRS_COLUMN_VALUES, "sparse/values", H5T_INTEGER, 1, -1, 1));
  PetscCall(need_column(file, TRS_COLUMN_VALUES));
  n_values = column[TRS_COLUMN_VALUES].rows;
  PetscCall(open_column(file, TRS_COLUMN_WEIGHTS, "sparse/weights", H5T_FLOAT, 1, n_values, 1));
  PetscCall(open_column(file, TRS_COLUMN_DENSE, "dense", H5T_FLOAT, 2, n, -1));
  PetscCall(open_labels(file));
  PetscCall(open_column(file, TRS_COLUMN_SAMPLE_WEIGHTS, "weights", H5T_FLOAT, 1, n, 1));
  PetscCall(open_int64(file, TRS_COLUMN_GROUP, "group"));
  PetscCall(open_int64(file, TRS_COLUMN_TIME, "time"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode place_columns(TrsDatasetFile *file)
{
  const TrsHDF5File *h5 = &file->h5;
  TrsColumn *column = file->column;

  PetscFunctionBegin;
  PetscCall(place_column(h5, &column[TRS_COLUMN_LENGTHS], H5T_NATIVE_INT32));
  PetscCall(place_column(h5, &column[TRS_COLUMN_OFFSETS], H5T_NATIVE_INT64));
  PetscCall(place_column(h5, &column[TRS_COLUMN_VALUES], value_type(&column[TRS_COLUMN_VALUES])));
  PetscCall(place_column(h5, &column[TRS_COLUMN_WEIGHTS], H5T_NATIVE_FLOAT));
  PetscCall(place_column(h5, &column[TRS_COLUMN_DENSE], H5T_NATIVE_FLOAT));
  PetscCall(place_column(h5, &column[TRS_COLUMN_LABELS], H5T_NATIVE_FLOAT));
  PetscCall(place_column(h5, &column[TRS_COLUMN_SAMPLE_WEIGHTS], H5T_NATIVE_FLOAT));
  PetscCall(place_column(h5, &column[TRS_COLUMN_GROUP], H5T_NATIVE_INT64));
  PetscCall(place_column(h5, &column[TRS_COLUMN_TIME], H5T_NATIVE_INT64));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If HDF5 must read parts of the file, keep the file open in HDF5. If not, close it in HDF5. The
  descriptor always stays open.
*/
static PetscErrorCode keep_what_reads(TrsDatasetFile *file)
{
  PetscFunctionBegin;
  for (int k = 0; k < TRS_N_COLUMNS; k++)
    if (file->column[k].rows > 0 && !file->column[k].extent.offset) file->by_hdf5 = PETSC_TRUE;
  if (!file->by_hdf5) {
    TrsReadHDF5(&file->h5, H5Fclose(file->h5.id));
    file->h5.id = -1;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetFileCheck(TrsDatasetFile *file)
{
  PetscBool found;
  hid_t sparse;

  PetscFunctionBegin;
  PetscCall(TrsHDF5FileOpen(file->path, &file->h5));
  PetscCall(TrsHDF5CheckFormat(&file->h5, "trshard-dataset", 1));
  PetscCall(TrsHDF5ReadInts(&file->h5, file->h5.id, "", "num_samples", 1, NULL, &file->num_samples));
  CHECK_DATA(file->num_samples >= 1 && file->num_samples < INT64_MAX / 8,
             "%s: num_samples is %" PRId64 ", expected 1 to %" PRId64, file->path, file->num_samples,
             INT64_MAX / 8 - 1);
  PetscCall(TrsHDF5Open(&file->h5, "sparse", H5I_GROUP, &sparse));
  CHECK_DATA(sparse >= 0, "%s has no group /sparse", file->path);
  PetscCall(check_features(file, sparse));
  TrsReadHDF5(&file->h5, H5Gclose(sparse));
  PetscCall(TrsHDF5ReadString(&file->h5, file->h5.id, "", TRS_MAPPING_ATTRIBUTE, &found, &file->mapping));
  PetscCall(open_columns(file));
  PetscCall(place_columns(file));
  PetscCall(keep_what_reads(file));
  file->num_values = file->column[TRS_COLUMN_VALUES].rows;
  file->stamp = TrsFileStamp(file->h5.fd);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read n samples' lengths and offsets, check them, and add the lengths to sums [n_features]. */
static PetscErrorCode check_range(TrsDatasetFile *file, int64_t first, int64_t n, const TrsSampleRows *rows,
                                  double *sums)
{
  const int32_t *lengths = rows->lengths;
  const int64_t *offsets = rows->offsets;
  const TrsRowRun run = {first, n};
  TrsFault fault = {PETSC_SUCCESS, ""};

  PetscFunctionBegin;
  (void)TrsDatasetFileReadSamples(file, 1, &run, rows, &fault);
  PetscCall(TrsFaultRaise(&fault));
  CHECK_DATA(first > 0 || offsets[0] == 0, "%s: /sparse/offsets[0] is %" PRId64 ", expected 0", file->path,
             offsets[0]);
  CHECK_DATA(first + n < file->num_samples || offsets[n] == file->num_values,
             "%s: the last of /sparse/offsets is %" PRId64 ", but /sparse/values has %" PRId64 " entries",
             file->path, offsets[n], file->num_values);
  for (int64_t i = 0; i < n; i++) {
    for (int f = 0; f < file->n_features; f++) sums[f] += (double)lengths[i * file->n_features + f];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetFileCheckLengths(TrsDatasetFile *file, int64_t max_bytes, double *sums,
                                          int64_t *seen)
{
  const int64_t n_samples = file->num_samples, bytes_per_sample = 4 * (int64_t)file->n_features;
  const int64_t n_blocks = (n_samples + samples_at_once - 1) / samples_at_once;
  int64_t step = 1;
  TrsSampleRows rows = {0};

  PetscFunctionBegin;
  *seen = 0;
  /* In a long file, read only every step-th block, and the blocks at both ends. */
  while (n_samples / step * bytes_per_sample > max_bytes) step++;
  PetscCall(TrsAlloc(samples_at_once * file->n_features, sizeof(*rows.lengths), &rows.lengths));
  PetscCall(TrsAlloc(samples_at_once + 1, sizeof(*rows.offsets), &rows.offsets));
  for (int64_t block = 0; block < n_blocks; block++) {
    const int64_t first = block * samples_at_once, n = PetscMin(samples_at_once, n_samples - first);

    if (block % step != 0 && block != n_blocks - 1) continue;
    PetscCall(check_range(file, first, n, &rows, sums));
    *seen += n;
  }
  PetscCall(TrsFree(&rows.lengths));
  PetscCall(TrsFree(&rows.offsets));
  PetscFunctionReturn(PETSC_SUCCESS);
}
