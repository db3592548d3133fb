/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/dataset.h"

#include "core/names.h"
#include "io/dataset_file.h"
#include "io/dataset_names.h"
#include "io/dataset_same.h"
#include "io/preflight.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

/*
  Limits for the number of open files: files that are read only with a descriptor, and files that
  HDF5 reads. In addition, the first kind uses at most 1/TRS_OPEN_PART of the descriptors that the
  process may have.
*/
enum { TRS_OPEN_PLAIN = 256, TRS_OPEN_BY_HDF5 = 4, TRS_OPEN_PART = 4 };

/* bytes of lengths that are checked when a dataset is opened, over all files */
static const int64_t max_checked_bytes = (int64_t)256 << 20;

/* The open files of one kind: read with a descriptor, or by HDF5. */
typedef struct {
  int n, limit;
  TrsDatasetFile *file[TRS_OPEN_PLAIN];
} TrsOpenFiles;

struct TrsDatasetImpl {
  TrsDatasetInfo info;
  char *path;
  char **paths; /* the paths of the first files, in one block of memory */
  /* the paths of all files after TrsDatasetAppend(), and the blocks with the appended paths */
  const char **all_paths;
  char ***appended_paths; /* [n_appended] */
  int n_appended;
  TrsDatasetFile *file;
  /* [n_files + 1] index of each file's first sample and first value */
  int64_t *first_sample, *first_value;
  int64_t *num_embeddings;
  int *dense_column;
  const char **mappings; /* [n_files] */
  /* The lock protects the lists of open files and the number of users of each file. */
  pthread_mutex_t lock;
  pthread_cond_t released; /* signalled when no call uses a file any longer */
  TrsOpenFiles plain, by_hdf5;
  int64_t n_uses;
};

/* --- open files --- */

/* Find the least recently used open file that no call uses. Returns -1 if all files are in use. */
static int find_idle(const TrsOpenFiles *open)
{
  int oldest = -1;

  for (int i = 0; i < open->n; i++) {
    const TrsDatasetFile *file = open->file[i];

    if (file->users > 0) continue;
    if (oldest < 0 || file->last_used < open->file[oldest]->last_used) oldest = i;
  }
  return oldest;
}

/*
  If the limit of this kind is reached, close one file. If all files are in use, wait for another
  thread. The caller must hold the lock.
*/
static void make_room(TrsDataset dataset, TrsOpenFiles *open)
{
  while (open->n >= open->limit) {
    const int idle = find_idle(open);

    if (idle < 0) {
      pthread_cond_wait(&dataset->released, &dataset->lock);
      continue;
    }
    TrsDatasetFileRest(open->file[idle]);
    open->file[idle] = open->file[--open->n];
  }
}

/* Add a file that is now open to the list of its kind. */
static void keep_open(TrsDataset dataset, TrsDatasetFile *file)
{
  TrsOpenFiles *open = file->by_hdf5 ? &dataset->by_hdf5 : &dataset->plain;

  open->file[open->n++] = file;
  file->last_used = dataset->n_uses++;
}

/* Open a file if necessary, and keep it open until release_file(). */
static PetscErrorCode use_file(TrsDataset dataset, TrsDatasetFile *file, TrsFault *fault)
{
  PetscErrorCode code = PETSC_SUCCESS;

  pthread_mutex_lock(&dataset->lock);
  if (file->h5.fd < 0) make_room(dataset, file->by_hdf5 ? &dataset->by_hdf5 : &dataset->plain);
  /* Another thread may have opened the file while this thread waited. */
  if (file->h5.fd < 0) {
    code = TrsDatasetFileWake(file, fault);
    if (code == PETSC_SUCCESS)
      keep_open(dataset, file);
    else
      TrsDatasetFileRest(file);
  }
  if (code == PETSC_SUCCESS) {
    file->last_used = dataset->n_uses++;
    file->users++;
  }
  pthread_mutex_unlock(&dataset->lock);
  return code;
}

