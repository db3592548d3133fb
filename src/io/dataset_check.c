/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/dataset_check.h"

#include "core/buffer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t max_checked_bytes = (int64_t)256 << 20, samples_at_once = 4096;
enum { TRS_MAX_FEATURES = 1000000 };

#define CHECK_DATA(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)

/* Open one part and hold its type and shape against what the format says; rows < 0: any. */
static PetscErrorCode open_column(TrsDataset dataset, TrsColumnKind kind, const char *name,
                                  H5T_class_t type_class, int ndim, int64_t rows, int64_t cols)
{
  TrsColumn *column = &dataset->column[kind];
  const TrsHDF5File *file = &dataset->file;
  TrsHDF5Shape shape;
  char found[96];

  PetscFunctionBegin;
  column->name = name;
  PetscCall(TrsHDF5Open(file, name, H5I_DATASET, &column->id));
  if (column->id < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsHDF5CheckDataset(file, name, column->id, &shape));
  TrsHDF5ShapeText(&shape, found, sizeof(found));
  CHECK_DATA(shape.type_class == type_class, "%s: /%s is %s, expected %s", file->path, name, found,
             type_class == H5T_FLOAT ? "float32" : "integers");
  CHECK_DATA(shape.ndim == ndim, "%s: /%s is %s, expected %d dimension%s", file->path, name, found, ndim,
             ndim == 1 ? "" : "s");
  if (ndim == 1) shape.dims[1] = 1;
  CHECK_DATA(rows < 0 || shape.dims[0] == rows, "%s: /%s is %s, expected %" PRId64 " rows", file->path, name,
             found, rows);
  CHECK_DATA(cols < 0 || shape.dims[1] == cols, "%s: /%s is %s, expected %" PRId64 " columns", file->path,
             name, found, cols);
  CHECK_DATA(shape.dims[1] > 0 && shape.dims[1] <= TRS_MAX_FEATURES,
             "%s: /%s is %s, expected 1 to %d columns", file->path, name, found, TRS_MAX_FEATURES);
  column->rows = shape.dims[0];
  column->cols = (int)shape.dims[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How the part is read: directly, directly and widened, or by HDF5. Directly only where chunks hold whole rows. */
static PetscErrorCode place_column(TrsColumn *column, hid_t memory)
{
  PetscFunctionBegin;
  if (column->id < 0) PetscFunctionReturn(PETSC_SUCCESS);
  column->memory = memory;
  column->memory_bytes = (int)H5Tget_size(memory);
  PetscCall(TrsExtentGet(column->id, memory, &column->extent));
  if (!column->extent.offset && H5Tequal(memory, H5T_NATIVE_INT64) > 0) {
    PetscCall(TrsExtentFree(&column->extent));
    PetscCall(TrsExtentGet(column->id, H5T_NATIVE_INT32, &column->extent));
    column->widen = column->extent.offset ? PETSC_TRUE : PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The smaller type that holds all of the column's ids. */
static hid_t value_type(const TrsColumn *column)
{
  const hid_t type = H5Dget_type(column->id);
  const size_t bytes = H5Tget_size(type);
  const PetscBool fits = (PetscBool)(bytes < 4 || (bytes == 4 && H5Tget_sign(type) == H5T_SGN_2));

  (void)H5Tclose(type);
  return fits ? H5T_NATIVE_INT32 : H5T_NATIVE_INT64;
}

typedef struct {
  const char *name;
  int feature;
} TrsNamed;

static int by_name(const void *a, const void *b)
{
  const TrsNamed *x = a, *y = b;
  int order = strcmp(x->name, y->name);

  return order ? order : x->feature - y->feature;
}

/* None empty, none twice. */
static PetscErrorCode check_names(const TrsHDF5File *file, int n, char **names)
{
  TrsNamed *sorted;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, &sorted));
  for (int f = 0; f < n; f++) {
    CHECK_DATA(names[f][0], "%s: feature %d has an empty name", file->path, f);
    sorted[f] = (TrsNamed){names[f], f};
  }
  qsort(sorted, (size_t)n, sizeof(*sorted), by_name);
  for (int i = 1; i < n; i++) {
    CHECK_DATA(strcmp(sorted[i - 1].name, sorted[i].name) != 0,
               "%s: features %d and %d have the same name \"%.100s\"", file->path, sorted[i - 1].feature,
               sorted[i].feature, sorted[i].name);
  }
  PetscCall(PetscFree(sorted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_features(TrsDataset dataset, hid_t sparse)
{
  const TrsHDF5File *file = &dataset->file;
  int n;

  PetscFunctionBegin;
  PetscCall(TrsHDF5ReadStrings(file, sparse, "sparse", "features", &n, &dataset->features));
  CHECK_DATA(n >= 1, "%s: attribute features of /sparse is empty", file->path);
  PetscCall(check_names(file, n, dataset->features));
  PetscCall(PetscMalloc1(n, &dataset->num_embeddings));
  PetscCall(TrsHDF5ReadInts(file, sparse, "sparse", "num_embeddings", n, NULL, dataset->num_embeddings));
  for (int f = 0; f < n; f++) {
    CHECK_DATA(dataset->num_embeddings[f] > 0,
               "%s: num_embeddings of feature \"%.100s\" is %" PRId64 ", expected at least 1", file->path,
               dataset->features[f], dataset->num_embeddings[f]);
  }
  dataset->info.n_features = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode need_column(TrsDataset dataset, TrsColumnKind kind)
{
  PetscFunctionBegin;
  CHECK_DATA(dataset->column[kind].id >= 0, "%s has no dataset /%s", dataset->file.path,
             dataset->column[kind].name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_columns(TrsDataset dataset)
{
  TrsColumn *column = dataset->column;
  int64_t n = dataset->info.num_samples, n_values;

  PetscFunctionBegin;
  PetscCall(open_column(dataset, TRS_COLUMN_LENGTHS, "sparse/lengths", H5T_INTEGER, 2, n,
                        dataset->info.n_features));
  PetscCall(need_column(dataset, TRS_COLUMN_LENGTHS));
  PetscCall(open_column(dataset, TRS_COLUMN_OFFSETS, "sparse/offsets", H5T_INTEGER, 1, n + 1, 1));
  PetscCall(need_column(dataset, TRS_COLUMN_OFFSETS));
  PetscCall(open_column(dataset, TRS_COLUMN_VALUES, "sparse/values", H5T_INTEGER, 1, -1, 1));
  PetscCall(need_column(dataset, TRS_COLUMN_VALUES));
  n_values = column[TRS_COLUMN_VALUES].rows;
  PetscCall(open_column(dataset, TRS_COLUMN_WEIGHTS, "sparse/weights", H5T_FLOAT, 1, n_values, 1));
  PetscCall(open_column(dataset, TRS_COLUMN_DENSE, "dense", H5T_FLOAT, 2, n, -1));
  PetscCall(open_column(dataset, TRS_COLUMN_LABELS, "labels", H5T_FLOAT, 1, n, 1));
  PetscCall(place_column(&column[TRS_COLUMN_LENGTHS], H5T_NATIVE_INT32));
  PetscCall(place_column(&column[TRS_COLUMN_OFFSETS], H5T_NATIVE_INT64));
  PetscCall(place_column(&column[TRS_COLUMN_VALUES], value_type(&column[TRS_COLUMN_VALUES])));
  PetscCall(place_column(&column[TRS_COLUMN_WEIGHTS], H5T_NATIVE_FLOAT));
  PetscCall(place_column(&column[TRS_COLUMN_DENSE], H5T_NATIVE_FLOAT));
  PetscCall(place_column(&column[TRS_COLUMN_LABELS], H5T_NATIVE_FLOAT));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetCheckStructure(TrsDataset dataset)
{
  TrsDatasetInfo *info = &dataset->info;
  hid_t sparse;

  PetscFunctionBegin;
  for (int k = 0; k < TRS_N_COLUMNS; k++) dataset->column[k].id = -1;
  PetscCall(TrsHDF5FileOpen(dataset->path, &dataset->file));
  PetscCall(TrsHDF5CheckFormat(&dataset->file, "trshard-dataset", 1));
  PetscCall(
      TrsHDF5ReadInts(&dataset->file, dataset->file.id, "", "num_samples", 1, NULL, &info->num_samples));
  CHECK_DATA(info->num_samples >= 1 && info->num_samples < INT64_MAX / 8,
             "%s: num_samples is %" PRId64 ", expected at least 1", dataset->path, info->num_samples);
  PetscCall(TrsHDF5Open(&dataset->file, "sparse", H5I_GROUP, &sparse));
  CHECK_DATA(sparse >= 0, "%s has no group /sparse", dataset->path);
  PetscCall(check_features(dataset, sparse));
  TrsReadHDF5(&dataset->file, H5Gclose(sparse));
  PetscCall(open_columns(dataset));
  info->path = dataset->path;
  info->features = (const char *const *)dataset->features;
  info->num_embeddings = dataset->num_embeddings;
  info->num_values = dataset->column[TRS_COLUMN_VALUES].rows;
  info->value_bytes = dataset->column[TRS_COLUMN_VALUES].memory_bytes;
  info->num_dense = dataset->column[TRS_COLUMN_DENSE].id >= 0 ? dataset->column[TRS_COLUMN_DENSE].cols : 0;
  info->has_weights = dataset->column[TRS_COLUMN_WEIGHTS].id >= 0 ? PETSC_TRUE : PETSC_FALSE;
  info->has_labels = dataset->column[TRS_COLUMN_LABELS].id >= 0 ? PETSC_TRUE : PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read n samples' lengths and offsets and check them; adds the lengths to sums [n_features]. */
static PetscErrorCode check_range(TrsDataset dataset, int64_t first, int64_t n, int32_t *lengths,
                                  int64_t *offsets, double *sums)
{
  int n_features = dataset->info.n_features;
  const TrsRowRun run = {first, n};
  TrsFault fault = {PETSC_SUCCESS, ""};

  PetscFunctionBegin;
  (void)TrsDatasetReadSamples(dataset, 1, &run, NULL, NULL, lengths, offsets, &fault);
  PetscCall(TrsFaultRaise(&fault));
  CHECK_DATA(first > 0 || offsets[0] == 0, "%s: /sparse/offsets[0] is %" PRId64 ", expected 0", dataset->path,
             offsets[0]);
  CHECK_DATA(first + n < dataset->info.num_samples || offsets[n] == dataset->info.num_values,
             "%s: the last of /sparse/offsets is %" PRId64 ", but /sparse/values has %" PRId64 " entries",
             dataset->path, offsets[n], dataset->info.num_values);
  for (int64_t i = 0; i < n; i++) {
    for (int f = 0; f < n_features; f++) sums[f] += (double)lengths[i * n_features + f];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetCheckLengths(TrsDataset dataset)
{
  TrsDatasetInfo *info = &dataset->info;
  int64_t n_blocks = (info->num_samples + samples_at_once - 1) / samples_at_once;
  int64_t bytes_per_sample = 4 * (int64_t)info->n_features, seen = 0, step = 1;
  int32_t *lengths;
  int64_t *offsets;

  PetscFunctionBegin;
  while (info->num_samples / step * bytes_per_sample > max_checked_bytes)
    step++; /* a long file: only every step-th block, and the ends */
  PetscCall(TrsAlloc(samples_at_once * info->n_features, sizeof(*lengths), &lengths));
  PetscCall(TrsAlloc(samples_at_once + 1, sizeof(*offsets), &offsets));
  for (int64_t block = 0; block < n_blocks; block++) {
    int64_t first = block * samples_at_once;
    int64_t n = first + samples_at_once <= info->num_samples ? samples_at_once : info->num_samples - first;

    if (block % step != 0 && block != n_blocks - 1) continue;
    PetscCall(check_range(dataset, first, n, lengths, offsets, info->mean_lengths));
    seen += n;
  }
  for (int f = 0; f < info->n_features; f++) info->mean_lengths[f] /= (double)seen;
  PetscCall(TrsFree(&lengths));
  PetscCall(TrsFree(&offsets));
  PetscFunctionReturn(PETSC_SUCCESS);
}
