/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/dataset_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
  Read rows first to first+n-1 by HDF5, which converts them to the memory type. The caller must hold
  the lock.
*/
static PetscErrorCode read_by_hdf5(const TrsColumn *column, int64_t first, int64_t n, void *data,
                                   const char *path, TrsFault *fault)
{
  hsize_t start[2] = {(hsize_t)first, 0}, count[2] = {(hsize_t)n, (hsize_t)column->cols};
  hid_t file_space = H5Dget_space(column->id);
  int ndim = H5Sget_simple_extent_ndims(file_space);
  hid_t memory_space = H5Screate_simple(ndim, count, NULL);
  herr_t status = H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL);

  if (status >= 0) status = H5Dread(column->id, column->memory, memory_space, file_space, H5P_DEFAULT, data);
  if (status < 0)
    (void)TrsFaultSet(fault, TRS_ERR_DATA, "%s: rows %" PRId64 " to %" PRId64 " of /%s cannot be read%s",
                      path, first, first + n - 1, column->name, TrsHDF5Error());
  (void)H5Sclose(memory_space);
  (void)H5Sclose(file_space);
  return fault->code;
}

/*
  Convert n int32 to int64 in place. The int32 are in the upper half of an array of n int64. Each
  number is read before it is overwritten.
*/
static void widen_in_place(int64_t *values, int64_t n)
{
  const char *narrow = (const char *)values + n * (int64_t)sizeof(int32_t);

  for (int64_t i = 0; i < n; i++) {
    int32_t value;

    memcpy(&value, narrow + i * (int64_t)sizeof(value), sizeof(value));
    values[i] = value;
  }
}

static PetscErrorCode read_directly(const TrsDatasetFile *file, const TrsColumn *column, int64_t first,
                                    int64_t n, void *data, TrsFault *fault)
{
  char *to = column->widen ? (char *)data + n * (int64_t)sizeof(int32_t) : data;
  int error = TrsExtentRead(file->h5.fd, &column->extent, first, n, 0, column->cols, to);

  if (error)
    return TrsFaultSet(fault, TRS_ERR_IO, "%s: rows %" PRId64 " to %" PRId64 " of /%s cannot be read: %s",
                       file->path, first, first + n - 1, column->name,
                       error == ENODATA ? "the file has become shorter" : strerror(error));
  if (column->widen) widen_in_place(data, n);
  return PETSC_SUCCESS;
}

static PetscErrorCode read_rows(const TrsDatasetFile *file, const TrsColumn *column, int64_t first, int64_t n,
                                void *data, TrsFault *fault)
{
  if (n == 0) return fault->code;
  if (column->extent.offset) return read_directly(file, column, first, n, data, fault);
  TrsHDF5Lock();
  (void)read_by_hdf5(column, first, n, data, file->path, fault);
  TrsHDF5Unlock();
  return fault->code;
}

/*
  TRS_WINDOW_BYTES is the largest joint read. Its buffer is on the stack. A gap between runs is read
  as well if this takes less time than another call.
*/
enum { TRS_WINDOW_BYTES = 1 << 17, TRS_GAP_DIRECT = 1 << 12, TRS_GAP_HDF5 = 1 << 16 };

/*
  Copy runs of rows one after the other to data. Each run has `more` rows in addition. Runs of
  values come from the file's offsets, which may be unchecked. So a run is read together with the
  previous run only if it begins after the end of that run.
*/
static PetscErrorCode gather_rows(const TrsDatasetFile *file, TrsColumnKind kind, int64_t n_runs,
                                  const TrsRowRun *run, int64_t more, void *data, TrsFault *fault)
{
  const TrsColumn *column = &file->column[kind];
  const PetscBool is_values = (PetscBool)(kind == TRS_COLUMN_VALUES || kind == TRS_COLUMN_WEIGHTS);
  const int64_t base = is_values ? file->first_value : file->first_sample;
  const int64_t row_bytes = (int64_t)column->cols * column->memory_bytes;
  const int64_t gap = (column->extent.offset ? TRS_GAP_DIRECT : TRS_GAP_HDF5) / PetscMax(row_bytes, 1);
  _Alignas(8) char window[TRS_WINDOW_BYTES];
  char *to = (char *)data;

  if (!data) return fault->code;
  for (int64_t i = 0, j; i < n_runs; i = j) {
    const int64_t first = run[i].first;
    int64_t end = first + run[i].n + more;

    for (j = i + 1; j < n_runs && run[j].first >= end && run[j].first - end <= gap &&
                    (run[j].first + run[j].n + more - first) * row_bytes <= TRS_WINDOW_BYTES;
         j++)
      end = run[j].first + run[j].n + more;
    if (read_rows(file, column, first - base, end - first, j == i + 1 ? to : window, fault) != PETSC_SUCCESS)
      return fault->code;
    for (int64_t k = i; k < j; k++) {
      const int64_t bytes = (run[k].n + more) * row_bytes;

      if (j > i + 1) memcpy(to, window + (run[k].first - first) * row_bytes, (size_t)bytes);
      to += bytes;
    }
  }
  return PETSC_SUCCESS;
}

