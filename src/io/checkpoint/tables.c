/* SPDX-License-Identifier: BSD-3-Clause */
/*
  This file finds out what a checkpoint holds of its model and of its tables, before memory is
  allocated for them.
*/
#include "core/ranks.h"
#include "io/checkpoint/impl.h"
#include "io/preflight.h"

#include <stdio.h>
#include <string.h>

#define CHECK_DATA(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_DATA, __VA_ARGS__)
enum { TRS_MAX_NAME = 1024 };

/* A question that a child process tries on rank 0, and then rank 0 itself. */
typedef struct {
  const char *path;
  int n;
  const char *const *names;
  TrsStoredTable *stored;
} TrsTablesQuery;

/* Open a table's dataset and check how it is stored. id is -1 if it is absent. */
static PetscErrorCode open_table(const TrsHDF5File *file, const char *name, hid_t *id, TrsHDF5Shape *shape)
{
  PetscFunctionBegin;
  PetscCall(TrsHDF5Open(file, name, H5I_DATASET, id));
  if (*id >= 0) PetscCall(TrsHDF5CheckDataset(file, name, *id, shape));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_numbers(const TrsHDF5File *file, hid_t id, const char *name,
                                   const TrsHDF5Shape *shape, TrsStoredTable *stored)
{
  char text[96], *dtype = NULL;
  PetscBool found, is_bf16 = PETSC_FALSE;

  PetscFunctionBegin;
  if (shape->type_class == H5T_INTEGER && shape->type_bytes == 2) {
    PetscCall(TrsHDF5ReadString(file, id, name, "dtype", &found, &dtype));
    if (found) is_bf16 = (PetscBool)(strcmp(dtype, "bf16") == 0);
    PetscCall(PetscFree(dtype));
  }
  TrsHDF5ShapeText(shape, text, sizeof(text));
  CHECK_DATA(shape->ndim == 2 && (is_bf16 || (shape->type_class == H5T_FLOAT && shape->type_bytes <= 4)),
             "%s: /%s is %s, expected float32 or float16 of 2 dimensions, or bfloat16 as integers",
             file->path, name, text);
  stored->dtype = is_bf16 ? TRS_BF16 : shape->type_bytes == 2 ? TRS_FP16 : TRS_FP32;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_quantised(const TrsHDF5File *file, hid_t id, const char *name,
                                     const TrsHDF5Shape *shape, TrsStoredTable *stored)
{
  static const TrsDType types[] = {TRS_INT8, TRS_INT4, TRS_INT2};
  char text[96], *data_type;
  int i = 0;

  PetscFunctionBegin;
  TrsHDF5ShapeText(shape, text, sizeof(text));
  CHECK_DATA(shape->ndim == 2 && shape->type_class == H5T_INTEGER && shape->type_bytes == 1,
             "%s: /%s is %s, expected uint8 of 2 dimensions", file->path, name, text);
  PetscCall(TrsHDF5ReadString(file, id, name, "data_type", NULL, &data_type));
  while (i < 3 && strcmp(data_type, TrsDTypeName(types[i])) != 0) i++;
  CHECK_DATA(i < 3, "%s: attribute data_type of /%s is \"%.40s\", expected int8, int4 or int2", file->path,
             name, data_type);
  PetscCall(PetscFree(data_type));
  stored->dtype = types[i];
  PetscCall(TrsHDF5ReadInts(file, id, name, "embedding_dim", 1, NULL, &stored->embedding_dim));
  PetscCall(TrsHDF5ReadInts(file, id, name, "row_alignment", 1, NULL, &stored->row_alignment));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_table(const TrsHDF5File *file, const char *table, TrsStoredTable *stored)
{
  char weight[TRS_MAX_NAME], quantised[TRS_MAX_NAME];
  TrsHDF5Shape shape = {0}, bytes = {0};
  hid_t id, bytes_id;

  PetscFunctionBegin;
  CHECK_DATA(snprintf(weight, sizeof(weight), "embedding/%s/weight", table) < TRS_MAX_NAME &&
                 snprintf(quantised, sizeof(quantised), "%s" TRS_QUANTISED_SUFFIX, weight) < TRS_MAX_NAME,
             "%s: the table's name is too long for a checkpoint: %s", file->path, table);
  PetscCall(open_table(file, weight, &id, &shape));
  PetscCall(open_table(file, quantised, &bytes_id, &bytes));
  CHECK_DATA(id >= 0 || bytes_id >= 0, "%s has no dataset /%s, which the model needs", file->path, weight);
  CHECK_DATA(id < 0 || bytes_id < 0, "%s has /%s and /%s: which one is the table?", file->path, weight,
             quantised);
  *stored = (TrsStoredTable){.is_quantised = (PetscBool)(id < 0)};
  if (stored->is_quantised) {
    PetscCall(read_quantised(file, bytes_id, quantised, &bytes, stored));
    id = bytes_id;
    shape = bytes;
  } else {
    PetscCall(read_numbers(file, id, weight, &shape, stored));
  }
  stored->rows = shape.dims[0];
  stored->cols = shape.dims[1];
  TrsReadHDF5(file, H5Dclose(id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode query(void *context)
{
  const TrsTablesQuery *q = context;
  TrsHDF5File file = {.path = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = TrsCheckpointOpen(q->path, &file);
  for (int t = 0; t < q->n && ierr == PETSC_SUCCESS; t++)
    ierr = read_table(&file, q->names[t], &q->stored[t]);
  (void)TrsHDF5FileClose(&file);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode query_twice(TrsTablesQuery *q)
{
  PetscFunctionBegin;
  PetscCall(TrsPreflight(q->path, query, q));
  PetscCall(query(q));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointTables(MPI_Comm comm, const char *path, int n, const char *const *names,
                                   TrsStoredTable *stored)
{
  TrsTablesQuery q = {path, n, names, stored};
  PetscErrorCode ierr = PETSC_SUCCESS;
  int rank;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, NULL));
  if (rank == 0) {
    TrsHDF5Lock();
    ierr = query_twice(&q);
    TrsHDF5Unlock();
  }
  PetscCall(TrsAgree(comm, ierr));
  PetscCall(TrsBroadcast(comm, stored, n * (int64_t)sizeof(*stored)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the model --- */

typedef struct {
  const char *path;
  char *text; /* NULL if the file has none */
} TrsModelQuery;

static PetscErrorCode read_model(void *context)
{
  TrsModelQuery *q = context;
  TrsHDF5File file = {.path = NULL};
  PetscErrorCode ierr;
  PetscBool found;

  PetscFunctionBegin;
  ierr = TrsCheckpointOpen(q->path, &file);
  if (ierr == PETSC_SUCCESS) ierr = TrsCheckpointVerifyRoot(&file);
  if (ierr == PETSC_SUCCESS)
    ierr = TrsHDF5ReadString(&file, file.id, "", TRS_CHECKPOINT_MODEL, &found, &q->text);
  (void)TrsHDF5FileClose(&file);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_model_twice(TrsModelQuery *q)
{
  PetscFunctionBegin;
  PetscCall(TrsPreflight(q->path, read_model, q));
  PetscCall(read_model(q));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointModel(MPI_Comm comm, const char *path, char **text)
{
  TrsModelQuery q = {path, NULL};
  PetscErrorCode ierr = PETSC_SUCCESS;
  int rank, bytes;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, NULL));
  if (rank == 0) {
    TrsHDF5Lock();
    ierr = read_model_twice(&q);
    TrsHDF5Unlock();
  }
  PetscCall(TrsAgree(comm, ierr));
  bytes = q.text ? (int)strlen(q.text) + 1 : 0;
  PetscCall(TrsBroadcast(comm, &bytes, (int64_t)sizeof(bytes)));
  if (bytes && rank != 0) PetscCall(PetscMalloc((size_t)bytes, &q.text));
  PetscCall(TrsBroadcast(comm, q.text, bytes));
  *text = q.text;
  PetscFunctionReturn(PETSC_SUCCESS);
}
