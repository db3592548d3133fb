/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/dataset.h"

#include "io/dataset_check.h"
#include "io/preflight.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Under the lock. Rows first .. first+n-1 by HDF5, converted to the memory type. */
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

/* n int32 in the upper half of an array of n int64: each is read before it is overwritten. */
static void widen_in_place(int64_t *values, int64_t n)
{
  const char *narrow = (const char *)values + n * (int64_t)sizeof(int32_t);

  for (int64_t i = 0; i < n; i++) {
    int32_t value;

    memcpy(&value, narrow + i * (int64_t)sizeof(value), sizeof(value));
    values[i] = value;
  }
}

static PetscErrorCode read_directly(TrsDataset dataset, const TrsColumn *column, int64_t first, int64_t n,
                                    void *data, TrsFault *fault)
{
  char *to = column->widen ? (char *)data + n * (int64_t)sizeof(int32_t) : data;
  int error = TrsExtentRead(dataset->file.fd, &column->extent, first, n, 0, column->cols, to);

  if (error)
    return TrsFaultSet(fault, TRS_ERR_IO, "%s: rows %" PRId64 " to %" PRId64 " of /%s cannot be read: %s",
                       dataset->path, first, first + n - 1, column->name,
                       error == ENODATA ? "the file has become shorter" : strerror(error));
  if (column->widen) widen_in_place(data, n);
  return PETSC_SUCCESS;
}

static PetscErrorCode read_rows(TrsDataset dataset, TrsColumnKind kind, int64_t first, int64_t n, void *data,
                                TrsFault *fault)
{
  const TrsColumn *column = &dataset->column[kind];

  if (!data || n == 0) return fault->code;
  if (column->extent.offset) return read_directly(dataset, column, first, n, data, fault);
  TrsHDF5Lock();
  (void)read_by_hdf5(column, first, n, data, dataset->path, fault);
  TrsHDF5Unlock();
  return fault->code;
}

/* What is read in one go, on the stack, and what is skipped in it: about as many bytes as are copied while another call is made. */
enum { TRS_WINDOW_BYTES = 1 << 17, TRS_GAP_DIRECT = 1 << 12, TRS_GAP_HDF5 = 1 << 16 };

/* Runs of rows, each longer by `more`, one after the other to data. Runs of values are as the file's offsets have them, which nobody may have checked
   against the sample before: only those that go on after the last one share a read. */
static PetscErrorCode gather_rows(TrsDataset dataset, TrsColumnKind kind, int64_t n_runs,
                                  const TrsRowRun *run, int64_t more, void *data, TrsFault *fault)
{
  const TrsColumn *column = &dataset->column[kind];
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
    if (read_rows(dataset, kind, first, end - first, j == i + 1 ? to : window, fault) != PETSC_SUCCESS)
      return fault->code;
    for (int64_t k = i; k < j; k++) {
      const int64_t bytes = (run[k].n + more) * row_bytes;

      if (j > i + 1) memcpy(to, window + (run[k].first - first) * row_bytes, (size_t)bytes);
      to += bytes;
    }
  }
  return PETSC_SUCCESS;
}

/* Each sample's lengths must add up to what its offsets say, which must lie within values. */
static PetscErrorCode check_lengths(TrsDataset dataset, int64_t first, int64_t n, const int32_t *lengths,
                                    const int64_t *offsets, TrsFault *fault)
{
  int n_features = dataset->info.n_features;

  for (int64_t i = 0; i < n; i++) {
    const int32_t *row = lengths + i * n_features;
    int64_t sum = 0;

    for (int f = 0; f < n_features; f++) {
      if (row[f] < 0)
        return TrsFaultSet(fault, TRS_ERR_DATA,
                           "%s: /sparse/lengths[%" PRId64 ", %d] is %" PRId32 ", expected at least 0",
                           dataset->path, first + i, f, row[f]);
      sum += row[f];
    }
    if (offsets[i] < 0 || offsets[i + 1] < offsets[i] || offsets[i + 1] > dataset->info.num_values)
      return TrsFaultSet(fault, TRS_ERR_DATA,
                         "%s: /sparse/offsets[%" PRId64 "] is %" PRId64 " after %" PRId64
                         ", expected not to decrease, and at most %" PRId64
                         " (the entries of /sparse/values)",
                         dataset->path, first + i + 1, offsets[i + 1], offsets[i], dataset->info.num_values);
    if (sum != offsets[i + 1] - offsets[i])
      return TrsFaultSet(fault, TRS_ERR_DATA,
                         "%s: row %" PRId64 " of /sparse/lengths adds up to %" PRId64
                         ", but /sparse/offsets gives it %" PRId64 " ids",
                         dataset->path, first + i, sum, offsets[i + 1] - offsets[i]);
  }
  return PETSC_SUCCESS;
}

