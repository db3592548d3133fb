/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads deltas, and finds out whether a delta continues the chain of a model. */
#include "core/buffer.h"
#include "io/checkpoint/impl.h"
#include "io/preflight.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- the place in a chain --- */

typedef struct {
  const char *path;
  TrsDeltaInfo *info;
} TrsInfoQuery;

/* Open a delta, and check its format and version. */
static PetscErrorCode open_delta(const char *path, TrsHDF5File *file)
{
  PetscBool found, same = PETSC_FALSE;
  char *format;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointOpenAny(path, file));
  PetscCall(TrsHDF5ReadString(file, file->id, "", "format", &found, &format));
  if (found) PetscCall(PetscStrcmp(format, TRS_DELTA_FORMAT, &same));
  PetscCall(PetscFree(format));
  TRS_CHECK_DATA(same, "%s is a checkpoint, expected a delta (-delta_dir)", path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_info(const TrsHDF5File *file, TrsDeltaInfo *info)
{
  int64_t forgets = 0;

  PetscFunctionBegin;
  *info = (TrsDeltaInfo){.step = 0};
  PetscCall(TrsCheckpointVerifyRoot(file));
  PetscCall(TrsHDF5ReadCount(file, "step", TRS_MOST_COUNT, &info->step));
  PetscCall(TrsHDF5ReadCount(file, "delta_forget", 1, &forgets));
  PetscCall(TrsCheckpointReadPrevious(file, &info->previous));
  info->forgets = (PetscBool)(forgets != 0);
  info->number = info->previous.number;
  if (!info->forgets) info->previous.number--;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode query_info(void *context)
{
  const TrsInfoQuery *q = (const TrsInfoQuery *)context;
  TrsHDF5File file = {.path = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = open_delta(q->path, &file);
  if (ierr == PETSC_SUCCESS) ierr = read_info(&file, q->info);
  (void)TrsHDF5FileClose(&file);
  if (ierr == PETSC_SUCCESS) ierr = TrsCheckpointFileId(q->path, q->info->id);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeltaReadInfo(const char *path, TrsDeltaInfo *info)
{
  TrsInfoQuery q = {path, info};

  PetscFunctionBegin;
  PetscCall(TrsCheckpointQuery(MPI_COMM_SELF, path, query_info, &q));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool is_same(const char *id, const char *other)
{
  return (PetscBool)(strcmp(id, other) == 0);
}

/* Raise the error of a delta that does not fit. */
static PetscErrorCode refuse(const char *path, const TrsDeltaInfo *info, const TrsDeltaPlace *place,
                             TrsDeltaFit fit)
{
  PetscFunctionBegin;
  TRS_CHECK_DATA(
      fit != TRS_DELTA_EARLY,
      "%s is %sdelta %" PRId64 ", and the model has %" PRId64 " deltas: delta %" PRId64 " is missing", path,
      info->forgets ? "for the model after " : "", info->number, place->number, place->number + 1);
  TRS_CHECK_DATA(fit != TRS_DELTA_LATE,
                 "%s is %sdelta %" PRId64 ", and the model has %" PRId64
                 " deltas: it is already there, or too late",
                 path, info->forgets ? "for the model after " : "", info->number, place->number);
  TRS_CHECK_DATA(fit == TRS_DELTA_FITS,
                 "%s continues file %s in the chain of %s, and the model has file %s in the chain of %s: "
                 "they do not belong together",
                 path, info->previous.id, info->previous.base, place->id, place->base);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeltaFollow(const char *path, const TrsDeltaInfo *info, const char *own_id, int64_t step,
                              TrsDeltaPlace *place, TrsDeltaFit *fit)
{
  const char *previous = info->previous.id;
  TrsDeltaPlace at = *place;

  PetscFunctionBegin;
  /* a chain may begin with a checkpoint that is itself in an older chain */
  if (own_id[0] && info->number == 1 && is_same(previous, own_id) && !is_same(previous, place->id)) {
    at = (TrsDeltaPlace){.base_step = step, .step = step};
    PetscCall(PetscStrncpy(at.base, own_id, sizeof(at.base)));
    PetscCall(PetscStrncpy(at.id, own_id, sizeof(at.id)));
  }
  if (info->forgets ? info->number == at.number : info->number == at.number + 1)
    *fit = is_same(previous, at.id) ? TRS_DELTA_FITS : TRS_DELTA_FOREIGN;
  else if (!is_same(info->previous.base, at.base))
    *fit = TRS_DELTA_FOREIGN;
  else
    *fit = info->number > at.number ? TRS_DELTA_EARLY : TRS_DELTA_LATE;
  PetscCall(refuse(path, info, &at, *fit));
  if (!info->forgets) {
    at.number = info->number;
    at.step = info->step;
    PetscCall(PetscStrncpy(at.id, info->id, sizeof(at.id)));
  }
  *place = at;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- rows --- */

/* Read one of a table's lists, which has n numbers. *list is NULL if the file lacks it. */
static PetscErrorCode read_list(const TrsHDF5File *file, const TrsDeltaTable *table, const char *what,
                                int64_t n, hid_t memory, size_t size, void *list)
{
  char name[TRS_CHECKPOINT_MAX_NAME];
  TrsCheckpointSource s;
  void *numbers = NULL;

  PetscFunctionBegin;
  TRS_CHECK_DATA(snprintf(name, sizeof(name), "embedding/%s/delta/%s", table->table, what) <
                     (int)sizeof(name),
                 "%s: the name of table %.40s... is too long", file->path, table->table);
  PetscCall(TrsCheckpointSourceOpen(file, name, &s));
  if (s.id >= 0) {
    TRS_CHECK_DATA(s.shape.type_class == H5T_INTEGER && s.shape.ndim == 1 && s.shape.dims[0] == n,
                   "%s: /%s is not a list of %" PRId64 " numbers", file->path, name, n);
    PetscCall(TrsCheckpointSourcePlace(&s, H5Tcopy(memory)));
    PetscCall(TrsAlloc(n, size, &numbers));
    *(void **)list = numbers;
    PetscCall(TrsCheckpointSourceRead(&s, 0, n, 0, 1, numbers));
  }
  PetscCall(TrsCheckpointSourceClose(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the ids of the changed rows, and the numbers of rows in use. */
static PetscErrorCode read_ids(const TrsHDF5File *file, TrsDeltaTable *t)
{
  PetscFunctionBegin;
  if (t->buckets == 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (t->grows)
    PetscCall(read_list(file, t, "used", t->buckets, H5T_NATIVE_INT64, sizeof(*t->used), &t->used));
  for (int64_t b = 0; t->used && b < t->buckets; b++)
    TRS_CHECK_DATA(t->used[b] >= 1 && t->used[b] <= t->rows / t->buckets,
                   "%s: /embedding/%s/delta/used: bucket %" PRId64 " has %" PRId64
                   " rows, expected 1 to %" PRId64,
                   file->path, t->table, b, t->used[b], t->rows / t->buckets);
  if (t->n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(read_list(file, t, "ids", t->n, H5T_NATIVE_INT64, sizeof(*t->id), &t->id));
  PetscCall(read_list(file, t, "held", t->n, H5T_NATIVE_UINT8, sizeof(*t->held), &t->held));
  TRS_CHECK_DATA(t->id && t->held, "%s: table \"%s\" keeps ids, but the delta has none of its rows",
                 file->path, t->table);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Pass the weights of a table's changed rows to the tensor's `take`, and read their numbers. */
static PetscErrorCode read_rows(const TrsHDF5File *file, const TrsState *state, const TrsStateTensor *tensor,
                                TrsDeltaTable *t)
{
  const int64_t bucket_rows = t->buckets ? t->rows / t->buckets : t->rows;
  TrsFileRows rows = {.limit = t->rows, .bucket_rows = bucket_rows};

  PetscFunctionBegin;
  PetscCall(TrsCheckpointRowsRead(file, tensor, &rows));
  t->n = rows.n;
  PetscCall(TrsAlloc(rows.n, sizeof(*t->row), &t->row));
  if (rows.n) memcpy(t->row, rows.number, (size_t)rows.n * sizeof(*t->row));
  TRS_CHECK_DATA(rows.limit == t->rows && rows.bucket_rows == bucket_rows,
                 "%s: table \"%s\" has %" PRId64 " rows, %" PRId64 " in each bucket; the model has %" PRId64
                 " and %" PRId64,
                 file->path, t->table, rows.limit, rows.bucket_rows, t->rows, bucket_rows);
  if (rows.all > 0) PetscCall(TrsCheckpointReadChanged(file, state, &rows, tensor));
  PetscCall(TrsCheckpointRowsFree(&rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- a file --- */

typedef struct {
  const char *path;
  TrsState *state;
  int n;
  TrsDeltaTable *table;
  const TrsHDF5File *file;
} TrsDeltaRequest;

static TrsDeltaTable *table_of(const TrsDeltaRequest *q, const char *name, size_t n)
{
  for (int t = 0; t < q->n; t++)
    if (strlen(q->table[t].table) == n && strncmp(q->table[t].table, name, n) == 0) return &q->table[t];
  return NULL;
}

/* Refuse changed rows of a table that the model does not have. */
static PetscErrorCode check_table(void *context, const char *name)
{
  static const char suffix[] = "/delta/rows";
  const TrsDeltaRequest *q = (const TrsDeltaRequest *)context;
  const size_t length = strlen(name), end = sizeof(suffix) - 1;

  PetscFunctionBegin;
  TRS_CHECK_DATA(length < end || strcmp(name + length - end, suffix) != 0 || table_of(q, name, length - end),
                 "%s has rows of table \"%.*s\", which the model does not have", q->path,
                 (int)PetscMin(length - end, 200), name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Try everything except reading data. A child process runs this. */
static PetscErrorCode try_delta(void *context)
{
  TrsDeltaRequest *q = (TrsDeltaRequest *)context;
  TrsHDF5File file;

  PetscFunctionBegin;
  PetscCall(open_delta(q->path, &file));
  PetscCall(TrsCheckpointVerifyParts(&file, -1, 1));
  PetscCall(TrsHDF5EachDataset(&file, "embedding", check_table, q));
  for (int i = 0; i < q->state->n; i++) {
    PetscCall(TrsCheckpointTryTensor(&file, &q->state->tensor[i]));
    if (q->state->tensor[i].rows_of) PetscCall(TrsCheckpointRowsTry(&file, q->state->tensor[i].rows_of));
  }
  for (int t = 0; t < q->n; t++) { /* of a list without rows */
    TrsDeltaTable table = q->table[t];

    table.n = 0;
    PetscCall(read_ids(&file, &table));
    PetscCall(TrsFree(&table.used));
  }
  (void)TrsHDF5FileClose(&file);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_delta(const TrsDeltaRequest *q, TrsHDF5File *file)
{
  PetscFunctionBegin;
  PetscCall(open_delta(q->path, file));
  PetscCall(TrsCheckpointVerifyParts(file, q->state->unverified ? -1 : 0, 1));
  for (int i = 0; i < q->state->n; i++) {
    TrsStateTensor *tensor = &q->state->tensor[i];
    TrsDeltaTable *table = tensor->rows_of ? table_of(q, tensor->rows_of, strlen(tensor->rows_of)) : NULL;

    if (!tensor->rows_of) {
      PetscCall(TrsCheckpointReadTensor(file, NULL, q->state, NULL, tensor));
    } else {
      PetscCall(read_rows(file, q->state, tensor, table));
      PetscCall(read_ids(file, table));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeltaRead(const char *path, TrsState *state, int n, TrsDeltaTable *table)
{
  TrsDeltaRequest q = {.path = path, .state = state, .n = n, .table = table};
  TrsHDF5File file = {.path = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  TrsHDF5Lock();
  ierr = TrsPreflight(path, try_delta, &q);
  if (ierr == PETSC_SUCCESS) ierr = read_delta(&q, &file);
  (void)TrsHDF5FileClose(&file);
  TrsHDF5Unlock();
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeltaTableFree(TrsDeltaTable *t)
{
  PetscFunctionBegin;
  PetscCall(TrsFree(&t->row));
  PetscCall(TrsFree(&t->id));
  PetscCall(TrsFree(&t->held));
  PetscCall(TrsFree(&t->used));
  t->n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
