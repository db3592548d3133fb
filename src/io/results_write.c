/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/atomic_file.h"
#include "io/result_items.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* --- the layout, in memory --- */

PetscErrorCode TrsResultsTextType(hid_t *type)
{
  PetscFunctionBegin;
  TrsCallHDF5(*type = H5Tcopy(H5T_C_S1));
  TrsCallHDF5(H5Tset_cset(*type, H5T_CSET_UTF8));
  TrsCallHDF5(H5Tset_size(*type, H5T_VARIABLE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_texts(hid_t file, const TrsItem *it)
{
  hid_t type, dataset;

  PetscFunctionBegin;
  PetscCall(TrsResultsTextType(&type));
  PetscCall(TrsHDF5CreateDataset(file, it->name, type, 1, &it->rows, NULL, PETSC_FALSE, &dataset));
  TrsCallHDF5(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, it->text));
  TrsCallHDF5(H5Dclose(dataset));
  TrsCallHDF5(H5Tclose(type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Reserve space in the file for numbers. They are written after the layout is on disk, so that the
  image in memory stays small.
*/
static PetscErrorCode reserve_numbers(hid_t file, TrsItem *it)
{
  const PetscBool is_int = (PetscBool)(it->kind == TRS_ITEM_INT || it->kind == TRS_ITEM_ARRAY_INT);
  const hid_t type = is_int                             ? H5T_NATIVE_INT64
                     : it->kind == TRS_ITEM_ARRAY_FLOAT ? H5T_NATIVE_FLOAT
                                                        : H5T_NATIVE_DOUBLE;
  const int64_t dims[2] = {TrsItemRows(it), it->cols};
  haddr_t offset;
  hid_t dataset;

  PetscFunctionBegin;
  PetscCall(TrsHDF5CreateDataset(file, it->name, type, it->cols ? 2 : 1, dims, NULL, PETSC_TRUE, &dataset));
  offset = H5Dget_offset(dataset);
  TrsCallHDF5(H5Dclose(dataset));
  PetscCheck(offset != HADDR_UNDEF, PETSC_COMM_SELF, TRS_ERR_IO, "HDF5 has no place for /%s%s", it->name,
             TrsHDF5Error());
  it->offset = (int64_t)offset;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_item(hid_t file, TrsItem *it)
{
  PetscFunctionBegin;
  it->offset = -1;
  if (it->kind == TRS_ITEM_ATTRIBUTE_TEXT) {
    PetscCall(TrsHDF5WriteString(file, it->name, it->data.data, PETSC_FALSE));
  } else if (it->kind == TRS_ITEM_ATTRIBUTE_INT) {
    PetscCall(TrsHDF5WriteInts(file, it->name, 0, it->data.data));
  } else if (it->kind == TRS_ITEM_TEXT && it->rows) {
    PetscCall(write_texts(file, it));
  } else if (TrsItemRows(it)) {
    PetscCall(reserve_numbers(file, it));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_items(TrsResults results, hid_t file)
{
  const int64_t version = 1;

  PetscFunctionBegin;
  PetscCall(TrsHDF5WriteString(file, "format", "trshard-run", PETSC_FALSE));
  PetscCall(TrsHDF5WriteInts(file, "version", 0, &version));
  for (int i = 0; i < results->n; i++) PetscCall(write_item(file, &results->items[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Make the image of the file in memory, under the lock. The file is closed even if an error occurs.
*/
static PetscErrorCode make_image(TrsResults results, int *memory)
{
  hid_t file;
  PetscErrorCode ierr;
  herr_t status;

  PetscFunctionBegin;
  PetscCall(TrsHDF5CreateFile(&file, memory));
  ierr = write_items(results, file);
  status = H5Fclose(file);
  PetscCall(ierr);
  PetscCheck(status >= 0, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be laid out%s", results->path,
             TrsHDF5Error());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the numbers, on disk --- */

static PetscErrorCode fill_column(TrsResults results, const TrsItem *it, int fd)
{
  char block[TRS_COLUMN_BLOCK_ROWS * 8];

  PetscFunctionBegin;
  for (int64_t row = 0; row < it->column.rows; row += TrsColumnBlockRows(&it->column)) {
    const int64_t n = PetscMin(it->column.rows - row, TrsColumnBlockRows(&it->column));
    const int64_t bytes = TrsColumnRowBytes(&it->column);
    int error = TrsColumnRead(&it->column, &results->spill, row, n, block);

    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: rows of /%s cannot be read back: %s", results->path,
               it->name, strerror(error));
    error = TrsWriteFully(fd, block, n * bytes, it->offset + row * bytes);
    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be written: %s", results->path,
               strerror(error));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy an array of rows from the file that keeps its values. */
static PetscErrorCode fill_rows(TrsResults results, const TrsItem *it, int fd)
{
  const int64_t bytes = it->rows * it->file_row_bytes;
  char block[TRS_COLUMN_BLOCK_ROWS * 8];

  PetscFunctionBegin;
  for (int64_t at = 0; at < bytes; at += (int64_t)sizeof(block)) {
    const int64_t n = PetscMin(bytes - at, (int64_t)sizeof(block));
    int error = TrsReadFully(it->file.fd, block, n, at);

    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: rows of /%s cannot be read back: %s", results->path,
               it->name, strerror(error));
    error = TrsWriteFully(fd, block, n, it->offset + at);
    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be written: %s", results->path,
               strerror(error));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fill_items(TrsResults results, int fd)
{
  PetscFunctionBegin;
  for (int i = 0; i < results->n; i++) {
    const TrsItem *it = &results->items[i];
    int error = 0;

    if (it->offset < 0) continue;
    PetscCall(fill_column(results, it, fd));
    if (it->file.fd >= 0) PetscCall(fill_rows(results, it, fd));
    if (it->n_bytes) error = TrsWriteFully(fd, it->data.data, it->n_bytes, it->offset);
    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be written: %s", results->path,
               strerror(error));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_atomically(TrsResults results, TrsAtomicFile *file)
{
  PetscErrorCode ierr;
  int memory = -1;

  PetscFunctionBegin;
  PetscCall(TrsResultsEven(results));
  PetscCall(TrsAtomicCreate(results->path, file));
  TrsHDF5Lock();
  ierr = make_image(results, &memory);
  TrsHDF5Unlock();
  if (ierr == PETSC_SUCCESS) ierr = TrsAtomicFill(file, memory);
  if (memory >= 0) (void)close(memory);
  PetscCall(ierr);
  PetscCall(fill_items(results, file->fd));
  PetscCall(TrsOutputPublish(results->output, file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsWriteAlone(TrsResults results)
{
  TrsAtomicFile file = {NULL, NULL, NULL, -1, PETSC_FALSE};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (!results->path || results->rank != 0) PetscFunctionReturn(PETSC_SUCCESS);
  ierr = write_atomically(results, &file);
  PetscCall(TrsAtomicDiscard(&file));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsResultsWrite(TrsResults results)
{
  PetscFunctionBegin;
  if (!results->path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAgree(results->comm, TrsResultsWriteAlone(results)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
