/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One file of a dataset: its checks when it is opened, and the reading of its rows. Internal to io/.

  A file is checked once with HDF5. Afterwards plainly stored parts are read with a descriptor, and
  HDF5 closes the file. If the file has filtered or converted parts, HDF5 keeps it open and reads
  these parts. Any thread can close and reopen the descriptor and HDF5's file at any time. This
  costs an open(2), or an H5Fopen() and H5Dopen().
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
  TRS_COLUMN_WEIGHTS, /* weights of the ids */
  TRS_COLUMN_SAMPLE_WEIGHTS,
  TRS_COLUMN_GROUP,
  TRS_COLUMN_TIME,
  TRS_N_COLUMNS
} TrsColumnKind;

/* One HDF5 dataset of the file. */
typedef struct {
  const char *name; /* name without the leading slash */
  hid_t id;         /* valid while the dataset is open */
  hid_t memory;     /* element type in memory */
  int64_t rows;     /* number of rows, or -1 if the part is absent */
  int cols, ndim, memory_bytes;
  PetscBool is_unsigned64; /* true if the file has uint64; its 64 bits are read unchanged */
  /* true if the file has int32 that is read directly and converted to int64 */
  PetscBool widen;
  TrsExtent extent;
} TrsColumn;

/* Properties that show whether a file was replaced or written to. */
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
  /*
    Text of the root attribute `mapping`, or NULL if the file has none. dataset.c frees texts that
    no rank needs.
  */
  char *mapping;
  char **label_names; /* [columns of /labels]; NULL if /labels has one dimension */
  /* index of the file's first sample and first value in the dataset */
  int64_t first_sample, first_value;
  PetscBool by_hdf5; /* true if HDF5 keeps the file open */
  TrsStamp stamp;    /* properties of the file when it was checked */
  int64_t last_used;
  int users; /* number of calls that read the file now and keep it open */
} TrsDatasetFile;

/*
  Open a file into a zeroed struct with path set, and check formats, types, shapes and storage. Call
  this under the HDF5 lock. Errors: NO_INPUT, DATA.
*/
PetscErrorCode TrsDatasetFileCheck(TrsDatasetFile *file);

/*
  TrsDatasetFileCheckLengths - Compare lengths with offsets over the whole file.

  If the lengths have more than max_bytes bytes, only some blocks and both ends are checked. Not
  collective, not under the lock. It must be called after TrsDatasetFileCheck() and before
  first_sample and first_value are set.

  Out: sums  [n_features] the lengths of the checked samples are added to it
       seen  number of samples checked
*/
PetscErrorCode TrsDatasetFileCheckLengths(TrsDatasetFile *file, int64_t max_bytes, double *sums,
                                          int64_t *seen);

/* From now on, convert ids to int64 when they are read, even if the file has int32. */
void TrsDatasetFileWidenIds(TrsDatasetFile *file);

TrsStamp TrsFileStamp(int fd); /* The properties are all 0 if there is no file. */

/*
  Rest closes the descriptor and HDF5's file. Wake opens them again. Any thread, not under the lock.
  Faults: IO, and DATA if the file has changed since it was checked.
*/
void TrsDatasetFileRest(TrsDatasetFile *file);
PetscErrorCode TrsDatasetFileWake(TrsDatasetFile *file, TrsFault *fault);
PetscErrorCode TrsDatasetFileFree(TrsDatasetFile *file);

/*
  Read runs within this file, like TrsDatasetReadSamples() and TrsDatasetReadValues(). Indices of
  rows and offsets count from the beginning of the dataset.
*/
PetscErrorCode TrsDatasetFileReadSamples(TrsDatasetFile *file, int64_t n_runs, const TrsRowRun *run,
                                         const TrsSampleRows *to, TrsFault *fault);
PetscErrorCode TrsDatasetFileReadValues(TrsDatasetFile *file, int64_t n_runs, const TrsRowRun *run,
                                        void *values, float *weights, TrsFault *fault);
