/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Chains of deltas and of increments: the ids of files, and the attributes that tell a file's place
  in a chain.
*/
#include "core/buffer.h"
#include "core/ranks.h"
#include "io/checkpoint/impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* --- the place in a chain --- */

/*
  Names of root attributes. A delta and an increment have the id and the step of the file before it.
  A checkpoint has the id and the step of the last delta that it contains.
*/
typedef struct {
  const char *number, *base, *base_step, *id, *step;
} TrsPlaceNames;
static const TrsPlaceNames of_delta = {"delta_number", "delta_base", "delta_base_step", "delta_previous",
                                       "delta_from_step"},
                           in_deltas = {"delta_number", "delta_base", "delta_base_step", "delta_id",
                                        "delta_step"},
                           of_increment = {"increment_number", "increment_base", "increment_base_step",
                                           "increment_previous", "increment_from_step"};

static PetscErrorCode write_place(hid_t file, const TrsPlaceNames *names, int64_t number,
                                  const TrsDeltaPlace *place)
{
  PetscFunctionBegin;
  PetscCall(TrsHDF5WriteInts(file, names->number, 0, &number));
  PetscCall(TrsHDF5WriteString(file, names->base, place->base, PETSC_TRUE));
  PetscCall(TrsHDF5WriteInts(file, names->base_step, 0, &place->base_step));
  PetscCall(TrsHDF5WriteString(file, names->id, place->id, PETSC_TRUE));
  PetscCall(TrsHDF5WriteInts(file, names->step, 0, &place->step));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointWritePlace(hid_t file, const TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  if (info->place.base[0])
    PetscCall(write_place(file, info->is_delta ? &of_delta : &in_deltas,
                          info->place.number + (info->is_delta ? 1 : 0), &info->place));
  if (info->is_increment) PetscCall(write_place(file, &of_increment, info->chain.number + 1, &info->chain));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read an id. If the file does not have the attribute, the id becomes "". */
static PetscErrorCode read_id(const TrsHDF5File *file, const char *name, char id[TRS_FILE_ID_SIZE])
{
  PetscBool found;
  char *text;

  PetscFunctionBegin;
  PetscCall(TrsHDF5ReadString(file, file->id, "", name, &found, &text));
  TRS_CHECK_DATA(!found || TrsRunIdIsValid(text),
                 "%s: attribute %s is \"%.40s\", expected 16 hexadecimal digits", file->path, name, text);
  PetscCall(PetscStrncpy(id, found ? text : "", TRS_FILE_ID_SIZE));
  PetscCall(PetscFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_place(const TrsHDF5File *file, const TrsPlaceNames *names, TrsDeltaPlace *place)
{
  PetscFunctionBegin;
  *place = (TrsDeltaPlace){.number = 0};
  PetscCall(read_id(file, names->base, place->base));
  if (!place->base[0]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(read_id(file, names->id, place->id));
  TRS_CHECK_DATA(place->id[0], "%s has attribute %s, but no %s", file->path, names->base, names->id);
  PetscCall(TrsHDF5ReadCount(file, names->number, TRS_MOST_COUNT, &place->number));
  PetscCall(TrsHDF5ReadCount(file, names->base_step, TRS_MOST_COUNT, &place->base_step));
  PetscCall(TrsHDF5ReadCount(file, names->step, TRS_MOST_COUNT, &place->step));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointReadPlace(const TrsHDF5File *file, TrsDeltaPlace *place)
{
  PetscFunctionBegin;
  PetscCall(read_place(file, &in_deltas, place));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointReadPrevious(const TrsHDF5File *file, TrsDeltaPlace *place)
{
  PetscFunctionBegin;
  PetscCall(read_place(file, &of_delta, place));
  TRS_CHECK_DATA(place->base[0], "%s does not say which file is before it (delta_base, delta_previous)",
                 file->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointReadChain(const TrsHDF5File *file, TrsDeltaPlace *place)
{
  PetscBool found, same = PETSC_FALSE;
  char *format;

  PetscFunctionBegin;
  *place = (TrsDeltaPlace){.number = 0};
  PetscCall(TrsHDF5ReadString(file, file->id, "", "format", &found, &format));
  if (found) PetscCall(PetscStrcmp(format, TRS_INCREMENT_FORMAT, &same));
  PetscCall(PetscFree(format));
  if (!same) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(read_place(file, &of_increment, place));
  TRS_CHECK_DATA(place->number > 0,
                 "%s is an incremental checkpoint, but does not say which file is before it "
                 "(increment_base, increment_number)",
                 file->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the id of a file --- */

_Static_assert((int)TRS_FILE_ID_SIZE == (int)TRS_RUN_ID_SIZE, "a run's id may be the id of a base");

uint64_t TrsCheckpointPartId(const char *tensor, const int64_t row[TRS_CHECKSUM_COLUMNS])
{
  struct {
    int64_t row[TRS_CHECKSUM_COLUMNS];
    char name[TRS_CHECKPOINT_MAX_NAME];
  } hashed;
  const size_t n = strnlen(tensor, sizeof(hashed.name));

  memcpy(hashed.row, row, sizeof(hashed.row));
  memcpy(hashed.name, tensor, n);
  return XXH3_64bits(&hashed, sizeof(hashed.row) + n);
}

void TrsCheckpointIdText(uint64_t sum, char id[TRS_FILE_ID_SIZE])
{
  snprintf(id, TRS_FILE_ID_SIZE, "%016" PRIx64, sum);
}

typedef struct {
  const char *path;
  const TrsHDF5File *file;
  uint64_t sum;
} TrsIdQuery;

/* Add the contributions of all parts of a tensor. */
static PetscErrorCode add_table(void *context, const char *name)
{
  TrsIdQuery *q = (TrsIdQuery *)context;
  char path[TRS_CHECKPOINT_MAX_NAME];
  TrsCheckpointSource table;
  int64_t *rows;

  PetscFunctionBegin;
  TRS_CHECK_DATA(TrsCheckpointSumsPath(name, path), "%s: a name in /checksums is too long", q->path);
  PetscCall(TrsCheckpointSourceOpen(q->file, path, &table));
  TRS_CHECK_DATA(table.id >= 0 && table.shape.type_class == H5T_INTEGER && table.shape.ndim == 2 &&
                     table.shape.dims[1] == TRS_CHECKSUM_COLUMNS,
                 "%s: /%s is not a table of checksums", q->path, path);
  PetscCall(TrsCheckpointSourcePlace(&table, H5Tcopy(H5T_NATIVE_INT64)));
  PetscCall(TrsAlloc(table.shape.dims[0] * TRS_CHECKSUM_COLUMNS, sizeof(*rows), &rows));
  PetscCall(TrsCheckpointSourceRead(&table, 0, table.shape.dims[0], 0, TRS_CHECKSUM_COLUMNS, rows));
  for (int64_t i = 0; i < table.shape.dims[0]; i++)
    q->sum += TrsCheckpointPartId(name, rows + i * TRS_CHECKSUM_COLUMNS);
  PetscCall(TrsFree(&rows));
  PetscCall(TrsCheckpointSourceClose(&table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_tables(void *context)
{
  TrsIdQuery *q = (TrsIdQuery *)context;
  TrsHDF5File file = {.path = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  q->sum = 0;
  q->file = &file;
  ierr = TrsCheckpointOpenAny(q->path, &file);
  if (ierr == PETSC_SUCCESS) ierr = TrsHDF5EachDataset(&file, TRS_CHECKSUMS, add_table, q);
  (void)TrsHDF5FileClose(&file);
  q->file = NULL;
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointFileId(const char *path, char id[TRS_FILE_ID_SIZE])
{
  TrsIdQuery q = {.path = path};

  PetscFunctionBegin;
  PetscCall(add_tables(&q));
  TrsCheckpointIdText(q.sum, id);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointId(MPI_Comm comm, const char *path, char id[TRS_FILE_ID_SIZE])
{
  TrsIdQuery q = {.path = path};

  PetscFunctionBegin;
  PetscCall(TrsCheckpointQuery(comm, path, add_tables, &q));
  TrsCheckpointIdText(q.sum, id);
  PetscCall(TrsBroadcast(comm, id, TRS_FILE_ID_SIZE));
  PetscFunctionReturn(PETSC_SUCCESS);
}
