/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Incremental checkpoints: the chain of files that an increment continues, and the places of a
  table's rows in these files.
*/
#include "core/buffer.h"
#include "core/ranks.h"
#include "io/checkpoint/impl.h"
#include "io/checkpoint/list.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- the files of a chain --- */

PetscErrorCode TrsCheckpointChainPath(const TrsCheckpointChain *chain, int k, char **path)
{
  const char *slash = strrchr(chain->path, '/');
  char *folder;

  PetscFunctionBegin;
  if (k == 0) {
    PetscCall(PetscStrallocpy(chain->path, path));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscStrallocpy(slash ? chain->path : ".", &folder));
  if (slash) folder[PetscMax(slash - chain->path, 1)] = '\0';
  PetscCall(TrsCheckpointStepPath(folder, chain->step[k], path));
  PetscCall(PetscFree(folder));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_step(TrsCheckpointChain *chain, int64_t step)
{
  PetscFunctionBegin;
  PetscCall(PetscRealloc((size_t)(chain->n + 1) * sizeof(*chain->step), &chain->step));
  chain->step[chain->n++] = step;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that the file `next` continues the file `path`. `after` and `place` are the places of `next`
  and of `path` in the chain.
*/
static PetscErrorCode check_link(const char *path, const char *next, const TrsDeltaPlace *after,
                                 const TrsDeltaPlace *place)
{
  char id[TRS_FILE_ID_SIZE];

  PetscFunctionBegin;
  PetscCall(TrsCheckpointFileId(path, id));
  TRS_CHECK_DATA(strcmp(id, after->id) == 0 && place->number == after->number - 1 &&
                     (place->number == 0 || strcmp(place->base, after->base) == 0),
                 "%s is increment %" PRId64 " and continues file %s, but %s is increment %" PRId64
                 " and file %s: they do not belong together",
                 next, after->number, after->id, path, place->number, id);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the step of a file and its place in a chain. A full checkpoint has number 0. */
static PetscErrorCode read_link(const char *path, int64_t *step, TrsDeltaPlace *place)
{
  TrsHDF5File file = {.path = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = TrsCheckpointOpen(path, &file);
  if (ierr == PETSC_SUCCESS) ierr = TrsHDF5ReadCount(&file, "step", TRS_MOST_COUNT, step);
  if (ierr == PETSC_SUCCESS) ierr = TrsCheckpointReadChain(&file, place);
  (void)TrsHDF5FileClose(&file);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Note the file that is at fault if an error is raised from now on. */
static void note(TrsCheckpointChain *chain, int k)
{
  if (chain->fault) *chain->fault = chain->step[k];
}

PetscErrorCode TrsCheckpointChainFind(TrsCheckpointChain *chain)
{
  TrsDeltaPlace place, before;
  char *path, *earlier;
  int64_t step = 0;

  PetscFunctionBegin;
  chain->n = 0;
  PetscCall(read_link(chain->path, &step, &place));
  PetscCall(add_step(chain, step));
  PetscCall(PetscStrallocpy(chain->path, &path));
  while (place.number > 0) {
    note(chain, chain->n - 1);
    TRS_CHECK_DATA(place.step < step,
                   "%s has step %" PRId64 ", and attribute increment_from_step %" PRId64
                   ", expected an earlier step",
                   path, step, place.step);
    PetscCall(add_step(chain, place.step));
    PetscCall(TrsCheckpointChainPath(chain, chain->n - 1, &earlier));
    TRS_CHECK_DATA(access(earlier, F_OK) == 0,
                   "%s has only the rows that have changed since %s, which is missing", path, earlier);
    note(chain, chain->n - 1);
    PetscCall(read_link(earlier, &step, &before));
    note(chain, chain->n - 2);
    PetscCall(check_link(earlier, path, &place, &before));
    PetscCall(PetscFree(path));
    path = earlier;
    place = before;
  }
  PetscCall(PetscFree(path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointChainShare(MPI_Comm comm, TrsCheckpointChain *chain)
{
  int rank;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, NULL));
  PetscCall(TrsBroadcast(comm, &chain->n, (int64_t)sizeof(chain->n)));
  if (rank != 0) PetscCall(PetscMalloc1((size_t)chain->n, &chain->step));
  PetscCall(TrsBroadcast(comm, chain->step, chain->n * (int64_t)sizeof(*chain->step)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the rows of a table in a file of a chain --- */

PetscErrorCode TrsCheckpointBucketsRead(const TrsHDF5File *file, const char *table, TrsFileBuckets *buckets)
{
  char name[TRS_CHECKPOINT_MAX_NAME];
  TrsCheckpointSource s;
  int64_t used;

  PetscFunctionBegin;
  TRS_CHECK_DATA(snprintf(name, sizeof(name), "embedding/%s/dynamic/buckets", table) < (int)sizeof(name),
                 "%s: the name of table %.40s... is too long", file->path, table);
  PetscCall(TrsCheckpointSourceOpen(file, name, &s));
  TRS_CHECK_DATA(s.id >= 0 && s.shape.type_class == H5T_INTEGER && s.shape.ndim == 2 && s.shape.dims[1] >= 1,
                 "%s: /%s is not the table's buckets", file->path, name);
  PetscCall(TrsCheckpointSourcePlace(&s, H5Tcopy(H5T_NATIVE_INT64)));
  buckets->n = s.shape.dims[0];
  PetscCall(PetscRealloc((size_t)(buckets->n + 1) * sizeof(*buckets->begin), &buckets->begin));
  buckets->begin[0] = 0;
  for (int64_t b = 0; b < buckets->n; b++) {
    PetscCall(TrsCheckpointSourceRead(&s, b, 1, 0, 1, &used));
    TRS_CHECK_DATA(used >= 0 && used <= TRS_MOST_COUNT, "%s: /%s: bucket %" PRId64 " has %" PRId64 " rows",
                   file->path, name, b, used);
    buckets->begin[b + 1] = buckets->begin[b] + used;
  }
  PetscCall(TrsCheckpointSourceClose(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the attributes of a list of rows: the limit of their numbers, and the rows of a bucket. */
static PetscErrorCode read_limits(const TrsCheckpointSource *s, TrsFileRows *rows)
{
  int64_t buckets = 0;
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(TrsHDF5ReadInts(s->file, s->id, s->name, "num_embeddings", 1, NULL, &rows->limit));
  PetscCall(TrsHDF5ReadInts(s->file, s->id, s->name, "buckets", 1, &found, &buckets));
  TRS_CHECK_DATA(rows->limit >= 0 && (!found || (buckets > 0 && rows->limit % buckets == 0)),
                 "%s: /%s has num_embeddings %" PRId64 " and buckets %" PRId64, s->file->path, s->name,
                 rows->limit, buckets);
  rows->bucket_rows = found ? rows->limit / buckets : rows->limit;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the numbers from `low` to below `high`, and check that all numbers are ascending. */
static PetscErrorCode read_numbers(const TrsCheckpointSource *s, int64_t low, int64_t high, TrsFileRows *rows)
{
  const int64_t all = s->shape.dims[0], at_once = trs_strip_bytes / (int64_t)sizeof(int64_t);
  int64_t *strip, last = -1, capacity = 0;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(PetscMin(all, at_once), sizeof(*strip), &strip));
  for (int64_t r = 0; r < all; r += at_once) {
    const int64_t n = PetscMin(at_once, all - r);

    PetscCall(TrsCheckpointSourceRead(s, r, n, 0, 1, strip));
    for (int64_t i = 0; i < n; i++) {
      TRS_CHECK_DATA(strip[i] > last && strip[i] < rows->limit,
                     "%s: /%s: row %" PRId64 " is %" PRId64 ", expected ascending numbers below %" PRId64,
                     s->file->path, s->name, r + i, strip[i], rows->limit);
      last = strip[i];
      if (last < low || last >= high) continue;
      if (rows->n == 0) rows->first = r + i;
      if (rows->n == capacity) {
        capacity = 2 * capacity + 1024;
        PetscCall(PetscRealloc((size_t)capacity * sizeof(*rows->number), &rows->number));
      }
      rows->number[rows->n++] = last;
    }
  }
  PetscCall(TrsFree(&strip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Open the list of a table's rows in an increment, and read its attributes. If the file lacks the
  list, s->id is -1. `name` is borrowed by *s.
*/
static PetscErrorCode open_rows(const TrsHDF5File *file, const char *table,
                                char name[TRS_CHECKPOINT_MAX_NAME], TrsCheckpointSource *s, TrsFileRows *rows)
{
  PetscFunctionBegin;
  TRS_CHECK_DATA(snprintf(name, TRS_CHECKPOINT_MAX_NAME, "embedding/%s/delta/rows", table) <
                     TRS_CHECKPOINT_MAX_NAME,
                 "%s: the name of table %.40s... is too long", file->path, table);
  PetscCall(TrsCheckpointSourceOpen(file, name, s));
  if (s->id < 0) PetscFunctionReturn(PETSC_SUCCESS);
  TRS_CHECK_DATA(s->shape.type_class == H5T_INTEGER && s->shape.ndim == 1, "%s: /%s is no list of rows",
                 file->path, name);
  PetscCall(read_limits(s, rows));
  PetscCall(TrsCheckpointSourcePlace(s, H5Tcopy(H5T_NATIVE_INT64)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointRowsTry(const TrsHDF5File *file, const char *table)
{
  char name[TRS_CHECKPOINT_MAX_NAME];
  TrsFileRows rows = {.n = 0};
  TrsCheckpointSource s;

  PetscFunctionBegin;
  PetscCall(open_rows(file, table, name, &s, &rows));
  PetscCall(TrsCheckpointSourceClose(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointRowsRead(const TrsHDF5File *file, const TrsStateTensor *tensor, TrsFileRows *rows)
{
  int64_t low = INT64_MAX, high = 0;
  char name[TRS_CHECKPOINT_MAX_NAME];
  TrsCheckpointSource s;

  PetscFunctionBegin;
  for (int k = 0; k < tensor->n_parts; k++) {
    low = PetscMin(low, tensor->part[k].row_offset);
    high = PetscMax(high, tensor->part[k].row_offset + tensor->part[k].rows);
  }
  if (tensor->find) {
    low = 0;
    high = INT64_MAX;
  }
  rows->n = rows->all = 0;
  PetscCall(open_rows(file, tensor->rows_of, name, &s, rows));
  if (s.id >= 0) {
    TRS_CHECK_DATA(tensor->find || !tensor->was_read || rows->limit == tensor->rows_read,
                   "%s: table \"%s\" has %" PRId64 " rows, but %" PRId64
                   " in the full checkpoint of its chain",
                   file->path, tensor->rows_of, rows->limit, tensor->rows_read);
    PetscCall(read_numbers(&s, low, high, rows));
    rows->all = s.shape.dims[0];
  }
  PetscCall(TrsCheckpointSourceClose(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointRowsFree(TrsFileRows *rows)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(rows->number));
  PetscCall(PetscFree(rows->own.begin));
  PetscCall(PetscFree(rows->newest.begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return the last i of 0 .. n - 1 with list[i] <= value, or -1. The list is ascending. */
static int64_t last_below(int64_t n, const int64_t *list, int64_t value)
{
  int64_t low = 0, high = n;

  while (low < high) {
    const int64_t middle = low + (high - low) / 2;

    if (list[middle] <= value)
      low = middle + 1;
    else
      high = middle;
  }
  return low - 1;
}

/*
  Return the place in this file of row `row` of the chain's newest file, or -1. For a table that
  grows, a full file and the newest file's ids have only the rows in use, bucket after bucket.
*/
static int64_t row_in_file(const TrsFileRows *rows, int64_t row)
{
  const int64_t b = last_below(rows->newest.n, rows->newest.begin, row);
  int64_t r, i;

  if (b < 0) return -1;
  r = row - rows->newest.begin[b];
  if (rows->full) return r < rows->own.begin[b + 1] - rows->own.begin[b] ? rows->own.begin[b] + r : -1;
  i = last_below(rows->n, rows->number, b * rows->bucket_rows + r);
  return i >= 0 && rows->number[i] == b * rows->bucket_rows + r ? rows->first + i : -1;
}

/* The rows of a part of a table that grows. The placement finds them in the newest file. */
static PetscErrorCode find_packed(const TrsFileRows *rows, const TrsStateTensor *tensor, int k,
                                  const char *path, int64_t *n, int64_t **from, int64_t **to)
{
  const int64_t *row, *place;
  int64_t all;

  PetscFunctionBegin;
  PetscCall(tensor->find(tensor->list_context, k, path, &all, &row, &place));
  TRS_CHECK_DATA(!rows->full || rows->own.n == rows->newest.n,
                 "%s: table \"%s\" has %" PRId64 " buckets, but %" PRId64 " in the newest file of its chain",
                 path, tensor->rows_of, rows->own.n, rows->newest.n);
  PetscCall(PetscMalloc2((size_t)all, from, (size_t)all, to));
  *n = 0;
  for (int64_t i = 0; i < all; i++) {
    const int64_t found = row_in_file(rows, row[i]);

    if (found < 0) continue;
    (*from)[*n] = found;
    (*to)[(*n)++] = place[i];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointRowsFind(const TrsFileRows *rows, const TrsStateTensor *tensor, int k,
                                     const char *path, int64_t *n, int64_t **from, int64_t **to)
{
  const TrsStatePart *part = &tensor->part[k];
  int64_t first, end;

  PetscFunctionBegin;
  if (tensor->find) {
    PetscCall(find_packed(rows, tensor, k, path, n, from, to));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  first = last_below(rows->n, rows->number, part->row_offset - 1) + 1;
  end = last_below(rows->n, rows->number, part->row_offset + part->rows - 1) + 1;
  *n = end - first;
  PetscCall(PetscMalloc2((size_t)*n, from, (size_t)*n, to));
  for (int64_t i = 0; i < *n; i++) {
    (*from)[i] = rows->first + first + i;
    (*to)[i] = rows->number[first + i] - part->row_offset;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
