/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/buffer.h"
#include "core/names.h"
#include "io/checkpoint/impl.h"

#include <stdio.h>
#include <string.h>

static const char tables_group[] = "embedding/", dense_group[] = "dense/",
                  states_group[] = "dense_optimizer/";

PetscBool TrsStateIsOfTable(const TrsStateTensor *tensor)
{
  return (PetscBool)(strncmp(tensor->path, tables_group, strlen(tables_group)) == 0);
}

/* Does the path begin with base and the first `length` characters of middle? */
static PetscBool begins_with(const char *path, const char *base, const char *middle, int64_t length)
{
  const size_t n = strlen(base);

  return (PetscBool)(strncmp(path, base, n) == 0 && strncmp(path + n, middle, (size_t)length) == 0);
}

/* Return the length of a path without its last part. */
static int64_t folder_length(const char *path)
{
  const char *end = strrchr(path, '/');

  return end ? end - path : 0;
}

/*
  Find the weights that a state belongs to: embedding/<table>/weight, or dense/<...> for
  dense_optimizer/<...>/<state>. Returns NULL if the tensor is not a state.
*/
static const TrsStateTensor *weights_of(const TrsState *state, const TrsStateTensor *tensor)
{
  const PetscBool of_table = TrsStateIsOfTable(tensor);
  const char *middle;
  int64_t n;

  if (!tensor->optional) return NULL;
  middle = tensor->path + strlen(of_table ? tables_group : states_group);
  n = folder_length(middle);
  for (int i = 0; i < state->n; i++) {
    const char *path = state->tensor[i].path, *base = of_table ? tables_group : dense_group;

    if (begins_with(path, base, middle, n) && strcmp(path + strlen(base) + n, of_table ? "/weight" : "") == 0)
      return &state->tensor[i];
  }
  return NULL;
}

PetscBool TrsStateIsOf(const TrsStateTensor *tensor, const char *table)
{
  const char *name = tensor->path + strlen(tables_group), *rest = name + strlen(table);

  if (!TrsStateIsOfTable(tensor) || strncmp(name, table, strlen(table)) != 0) return PETSC_FALSE;
  rest = TrsCheckpointKeysFolder(rest);
  return (PetscBool)(rest[0] == '/' && !strchr(rest + 1, '/'));
}

PetscBool TrsStateIsOfKeys(const TrsStateTensor *tensor)
{
  const int64_t n = folder_length(tensor->path);
  int64_t table = n;

  if (!TrsStateIsOfTable(tensor)) return PETSC_FALSE;
  while (tensor->path[--table] != '/') {
  }
  return (PetscBool)(TrsCheckpointKeysFolder(tensor->path + table) == tensor->path + n);
}

PetscBool TrsCheckpointWants(const TrsCheckpointWanted *wanted, const TrsState *state,
                             const TrsStateTensor *tensor)
{
  const TrsStateTensor *weights = wanted ? weights_of(state, tensor) : NULL;
  int i = 0;

  if (!wanted) return PETSC_TRUE;
  if (weights && !weights->was_read) return PETSC_FALSE;
  while (i < wanted->n_tables && !TrsStateIsOf(tensor, wanted->table[i])) i++;
  return (PetscBool)(wanted->n_tables == 0 || i < wanted->n_tables);
}

/* --- tensors that the state lacks --- */

typedef struct {
  const TrsCheckpointWanted *wanted;
  const TrsState *state;
  const char *group; /* the group being visited */
  TrsCheckpointInfo *info;
} TrsVisit;

static PetscBool has_tensor(const TrsState *state, const char *path)
{
  int i = 0;

  while (i < state->n && strcmp(state->tensor[i].path, path) != 0 &&
         (!state->tensor[i].mean_path || strcmp(state->tensor[i].mean_path, path) != 0))
    i++;
  return (PetscBool)(i < state->n);
}

/* If the text ends in `end`, cut `end` off. */
static PetscBool cut(char *text, const char *end)
{
  const size_t n = strlen(text), m = strlen(end);

  if (n <= m || strcmp(text + n - m, end) != 0) return PETSC_FALSE;
  text[n - m] = '\0';
  return PETSC_TRUE;
}

