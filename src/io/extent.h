/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Extents: where the elements of an unfiltered dataset lie in its file, so that they are read and written without HDF5 (faster, by any
  thread, no lock, and no collective call that a failing rank could leave). Internal to io/.

  A dataset is cut into chunks of chunk_rows x chunk_cols (one chunk when contiguous); each is contiguous in the file, row by row, the
  last ones padded to full size.
*/
#pragma once

#include "core/error.h"

#include <hdf5.h>

#include <stdint.h>

typedef struct {
  int64_t rows, cols; /* cols 1 when one-dimensional */
  int64_t element_bytes;
  int64_t chunk_rows, chunk_cols;
  int64_t n_bands; /* chunks across */
  int64_t *offset; /* [row chunks * n_bands] bytes in the file; NULL: not direct, HDF5 must read it */
} TrsExtent;

/*
  TrsExtentGet - Find the extents of a dataset that was checked (TrsHDF5CheckDataset).

  Not collective. In: memory the element type wanted; another type in the file, or filters, leave offset NULL
  Errors: DATA
  Out: extent  free with TrsExtentFree()
*/
PetscErrorCode TrsExtentGet(hid_t dataset, hid_t memory, TrsExtent *extent);
PetscErrorCode TrsExtentFree(TrsExtent *extent);

/*
  TrsExtentCheck - Do all chunks of a dataset lie within the bytes of its file? What an old file's index says of them has no checksum.

  Not collective. Errors: DATA naming the file and the dataset
*/
PetscErrorCode TrsExtentCheck(const TrsExtent *extent, const char *path, const char *name,
                              int64_t file_bytes);

/*
  Read rows row .. row+rows-1, columns col .. col+cols-1, into [rows, cols] without gaps; any thread. Returns 0, an errno, or ENODATA when the
  file ends early.
*/
int TrsExtentRead(int fd, const TrsExtent *extent, int64_t row, int64_t rows, int64_t col, int64_t cols,
                  void *data);

/* Write a rectangle whose rows start stride_bytes apart. Returns 0 or an errno. */
int TrsExtentWrite(int fd, const TrsExtent *extent, int64_t row, int64_t rows, int64_t col, int64_t cols,
                   const void *data, int64_t stride_bytes);

/* All bytes, however many calls it takes. Return 0, an errno, or ENODATA. */
int TrsReadFully(int fd, void *data, int64_t bytes, int64_t offset);
int TrsWriteFully(int fd, const void *data, int64_t bytes, int64_t offset);
