/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/extent.h"

#include "io/atomic_file.h"
#include "io/hdf5_util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/*
  Check a call that succeeded in an earlier check. If it fails here, the file has changed or is
  damaged.
*/
#define CALL_HDF5(call) \
  PetscCheck((call) >= 0, PETSC_COMM_SELF, TRS_ERR_DATA, "a dataset is damaged: %s%s", #call, TrsHDF5Error())

enum { TRS_STAGE_BYTES = 1 << 16 }; /* size of a buffer on the stack */

static PetscErrorCode get_chunk_offsets(hid_t dataset, TrsExtent *extent)
{
  int64_t n_rows = (extent->rows + extent->chunk_rows - 1) / extent->chunk_rows;

  PetscFunctionBegin;
  extent->n_bands = (extent->cols + extent->chunk_cols - 1) / extent->chunk_cols;
  PetscCall(PetscMalloc((size_t)(n_rows * extent->n_bands) * sizeof(int64_t), &extent->offset));
  for (int64_t i = 0; i < n_rows; i++) {
    for (int64_t band = 0; band < extent->n_bands; band++) {
      hsize_t at[2] = {(hsize_t)(i * extent->chunk_rows), (hsize_t)(band * extent->chunk_cols)}, bytes;
      haddr_t address = HADDR_UNDEF;
      unsigned mask;

      CALL_HDF5(H5Dget_chunk_info_by_coord(dataset, at, &mask, &address, &bytes));
      PetscCheck(address != HADDR_UNDEF, PETSC_COMM_SELF, TRS_ERR_DATA,
                 "a chunk of a dataset is missing in its file");
      extent->offset[i * extent->n_bands + band] = (int64_t)address;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsExtentGet(hid_t dataset, hid_t memory, TrsExtent *extent)
{
  hid_t create, space, type;
  hsize_t dims[2] = {0, 1}, chunk[2] = {1, 1};
  H5D_layout_t layout;
  htri_t same;
  int ndim;

  PetscFunctionBegin;
  CALL_HDF5(space = H5Dget_space(dataset));
  CALL_HDF5(ndim = H5Sget_simple_extent_dims(space, dims, NULL));
  CALL_HDF5(H5Sclose(space));
  CALL_HDF5(type = H5Dget_type(dataset));
  CALL_HDF5(same = H5Tequal(type, memory));
  *extent = (TrsExtent){.rows = (int64_t)dims[0],
                        .cols = (int64_t)dims[1],
                        .element_bytes = (int64_t)H5Tget_size(type),
                        .n_bands = 1};
  extent->chunk_rows = extent->rows;
  extent->chunk_cols = extent->cols;
  CALL_HDF5(H5Tclose(type));
  CALL_HDF5(create = H5Dget_create_plist(dataset));
  layout = H5Pget_layout(create);
  if (same && extent->rows > 0 && extent->cols > 0 && layout == H5D_CONTIGUOUS) {
    PetscCall(PetscMalloc1(1, &extent->offset));
    extent->offset[0] = (int64_t)H5Dget_offset(dataset);
  } else if (same && extent->rows > 0 && extent->cols > 0 && layout == H5D_CHUNKED &&
             H5Pget_nfilters(create) == 0) {
    CALL_HDF5(H5Pget_chunk(create, ndim, chunk));
    extent->chunk_rows = (int64_t)chunk[0];
    extent->chunk_cols = (int64_t)chunk[1];
    PetscCall(get_chunk_offsets(dataset, extent));
  }
  CALL_HDF5(H5Pclose(create));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsExtentIsWhole(const TrsExtent *extent)
{
  return (PetscBool)(extent->offset && extent->chunk_rows >= extent->rows &&
                     extent->chunk_cols == extent->cols);
}

PetscErrorCode TrsExtentCheck(const TrsExtent *extent, const char *path, const char *name, int64_t file_bytes)
{
  const int64_t n = extent->offset
                        ? (extent->rows + extent->chunk_rows - 1) / extent->chunk_rows * extent->n_bands
                        : 0;
  const int64_t bytes = extent->chunk_rows * extent->chunk_cols * extent->element_bytes;

  PetscFunctionBegin;
  for (int64_t i = 0; i < n; i++)
    PetscCheck(extent->offset[i] >= 0 && bytes <= file_bytes && extent->offset[i] <= file_bytes - bytes,
               PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s is damaged: %" PRId64 " bytes of /%s are said to lie at %" PRId64 " of its %" PRId64
               " bytes",
               path, bytes, name, extent->offset[i], file_bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsExtentFree(TrsExtent *extent)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(extent->offset));
  memset(extent, 0, sizeof(*extent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  A piece: a rectangle inside one chunk. It has the file offset of its first element, and the
  distance between rows in the file (pitch) and in memory (stride), all in bytes.
*/
typedef struct {
  int64_t offset, rows, row_bytes, pitch, stride;
} TrsPiece;

static int read_piece(int fd, const TrsPiece *p, char *data)
{
  char stage[TRS_STAGE_BYTES];
  int64_t at_once = TRS_STAGE_BYTES / p->pitch;
  int error = 0;

  if (p->row_bytes == p->pitch && p->row_bytes == p->stride)
    return TrsReadFully(fd, data, p->rows * p->pitch, p->offset);
  if (at_once == 0) {
    for (int64_t r = 0; r < p->rows && !error; r++)
      error = TrsReadFully(fd, data + r * p->stride, p->row_bytes, p->offset + r * p->pitch);
    return error;
  }
  for (int64_t r = 0; r < p->rows; r += at_once) {
    int64_t n = p->rows - r < at_once ? p->rows - r : at_once;

    error = TrsReadFully(fd, stage, (n - 1) * p->pitch + p->row_bytes, p->offset + r * p->pitch);
    if (error) return error;
    for (int64_t k = 0; k < n; k++)
      memcpy(data + (r + k) * p->stride, stage + k * p->pitch, (size_t)p->row_bytes);
  }
  return 0;
}

/*
  Write only the piece's own bytes, because the bytes between its rows may belong to another rank.
*/
static int write_piece(int fd, const TrsPiece *p, const char *data)
{
  char stage[TRS_STAGE_BYTES];
  int64_t at_once = TRS_STAGE_BYTES / p->pitch;
  int error = 0;

  if (p->row_bytes == p->pitch && p->row_bytes == p->stride)
    return TrsWriteFully(fd, data, p->rows * p->pitch, p->offset);
  if (p->row_bytes < p->pitch || at_once == 0) at_once = 1;
  for (int64_t r = 0; r < p->rows && !error; r += at_once) {
    int64_t n = p->rows - r < at_once ? p->rows - r : at_once;
    const char *from = data + r * p->stride;

    if (n > 1) {
      for (int64_t k = 0; k < n; k++)
        memcpy(stage + k * p->pitch, from + k * p->stride, (size_t)p->row_bytes);
      from = stage;
    }
    error = TrsWriteFully(fd, from, n * p->row_bytes, p->offset + r * p->pitch);
  }
  return error;
}

static int64_t smaller(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

/*
  Make the piece that begins at (row, col) and ends at the border of the chunk or of the rectangle.
*/
static TrsPiece piece_at(const TrsExtent *extent, int64_t row, int64_t row_end, int64_t col, int64_t col_end,
                         int64_t stride)
{
  int64_t i = row / extent->chunk_rows, band = col / extent->chunk_cols;
  int64_t in_row = row - i * extent->chunk_rows, in_col = col - band * extent->chunk_cols;
  int64_t cols = smaller(col_end, (band + 1) * extent->chunk_cols) - col;
  TrsPiece p;

  p.pitch = extent->chunk_cols * extent->element_bytes;
  p.offset = extent->offset[i * extent->n_bands + band] + in_row * p.pitch + in_col * extent->element_bytes;
  p.rows = smaller(row_end, (i + 1) * extent->chunk_rows) - row;
  p.row_bytes = cols * extent->element_bytes;
  p.stride = stride;
  return p;
}

int TrsExtentRead(int fd, const TrsExtent *extent, int64_t row, int64_t rows, int64_t col, int64_t cols,
                  void *data)
{
  int64_t stride = cols * extent->element_bytes;
  int error = 0;

  for (int64_t r = row, next_r; r < row + rows; r = next_r) {
    next_r = smaller(row + rows, (r / extent->chunk_rows + 1) * extent->chunk_rows);
    for (int64_t c = col, next_c; c < col + cols && !error; c = next_c) {
      TrsPiece p = piece_at(extent, r, row + rows, c, col + cols, stride);

      next_c = c + p.row_bytes / extent->element_bytes;
      error = read_piece(fd, &p, (char *)data + (r - row) * stride + (c - col) * extent->element_bytes);
    }
  }
  return error;
}

int TrsExtentWrite(int fd, const TrsExtent *extent, int64_t row, int64_t rows, int64_t col, int64_t cols,
                   const void *data, int64_t stride_bytes)
{
  int error = 0;

  for (int64_t r = row, next_r; r < row + rows; r = next_r) {
    next_r = smaller(row + rows, (r / extent->chunk_rows + 1) * extent->chunk_rows);
    for (int64_t c = col, next_c; c < col + cols && !error; c = next_c) {
      TrsPiece p = piece_at(extent, r, row + rows, c, col + cols, stride_bytes);

      next_c = c + p.row_bytes / extent->element_bytes;
      error = write_piece(fd, &p,
                          (const char *)data + (r - row) * stride_bytes + (c - col) * extent->element_bytes);
    }
  }
  return error;
}