static void release_file(TrsDataset dataset, TrsDatasetFile *file)
{
  pthread_mutex_lock(&dataset->lock);
  if (--file->users == 0) pthread_cond_broadcast(&dataset->released);
  pthread_mutex_unlock(&dataset->lock);
}

/* --- runs over several files --- */

/*
  Find the file that has a given row. first [n_files + 1] is the first row of each file. The row
  after the last row belongs to the last file.
*/
static int file_of(const int64_t *first, int n_files, int64_t row)
{
  int lo = 0, hi = n_files;

  while (hi - lo > 1) { /* first[lo] <= row < first[hi] */
    const int middle = lo + (hi - lo) / 2;

    if (first[middle] <= row)
      lo = middle;
    else
      hi = middle;
  }
  return lo;
}

/* The runs that must still be read. Rows of the first run before `done` have already been read. */
typedef struct {
  const TrsRowRun *run;
  int64_t n, done;
} TrsRunsLeft;

/*
  The part of the remaining runs that lies in one file: whole runs, or a piece of a run that extends
  over several files.
*/
typedef struct {
  int file;
  const TrsRowRun *run;
  int64_t n, rows;
  TrsRowRun piece;
} TrsFilePart;

static void take_part(const int64_t *first, int n_files, TrsRunsLeft *left, TrsFilePart *part)
{
  const TrsRowRun *run = left->run;
  const int64_t from = run->first + left->done;
  const int k = file_of(first, n_files, from);

  *part = (TrsFilePart){.file = k, .run = run};
  if (left->done > 0 || run->first + run->n > first[k + 1]) {
    part->rows = PetscMin(run->first + run->n, first[k + 1]) - from;
    part->piece = (TrsRowRun){from, part->rows};
    part->run = &part->piece;
    part->n = 1;
    left->done += part->rows;
    if (left->done < run->n) return;
    left->done = 0;
    left->run++;
    left->n--;
    return;
  }
  for (; part->n < left->n && run[part->n].first >= first[k] &&
         run[part->n].first + run[part->n].n <= first[k + 1];
       part->n++)
    part->rows += run[part->n].n;
  left->run += part->n;
  left->n -= part->n;
}

PetscErrorCode TrsDatasetReadSamples(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run,
                                     const TrsSampleRows *to, TrsFault *fault)
{
  const TrsDatasetInfo *info = &dataset->info;
  TrsRunsLeft left = {run, n_runs, 0};
  TrsSampleRows at = *to;
  TrsFilePart part;

  while (left.n > 0) {
    TrsDatasetFile *file;

    take_part(dataset->first_sample, info->n_files, &left, &part);
    file = &dataset->file[part.file];
    if (use_file(dataset, file, fault) != PETSC_SUCCESS) return fault->code;
    (void)TrsDatasetFileReadSamples(file, part.n, part.run, &at, fault);
    release_file(dataset, file);
    if (fault->code != PETSC_SUCCESS) return fault->code;
    if (at.dense) at.dense += part.rows * info->dense_columns;
    if (at.labels) at.labels += part.rows * info->n_labels;
    if (at.weights) at.weights += part.rows;
    if (at.group) at.group += part.rows;
    if (at.time) at.time += part.rows;
    at.lengths += part.rows * info->n_features;
    at.offsets += part.rows + part.n;
    /* The offset at the end of this file's piece is also the first offset of the next piece. */
    if (left.done > 0) at.offsets--;
  }
  return PETSC_SUCCESS;
}

PetscErrorCode TrsDatasetReadValues(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run, void *values,
                                    float *weights, TrsFault *fault)
{
  TrsRunsLeft left = {run, n_runs, 0};
  TrsFilePart part;

  while (left.n > 0) {
    TrsDatasetFile *file;

    take_part(dataset->first_value, dataset->info.n_files, &left, &part);
    file = &dataset->file[part.file];
    if (use_file(dataset, file, fault) != PETSC_SUCCESS) return fault->code;
    (void)TrsDatasetFileReadValues(file, part.n, part.run, values, weights, fault);
    release_file(dataset, file);
    if (fault->code != PETSC_SUCCESS) return fault->code;
    values = (char *)values + part.rows * dataset->info.value_bytes;
    if (weights) weights += part.rows;
  }
  return PETSC_SUCCESS;
}