/*
  Note a state in the file whose weights are in the model, but do not have this state here. It
  belongs to another optimizer. States by columns and by whole rows count as the same.
*/
static PetscErrorCode meet_state(const TrsVisit *v, char *path)
{
  char weights[TRS_CHECKPOINT_MAX_NAME + sizeof(tables_group)];
  const int n = (int)folder_length(path);

  PetscFunctionBegin;
  (void)cut(path, "_columns");
  if (v->info->other_state || has_tensor(v->state, path)) PetscFunctionReturn(PETSC_SUCCESS);
  if (v->group == tables_group)
    snprintf(weights, sizeof(weights), "%.*s/weight", n, path);
  else
    snprintf(weights, sizeof(weights), "%s%.*s", dense_group, n - (int)strlen(states_group),
             path + strlen(states_group));
  if (has_tensor(v->state, weights)) PetscCall(PetscStrallocpy(path, &v->info->other_state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Note a dataset of the group. A table is recognised by its weights, as numbers or quantised rows. A
  dense layer is recognised by each of its tensors.
*/
static PetscErrorCode meet(void *context, const char *name)
{
  const TrsVisit *v = (const TrsVisit *)context;
  char path[TRS_CHECKPOINT_MAX_NAME];
  TrsCheckpointInfo *info = v->info;
  const PetscBool is_table = (PetscBool)(v->group == tables_group);

  PetscFunctionBegin;
  if (snprintf(path, sizeof(path), "%s%s", v->group, name) >= TRS_CHECKPOINT_MAX_NAME)
    PetscFunctionReturn(PETSC_SUCCESS);
  if (is_table) (void)cut(path, TRS_QUANTISED_SUFFIX);
  if (has_tensor(v->state, path)) PetscFunctionReturn(PETSC_SUCCESS);
  if (v->group == states_group || (is_table && !cut(path, "/weight"))) {
    if (v->wanted->same) PetscCall(meet_state(v, path));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscRealloc(sizeof(*info->unexpected) * (size_t)(info->n_unexpected + 1), &info->unexpected));
  PetscCall(PetscStrallocpy(path, &info->unexpected[info->n_unexpected]));
  info->n_unexpected++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFindUnexpected(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                           const TrsState *state, TrsCheckpointInfo *info)
{
  const char *const groups[] = {tables_group, dense_group, states_group};

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
    TrsVisit v = {.wanted = wanted, .state = state, .group = groups[i], .info = info};
    char name[sizeof(states_group)];

    /* The copy drops the final slash. */
    PetscCall(PetscStrncpy(name, groups[i], strlen(groups[i])));
    PetscCall(TrsHDF5EachDataset(file, name, meet, &v));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the type in which rows are read: the tensor's type. If `any` type may be read, it is the
  file's type.
*/
static PetscErrorCode find_type(const TrsCheckpointSource *s, PetscBool any, const TrsStateTensor *tensor,
                                TrsDType *dtype)
{
  char *text = NULL;
  PetscBool found, same = PETSC_FALSE;

  PetscFunctionBegin;
  *dtype = tensor->dtype;
  if (!any || !TrsStateIsNumber(tensor->dtype) || tensor->n_columns) PetscFunctionReturn(PETSC_SUCCESS);
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

static const char same_model[] =
    "; -resume goes on with the same model, -init_from takes what fits of another";

static const char same_buckets[] =
    "; a table with id_map zch goes on with the same num_embeddings and zch_buckets";

/* Return a hint how to accept a shape that differs from the model's, or "" if there is none. */
static const char *hint_for(const TrsCheckpointWanted *wanted, const TrsStateTensor *tensor, PetscBool fewer)
{
  if (TrsStateIsOfKeys(tensor)) return same_buckets;
  if (!wanted || wanted->same) return wanted ? same_model : "";
  if (!TrsStateIsOfTable(tensor))
    return wanted->initial ? "" : "; -init_from_missing initial takes the rest of the file";
  return fewer && !wanted->grow ? "; -init_from_rows grow takes these as the first rows" : "";
}

/*
  Check type and shape of the dataset [rows, cols]. The shape must be the tensor's, but a table that
  has grown may have fewer rows in the file. If allowed, a dense tensor of another shape is left
  out; tensor->other_shape then describes the file's shape.
*/
static PetscErrorCode check_shape(const TrsCheckpointSource *s, const TrsCheckpointWanted *wanted,
                                  TrsDType dtype, int ndim, int64_t cols, TrsStateTensor *tensor)
{
  TrsHDF5Shape want = {.ndim = ndim, .dims = {tensor->count ? s->shape.dims[0] : tensor->rows, cols}};
  const PetscBool flat = (PetscBool)(s->shape.ndim == ndim && s->shape.dims[1] == cols);
  const PetscBool fewer = (PetscBool)(flat && s->shape.dims[0] < want.dims[0]);
  PetscBool same_type, same = (PetscBool)(flat && s->shape.dims[0] == want.dims[0]);
  char found_text[96], want_text[96];

  PetscFunctionBegin;
  want.type_class = dtype == TRS_FP32 || dtype == TRS_FP16 ? H5T_FLOAT : H5T_INTEGER;
  want.type_bytes = (size_t)TrsDTypeBytes(dtype);
  same_type = (PetscBool)(s->shape.type_class == want.type_class && s->shape.type_bytes == want.type_bytes);
  TrsHDF5ShapeText(&s->shape, found_text, sizeof(found_text));
  TrsHDF5ShapeText(&want, want_text, sizeof(want_text));
  tensor->rows_read = s->shape.dims[0];
  if (wanted && wanted->grow && fewer && TrsStateIsOfTable(tensor) && !TrsStateIsOfKeys(tensor))
    same = PETSC_TRUE;
  if (wanted && wanted->initial && same_type && !same && !TrsStateIsOfTable(tensor)) {
    PetscCall(PetscStrncpy(tensor->other_shape, found_text, sizeof(tensor->other_shape)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  TRS_CHECK_DATA(same && same_type, "%s: /%s is %s, the model wants %s%s%s", s->file->path, s->name,
                 found_text, want_text, dtype == TRS_BF16 ? " (bfloat16 as integers)" : "",
                 same_type ? hint_for(wanted, tensor, fewer) : "");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Copy n rows, unconverted, to rows of the part. With `spread`, the only column is copied to all
  columns.
*/
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

/*
  Read the rows of a part in strips, and pass each strip to tensor->take. take() also gets k, the
  index of the part in the tensor, and the index of the strip's first row. `first` is the index of
  the first row of the first strip.
*/
static PetscErrorCode take_part(const TrsCheckpointSource *s, const TrsStateTensor *tensor,
                                const TrsStatePart *part, int k, int64_t first, TrsDType dtype)
{
  const int64_t row_bytes = part->cols * TrsDTypeBytes(dtype),
                at_once = trs_strip_bytes / (row_bytes + 1) + 1;
  char *strip;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(PetscMin(at_once, part->rows) * row_bytes, 1, &strip));
  for (int64_t r = 0; r < part->rows; r += at_once) {
    const int64_t n = PetscMin(at_once, part->rows - r);

    PetscCall(TrsCheckpointSourceRead(s, part->row_offset + r, n, part->col_offset, part->cols, strip));
    PetscCall(tensor->take(tensor->take_context, k, dtype, first + r, n, strip));
  }
  PetscCall(TrsFree(&strip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Copy n contiguous rows of a part from `stage` to the device. Gaps between the device's rows stay
  untouched, at the cost of one copy per row.
*/
static PetscErrorCode copy_rows(const TrsStateMemory *memory, const TrsStatePart *part, int64_t element_bytes,
                                int64_t n, void *stage, char *to)
{
  const int64_t at_once = part->stride == part->cols ? n : 1;

  PetscFunctionBegin;
  for (int64_t r = 0; r < n; r += at_once)
    PetscCall(memory->copy(memory->context, to + r * part->stride * element_bytes,
                           (char *)stage + r * part->cols * element_bytes,
                           at_once * part->cols * element_bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read the rows of a part, strip by strip: first as they are in the file, then converted to the
  tensor's type, then placed in the part. Steps that change nothing are skipped. If the host cannot
  write the part, staging memory is used. With `spread`, one column of the file fills every column
  of the part.
*/
static PetscErrorCode read_part(const TrsCheckpointSource *s, const TrsState *state,
                                const TrsStateTensor *tensor, const TrsStatePart *part, TrsDType dtype,
                                PetscBool spread)
{
  const TrsStateMemory *memory = &state->memory;
  const int64_t cols = spread ? 1 : part->cols, col = spread ? 0 : part->col_offset;
  const int64_t file_bytes = cols * TrsDTypeBytes(dtype), element_bytes = TrsDTypeBytes(tensor->dtype);
  const int64_t at_once = PetscMin(trs_strip_bytes / (part->cols * element_bytes + 1) + 1, part->rows);
  char *strip, *numbers = NULL;
  void *stage = NULL;

  PetscFunctionBegin;
  if (!memory->copy && !tensor->converted && !spread && part->stride == cols) {
    PetscCall(TrsCheckpointSourceRead(s, part->row_offset, part->rows, col, cols, part->data));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsAlloc(at_once * file_bytes, 1, &strip));
  if (tensor->converted) PetscCall(TrsAlloc(at_once * cols * element_bytes, 1, &numbers));
  if (memory->copy) PetscCall(memory->alloc(memory->context, at_once * part->cols * element_bytes, &stage));
  for (int64_t r = 0; r < part->rows; r += at_once) {
    const int64_t n = PetscMin(part->rows - r, at_once);
    char *to = (char *)part->data + r * part->stride * element_bytes;

    PetscCall(TrsCheckpointSourceRead(s, part->row_offset + r, n, col, cols, strip));
    if (tensor->converted) PetscCall(state->convert(n * cols, dtype, strip, tensor->dtype, numbers));
    place_rows(part, element_bytes, spread, numbers ? numbers : strip, n,
               memory->copy ? part->cols : part->stride, memory->copy ? stage : to);
    if (memory->copy) PetscCall(copy_rows(memory, part, element_bytes, n, stage, to));
  }
  if (memory->copy) PetscCall(memory->release(memory->context, &stage));
  PetscCall(TrsFree(&numbers));
  PetscCall(TrsFree(&strip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Offer the rows of part k to tensor->map. */
static PetscErrorCode map_part(const TrsCheckpointSource *s, const TrsStateTensor *tensor, int k,
                               TrsDType dtype, PetscBool *to_take)
{
  const TrsStatePart *part = &tensor->part[k];

  PetscFunctionBegin;
  *to_take = PETSC_TRUE;
  if (tensor->map && TrsExtentIsWhole(&s->extent) && part->cols == s->extent.cols)
    PetscCall(tensor->map(tensor->take_context, k, dtype, s->file->fd,
                          s->extent.offset[0] + part->row_offset * part->cols * s->extent.element_bytes,
                          to_take));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make the type of rows in memory. Integers are plain bits, signed or unsigned. */
static PetscErrorCode make_type(const TrsCheckpointSource *s, TrsDType dtype, hid_t *memory)
{
  hid_t type;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointType(dtype, memory));
  if (s->shape.type_class != H5T_INTEGER) PetscFunctionReturn(PETSC_SUCCESS);
  TrsReadHDF5(s->file, type = H5Dget_type(s->id));
  TrsReadHDF5(s->file, H5Tset_sign(*memory, H5Tget_sign(type)));
  TrsReadHDF5(s->file, H5Tclose(type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Place n rows of a strip, in the tensor's type unless it takes them as they are. Row i is row to[i]
  of part k.
*/
static PetscErrorCode place_strip(const TrsState *state, const TrsStateTensor *tensor, int k, TrsDType dtype,
                                  PetscBool spread, const char *strip, int64_t n, const int64_t *to,
                                  void *stage)
{
  const TrsStatePart *part = &tensor->part[k];
  const int64_t bytes = TrsDTypeBytes(tensor->take ? dtype : tensor->dtype);
  const int64_t row_bytes = (spread ? 1 : part->cols) * bytes;
  int64_t end;

  PetscFunctionBegin;
  for (int64_t i = 0; i < n; i = end) {
    char *place = part->data ? (char *)part->data + to[i] * part->stride * bytes : NULL;

    for (end = i + 1; end < n && to[end] - to[i] == end - i;) end++;
    if (tensor->take) {
      PetscCall(tensor->take(tensor->take_context, k, dtype, to[i], end - i, strip + i * row_bytes));
    } else if (state->memory.copy) {
      place_rows(part, bytes, spread, strip + i * row_bytes, end - i, part->cols, (char *)stage);
      PetscCall(copy_rows(&state->memory, part, bytes, end - i, stage, place));
    } else {
      place_rows(part, bytes, spread, strip + i * row_bytes, end - i, part->stride, place);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read rows of the file, strip by strip: row from[i], ascending, is row to[i] of part k. */
static PetscErrorCode read_rows(const TrsCheckpointSource *s, const TrsState *state,
                                const TrsStateTensor *tensor, int k, TrsDType dtype, PetscBool spread,
                                int64_t n, const int64_t *from, const int64_t *to)
{
  const TrsStatePart *part = &tensor->part[k];
  const TrsStateMemory *memory = &state->memory;
  const int64_t cols = spread ? 1 : part->cols, col = spread ? 0 : part->col_offset;
  const int64_t bytes = TrsDTypeBytes(tensor->dtype);
  const PetscBool converts = (PetscBool)(dtype != tensor->dtype && !tensor->take);
  const int64_t at_once = PetscMin(trs_strip_bytes / (part->cols * bytes + 1) + 1, n);
  char *strip, *numbers = NULL;
  void *stage = NULL;
  int64_t end;

  PetscFunctionBegin;
  if (n == 0 || part->cols == 0) PetscFunctionReturn(PETSC_SUCCESS);
  TRS_CHECK_DATA(from[n - 1] < s->shape.dims[0],
                 "%s: /%s has %" PRId64 " rows, but ids of the table have row %" PRId64, s->file->path,
                 s->name, (int64_t)s->shape.dims[0], from[n - 1]);
  PetscCall(TrsAlloc(at_once * cols * TrsDTypeBytes(dtype), 1, &strip));
  if (converts) PetscCall(TrsAlloc(at_once * cols * bytes, 1, &numbers));
  if (memory->copy && !tensor->take)
    PetscCall(memory->alloc(memory->context, at_once * part->cols * bytes, &stage));
  for (int64_t i = 0; i < n; i = end) {
    for (end = i + 1; end < n && end - i < at_once && from[end] - from[i] == end - i;) end++;
    PetscCall(TrsCheckpointSourceRead(s, from[i], end - i, col, cols, strip));
    if (converts) PetscCall(state->convert((end - i) * cols, dtype, strip, tensor->dtype, numbers));
    PetscCall(
        place_strip(state, tensor, k, dtype, spread, converts ? numbers : strip, end - i, to + i, stage));
  }
  if (stage) PetscCall(memory->release(memory->context, &stage));
  PetscCall(TrsFree(&numbers));
  PetscCall(TrsFree(&strip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the rows of part k that the file has, of a list or of a file in a chain. */
static PetscErrorCode read_found(const TrsCheckpointSource *s, const TrsState *state,
                                 const TrsStateTensor *tensor, const TrsFileRows *rows, int k, TrsDType dtype,
                                 PetscBool spread)
{
  const int64_t *from, *to;
  int64_t n, *own_from, *own_to;

  PetscFunctionBegin;
  if (!rows) {
    PetscCall(tensor->find(tensor->list_context, k, s->file->path, &n, &from, &to));
    PetscCall(read_rows(s, state, tensor, k, dtype, spread, n, from, to));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsCheckpointRowsFind(rows, tensor, k, s->file->path, &n, &own_from, &own_to));
  PetscCall(read_rows(s, state, tensor, k, dtype, spread, n, own_from, own_to));
  PetscCall(PetscFree2(own_from, own_to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Place the dataset's elements in the file, to be read in the given type. */
static PetscErrorCode place_source(TrsCheckpointSource *s, TrsDType dtype)
{
  hid_t type;

  PetscFunctionBegin;
  PetscCall(make_type(s, dtype, &type));
  PetscCall(TrsCheckpointSourcePlace(s, type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_parts(TrsCheckpointSource *s, const TrsState *state, const TrsStateTensor *tensor,
                                 const TrsFileRows *rows, TrsDType dtype, PetscBool spread)
{
  PetscFunctionBegin;
  PetscCall(place_source(s, dtype));
  if (tensor->count && !tensor->find) {
    const TrsStatePart whole = {.rows = s->shape.dims[0], .cols = tensor->cols};

    PetscCheck(tensor->take, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s has nothing that takes its rows",
               tensor->path);
    PetscCall(take_part(s, tensor, &whole, -1, 0, dtype));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int k = 0; k < tensor->n_parts; k++) {
    TrsStatePart part = tensor->part[k];

    if (tensor->count) {
      PetscCall(read_found(s, state, tensor, rows, k, dtype, spread));
      continue;
    }
    /* The file may have fewer rows than the part. */
    part.rows = PetscMin(part.rows, tensor->rows_read - part.row_offset);
    if (part.rows <= 0 || part.cols == 0) continue;
    if (tensor->take) {
      PetscBool to_take = PETSC_TRUE;

      /* Increments may change rows of a full checkpoint, so they cannot stay in the file. */
      if (!rows) PetscCall(map_part(s, tensor, k, dtype, &to_take));
      if (to_take) PetscCall(take_part(s, tensor, &tensor->part[k], k, 0, dtype));
    } else {
      PetscCheck(part.data, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s has no memory to read to", tensor->path);
      PetscCall(read_part(s, state, tensor, &part, dtype, spread));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Was the state split into the same columns? */
static PetscErrorCode same_columns(const TrsCheckpointSource *s, const TrsStateTensor *tensor,
                                   PetscBool *same)
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

/* Raise an error if the file has the dataset begin + middle + end instead of `name`. */
static PetscErrorCode refuse_instead(const TrsHDF5File *file, const char *name, const char *begin,
                                     const char *middle, const char *end, const char *why)
{
  char instead[TRS_CHECKPOINT_MAX_NAME];
  hid_t id;

  PetscFunctionBegin;
  if (snprintf(instead, sizeof(instead), "%s%s%s", begin, middle, end) >= TRS_CHECKPOINT_MAX_NAME)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsHDF5Open(file, instead, H5I_DATASET, &id));
  if (id >= 0) (void)H5Dclose(id);
  TRS_CHECK_DATA(id < 0, "%s has no dataset /%s, but /%s: %s", file->path, name, instead, why);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check whether the state belongs to another optimizer. If so, keep that optimizer's name; the
  numbers are useless here.
*/
static PetscErrorCode is_of_other(const TrsCheckpointSource *s, TrsStateTensor *tensor, PetscBool *other)
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

/* Open the tensor's own dataset, or the mean over columns, which then fills all columns. */
static PetscErrorCode open_source(const TrsHDF5File *file, const TrsStateTensor *tensor,
                                  TrsCheckpointSource *s, PetscBool *spread)
{
  PetscBool same;

  PetscFunctionBegin;
  *spread = PETSC_FALSE;
  PetscCall(TrsCheckpointSourceOpen(file, tensor->path, s));
  if (!tensor->mean_path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(same_columns(s, tensor, &same));
  if (same) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCheckpointSourceClose(s));
  *spread = PETSC_TRUE;
  PetscCall(TrsCheckpointSourceOpen(file, tensor->mean_path, s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Does the file have a row-wise state of uncut rows here by columns? Their mean is read. */
static PetscErrorCode is_by_columns(const TrsHDF5File *file, const TrsStateTensor *tensor, PetscBool *is)
{
  char path[TRS_CHECKPOINT_MAX_NAME];
  hid_t id = -1;

  PetscFunctionBegin;
  if (tensor->optimizer && tensor->ndim == 1 &&
      snprintf(path, sizeof(path), "%s_columns", tensor->path) < TRS_CHECKPOINT_MAX_NAME)
    PetscCall(TrsHDF5Open(file, path, H5I_DATASET, &id));
  *is = (PetscBool)(id >= 0);
  if (id >= 0) (void)H5Dclose(id);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check that a tensor may be missing from the file. */
static PetscErrorCode check_missing(const TrsHDF5File *file, const char *name,
                                    const TrsCheckpointWanted *wanted)
{
  PetscFunctionBegin;
  PetscCall(refuse_instead(file, name, name, TRS_QUANTISED_SUFFIX, "",
                           "its tables are quantised, for -task predict"));
  if (strncmp(name, "dense/", 6) == 0)
    PetscCall(refuse_instead(file, name, "dense_optimizer/", name + 6, "/ema",
                             "of its layers it has the averages alone, for the training's -ema_decay"));
  TRS_CHECK_DATA(wanted && wanted->initial, "%s has no dataset /%s, which the model needs%s", file->path,
                 name,
                 !wanted        ? ""
                 : wanted->same ? same_model
                                : "; -init_from_missing initial leaves it at its initial values");
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointReadTensor(const TrsHDF5File *file, const TrsCheckpointWanted *wanted,
                                       const TrsState *state, const TrsFileRows *rows, TrsStateTensor *tensor)
{
  PetscBool other = PETSC_FALSE, spread;
  TrsDType dtype;
  TrsCheckpointSource s;

  PetscFunctionBegin;
  tensor->was_read = tensor->converted = PETSC_FALSE;
  tensor->other_shape[0] = tensor->other_optimizer[0] = '\0';
  tensor->unwanted = (PetscBool)!TrsCheckpointWants(wanted, state, tensor);
  if (tensor->unwanted) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(open_source(file, tensor, &s, &spread));
  PetscCall(is_by_columns(file, tensor, &tensor->averaged));
  if (spread) tensor->averaged = PETSC_TRUE;
  PetscCall(is_of_other(&s, tensor, &other));
  tensor->was_read = (PetscBool)(s.id >= 0 && !other);
  if (!tensor->was_read && !tensor->optional) PetscCall(check_missing(file, s.name, wanted));
  if (tensor->was_read) {
    PetscCall(find_type(&s, (PetscBool)(tensor->take || state->convert), tensor, &dtype));
    tensor->converted = (PetscBool)(dtype != tensor->dtype && !tensor->take);
    PetscCall(check_shape(&s, wanted, dtype, spread ? 1 : tensor->ndim, spread ? 1 : tensor->cols, tensor));
    tensor->was_read = (PetscBool)!tensor->other_shape[0];
    if (tensor->was_read) PetscCall(read_parts(&s, state, tensor, rows, dtype, spread));
  }
  PetscCall(TrsCheckpointSourceClose(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointReadChanged(const TrsHDF5File *file, const TrsState *state,
                                        const TrsFileRows *rows, const TrsStateTensor *tensor)
{
  TrsStateTensor list = *tensor; /* the rows of the increment */
  TrsCheckpointSource s;
  PetscBool spread;
  TrsDType dtype;

  PetscFunctionBegin;
  PetscCall(open_source(file, tensor, &s, &spread));
  TRS_CHECK_DATA(s.id >= 0 && s.shape.dims[0] == rows->all,
                 "%s: /%s has %" PRId64 " rows, but /embedding/%s/delta/rows has %" PRId64, file->path,
                 s.name, s.id >= 0 ? (int64_t)s.shape.dims[0] : 0, tensor->rows_of, rows->all);
  list.rows = rows->all;
  PetscCall(find_type(&s, (PetscBool)(tensor->take || state->convert), tensor, &dtype));
  PetscCall(check_shape(&s, NULL, dtype, spread ? 1 : tensor->ndim, spread ? 1 : tensor->cols, &list));
  PetscCall(place_source(&s, dtype));
  for (int k = 0; k < tensor->n_parts; k++) PetscCall(read_found(&s, state, tensor, rows, k, dtype, spread));
  PetscCall(TrsCheckpointSourceClose(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointTryTensor(const TrsHDF5File *file, const TrsStateTensor *tensor)
{
  PetscBool same;
  TrsCheckpointSource s;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointSourceOpen(file, tensor->path, &s));
  if (tensor->mean_path) PetscCall(same_columns(&s, tensor, &same));
  if (s.id >= 0) PetscCall(TrsCheckpointSourcePlace(&s, H5Dget_type(s.id)));
  PetscCall(TrsCheckpointSourceClose(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}
