/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/buffer.h"
#include "core/names.h"
#include "io/checkpoint_impl.h"
#include "io/preflight.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define CHECK_DATA(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)
enum { TRS_MAX_NAME = 1024 };

/* A dataset of the file, read directly where it can be. */
typedef struct {
  const TrsHDF5File *file;
  const char *name;
  hid_t id, memory; /* memory: element type wanted */
  TrsHDF5Shape shape;
  TrsExtent extent;
} TrsSource;

/* One checksum table after the other: this rank takes every size-th part of all. */
typedef struct {
  const TrsHDF5File *file;
  int rank, size;
  int64_t n_parts; /* seen */
  char *strip;     /* trs_strip_bytes, or one row */
  int64_t strip_bytes;
  PetscErrorCode ierr;
} TrsVerifier;

/* --- one dataset --- */

/* Opens the dataset and checks how it is stored; id -1 when absent. Free with close_source(). */
static PetscErrorCode open_source(const TrsHDF5File *file, const char *name, TrsSource *s)
{
  PetscFunctionBegin;
  *s = (TrsSource){.file = file, .name = name, .id = -1, .memory = -1};
  PetscCall(TrsHDF5Open(file, name, H5I_DATASET, &s->id));
  if (s->id < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsHDF5CheckDataset(file, name, s->id, &s->shape));
  if (s->shape.ndim == 1) s->shape.dims[1] = 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* memory: taken over. */
static PetscErrorCode place_source(TrsSource *s, hid_t memory)
{
  PetscFunctionBegin;
  s->memory = memory;
  PetscCall(TrsExtentGet(s->id, memory, &s->extent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode close_source(TrsSource *s)
{
  PetscFunctionBegin;
  PetscCall(TrsExtentFree(&s->extent));
  if (s->memory >= 0) (void)H5Tclose(s->memory);
  if (s->id >= 0) (void)H5Dclose(s->id);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static herr_t read_by_hdf5(const TrsSource *s, int64_t row, int64_t rows, int64_t col, int64_t cols,
                           void *data)
{
  const hsize_t start[2] = {(hsize_t)row, (hsize_t)col}, count[2] = {(hsize_t)rows, (hsize_t)cols};
  hid_t file_space = H5Dget_space(s->id), memory_space = H5Screate_simple(s->shape.ndim, count, NULL);
  herr_t status = H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL);

  if (status >= 0) status = H5Dread(s->id, s->memory, memory_space, file_space, H5P_DEFAULT, data);
  (void)H5Sclose(memory_space);
  (void)H5Sclose(file_space);
  return status;
}

/* A rectangle, without gaps. */
static PetscErrorCode read_rectangle(const TrsSource *s, int64_t row, int64_t rows, int64_t col, int64_t cols,
                                     void *data)
{
  PetscFunctionBegin;
  if (s->extent.offset) {
    int error = TrsExtentRead(s->file->fd, &s->extent, row, rows, col, cols, data);

    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: /%s cannot be read: %s", s->file->path, s->name,
               error == ENODATA ? "the file has become shorter" : strerror(error));
  } else if (rows > 0 && cols > 0) {
    CHECK_DATA(read_by_hdf5(s, row, rows, col, cols, data) >= 0,
               "%s: rows %" PRId64 " to %" PRId64 " of /%s cannot be read%s", s->file->path, row,
               row + rows - 1, s->name, TrsHDF5Error());
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- checksums --- */

static PetscErrorCode hash_part(TrsVerifier *v, const TrsSource *s, const int64_t *part, int64_t *hash)
{
  int64_t row_bytes = part[3] * (int64_t)s->shape.type_bytes, at_once = v->strip_bytes / row_bytes;
  XXH3_state_t *state = XXH3_createState();
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCheck(state && XXH3_64bits_reset(state) == XXH_OK, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "out of memory: no hash");
  for (int64_t r = 0; r < part[2] && ierr == PETSC_SUCCESS; r += at_once) {
    int64_t n = part[2] - r < at_once ? part[2] - r : at_once;

    ierr = read_rectangle(s, part[0] + r, n, part[1], part[3], v->strip);
    (void)XXH3_64bits_update(state, v->strip, (size_t)(n * row_bytes));
  }
  *hash = (int64_t)XXH3_64bits_digest(state);
  (void)XXH3_freeState(state);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_part(TrsVerifier *v, const TrsSource *s, const int64_t *part)
{
  int64_t hash;

  PetscFunctionBegin;
  CHECK_DATA(part[0] >= 0 && part[1] >= 0 && part[2] >= 1 && part[3] >= 1 && part[2] <= s->shape.dims[0] &&
                 part[3] <= s->shape.dims[1] && part[0] <= s->shape.dims[0] - part[2] &&
                 part[1] <= s->shape.dims[1] - part[3],
             "%s: the checksums of /%s name rows %" PRId64 " + %" PRId64 ", columns %" PRId64 " + %" PRId64
             ", which it does not have: damaged",
             v->file->path, s->name, part[0], part[2], part[1], part[3]);
  if (v->n_parts++ % v->size != v->rank) PetscFunctionReturn(PETSC_SUCCESS);
  if (part[3] * (int64_t)s->shape.type_bytes > v->strip_bytes) {
    PetscCall(TrsFree(&v->strip));
    v->strip_bytes = part[3] * (int64_t)s->shape.type_bytes;
    PetscCall(TrsAlloc(v->strip_bytes, 1, &v->strip));
  }
  PetscCall(hash_part(v, s, part, &hash));
  CHECK_DATA(hash == part[4],
             "%s is damaged: the checksum of /%s, rows %" PRId64 " to %" PRId64 ", columns %" PRId64
             " to %" PRId64 ", is %016" PRIx64 ", expected %016" PRIx64,
             v->file->path, s->name, part[0], part[0] + part[2] - 1, part[1], part[1] + part[3] - 1, hash,
             part[4]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_parts(TrsVerifier *v, const TrsSource *s, const TrsSource *table)
{
  int64_t *parts, covered = 0, n = table->shape.dims[0];
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(n * TRS_CHECKSUM_COLUMNS, sizeof(*parts), &parts));
  PetscCall(read_rectangle(table, 0, n, 0, TRS_CHECKSUM_COLUMNS, parts));
  for (int64_t i = 0; i < n && ierr == PETSC_SUCCESS; i++) {
    ierr = check_part(v, s, parts + i * TRS_CHECKSUM_COLUMNS);
    covered += parts[i * TRS_CHECKSUM_COLUMNS + 2] * parts[i * TRS_CHECKSUM_COLUMNS + 3];
  }
  PetscCall(TrsFree(&parts));
  PetscCall(ierr);
  CHECK_DATA(covered == s->shape.dims[0] * s->shape.dims[1],
             "%s: the checksums of /%s cover %" PRId64 " of its %" PRId64 " elements", v->file->path, s->name,
             covered, s->shape.dims[0] * s->shape.dims[1]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_table(TrsVerifier *v, const char *name)
{
  char table_name[TRS_MAX_NAME];
  TrsSource table, tensor;

  PetscFunctionBegin;
  CHECK_DATA(snprintf(table_name, sizeof(table_name), TRS_CHECKSUMS "/%s", name) < TRS_MAX_NAME,
             "%s: a name in /checksums is too long", v->file->path);
  PetscCall(open_source(v->file, table_name, &table));
  PetscCall(open_source(v->file, name, &tensor));
  CHECK_DATA(tensor.id >= 0, "%s has no dataset /%s, though it has checksums", v->file->path, name);
  CHECK_DATA(table.id >= 0 && table.shape.type_class == H5T_INTEGER && table.shape.ndim == 2 &&
                 table.shape.dims[1] == TRS_CHECKSUM_COLUMNS,
             "%s: /%s is not a table of checksums", v->file->path, table_name);
  PetscCall(place_source(&table, H5Tcopy(H5T_NATIVE_INT64)));
  PetscCall(place_source(&tensor, H5Dget_type(tensor.id))); /* the bytes as they are */
  PetscCall(check_parts(v, &tensor, &table));
  PetscCall(close_source(&table));
  PetscCall(close_source(&tensor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static herr_t visit_table(hid_t group, const char *name, const H5O_info_t *info, void *context)
{
  TrsVerifier *v = context;

  (void)group;
  if (info->type == H5O_TYPE_DATASET) v->ierr = check_table(v, name);
  return v->ierr == PETSC_SUCCESS ? 0 : 1; /* positive: stop */
}

static PetscErrorCode verify_file(const TrsHDF5File *file, int rank, int size)
{
  TrsVerifier v = {.file = file, .rank = rank, .size = size, .strip_bytes = trs_strip_bytes};
  hid_t sums;
  herr_t status;

  PetscFunctionBegin;
  PetscCall(TrsHDF5Open(file, TRS_CHECKSUMS, H5I_GROUP, &sums));
  if (sums < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(v.strip_bytes, 1, &v.strip));
  status = H5Ovisit2(sums, H5_INDEX_NAME, H5_ITER_INC, visit_table, &v, H5O_INFO_BASIC);
  PetscCall(TrsFree(&v.strip));
  PetscCall(v.ierr);
  CHECK_DATA(status >= 0, "%s: /checksums is damaged%s", file->path, TrsHDF5Error());
  TrsReadHDF5(file, H5Gclose(sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- tensors --- */

/* The type in which rows are taken: the tensor's, or for a piecewise reading that of the file, if it is one of a table's. */
static PetscErrorCode find_type(const TrsSource *s, PetscBool any, const TrsStateTensor *tensor,
                                TrsDType *dtype)
{
  char *text = NULL;
  PetscBool found, same = PETSC_FALSE;

  PetscFunctionBegin;
  *dtype = tensor->dtype;
  if (!any || tensor->dtype == TRS_UINT8 || tensor->n_columns) PetscFunctionReturn(PETSC_SUCCESS);
  if (s->shape.type_class == H5T_FLOAT && s->shape.type_bytes == 4) *dtype = TRS_FP32;
  if (s->shape.type_class == H5T_FLOAT && s->shape.type_bytes == 2) *dtype = TRS_FP16;
  if (s->shape.type_class == H5T_INTEGER && s->shape.type_bytes == 2) {
    PetscCall(TrsHDF5ReadString(s->file, s->id, s->name, "dtype", &found, &text));
    if (found) PetscCall(PetscStrcmp(text, "bf16", &same));
    PetscCall(PetscFree(text));
    if (same) *dtype = TRS_BF16;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_shape(const TrsSource *s, const TrsStateTensor *tensor, TrsDType dtype, int ndim,
                                  int64_t cols)
{
  TrsHDF5Shape want = {.ndim = ndim, .dims = {tensor->rows, cols}};
  char found_text[96], want_text[96];

  PetscFunctionBegin;
  want.type_class = dtype == TRS_BF16 || dtype == TRS_UINT8 ? H5T_INTEGER : H5T_FLOAT;
  want.type_bytes = (size_t)TrsDTypeBytes(dtype);
  TrsHDF5ShapeText(&s->shape, found_text, sizeof(found_text));
  TrsHDF5ShapeText(&want, want_text, sizeof(want_text));
  CHECK_DATA(s->shape.ndim == ndim && s->shape.dims[0] == tensor->rows && s->shape.dims[1] == cols &&
                 s->shape.type_class == want.type_class && s->shape.type_bytes == want.type_bytes,
             "%s: /%s is %s, the model wants %s%s", s->file->path, s->name, found_text, want_text,
             dtype == TRS_BF16 ? " (bfloat16 as integers)" : "");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* n rows as they are in the file to rows of the part from its r-th on; `spread`: the one column to all. */
static void place_rows(const TrsStatePart *part, int64_t element_bytes, PetscBool spread, const char *strip,
                       int64_t n, int64_t stride, char *to)
{
  int64_t row_bytes = (spread ? 1 : part->cols) * element_bytes;

  for (int64_t i = 0; i < n; i++) {
    char *row = to + i * stride * element_bytes;

    for (int64_t c = 0; c < (spread ? part->cols : 1); c++)
      memcpy(row + c * element_bytes, strip + i * row_bytes, (size_t)row_bytes);
  }
}

/* Rows of a part, strip by strip: col, cols in the file; `spread`: one column in the file for every column of the part. */
static PetscErrorCode read_part(const TrsSource *s, const TrsStatePart *part, int64_t element_bytes,
                                PetscBool spread)
{
  int64_t cols = spread ? 1 : part->cols, col = spread ? 0 : part->col_offset;
  int64_t row_bytes = cols * element_bytes, at_once = trs_strip_bytes / (row_bytes + 1) + 1;
  char *strip, *to = part->data;

  PetscFunctionBegin;
  if (!spread && part->stride == part->cols) {
    PetscCall(read_rectangle(s, part->row_offset, part->rows, col, cols, to));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsAlloc(at_once * row_bytes, 1, &strip));
  for (int64_t r = 0; r < part->rows; r += at_once) {
    int64_t n = PetscMin(part->rows - r, at_once);

    PetscCall(read_rectangle(s, part->row_offset + r, n, col, cols, strip));
    place_rows(part, element_bytes, spread, strip, n, part->stride, to + r * part->stride * element_bytes);
  }
  PetscCall(TrsFree(&strip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows of part k to the function that takes them, strip by strip. */
static PetscErrorCode take_part(const TrsSource *s, const TrsStateTensor *tensor, int k, TrsDType dtype)
{
  const TrsStatePart *part = &tensor->part[k];
  const int64_t row_bytes = part->cols * TrsDTypeBytes(dtype),
                at_once = trs_strip_bytes / (row_bytes + 1) + 1;
  char *strip;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(PetscMin(at_once, part->rows) * row_bytes, 1, &strip));
  for (int64_t r = 0; r < part->rows; r += at_once) {
    const int64_t n = PetscMin(at_once, part->rows - r);

    PetscCall(read_rectangle(s, part->row_offset + r, n, part->col_offset, part->cols, strip));
    PetscCall(tensor->take(tensor->take_context, k, dtype, r, n, strip));
  }
  PetscCall(TrsFree(&strip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same for a part that the host cannot write: through two strips, one as in the file, one as in the part. */
static PetscErrorCode read_remote_part(const TrsSource *s, const TrsStateMemory *memory,
                                       const TrsStatePart *part, int64_t element_bytes, PetscBool spread)
{
  int64_t cols = spread ? 1 : part->cols, col = spread ? 0 : part->col_offset;
  int64_t row_bytes = part->cols * element_bytes, at_once = trs_strip_bytes / (row_bytes + 1) + 1;
  void *strip = NULL, *stage = NULL;

  PetscFunctionBegin;
  PetscCheck(part->stride == part->cols, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "/%s: a part on the device has gaps", s->name);
  at_once = PetscMin(at_once, part->rows);
  PetscCall(TrsAlloc(at_once * cols * element_bytes, 1, &strip));
  PetscCall(memory->alloc(memory->context, at_once * row_bytes, &stage));
  for (int64_t r = 0; r < part->rows; r += at_once) {
    int64_t n = PetscMin(part->rows - r, at_once);

    PetscCall(read_rectangle(s, part->row_offset + r, n, col, cols, strip));
    place_rows(part, element_bytes, spread, strip, n, part->cols, stage);
    PetscCall(memory->copy(memory->context, (char *)part->data + r * row_bytes, stage, n * row_bytes));
  }
  PetscCall(memory->release(memory->context, &stage));
  PetscCall(TrsFree(&strip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Numbers of another type: strip by strip, converted on the host. */
static PetscErrorCode convert_part(const TrsSource *s, const TrsState *state, const TrsStateTensor *tensor,
                                   const TrsStatePart *part, TrsDType dtype)
{
  const TrsStateMemory *memory = &state->memory;
  const int64_t cols = part->cols, file_bytes = cols * TrsDTypeBytes(dtype);
  const int64_t element_bytes = TrsDTypeBytes(tensor->dtype);
  const int64_t at_once = PetscMin(trs_strip_bytes / (file_bytes + 1) + 1, part->rows);
  void *result = NULL;
  char *strip;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(at_once * file_bytes, 1, &strip));
  if (memory->copy)
    PetscCall(memory->alloc(memory->context, at_once * cols * element_bytes, &result));
  else
    PetscCall(TrsAlloc(at_once * cols * element_bytes, 1, &result));
  for (int64_t r = 0; r < part->rows; r += at_once) {
    const int64_t n = PetscMin(part->rows - r, at_once);
    char *to = (char *)part->data + r * part->stride * element_bytes;

    PetscCall(read_rectangle(s, part->row_offset + r, n, part->col_offset, cols, strip));
    PetscCall(state->convert(n * cols, dtype, strip, tensor->dtype, result));
    if (memory->copy)
      PetscCall(memory->copy(memory->context, to, result, n * cols * element_bytes)); /* rows without gaps */
    else
      place_rows(part, element_bytes, PETSC_FALSE, result, n, part->stride, to);
  }
  if (memory->copy)
    PetscCall(memory->release(memory->context, &result));
  else
    PetscCall(TrsFree(&result));
  PetscCall(TrsFree(&strip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_parts(TrsSource *s, const TrsState *state, const TrsStateTensor *tensor,
                                 TrsDType dtype, PetscBool spread)
{
  const TrsStateMemory *memory = &state->memory;
  const int64_t element_bytes = TrsDTypeBytes(dtype);
  hid_t type;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointType(dtype, &type));
  PetscCall(place_source(s, type));
  for (int k = 0; k < tensor->n_parts; k++) {
    const TrsStatePart *part = &tensor->part[k];

    if (part->rows == 0 || part->cols == 0) continue;
    if (tensor->take) {
      PetscCall(take_part(s, tensor, k, dtype));
    } else if (tensor->converted) {
      PetscCall(convert_part(s, state, tensor, part, dtype));
    } else if (memory->copy) {
      PetscCall(read_remote_part(s, memory, part, element_bytes, spread));
    } else {
      PetscCall(read_part(s, part, element_bytes, spread));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Are these the columns of the same split? */
static PetscErrorCode same_columns(const TrsSource *s, const TrsStateTensor *tensor, PetscBool *same)
{
  int64_t *offsets;

  PetscFunctionBegin;
  *same = PETSC_FALSE;
  if (s->id < 0 || s->shape.ndim != 2 || s->shape.dims[1] != tensor->n_columns)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1(tensor->n_columns, &offsets));
  PetscCall(TrsHDF5ReadInts(s->file, s->id, s->name, "column_offsets", tensor->n_columns, same, offsets));
  if (*same && memcmp(offsets, tensor->column_offsets, (size_t)tensor->n_columns * sizeof(*offsets)) != 0)
    *same = PETSC_FALSE;
  PetscCall(PetscFree(offsets));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A table's weights are wanted: does the file have them as quantised rows alone? */
static PetscErrorCode refuse_quantised(const TrsHDF5File *file, const char *name)
{
  char quantised[TRS_MAX_NAME];
  hid_t id;

  PetscFunctionBegin;
  if (snprintf(quantised, sizeof(quantised), "%s" TRS_QUANTISED_SUFFIX, name) >= TRS_MAX_NAME)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsHDF5Open(file, quantised, H5I_DATASET, &id));
  if (id >= 0) (void)H5Dclose(id);
  CHECK_DATA(id < 0, "%s has no dataset /%s, but /%s: its tables are quantised, for -task predict",
             file->path, name, quantised);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Is the state another optimizer's? Its name is kept then, and its numbers mean nothing here. */
static PetscErrorCode is_of_other(const TrsSource *s, TrsStateTensor *tensor, PetscBool *other)
{
  char *text = NULL;
  PetscBool found, same = PETSC_TRUE;

  PetscFunctionBegin;
  *other = PETSC_FALSE;
  tensor->other_optimizer[0] = '\0';
  if (tensor->optimizer && s->id >= 0) {
    PetscCall(TrsHDF5ReadString(s->file, s->id, s->name, TRS_OPTIMIZER_ATTRIBUTE, &found, &text));
    if (found) PetscCall(PetscStrcmp(text, tensor->optimizer, &same));
    if (!same) TrsNameEscape(text, tensor->other_optimizer, sizeof(tensor->other_optimizer));
    PetscCall(PetscFree(text));
  }
  *other = (PetscBool)!same;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_tensor(const TrsHDF5File *file, const TrsState *state, TrsStateTensor *tensor)
{
  const char *name = tensor->path;
  PetscBool same, other = PETSC_FALSE, spread = PETSC_FALSE;
  TrsDType dtype;
  TrsSource s;

  PetscFunctionBegin;
  PetscCall(open_source(file, name, &s));
  if (tensor->mean_path) {
    PetscCall(same_columns(&s, tensor, &same));
    if (!same) {
      PetscCall(close_source(&s));
      name = tensor->mean_path;
      spread = PETSC_TRUE;
      PetscCall(open_source(file, name, &s));
    }
  }
  PetscCall(is_of_other(&s, tensor, &other));
  tensor->was_read = (PetscBool)(s.id >= 0 && !other);
  tensor->converted = PETSC_FALSE;
  if (!tensor->was_read && !tensor->optional) PetscCall(refuse_quantised(file, name));
  CHECK_DATA(tensor->was_read || tensor->optional, "%s has no dataset /%s, which the model needs", file->path,
             name);
  if (tensor->was_read) {
    PetscCall(find_type(&s, (PetscBool)(tensor->take || state->convert), tensor, &dtype));
    tensor->converted = (PetscBool)(dtype != tensor->dtype && !tensor->take);
    PetscCall(check_shape(&s, tensor, dtype, spread ? 1 : tensor->ndim, spread ? 1 : tensor->cols));
    PetscCall(read_parts(&s, state, tensor, dtype, spread));
  }
  PetscCall(close_source(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the file --- */

static PetscErrorCode read_info(const TrsHDF5File *file, TrsCheckpointInfo *info)
{
  PetscBool found;

  PetscFunctionBegin;
  memset(info, 0, sizeof(*info));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "step", 1, &found,
                            &info->step)); /* weights from elsewhere may have none of these */
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "epoch", 1, &found, &info->epoch));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "samples_seen", 1, &found, &info->samples_seen));
  info->run_step = info->step;
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "run_step", 1, &found, &info->run_step));
  info->global_batch = 0;
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "global_batch", 1, &found, &info->global_batch));
  PetscCall(TrsHDF5ReadReals(file, file->id, "", TRS_CHECKPOINT_METRICS, &found, &info->metrics.n,
                             &info->metrics.value));
  PetscCall(TrsHDF5ReadReals(file, file->id, "", TRS_CHECKPOINT_EARLY_STOPPING, &found,
                             &info->early_stopping.n, &info->early_stopping.value));
  CHECK_DATA(info->step >= 0 && info->epoch >= 0 && info->samples_seen >= 0 && info->run_step >= 0,
             "%s: step %" PRId64 ", epoch %" PRId64 ", samples_seen %" PRId64 ", run_step %" PRId64
             ", expected at least 0",
             file->path, info->step, info->epoch, info->samples_seen, info->run_step);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointOpen(const char *path, TrsHDF5File *file)
{
  PetscFunctionBegin;
  PetscCall(TrsHDF5FileOpen(path, file));
  PetscCall(TrsHDF5CheckFormat(file, TRS_CHECKPOINT_FORMAT, TRS_CHECKPOINT_VERSION));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_tensors(const TrsHDF5File *file, const TrsState *state, TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  PetscCall(read_info(file, info));
  for (int i = 0; i < state->n; i++) PetscCall(read_tensor(file, state, &state->tensor[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a child process tries on rank 0: everything but the data. */
typedef struct {
  const char *path;
  const TrsState *state;
} TrsTrial;

static PetscErrorCode try_tensors(const TrsHDF5File *file, const TrsState *state)
{
  PetscFunctionBegin;
  for (int i = 0; i < state->n; i++) {
    const TrsStateTensor *tensor = &state->tensor[i];
    PetscBool same;
    TrsSource s;

    PetscCall(open_source(file, tensor->path, &s));
    if (tensor->mean_path) PetscCall(same_columns(&s, tensor, &same));
    if (s.id >= 0) PetscCall(place_source(&s, H5Dget_type(s.id)));
    PetscCall(close_source(&s));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode try_file(void *context)
{
  const TrsTrial *t = context;
  TrsCheckpointInfo info;
  TrsHDF5File file;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointOpen(t->path, &file));
  PetscCall(read_info(&file, &info));
  PetscCall(verify_file(&file, -1, 1)); /* the tables only: no part is this rank's */
  if (t->state) PetscCall(try_tensors(&file, t->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_first(const char *path, const TrsState *state, TrsHDF5File *file)
{
  TrsTrial t = {path, state};

  PetscFunctionBegin;
  PetscCall(TrsPreflight(path, try_file, &t));
  PetscCall(TrsCheckpointOpen(path, file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Open on rank 0 first, so that a bad file is met once; then verify; then read. state NULL: verify only. */
static PetscErrorCode read_agreed(MPI_Comm comm, const char *path, const TrsState *state,
                                  TrsCheckpointInfo *info, TrsHDF5File *file)
{
  int rank, size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(TrsAgree(comm, rank == 0 ? open_first(path, state, file) : PETSC_SUCCESS));
  PetscCall(TrsAgree(comm, rank == 0 ? PETSC_SUCCESS : TrsCheckpointOpen(path, file)));
  PetscCall(TrsAgree(comm, verify_file(file, rank, size)));
  if (state) PetscCall(TrsAgree(comm, read_tensors(file, state, info)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_file(MPI_Comm comm, const char *path, const TrsState *state,
                                TrsCheckpointInfo *info)
{
  TrsHDF5File file = {.path = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  TrsHDF5Lock(); /* for long: no reader runs while a checkpoint is loaded */
  ierr = read_agreed(comm, path, state, info, &file);
  (void)TrsHDF5FileClose(&file);
  TrsHDF5Unlock();
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointRead(MPI_Comm comm, const char *path, const TrsState *state,
                                 TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  PetscCall(read_file(comm, path, state, info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointInfoFree(TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(info->metrics.value));
  PetscCall(PetscFree(info->early_stopping.value));
  info->metrics.n = info->early_stopping.n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointVerify(MPI_Comm comm, const char *path)
{
  PetscFunctionBegin;
  PetscCall(read_file(comm, path, NULL, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
