/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of a dataset's file, and the checks on opening it. Internal to io/. */
#pragma once

#include "io/dataset.h"
#include "io/extent.h"
#include "io/hdf5_util.h"

typedef enum {
  TRS_COLUMN_LENGTHS,
  TRS_COLUMN_OFFSETS,
  TRS_COLUMN_VALUES,
  TRS_COLUMN_DENSE,
  TRS_COLUMN_LABELS,
  TRS_COLUMN_WEIGHTS,
  TRS_N_COLUMNS
} TrsColumnKind;

/* One HDF5 dataset of the file. */
typedef struct {
  const char *name; /* without the leading slash */
  hid_t id;         /* -1: absent */
  hid_t memory;     /* element type in memory */
  int64_t rows;
  int cols, memory_bytes;
  PetscBool widen; /* int32 in the file, read directly and widened to int64 */
  TrsExtent extent;
} TrsColumn;

struct TrsDatasetImpl {
  char *path;
  TrsHDF5File file;
  TrsDatasetInfo info;
  TrsColumn column[TRS_N_COLUMNS];
  char **features;
  int64_t *num_embeddings;
};

/* Open the file's parts into a zeroed dataset (path set) and check formats, types, shapes, storage, first and last offset. Under the HDF5 lock. */
PetscErrorCode TrsDatasetCheckStructure(TrsDataset dataset);

/* Hold lengths against offsets over the whole file, if it is not too long. Not under the lock. */
PetscErrorCode TrsDatasetCheckLengths(TrsDataset dataset);