/*
  True if all lengths and offsets agree. Then check_lengths() skips its search. The loops have no
  branch. Sums of 32 bits are exact if the lengths are small, which a bitwise or of all lengths
  shows.
*/
static int lengths_agree(const TrsDatasetFile *file, int64_t n, const int32_t *lengths,
                         const int64_t *offsets)
{
  const int n_features = file->n_features;
  uint32_t any = 0;
  int agree = 1;

  for (int64_t i = 0; i < n * n_features; i++) any |= (uint32_t)lengths[i];
  if (any > (uint32_t)INT32_MAX / (uint32_t)n_features) return 0;
  for (int64_t i = 0; i < n; i++) {
    int32_t sum = 0;

    for (int f = 0; f < n_features; f++) sum += lengths[i * n_features + f];
    agree &= (uint64_t)offsets[i + 1] - (uint64_t)offsets[i] == (uint64_t)sum;
  }
  return agree && offsets[0] >= 0 && offsets[0] <= file->num_values && offsets[n] <= file->num_values;
}

/*
  Check that each sample's lengths add up to the difference of its offsets, and that the offsets lie
  within values. `first` is the row of the first sample in the file.
*/
static PetscErrorCode check_lengths(const TrsDatasetFile *file, int64_t first, int64_t n,
                                    const int32_t *lengths, const int64_t *offsets, TrsFault *fault)
{
  int n_features = file->n_features;

  if (lengths_agree(file, n, lengths, offsets)) return PETSC_SUCCESS;
  for (int64_t i = 0; i < n; i++) {
    const int32_t *row = lengths + i * n_features;
    int64_t sum = 0;

    for (int f = 0; f < n_features; f++) {
      if (row[f] < 0)
        return TrsFaultSet(fault, TRS_ERR_DATA,
                           "%s: /sparse/lengths[%" PRId64 ", %d] is %" PRId32 ", expected at least 0",
                           file->path, first + i, f, row[f]);
      sum += row[f];
    }
    if (offsets[i] < 0 || offsets[i + 1] < offsets[i] || offsets[i + 1] > file->num_values)
      return TrsFaultSet(fault, TRS_ERR_DATA,
                         "%s: /sparse/offsets[%" PRId64 "] is %" PRId64 " after %" PRId64
                         ", expected not to decrease, and at most %" PRId64
                         " (the entries of /sparse/values)",
                         file->path, first + i + 1, offsets[i + 1], offsets[i], file->num_values);
    if (sum != offsets[i + 1] - offsets[i])
      return TrsFaultSet(fault, TRS_ERR_DATA,
                         "%s: row %" PRId64 " of /sparse/lengths adds up to %" PRId64
                         ", but /sparse/offsets gives it %" PRId64 " ids",
                         file->path, first + i, sum, offsets[i + 1] - offsets[i]);
  }
  return PETSC_SUCCESS;
}

PetscErrorCode TrsDatasetFileReadSamples(TrsDatasetFile *file, int64_t n_runs, const TrsRowRun *run,
                                         const TrsSampleRows *to, TrsFault *fault)
{
  const int32_t *lengths = to->lengths;
  int64_t *offsets = to->offsets;

  if (gather_rows(file, TRS_COLUMN_DENSE, n_runs, run, 0, to->dense, fault) != PETSC_SUCCESS ||
      gather_rows(file, TRS_COLUMN_LABELS, n_runs, run, 0, to->labels, fault) != PETSC_SUCCESS ||
      gather_rows(file, TRS_COLUMN_SAMPLE_WEIGHTS, n_runs, run, 0, to->weights, fault) != PETSC_SUCCESS ||
      gather_rows(file, TRS_COLUMN_GROUP, n_runs, run, 0, to->group, fault) != PETSC_SUCCESS ||
      gather_rows(file, TRS_COLUMN_TIME, n_runs, run, 0, to->time, fault) != PETSC_SUCCESS ||
      gather_rows(file, TRS_COLUMN_LENGTHS, n_runs, run, 0, to->lengths, fault) != PETSC_SUCCESS ||
      gather_rows(file, TRS_COLUMN_OFFSETS, n_runs, run, 1, offsets, fault) != PETSC_SUCCESS)
    return fault->code;
  for (int64_t i = 0; i < n_runs; i++) {
    const int64_t n = run[i].n;

    if (check_lengths(file, run[i].first - file->first_sample, n, lengths, offsets, fault) != PETSC_SUCCESS)
      return fault->code;
    for (int64_t k = 0; k <= n; k++) offsets[k] += file->first_value;
    lengths += n * file->n_features;
    offsets += n + 1;
  }
  return PETSC_SUCCESS;
}