PetscErrorCode TrsDatasetReadSamples(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run, float *dense,
                                     float *labels, int32_t *lengths, int64_t *offsets, TrsFault *fault)
{
  if (gather_rows(dataset, TRS_COLUMN_DENSE, n_runs, run, 0, dense, fault) != PETSC_SUCCESS ||
      gather_rows(dataset, TRS_COLUMN_LABELS, n_runs, run, 0, labels, fault) != PETSC_SUCCESS ||
      gather_rows(dataset, TRS_COLUMN_LENGTHS, n_runs, run, 0, lengths, fault) != PETSC_SUCCESS ||
      gather_rows(dataset, TRS_COLUMN_OFFSETS, n_runs, run, 1, offsets, fault) != PETSC_SUCCESS)
    return fault->code;
  for (int64_t i = 0; i < n_runs; i++) {
    if (check_lengths(dataset, run[i].first, run[i].n, lengths, offsets, fault) != PETSC_SUCCESS)
      return fault->code;
    lengths += run[i].n * dataset->info.n_features;
    offsets += run[i].n + 1;
  }
  return PETSC_SUCCESS;
}

PetscErrorCode TrsDatasetReadValues(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run, void *values,
                                    float *weights, TrsFault *fault)
{
  if (gather_rows(dataset, TRS_COLUMN_VALUES, n_runs, run, 0, values, fault) != PETSC_SUCCESS)
    return fault->code;
  return gather_rows(dataset, TRS_COLUMN_WEIGHTS, n_runs, run, 0, weights, fault);
}

static PetscErrorCode check_structure(TrsDataset dataset)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  TrsHDF5Lock();
  ierr = TrsDatasetCheckStructure(dataset);
  TrsHDF5Unlock();
  PetscCall(ierr);
  PetscCall(PetscCalloc1(dataset->info.n_features, &dataset->info.mean_lengths));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode try_structure(void *context)
{
  PetscFunctionBegin;
  PetscCall(check_structure(context));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_all(TrsDataset dataset)
{
  PetscFunctionBegin;
  PetscCall(TrsPreflight(dataset->path, try_structure, dataset));
  PetscCall(check_structure(dataset));
  PetscCall(TrsDatasetCheckLengths(dataset));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_agreed(MPI_Comm comm, TrsDataset dataset)
{
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(TrsAgree(comm, rank == 0 ? check_all(dataset) : PETSC_SUCCESS));
  PetscCall(TrsAgree(comm, rank == 0 ? PETSC_SUCCESS : check_structure(dataset)));
  PetscCallMPI(MPI_Bcast(dataset->info.mean_lengths, dataset->info.n_features, MPI_DOUBLE, 0, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetOpen(MPI_Comm comm, const char *path, TrsDataset *dataset)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(1, dataset));
  PetscCall(PetscStrallocpy(path, &(*dataset)->path));
  ierr = open_agreed(comm, *dataset);
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

PetscErrorCode TrsDatasetClose(TrsDataset *dataset)
{
  TrsDataset d = *dataset;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (!d) PetscFunctionReturn(PETSC_SUCCESS);
  TrsHDF5Lock();
  ierr = TrsHDF5FileClose(&d->file);
  TrsHDF5Unlock();
  PetscCall(ierr);
  for (int k = 0; k < TRS_N_COLUMNS; k++) PetscCall(TrsExtentFree(&d->column[k].extent));
  PetscCall(PetscFree(d->features));
  PetscCall(PetscFree(d->num_embeddings));
  PetscCall(PetscFree(d->info.mean_lengths));
  PetscCall(PetscFree(d->path));
  PetscCall(PetscFree(*dataset));
  PetscFunctionReturn(PETSC_SUCCESS);
}