const char *TrsDatasetLocate(const TrsDatasetInfo *info, int64_t sample, int64_t *row)
{
  const int k = file_of(info->first_sample, info->n_files, sample);

  *row = sample - info->first_sample[k];
  return info->paths[k];
}

/* --- opening --- */

static PetscErrorCode try_file(void *context)
{
  PetscFunctionBegin;
  PetscCall(TrsDatasetFileCheck(context));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check a file. If it is suspicious, a child process tries it first, so that a damaged file cannot
  crash this process.
*/
static PetscErrorCode check_file(TrsDatasetFile *file, PetscBool suspicious)
{
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  TrsHDF5Lock();
  if (suspicious) ierr = TrsPreflight(file->path, try_file, file);
  if (ierr == PETSC_SUCCESS) ierr = TrsDatasetFileCheck(file);
  TrsHDF5Unlock();
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that a part of a file has the same columns as in the first file, or that it is missing in
  both files.
*/
static PetscErrorCode check_columns(const TrsDatasetFile *file, const TrsDatasetFile *first,
                                    TrsColumnKind kind)
{
  const TrsColumn *found = &file->column[kind], *expected = &first->column[kind];

  PetscFunctionBegin;
  PetscCheck((found->rows < 0) == (expected->rows < 0), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s has %s /%s, but %s has %s: files of one dataset must go together", file->path,
             found->rows < 0 ? "no" : "a", found->name, first->path, expected->rows < 0 ? "none" : "one");
  PetscCheck(found->rows < 0 || found->cols == expected->cols, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s has %d column%s, expected %d, as %s has", file->path, found->name, found->cols,
             TrsPlural(found->cols, "s"), expected->cols, first->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check that a file's labels have the same names in the same order as the first file's. */
static PetscErrorCode check_labels(const TrsDatasetFile *file, const TrsDatasetFile *first)
{
  PetscFunctionBegin;
  PetscCall(check_columns(file, first, TRS_COLUMN_LABELS));
  PetscCheck((file->label_names == NULL) == (first->label_names == NULL), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /labels has %d dimension%s, expected %d, as %s has", file->path, file->label_names ? 2 : 1,
             file->label_names ? "s" : "", first->label_names ? 2 : 1, first->path);
  for (int i = 0; file->label_names && i < first->column[TRS_COLUMN_LABELS].cols; i++)
    PetscCheck(strcmp(file->label_names[i], first->label_names[i]) == 0, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: label %d of /labels is \"%.100s\", expected \"%.100s\", as in %s", file->path, i,
               file->label_names[i], first->label_names[i], first->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that a file has the same features in the same order as the first file, and the same parts.
*/
static PetscErrorCode check_together(const TrsDatasetFile *file, const TrsDatasetFile *first)
{
  PetscFunctionBegin;
  PetscCheck(file->n_features == first->n_features, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /sparse has %d feature%s, expected %d, as %s has", file->path, file->n_features,
             TrsPlural(file->n_features, "s"), first->n_features, first->path);
  for (int f = 0; f < first->n_features; f++)
    PetscCheck(strcmp(file->features[f], first->features[f]) == 0, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: feature %d of /sparse is \"%.100s\", expected \"%.100s\", as in %s", file->path, f,
               file->features[f], first->features[f], first->path);
  PetscCheck(file->column[TRS_COLUMN_VALUES].is_unsigned64 == first->column[TRS_COLUMN_VALUES].is_unsigned64,
             PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /sparse/values is %s, expected %s, as in %s", file->path,
             first->column[TRS_COLUMN_VALUES].is_unsigned64 ? "signed" : "uint64",
             first->column[TRS_COLUMN_VALUES].is_unsigned64 ? "uint64" : "a signed type", first->path);
  PetscCall(check_columns(file, first, TRS_COLUMN_DENSE));
  PetscCall(check_labels(file, first));
  PetscCall(check_columns(file, first, TRS_COLUMN_WEIGHTS));
  PetscCall(check_columns(file, first, TRS_COLUMN_SAMPLE_WEIGHTS));
  PetscCall(check_columns(file, first, TRS_COLUMN_GROUP));
  PetscCall(check_columns(file, first, TRS_COLUMN_TIME));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return the larger range of ids. 0 means that ids have no bound. */
static int64_t larger_range(int64_t a, int64_t b)
{
  return a == 0 || b == 0 ? 0 : PetscMax(a, b);
}

/*
  Keep the mapping of file k for rank 0. A text that equals the first mapping is not stored again.
*/
static PetscErrorCode keep_mapping(TrsDataset dataset, int k, PetscBool keep)
{
  TrsDatasetFile *file = &dataset->file[k];

  PetscFunctionBegin;
  for (int i = 0; i < k && keep && file->mapping; i++) {
    if (!dataset->mappings[i]) continue;
    if (strcmp(file->mapping, dataset->mappings[i]) == 0) {
      dataset->mappings[k] = dataset->mappings[i];
      keep = PETSC_FALSE;
    }
    break;
  }
  if (keep)
    dataset->mappings[k] = file->mapping;
  else
    PetscCall(PetscFree(file->mapping));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Append a checked file to the dataset. */
static PetscErrorCode add_file(TrsDataset dataset, int k)
{
  TrsDatasetFile *file = &dataset->file[k];
  TrsDatasetInfo *info = &dataset->info;

  PetscFunctionBegin;
  if (k > 0) PetscCall(check_together(file, &dataset->file[0]));
  if (k == 0) {
    PetscCall(
        PetscCalloc2(file->n_features, &dataset->num_embeddings, file->n_features, &info->mean_lengths));
    info->features = (const char *const *)file->features;
    info->label_names = (const char *const *)file->label_names;
  }
  for (int f = 0; f < file->n_features; f++)
    dataset->num_embeddings[f] = k > 0 ? larger_range(dataset->num_embeddings[f], file->num_embeddings[f])
                                       : file->num_embeddings[f];
  if (k > 0) PetscCall(PetscFree(file->features));
  if (k > 0) PetscCall(PetscFree(file->label_names));
  PetscCall(PetscFree(file->num_embeddings));
  info->value_bytes = PetscMax(info->value_bytes, file->column[TRS_COLUMN_VALUES].memory_bytes);
  info->has_unsigned_ids = (PetscBool)(info->has_unsigned_ids ||
                                       file->column[TRS_COLUMN_VALUES].is_unsigned64);
  PetscCheck(
      !__builtin_add_overflow(dataset->first_sample[k], file->num_samples, &dataset->first_sample[k + 1]) &&
          !__builtin_add_overflow(dataset->first_value[k], file->num_values, &dataset->first_value[k + 1]),
      PETSC_COMM_SELF, TRS_ERR_DATA,
      "%s: the files before it and this one have more than %" PRId64 " samples or ids", file->path,
      INT64_MAX);
  make_room(dataset, file->by_hdf5 ? &dataset->by_hdf5 : &dataset->plain);
  keep_open(dataset, file);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Set the first sample and the first value of each file, and all facts about the dataset that depend
  on all files.
*/
static void place_files(TrsDataset dataset)
{
  TrsDatasetInfo *info = &dataset->info;
  const TrsDatasetFile *first = &dataset->file[0];

  for (int k = 0; k < info->n_files; k++) {
    dataset->file[k].first_sample = dataset->first_sample[k];
    dataset->file[k].first_value = dataset->first_value[k];
    if (info->value_bytes == (int)sizeof(int64_t)) TrsDatasetFileWidenIds(&dataset->file[k]);
  }
  info->first_sample = dataset->first_sample;
  info->num_samples = dataset->first_sample[info->n_files];
  info->num_values = dataset->first_value[info->n_files];
  info->n_features = first->n_features;
  info->num_embeddings = dataset->num_embeddings;
  info->dense_columns = first->column[TRS_COLUMN_DENSE].rows >= 0 ? first->column[TRS_COLUMN_DENSE].cols : 0;
  info->num_dense = info->dense_columns;
  info->has_weights = (PetscBool)(first->column[TRS_COLUMN_WEIGHTS].rows >= 0);
  info->has_labels = (PetscBool)(first->column[TRS_COLUMN_LABELS].rows >= 0);
  info->n_labels = info->has_labels ? first->column[TRS_COLUMN_LABELS].cols : 0;
  info->has_sample_weights = (PetscBool)(first->column[TRS_COLUMN_SAMPLE_WEIGHTS].rows >= 0);
  info->has_group = (PetscBool)(first->column[TRS_COLUMN_GROUP].rows >= 0);
  info->has_time = (PetscBool)(first->column[TRS_COLUMN_TIME].rows >= 0);
}

/*
  Compute the mean lengths from rank 0's sums. The checked samples stand for all samples of the
  file.
*/
static PetscErrorCode add_lengths(TrsDataset dataset, int k, double *sums)
{
  const TrsDatasetInfo *info = &dataset->info;
  TrsDatasetFile *file = &dataset->file[k];
  int64_t seen;

  PetscFunctionBegin;
  PetscCall(PetscArrayzero(sums, file->n_features));
  PetscCall(TrsDatasetFileCheckLengths(file, max_checked_bytes / info->n_files, sums, &seen));
  for (int f = 0; f < file->n_features; f++)
    info->mean_lengths[f] += sums[f] * ((double)file->num_samples / (double)seen);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Open the files of dataset->paths one after the other. `suspicious` is true on the rank that opens
  them first; this rank checks everything.
*/
static PetscErrorCode open_files(TrsDataset dataset, PetscBool suspicious)
{
  TrsDatasetInfo *info = &dataset->info;
  double *sums = NULL;

  PetscFunctionBegin;
  for (int k = 0; k < info->n_files; k++) {
    TrsDatasetFile *file = &dataset->file[k];

    file->path = info->paths[k];
    PetscCall(check_file(file, suspicious));
    PetscCall(add_file(dataset, k));
    PetscCall(keep_mapping(dataset, k, suspicious));
    if (!suspicious) continue;
    if (!sums) PetscCall(PetscMalloc1(file->n_features, &sums));
    PetscCall(add_lengths(dataset, k, sums));
  }
  place_files(dataset);
  for (int f = 0; f < info->n_features; f++) info->mean_lengths[f] /= (double)info->num_samples;
  PetscCall(PetscFree(sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_files(TrsDataset dataset)
{
  TrsDatasetInfo *info = &dataset->info;
  const size_t bytes = strlen(dataset->paths[0]) + 64;
  struct rlimit limit;

  PetscFunctionBegin;
  info->paths = (const char *const *)dataset->paths;
  PetscCall(PetscCalloc1((size_t)info->n_files, &dataset->file));
  PetscCall(PetscCalloc1((size_t)info->n_files + 1, &dataset->first_sample));
  PetscCall(PetscCalloc1((size_t)info->n_files + 1, &dataset->first_value));
  PetscCall(PetscCalloc1((size_t)info->n_files, &dataset->mappings));
  info->mappings = dataset->mappings;
  PetscCall(PetscMalloc1(bytes, &dataset->path));
  if (info->n_files == 1)
    PetscCall(PetscSNPrintf(dataset->path, bytes, "%s", info->paths[0]));
  else
    PetscCall(PetscSNPrintf(dataset->path, bytes, "%s and %d more file%s", info->paths[0], info->n_files - 1,
                            info->n_files == 2 ? "" : "s"));
  info->path = dataset->path;
  dataset->plain.limit = TRS_OPEN_PLAIN;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < TRS_OPEN_PART * TRS_OPEN_PLAIN)
    dataset->plain.limit = (int)PetscMax(limit.rlim_cur / TRS_OPEN_PART, 1);
  dataset->by_hdf5.limit = TRS_OPEN_BY_HDF5;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_agreed(MPI_Comm comm, int n, const char *const *names, TrsDataset dataset)
{
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(TrsDatasetFindFiles(comm, n, names, &dataset->info.n_files, &dataset->paths));
  PetscCall(TrsAgree(comm, create_files(dataset)));
  PetscCall(TrsAgree(comm, rank == 0 ? open_files(dataset, PETSC_TRUE) : PETSC_SUCCESS));
  PetscCall(TrsAgree(comm, rank == 0 ? PETSC_SUCCESS : open_files(dataset, PETSC_FALSE)));
  PetscCall(TrsDatasetCheckSame(comm, dataset, dataset->file, &dataset->info.sample_hash));
  PetscCallMPI(MPI_Bcast(dataset->info.mean_lengths, dataset->info.n_features, MPI_DOUBLE, 0, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetOpen(MPI_Comm comm, int n, const char *const *names, TrsDataset *dataset)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(1, dataset));
  PetscCheck(pthread_mutex_init(&(*dataset)->lock, NULL) == 0 &&
                 pthread_cond_init(&(*dataset)->released, NULL) == 0,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "cannot make the dataset's lock");
  ierr = open_agreed(comm, n, names, *dataset);
  if (ierr != PETSC_SUCCESS) (void)TrsDatasetClose(dataset);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetGetInfo(TrsDataset dataset, const TrsDatasetInfo **info)
{
  PetscFunctionBegin;
  *info = &dataset->info;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetChooseDense(TrsDataset dataset, int n, const int *columns)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(dataset->dense_column));
  PetscCall(PetscMalloc1((size_t)n, &dataset->dense_column));
  PetscCall(PetscArraycpy(dataset->dense_column, columns, (size_t)n));
  dataset->info.num_dense = n;
  dataset->info.dense_column = dataset->dense_column;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- growing --- */

void TrsDatasetWidenIds(TrsDataset dataset)
{
  dataset->info.value_bytes = (int)sizeof(int64_t);
  for (int k = 0; k < dataset->info.n_files; k++) TrsDatasetFileWidenIds(&dataset->file[k]);
}

/* Check that a dataset can be appended. */
static PetscErrorCode check_append(const TrsDataset dataset, const TrsDataset more)
{
  int64_t sum;

  PetscFunctionBegin;
  PetscCheck(dataset->info.value_bytes == (int)sizeof(int64_t), PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "TrsDatasetAppend before TrsDatasetWidenIds");
  PetscCall(check_together(&more->file[0], &dataset->file[0]));
  PetscCheck(!__builtin_add_overflow(dataset->info.num_samples, more->info.num_samples, &sum) &&
                 !__builtin_add_overflow(dataset->info.num_values, more->info.num_values, &sum),
             PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: the files before it and this one have more than %" PRId64 " samples or ids",
             more->info.paths[0], INT64_MAX);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Enlarge the arrays that have an entry for each file, and add the paths of the new files. */
static PetscErrorCode enlarge(TrsDataset dataset, TrsDataset more)
{
  const size_t n = (size_t)dataset->info.n_files, all = n + (size_t)more->info.n_files;
  TrsOpenFiles *kinds[2] = {&dataset->plain, &dataset->by_hdf5};
  const TrsDatasetFile *before = dataset->file;
  TrsDatasetFile *file;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(all, &file));
  PetscCall(PetscArraycpy(file, before, n));
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < kinds[i]->n; k++) kinds[i]->file[k] = file + (kinds[i]->file[k] - before);
  PetscCall(PetscFree(dataset->file));
  dataset->file = file;
  PetscCall(PetscRealloc((all + 1) * sizeof(*dataset->first_sample), &dataset->first_sample));
  PetscCall(PetscRealloc((all + 1) * sizeof(*dataset->first_value), &dataset->first_value));
  if (!dataset->all_paths) {
    PetscCall(PetscMalloc1(n, &dataset->all_paths));
    PetscCall(PetscArraycpy(dataset->all_paths, dataset->info.paths, n));
  }
  PetscCall(PetscRealloc(all * sizeof(*dataset->all_paths), &dataset->all_paths));
  PetscCall(PetscArraycpy(dataset->all_paths + n, more->info.paths, (size_t)more->info.n_files));
  PetscCall(PetscRealloc(((size_t)dataset->n_appended + 1) * sizeof(*dataset->appended_paths),
                         &dataset->appended_paths));
  dataset->appended_paths[dataset->n_appended++] = more->paths;
  more->paths = NULL;
  PetscCall(PetscRealloc(all * sizeof(*dataset->mappings), &dataset->mappings));
  dataset->info.paths = dataset->all_paths;
  dataset->info.mappings = dataset->mappings;
  dataset->info.first_sample = dataset->first_sample;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetAppend(TrsDataset dataset, TrsDataset *more)
{
  TrsDatasetInfo *info = &dataset->info;
  TrsDataset m = *more;

  PetscFunctionBegin;
  PetscCall(check_append(dataset, m));
  PetscCall(enlarge(dataset, m));
  for (int f = 0; f < info->n_features; f++)
    dataset->num_embeddings[f] = larger_range(dataset->num_embeddings[f], m->num_embeddings[f]);
  for (int k = 0; k < m->info.n_files; k++) {
    const int at = info->n_files + k;
    TrsDatasetFile *file = &dataset->file[at];

    TrsDatasetFileRest(&m->file[k]);
    *file = m->file[k];
    PetscCall(PetscFree(file->features));
    PetscCall(PetscFree(file->label_names));
    file->first_sample = info->num_samples + m->first_sample[k];
    file->first_value = info->num_values + m->first_value[k];
    dataset->first_sample[at + 1] = info->num_samples + m->first_sample[k + 1];
    dataset->first_value[at + 1] = info->num_values + m->first_value[k + 1];
    TrsDatasetFileWidenIds(file);
    dataset->mappings[at] = NULL;
    for (int j = 0; j < k && !file->mapping; j++) /* the text of an earlier file of `more` */
      if (m->mappings[j] == m->mappings[k]) dataset->mappings[at] = dataset->mappings[info->n_files + j];
    if (file->mapping) PetscCall(keep_mapping(dataset, at, PETSC_TRUE));
  }
  info->n_files += m->info.n_files;
  info->num_samples = dataset->first_sample[info->n_files];
  info->num_values = dataset->first_value[info->n_files];
  info->has_unsigned_ids = (PetscBool)(info->has_unsigned_ids || m->info.has_unsigned_ids);
  m->info.n_files = 0; /* its files now belong to `dataset` */
  PetscCall(TrsDatasetClose(more));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetCloseBefore(TrsDataset dataset, int64_t sample)
{
  TrsOpenFiles *kinds[2] = {&dataset->plain, &dataset->by_hdf5};

  PetscFunctionBegin;
  for (int i = 0; i < 2; i++) {
    for (int k = kinds[i]->n - 1; k >= 0; k--) {
      TrsDatasetFile *file = kinds[i]->file[k];

      if (file->first_sample + file->num_samples > sample) continue;
      TrsDatasetFileRest(file);
      kinds[i]->file[k] = kinds[i]->file[--kinds[i]->n];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetClose(TrsDataset *dataset)
{
  TrsDataset d = *dataset;

  PetscFunctionBegin;
  if (!d) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; d->file && k < d->info.n_files; k++) PetscCall(TrsDatasetFileFree(&d->file[k]));
  PetscCall(PetscFree(d->file));
  PetscCall(PetscFree(d->first_sample));
  PetscCall(PetscFree(d->first_value));
  for (int i = 0; i < d->n_appended; i++) PetscCall(PetscFree(d->appended_paths[i]));
  PetscCall(PetscFree(d->appended_paths));
  PetscCall(PetscFree(d->all_paths));
  PetscCall(PetscFree2(d->num_embeddings, d->info.mean_lengths));
  PetscCall(PetscFree(d->dense_column));
  PetscCall(PetscFree(d->mappings));
  PetscCall(PetscFree(d->path));
  PetscCall(PetscFree(d->paths));
  pthread_cond_destroy(&d->released);
  pthread_mutex_destroy(&d->lock);
  PetscCall(PetscFree(*dataset));
  PetscFunctionReturn(PETSC_SUCCESS);
}
