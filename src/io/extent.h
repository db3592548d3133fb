/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Extents give the file offsets of an unfiltered dataset's elements, so that the program reads and
  writes them without HDF5. Direct access is faster, works on any thread, and needs no lock. It also
  needs no collective call, in which other ranks would wait if one rank fails. Internal to io/.

  A dataset is cut into chunks of chunk_rows x chunk_cols elements. A contiguous dataset has one
  chunk. Each chunk is contiguous in the file, row by row. The last chunks are padded to full size.
*/
#pragma once

#include "core/error.h"

#include <hdf5.h>

#include <stdint.h>

typedef struct {
  int64_t rows, cols; /* cols is 1 if the dataset has one dimension */
  int64_t element_bytes;
  int64_t chunk_rows, chunk_cols;
  int64_t n_bands; /* number of chunks side by side */
  /*
    [number of chunks along the rows * n_bands] file offset of each chunk; NULL if HDF5 must read
    the dataset
  */
  int64_t *offset;
} TrsExtent;

/*
  TrsExtentGet - Find the extents of a dataset. TrsHDF5CheckDataset() must have checked it.

  Not collective.

  In:     memory  the element type in memory. If the file has another type, or filters, offset stays
                  NULL
  Out:    extent  free with TrsExtentFree()
  Errors: DATA
*/
PetscErrorCode TrsExtentGet(hid_t dataset, hid_t memory, TrsExtent *extent);
PetscErrorCode TrsExtentFree(TrsExtent *extent);

/*
  TrsExtentCheck - Check that all chunks of a dataset lie within the bytes of its file.

  The chunk index of an old file has no checksum, so the offsets may be wrong. Not collective.

  Errors: DATA with the file and the dataset
*/
PetscErrorCode TrsExtentCheck(const TrsExtent *extent, const char *path, const char *name,
                              int64_t file_bytes);

/* True if all rows are contiguous, one after the other. */
PetscBool TrsExtentIsWhole(const TrsExtent *extent);

/*
  Read rows row .. row+rows-1 and columns col .. col+cols-1 into [rows, cols] without gaps. Any
  thread may call it. Returns 0, an errno, or ENODATA if the file ends early.
*/
int TrsExtentRead(int fd, const TrsExtent *extent, int64_t row, int64_t rows, int64_t col, int64_t cols,
                  void *data);

/* Write a rectangle whose rows start stride_bytes apart. Returns 0 or an errno. */
int TrsExtentWrite(int fd, const TrsExtent *extent, int64_t row, int64_t rows, int64_t col, int64_t cols,
                   const void *data, int64_t stride_bytes);
