/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/checkpoint/read_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

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