PetscErrorCode TrsDatasetFileReadValues(TrsDatasetFile *file, int64_t n_runs, const TrsRowRun *run,
                                        void *values, float *weights, TrsFault *fault)
{
  if (gather_rows(file, TRS_COLUMN_VALUES, n_runs, run, 0, values, fault) != PETSC_SUCCESS)
    return fault->code;
  return gather_rows(file, TRS_COLUMN_WEIGHTS, n_runs, run, 0, weights, fault);
}

/* --- opening and closing --- */

TrsStamp TrsFileStamp(int fd)
{
  struct stat status;

  if (fd < 0 || fstat(fd, &status) != 0) return (TrsStamp){0};
  return (TrsStamp){.inode = (int64_t)status.st_ino,
                    .bytes = (int64_t)status.st_size,
                    .modified_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec};
}

void TrsDatasetFileWidenIds(TrsDatasetFile *file)
{
  TrsColumn *column = &file->column[TRS_COLUMN_VALUES];

  if (column->memory_bytes == (int)sizeof(int64_t)) return;
  column->memory = H5T_NATIVE_INT64;
  column->memory_bytes = (int)sizeof(int64_t);
  column->widen = column->extent.offset ? PETSC_TRUE : PETSC_FALSE;
}

void TrsDatasetFileRest(TrsDatasetFile *file)
{
  if (file->h5.id >= 0) {
    TrsHDF5Lock();
    (void)H5Fclose(file->h5.id);
    TrsHDF5Unlock();
  }
  if (file->h5.fd >= 0) (void)close(file->h5.fd);
  file->h5.id = -1;
  file->h5.fd = -1;
}

/* Open the parts that HDF5 reads. The caller must hold the lock. */
static PetscErrorCode open_by_hdf5(TrsDatasetFile *file, TrsFault *fault)
{
  file->h5.id = TrsHDF5OpenAgain(file->path);
  if (file->h5.id < 0)
    return TrsFaultSet(fault, TRS_ERR_IO, "%s: cannot be opened again%s", file->path, TrsHDF5Error());
  for (int k = 0; k < TRS_N_COLUMNS; k++) {
    TrsColumn *column = &file->column[k];

    if (column->rows <= 0 || column->extent.offset) continue;
    column->id = H5Dopen2(file->h5.id, column->name, H5P_DEFAULT);
    if (column->id < 0)
      return TrsFaultSet(fault, TRS_ERR_IO, "%s: /%s cannot be opened again%s", file->path, column->name,
                         TrsHDF5Error());
  }
  return PETSC_SUCCESS;
}

PetscErrorCode TrsDatasetFileWake(TrsDatasetFile *file, TrsFault *fault)
{
  TrsStamp now;

  file->h5.fd = open(file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file->h5.fd < 0)
    return TrsFaultSet(fault, TRS_ERR_IO, "%s: cannot be opened again: %s", file->path, strerror(errno));
  now = TrsFileStamp(file->h5.fd);
  if (memcmp(&now, &file->stamp, sizeof(now)) != 0)
    return TrsFaultSet(fault, TRS_ERR_DATA,
                       "%s has changed since this run checked it (%" PRId64 " bytes then, %" PRId64 " now)",
                       file->path, file->stamp.bytes, now.bytes);
  if (file->by_hdf5) {
    TrsHDF5Lock();
    (void)open_by_hdf5(file, fault);
    TrsHDF5Unlock();
  }
  return fault->code;
}

PetscErrorCode TrsDatasetFileFree(TrsDatasetFile *file)
{
  PetscFunctionBegin;
  if (file->h5.path) TrsDatasetFileRest(file); /* if path is NULL, the file was never open */
  for (int k = 0; k < TRS_N_COLUMNS; k++) PetscCall(TrsExtentFree(&file->column[k].extent));
  PetscCall(PetscFree(file->features));
  PetscCall(PetscFree(file->num_embeddings));
  PetscCall(PetscFree(file->label_names));
  PetscCall(PetscFree(file->mapping));
  PetscFunctionReturn(PETSC_SUCCESS);
}
