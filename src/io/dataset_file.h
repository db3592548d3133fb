/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One file of a dataset: the checks on opening it, and reading runs of its rows. Internal to io/.

  A file is checked once by HDF5. From then on what lies plainly in it is read by a descriptor alone, and HDF5 is closed; filtered and converted parts are
  read by HDF5. Either can be closed and opened again at any time, by any thread, at the cost of open(2) or of H5Fopen() and H5Dopen().
*/
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
  TRS_COLUMN_WEIGHTS, /* of ids */
  TRS_COLUMN_SAMPLE_WEIGHTS,
  TRS_N_COLUMNS
} TrsColumnKind;

/* One HDF5 dataset of the file. */
typedef struct {
  const char *name; /* without the leading slash */
  hid_t id;         /* while it is open */
  hid_t memory;     /* element type in memory */
  int64_t rows;     /* -1: absent */
  int cols, memory_bytes;
  PetscBool widen; /* int32 in the file, read directly and widened to int64 */
  TrsExtent extent;
} TrsColumn;

/* What tells that a file is another one, or was written to. */
typedef struct {
  int64_t inode, bytes, modified_ns;
} TrsStamp;

typedef struct {
  const char *path; /* borrowed */
  TrsHDF5File h5;
  TrsColumn column[TRS_N_COLUMNS];
  int64_t num_samples, num_values;
  int n_features;
  char **features;
  int64_t *num_embeddings;
  int64_t first_sample, first_value; /* its place among the dataset's */
  PetscBool by_hdf5;                 /* HDF5 stays open with it */
  TrsStamp stamp;                    /* when it was checked */
  int64_t last_used;
} TrsDatasetFile;

/* Open a file into a zeroed one (path set) and check formats, types, shapes, storage. Under the HDF5 lock. Errors: NO_INPUT, DATA */
PetscErrorCode TrsDatasetFileCheck(TrsDatasetFile *file);

/*
  TrsDatasetFileCheckLengths - Hold lengths against offsets over the whole file, or over blocks and the ends of one longer than max_bytes.

  Not collective, not under the lock. After TrsDatasetFileCheck(), while it has no place among others.
  Out: sums [n_features] of the lengths looked at, added to; seen, of how many samples
*/
PetscErrorCode TrsDatasetFileCheckLengths(TrsDatasetFile *file, int64_t max_bytes, double *sums,
                                          int64_t *seen);

/* Ids are read as int64, whatever their type in the file. */
void TrsDatasetFileWidenIds(TrsDatasetFile *file);

TrsStamp TrsFileStamp(int fd); /* of nothing: zeros */

/* Close descriptor and HDF5; open them again. Any thread, not under the lock. Faults: IO, DATA (it has changed since it was checked) */
void TrsDatasetFileRest(TrsDatasetFile *file);
PetscErrorCode TrsDatasetFileWake(TrsDatasetFile *file, TrsFault *fault);
PetscErrorCode TrsDatasetFileFree(TrsDatasetFile *file);

/* As TrsDatasetReadSamples() and TrsDatasetReadValues(), which see, of runs within this file; rows and offsets count from the dataset's first. */
PetscErrorCode TrsDatasetFileReadSamples(TrsDatasetFile *file, int64_t n_runs, const TrsRowRun *run,
                                         const TrsSampleRows *to, TrsFault *fault);
PetscErrorCode TrsDatasetFileReadValues(TrsDatasetFile *file, int64_t n_runs, const TrsRowRun *run,
                                        void *values, float *weights, TrsFault *fault);
