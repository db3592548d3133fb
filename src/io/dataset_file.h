/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One file of a dataset: the checks when it is opened, and the reading of its rows. Internal to io/.

  HDF5 checks a file once. From then on, plainly stored parts are read only by a descriptor, and
  HDF5 is closed. HDF5 reads filtered and converted parts. Both can be closed and opened again at
  any time, by any thread, at the cost of open(2) or of H5Fopen() and H5Dopen().
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
  const char *name; /* without the leading slash */
  hid_t id;         /* valid while the dataset is open */
  hid_t memory;     /* element type in memory */
  int64_t rows;     /* -1 if absent */
  int cols, ndim, memory_bytes;
  PetscBool is_unsigned64; /* uint64 in the file: its 64 bits are read unchanged */
  PetscBool widen;         /* int32 in the file: read directly and widened to int64 */
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
  char **label_names;                /* [columns of /labels], or NULL if labels are [N] */
  int64_t first_sample, first_value; /* the file's place among the dataset's samples and values */
  PetscBool by_hdf5;                 /* HDF5 keeps the file open */
  TrsStamp stamp;                    /* state of the file when it was checked */
  int64_t last_used;
  int users; /* calls that now read the file and keep it open */
} TrsDatasetFile;

/*
  Open a file into a zeroed struct with path set, and check formats, types, shapes and storage. Call
  this under the HDF5 lock. Errors: NO_INPUT, DATA.
*/
PetscErrorCode TrsDatasetFileCheck(TrsDatasetFile *file);

/*
  TrsDatasetFileCheckLengths - Compare lengths with offsets over the whole file.

  If the lengths are longer than max_bytes, only some blocks and the ends are checked. Not
  collective, not under the lock. Call this after TrsDatasetFileCheck() and before the file gets its
  place among the others.

  Out: sums  [n_features] the checked lengths are added
       seen  number of samples checked
*/
PetscErrorCode TrsDatasetFileCheckLengths(TrsDatasetFile *file, int64_t max_bytes, double *sums,
                                          int64_t *seen);

/* From now on, read ids as int64, even if they are int32 in the file. */
void TrsDatasetFileWidenIds(TrsDatasetFile *file);

TrsStamp TrsFileStamp(int fd); /* all zeros if there is no file */

/*
  Close descriptor and HDF5 (Rest), or open them again (Wake). Any thread, not under the lock.
  Faults: IO, DATA if the file has changed since it was checked.
*/
void TrsDatasetFileRest(TrsDatasetFile *file);
PetscErrorCode TrsDatasetFileWake(TrsDatasetFile *file, TrsFault *fault);
PetscErrorCode TrsDatasetFileFree(TrsDatasetFile *file);

/*
  Read runs within this file, like TrsDatasetReadSamples() and TrsDatasetReadValues(). Rows and
  offsets count from the dataset's first.
*/
PetscErrorCode TrsDatasetFileReadSamples(TrsDatasetFile *file, int64_t n_runs, const TrsRowRun *run,
                                         const TrsSampleRows *to, TrsFault *fault);
PetscErrorCode TrsDatasetFileReadValues(TrsDatasetFile *file, int64_t n_runs, const TrsRowRun *run,
                                        void *values, float *weights, TrsFault *fault);
