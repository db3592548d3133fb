/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/ranks.h"
#include "core/trust.h"
#include "io/checkpoint/impl.h"
#include "io/dataset.h"
#include "io/preflight.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

PetscErrorCode TrsCheckpointSourceOpen(const TrsHDF5File *file, const char *name, TrsCheckpointSource *s)
{
  PetscFunctionBegin;
  *s = (TrsCheckpointSource){.file = file, .name = name, .id = -1, .memory = -1};
  PetscCall(TrsHDF5Open(file, name, H5I_DATASET, &s->id));
  if (s->id < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsHDF5CheckDataset(file, name, s->id, &s->shape));
  if (s->shape.ndim == 1) s->shape.dims[1] = 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointSourcePlace(TrsCheckpointSource *s, hid_t memory)
{
  PetscFunctionBegin;
  s->memory = memory;
  PetscCall(TrsExtentGet(s->id, memory, &s->extent));
  PetscCall(TrsExtentCheck(&s->extent, s->file->path, s->name, s->file->bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointSourceClose(TrsCheckpointSource *s)
{
  PetscFunctionBegin;
  PetscCall(TrsExtentFree(&s->extent));
  if (s->memory >= 0) (void)H5Tclose(s->memory);
  if (s->id >= 0) (void)H5Dclose(s->id);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static herr_t read_by_hdf5(const TrsCheckpointSource *s, int64_t row, int64_t rows, int64_t col, int64_t cols,
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

PetscErrorCode TrsCheckpointSourceRead(const TrsCheckpointSource *s, int64_t row, int64_t rows, int64_t col,
                                       int64_t cols, void *data)
{
  PetscFunctionBegin;
  if (s->extent.offset) {
    int error = TrsExtentRead(s->file->fd, &s->extent, row, rows, col, cols, data);

    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: /%s cannot be read: %s", s->file->path, s->name,
               error == ENODATA ? "the file has become shorter" : strerror(error));
  } else if (rows > 0 && cols > 0) {
    TRS_CHECK_DATA(read_by_hdf5(s, row, rows, col, cols, data) >= 0,
                   "%s: rows %" PRId64 " to %" PRId64 " of /%s cannot be read%s", s->file->path, row,
                   row + rows - 1, s->name, TrsHDF5Error());
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointRunId(const TrsHDF5File *file, char id[TRS_RUN_ID_SIZE])
{
  PetscBool found;
  char *text;

  PetscFunctionBegin;
  PetscCall(TrsHDF5ReadString(file, file->id, "", TRS_CHECKPOINT_RUN_ID, &found, &text));
  TRS_CHECK_DATA(!found || TrsRunIdIsValid(text),
                 "%s: attribute " TRS_CHECKPOINT_RUN_ID " is \"%.40s\", expected 16 hexadecimal digits",
                 file->path, text);
  PetscCall(PetscStrncpy(id, found ? text : "", TRS_RUN_ID_SIZE));
  PetscCall(PetscFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the place of a training that follows a folder. */
static PetscErrorCode read_place(const TrsHDF5File *file, PetscBool *follows, TrsFollowPlace *place)
{
  int64_t counts[2];
  PetscBool found;
  char *name;

  PetscFunctionBegin;
  place->position = -1;
  PetscCall(TrsHDF5ReadCount(file, "follow_position", TRS_MOST_COUNT, &place->position));
  *follows = (PetscBool)(place->position >= 0);
  if (!*follows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsHDF5ReadString(file, file->id, "", "follow_file", NULL, &name));
  found = (PetscBool)(strlen(name) < sizeof(place->file) && !strchr(name, '/'));
  PetscCall(PetscStrncpy(place->file, name, sizeof(place->file)));
  PetscCall(PetscFree(name));
  TRS_CHECK_DATA(found, "%s: attribute follow_file is \"%.100s\", expected the name of a file in a folder",
                 file->path, place->file);
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "follow_samples", 2, NULL, counts));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "follow_hash", 1, NULL, &place->hash));
  place->taken = counts[0];
  place->samples = counts[1];
  TRS_CHECK_DATA(0 <= place->taken && place->taken <= place->samples && place->taken <= place->position &&
                     place->samples <= TRS_MOST_COUNT,
                 "%s: attribute follow_samples is %" PRId64 ", %" PRId64
                 ", expected the samples taken and all samples of a file, with follow_position %" PRId64,
                 file->path, place->taken, place->samples, place->position);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_info(const TrsHDF5File *file, TrsCheckpointInfo *info)
{
  int64_t most_steps;
  PetscBool found;

  PetscFunctionBegin;
  memset(info, 0, sizeof(*info));
  /* A weights file from another program may lack these attributes. */
  PetscCall(TrsHDF5ReadCount(file, "step", TRS_MOST_COUNT, &info->step));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "states_from", TRS_STATES_KINDS, &found, info->states_from));
  for (int kind = 0; kind < TRS_STATES_KINDS; kind++)
    PetscCheck(info->states_from[kind] >= 0 && info->states_from[kind] <= info->step, PETSC_COMM_SELF,
               TRS_ERR_DATA, "%s: attribute states_from has %" PRId64 ", expected 0 to step, %" PRId64,
               file->path, info->states_from[kind], info->step);
  PetscCall(TrsHDF5ReadCount(file, "epoch", TRS_MOST_COUNT, &info->epoch));
  PetscCall(TrsHDF5ReadCount(file, "samples_seen", TRS_MOST_COUNT, &info->samples_seen));
  info->run_step = info->step;
  PetscCall(TrsHDF5ReadCount(file, "run_step", TRS_MOST_COUNT, &info->run_step));
  PetscCall(TrsHDF5ReadCount(file, "global_batch", TRS_MOST_COUNT, &info->global_batch));
  PetscCall(TrsHDF5ReadCount(file, "epoch_steps", TRS_MOST_COUNT, &info->epoch_steps));
  PetscCall(TrsHDF5ReadCount(file, "evaluation_due", 1, &info->evaluation_due));
  PetscCall(TrsHDF5ReadCount(file, "data_samples", TRS_MOST_COUNT, &info->data_samples));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "data_hash", 1, &found, &info->data_hash));
  PetscCall(read_place(file, &info->follows, &info->follow_place));
  PetscCall(TrsCheckpointRunId(file, info->run_id));
  PetscCall(TrsHDF5ReadString(file, file->id, "", "options", &found, &info->options_read));
  PetscCall(TrsHDF5ReadReals(file, file->id, "", TRS_CHECKPOINT_METRICS, &found, &info->metrics.n,
                             &info->metrics.value));
  PetscCall(TrsHDF5ReadReals(file, file->id, "", TRS_CHECKPOINT_METRICS_EXACT, &found, &info->metrics_exact.n,
                             &info->metrics_exact.value));
  PetscCall(TrsHDF5ReadReals(file, file->id, "", TRS_CHECKPOINT_METRICS_WINDOW, &found,
                             &info->metrics_window.n, &info->metrics_window.value));
  PetscCall(TrsHDF5ReadString(file, file->id, "", "metrics_of", &found, &info->metrics_of_read));
  PetscCall(TrsHDF5ReadCount(file, "weights_only", 1, &info->weights_only));
  PetscCall(TrsCheckpointReadPlace(file, &info->place));
  PetscCall(TrsCheckpointReadChain(file, &info->chain));
  PetscCall(TrsHDF5ReadReals(file, file->id, "", TRS_CHECKPOINT_EARLY_STOPPING, &found,
                             &info->early_stopping.n, &info->early_stopping.value));
  most_steps = INT64_MAX / 4 / PetscMax(info->global_batch, 1);
  TRS_CHECK_DATA(info->run_step <= most_steps && info->epoch_steps <= most_steps,
                 "%s: run_step %" PRId64 ", epoch_steps %" PRId64 ", global_batch %" PRId64
                 ": expected steps times samples below 2^61",
                 file->path, info->run_step, info->epoch_steps, info->global_batch);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Open the file, and check its format and version. Return its format. */
static PetscErrorCode open_any(const char *path, TrsHDF5File *file, const char **format)
{
  static const struct {
    const char *format;
    int64_t version;
  } kinds[] = {{TRS_CHECKPOINT_FORMAT, TRS_CHECKPOINT_VERSION},
               {TRS_DELTA_FORMAT, TRS_DELTA_VERSION},
               {TRS_INCREMENT_FORMAT, TRS_INCREMENT_VERSION}};
  size_t i = sizeof(kinds) / sizeof(kinds[0]);
  PetscBool found;
  char *text;

  PetscFunctionBegin;
  PetscCall(TrsFileTrust(path));
  PetscCall(TrsHDF5FileOpen(path, file));
  PetscCall(TrsHDF5ReadString(file, file->id, "", "format", &found, &text));
  while (--i > 0 && (!found || strcmp(text, kinds[i].format) != 0)) {
  }
  PetscCall(PetscFree(text));
  *format = kinds[i].format;
  PetscCall(TrsHDF5CheckFormat(file, kinds[i].format, kinds[i].version));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointOpenAny(const char *path, TrsHDF5File *file)
{
  const char *format;

  PetscFunctionBegin;
  PetscCall(open_any(path, file, &format));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointOpen(const char *path, TrsHDF5File *file)
{
  const char *format;

  PetscFunctionBegin;
  PetscCall(open_any(path, file, &format));
  TRS_CHECK_DATA(strcmp(format, TRS_DELTA_FORMAT) != 0,
                 "%s is a delta, which has only the rows that have changed since the file before it: "
                 "tools/apply_delta.py makes a checkpoint from its base and its chain of deltas",
                 path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The request to read a file. If state is NULL, only the checksums are verified. */
typedef struct {
  const char *path;
  const TrsCheckpointWanted *wanted;
  const TrsState *state;
  TrsCheckpointInfo *info;
  TrsCheckpointChain chain; /* the files to read */
} TrsRequestOfFile;

/* Is the tensor read from file k of the chain? Rows of tables are in all files. */
static PetscBool is_of_file(const TrsRequestOfFile *q, int k, const TrsStateTensor *tensor)
{
  return (PetscBool)(q->chain.n == 1 || (tensor->rows_of ? k > 0 : k == 0));
}

/* Check the ids of the tables that are to be read. Missing weights are an error elsewhere. */
static PetscErrorCode check_keys(const TrsHDF5File *file, const TrsRequestOfFile *q)
{
  const PetscBool may_leave_out = (PetscBool)(q->wanted && !q->wanted->same);

  PetscFunctionBegin;
  for (int i = 0; i < q->state->n; i++) {
    const TrsStateTensor *tensor = &q->state->tensor[i];
    char table[TRS_CHECKPOINT_MAX_NAME];
    hid_t id;

    if (!tensor->id_map || !TrsCheckpointWants(q->wanted, q->state, tensor)) continue;
    PetscCall(TrsHDF5Open(file, tensor->path, H5I_DATASET, &id));
    if (id < 0) continue;
    (void)H5Dclose(id);
    PetscCall(PetscStrncpy(table, tensor->path + strlen("embedding/"), sizeof(table)));
    table[strlen(table) - strlen("/weight")] = '\0';
    PetscCall(TrsCheckpointCheckKeys(file, table, tensor->id_map, may_leave_out));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read everything from the newest file, except the rows of tables if the file is an increment. */
static PetscErrorCode read_newest(const TrsHDF5File *file, const TrsRequestOfFile *q, int rank)
{
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(read_info(file, q->info));
  if (rank == 0)
    PetscCall(TrsHDF5ReadString(file, file->id, "", TRS_MAPPING_ATTRIBUTE, &found, &q->info->mapping_read));
  PetscCall(check_keys(file, q));
  for (int i = 0; i < q->state->n; i++)
    if (is_of_file(q, 0, &q->state->tensor[i]))
      PetscCall(TrsCheckpointReadTensor(file, q->wanted, q->state, NULL, &q->state->tensor[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read the rows of tables from file k of a chain. The tensors of a table follow one another, so the
  numbers of its rows are read once.
*/
static PetscErrorCode read_rows(const TrsHDF5File *file, const TrsHDF5File *newest, const TrsRequestOfFile *q,
                                int k)
{
  TrsFileRows rows = {.full = (PetscBool)(k == q->chain.n - 1)};
  const char *table = NULL;

  PetscFunctionBegin;
  if (rows.full) PetscCall(check_keys(file, q));
  for (int i = 0; i < q->state->n; i++) {
    TrsStateTensor *tensor = &q->state->tensor[i];

    if (!tensor->rows_of || (!rows.full && !tensor->was_read)) continue;
    if (!TrsCheckpointWants(q->wanted, q->state, tensor)) {
      tensor->unwanted = PETSC_TRUE;
      tensor->was_read = PETSC_FALSE;
      continue;
    }
    if (tensor->rows_of != table) {
      table = tensor->rows_of;
      if (tensor->find) PetscCall(TrsCheckpointBucketsRead(newest, table, &rows.newest));
      if (tensor->find && rows.full) PetscCall(TrsCheckpointBucketsRead(file, table, &rows.own));
      if (!rows.full) PetscCall(TrsCheckpointRowsRead(file, tensor, &rows));
    }
    if (rows.full)
      PetscCall(TrsCheckpointReadTensor(file, q->wanted, q->state, &rows, tensor));
    else if (rows.all > 0)
      PetscCall(TrsCheckpointReadChanged(file, q->state, &rows, tensor));
  }
  PetscCall(TrsCheckpointRowsFree(&rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Try everything except reading the data of file k of the chain. */
static PetscErrorCode try_file(const TrsRequestOfFile *q, int k, const char *path)
{
  TrsCheckpointInfo info;
  TrsHDF5File file;
  PetscBool found;

  PetscFunctionBegin;
  if (q->chain.fault) *q->chain.fault = q->chain.step[k];
  PetscCall(TrsCheckpointOpen(path, &file));
  PetscCall(read_info(&file, &info));
  PetscCall(TrsHDF5ReadString(&file, file.id, "", TRS_MAPPING_ATTRIBUTE, &found, &info.mapping_read));
  /* With rank -1, only the tables of checksums are read. */
  PetscCall(TrsCheckpointVerifyParts(&file, -1, 1));
  if (q->state) PetscCall(check_keys(&file, q));
  for (int i = 0; q->state && i < q->state->n; i++) {
    const TrsStateTensor *tensor = &q->state->tensor[i];

    PetscCall(TrsCheckpointTryTensor(&file, tensor));
    if (tensor->rows_of && k < q->chain.n - 1) PetscCall(TrsCheckpointRowsTry(&file, tensor->rows_of));
  }
  if (q->wanted && k == q->chain.n - 1)
    PetscCall(TrsCheckpointFindUnexpected(&file, q->wanted, q->state, &info));
  (void)TrsHDF5FileClose(&file);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find and try all files. A child process of rank 0 runs this. */
static PetscErrorCode try_files(void *context)
{
  TrsRequestOfFile *q = context;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointChainFind(&q->chain));
  for (int k = 0; k < q->chain.n; k++) {
    char *path;

    PetscCall(TrsCheckpointChainPath(&q->chain, k, &path));
    PetscCall(try_file(q, k, path));
    PetscCall(PetscFree(path));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode find_files(TrsRequestOfFile *q)
{
  PetscFunctionBegin;
  PetscCall(TrsPreflight(q->path, try_files, q));
  PetscCall(TrsCheckpointChainFind(&q->chain));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Open file k of the chain, on rank 0 first, so that a bad file gives one error, and verify its
  checksums. The path must stay as long as the file is open.
*/
static PetscErrorCode open_verified(MPI_Comm comm, const TrsRequestOfFile *q, int k, const char *path,
                                    TrsHDF5File *file)
{
  int rank, size;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, &size));
  if (q->chain.fault) *q->chain.fault = q->chain.step[k];
  PetscCall(TrsAgree(comm, rank == 0 ? TrsCheckpointOpen(path, file) : PETSC_SUCCESS));
  PetscCall(TrsAgree(comm, rank == 0 ? PETSC_SUCCESS : TrsCheckpointOpen(path, file)));
  /* With rank -1, only the tables of checksums are read. */
  PetscCall(
      TrsAgree(comm, TrsCheckpointVerifyParts(file, q->state && q->state->unverified ? -1 : rank, size)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Verify file k, and read the rows of tables from it if there is a state. */
static PetscErrorCode read_earlier(MPI_Comm comm, const TrsRequestOfFile *q, int k, const TrsHDF5File *newest,
                                   TrsHDF5File *file)
{
  PetscErrorCode ierr;
  int rank;
  char *path;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, NULL));
  PetscCall(TrsCheckpointChainPath(&q->chain, k, &path));
  ierr = open_verified(comm, q, k, path, file);
  if (ierr == PETSC_SUCCESS && q->state) ierr = TrsAgree(comm, read_rows(file, newest, q, k));
  if (ierr == PETSC_SUCCESS && q->state && q->wanted && k == q->chain.n - 1)
    ierr = TrsAgree(comm, rank == 0 ? TrsCheckpointFindUnexpected(file, q->wanted, q->state, q->info)
                                    : PETSC_SUCCESS);
  (void)TrsHDF5FileClose(file);
  PetscCall(PetscFree(path));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read the newest file, then the rows of tables: those of the full checkpoint, and the changed ones
  of each increment. If the files are only verified, the newest comes first, because it is the
  likeliest to be damaged.
*/
static PetscErrorCode read_agreed(MPI_Comm comm, TrsRequestOfFile *q, TrsHDF5File *newest, TrsHDF5File *file)
{
  int rank;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, NULL));
  PetscCall(TrsAgree(comm, rank == 0 ? find_files(q) : PETSC_SUCCESS));
  PetscCall(TrsCheckpointChainShare(comm, &q->chain));
  PetscCall(open_verified(comm, q, 0, q->path, newest));
  if (!q->state) {
    for (int k = 1; k < q->chain.n; k++) PetscCall(read_earlier(comm, q, k, newest, file));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsAgree(comm, read_newest(newest, q, rank)));
  for (int k = q->chain.n - 1; q->chain.n > 1 && k >= 0; k--)
    PetscCall(read_earlier(comm, q, k, newest, file));
  if (q->state->was_read) PetscCall(TrsAgree(comm, q->state->was_read(q->state->was_read_context, q->path)));
  if (q->wanted && q->chain.n == 1)
    PetscCall(TrsAgree(comm, rank == 0 ? TrsCheckpointFindUnexpected(newest, q->wanted, q->state, q->info)
                                       : PETSC_SUCCESS));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_file(MPI_Comm comm, TrsRequestOfFile *q)
{
  TrsHDF5File newest = {.path = NULL}, file = {.path = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  q->chain.path = q->path;
  TrsHDF5Lock(); /* Loading holds the lock for long, but meanwhile no other thread reads. */
  ierr = read_agreed(comm, q, &newest, &file);
  (void)TrsHDF5FileClose(&newest);
  TrsHDF5Unlock();
  PetscCall(PetscFree(q->chain.step));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointRead(MPI_Comm comm, const char *path, const TrsState *state,
                                 TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  PetscCall(TrsCheckpointReadWanted(comm, path, state, NULL, info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointReadWanted(MPI_Comm comm, const char *path, const TrsState *state,
                                       const TrsCheckpointWanted *wanted, TrsCheckpointInfo *info)
{
  TrsRequestOfFile q = {.path = path, .wanted = wanted, .state = state, .info = info};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (info) memset(info, 0, sizeof(*info));
  ierr = read_file(comm, &q);
  if (ierr && info) (void)TrsCheckpointInfoFree(info);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointInfoFree(TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(info->metrics.value));
  PetscCall(PetscFree(info->metrics_exact.value));
  PetscCall(PetscFree(info->metrics_window.value));
  PetscCall(PetscFree(info->early_stopping.value));
  for (int i = 0; i < info->n_unexpected; i++) PetscCall(PetscFree(info->unexpected[i]));
  PetscCall(PetscFree(info->unexpected));
  PetscCall(PetscFree(info->other_state));
  PetscCall(PetscFree(info->options_read));
  PetscCall(PetscFree(info->metrics_of_read));
  PetscCall(PetscFree(info->mapping_read));
  info->metrics.n = info->metrics_exact.n = info->metrics_window.n = info->early_stopping.n =
      info->n_unexpected = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointVerify(MPI_Comm comm, const char *path, int64_t *fault)
{
  TrsRequestOfFile q = {.path = path};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  /* the child process that tries the files first writes here, too */
  q.chain.fault = mmap(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PetscCheck(q.chain.fault != MAP_FAILED, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory: %s",
             strerror(errno));
  *q.chain.fault = -1;
  ierr = read_file(comm, &q);
  *fault = *q.chain.fault;
  (void)munmap(q.chain.fault, sizeof(*fault));
  PetscCall(TrsBroadcast(comm, fault, (int64_t)sizeof(*fault)));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A query about a file. A child process of rank 0 tries it first. Then rank 0 makes it itself. */
typedef struct {
  const char *path;
  int n;
  const char *const *names, *const *id_maps;
  TrsStoredTable *stored;
} TrsTablesQuery;

/* Open a table's dataset and check how it is stored. If the dataset is missing, id is -1. */
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
  TRS_CHECK_DATA(shape->ndim == 2 && (is_bf16 || (shape->type_class == H5T_FLOAT && shape->type_bytes <= 4)),
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
  TRS_CHECK_DATA(shape->ndim == 2 && shape->type_class == H5T_INTEGER && shape->type_bytes == 1,
                 "%s: /%s is %s, expected uint8 of 2 dimensions", file->path, name, text);
  PetscCall(TrsHDF5ReadString(file, id, name, "data_type", NULL, &data_type));
  while (i < 3 && strcmp(data_type, TrsDTypeName(types[i])) != 0) i++;
  TRS_CHECK_DATA(i < 3, "%s: attribute data_type of /%s is \"%.40s\", expected int8, int4 or int2",
                 file->path, name, data_type);
  PetscCall(PetscFree(data_type));
  stored->dtype = types[i];
  PetscCall(TrsHDF5ReadInts(file, id, name, "embedding_dim", 1, NULL, &stored->embedding_dim));
  PetscCall(TrsHDF5ReadInts(file, id, name, "row_alignment", 1, NULL, &stored->row_alignment));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_table(const TrsHDF5File *file, const char *table, TrsStoredTable *stored)
{
  char weight[TRS_CHECKPOINT_MAX_NAME], quantised[TRS_CHECKPOINT_MAX_NAME];
  TrsHDF5Shape shape = {0}, bytes = {0};
  hid_t id, bytes_id;

  PetscFunctionBegin;
  TRS_CHECK_DATA(snprintf(weight, sizeof(weight), "embedding/%s/weight", table) < TRS_CHECKPOINT_MAX_NAME &&
                     snprintf(quantised, sizeof(quantised), "%s" TRS_QUANTISED_SUFFIX, weight) <
                         TRS_CHECKPOINT_MAX_NAME,
                 "%s: the table's name is too long for a checkpoint: %s", file->path, table);
  PetscCall(open_table(file, weight, &id, &shape));
  PetscCall(open_table(file, quantised, &bytes_id, &bytes));
  TRS_CHECK_DATA(id >= 0 || bytes_id >= 0, "%s has no dataset /%s, which the model needs", file->path,
                 weight);
  TRS_CHECK_DATA(id < 0 || bytes_id < 0, "%s has /%s and /%s: which one is the table?", file->path, weight,
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

PetscErrorCode TrsCheckpointQuery(MPI_Comm comm, const char *path, PetscErrorCode (*body)(void *),
                                  void *context)
{
  PetscErrorCode ierr = PETSC_SUCCESS;
  int rank;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, NULL));
  if (rank == 0) {
    TrsHDF5Lock();
    ierr = TrsPreflight(path, body, context);
    if (ierr == PETSC_SUCCESS) ierr = body(context);
    TrsHDF5Unlock();
  }
  PetscCall(TrsAgree(comm, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the tables from a full checkpoint, or from the full checkpoint of an increment. */
static PetscErrorCode read_tables(const TrsTablesQuery *q, const TrsCheckpointChain *chain, TrsHDF5File *file)
{
  char *path;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointChainPath(chain, chain->n - 1, &path));
  PetscCall(TrsCheckpointOpen(path, file));
  for (int t = 0; t < q->n; t++) {
    PetscCall(read_table(file, q->names[t], &q->stored[t]));
    PetscCall(TrsCheckpointCheckKeys(file, q->names[t], q->id_maps[t], PETSC_FALSE));
  }
  PetscCall(PetscFree(path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode query(void *context)
{
  const TrsTablesQuery *q = context;
  TrsCheckpointChain chain = {.path = q->path};
  TrsHDF5File file = {.path = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = TrsCheckpointChainFind(&chain);
  if (ierr == PETSC_SUCCESS) ierr = read_tables(q, &chain, &file);
  (void)TrsHDF5FileClose(&file);
  PetscCall(PetscFree(chain.step));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointTables(MPI_Comm comm, const char *path, int n, const char *const *names,
                                   const char *const *id_maps, TrsStoredTable *stored)
{
  TrsTablesQuery q = {path, n, names, id_maps, stored};

  PetscFunctionBegin;
  PetscCall(TrsCheckpointQuery(comm, path, query, &q));
  PetscCall(TrsBroadcast(comm, stored, n * (int64_t)sizeof(*stored)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the model --- */

typedef struct {
  const char *path;
  char *text; /* NULL if the file has no such text */
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

PetscErrorCode TrsCheckpointModel(MPI_Comm comm, const char *path, char **text)
{
  TrsModelQuery q = {path, NULL};
  int rank, bytes;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, NULL));
  PetscCall(TrsCheckpointQuery(comm, path, read_model, &q));
  bytes = q.text ? (int)strlen(q.text) + 1 : 0;
  PetscCall(TrsBroadcast(comm, &bytes, (int64_t)sizeof(bytes)));
  if (bytes && rank != 0) PetscCall(PetscMalloc((size_t)bytes, &q.text));
  PetscCall(TrsBroadcast(comm, q.text, bytes));
  *text = q.text;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the place --- */

typedef struct {
  const char *path;
  PetscBool follows;
  TrsFollowPlace place;
} TrsPlaceQuery;

static PetscErrorCode query_place(void *context)
{
  TrsPlaceQuery *q = context;
  TrsHDF5File file = {.path = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = TrsCheckpointOpen(q->path, &file);
  if (ierr == PETSC_SUCCESS) ierr = TrsCheckpointVerifyRoot(&file);
  if (ierr == PETSC_SUCCESS) ierr = read_place(&file, &q->follows, &q->place);
  (void)TrsHDF5FileClose(&file);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointReadFollowPlace(MPI_Comm comm, const char *path, PetscBool *follows,
                                            TrsFollowPlace *place)
{
  TrsPlaceQuery q = {.path = path};

  PetscFunctionBegin;
  PetscCall(TrsCheckpointQuery(comm, path, query_place, &q));
  PetscCall(TrsBroadcast(comm, &q.follows, (int64_t)sizeof(q.follows)));
  PetscCall(TrsBroadcast(comm, &q.place, (int64_t)sizeof(q.place)));
  *follows = q.follows;
  if (q.follows) *place = q.place;
  PetscFunctionReturn(PETSC_SUCCESS);
}
