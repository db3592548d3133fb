/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A dataset is one file, or several files one after the other. It is checked once when it is opened,
  and then read in ranges of samples. The format is in input/FORMAT.md.

  Every rank reads for itself with the serial driver. Files from other programs are not trusted.
  They must not use plug-ins, external storage, external or soft links, virtual datasets, or filters
  other than gzip, shuffle and fletcher32. Claimed sizes are compared with the file's size before
  memory is allocated.

  Samples and ids are counted over all files. On each rank 256 files stay open, or a quarter of the
  limit of `ulimit -n`. At most 4 of the files that HDF5 must read (filters, converted types) stay
  open, each with up to 16 MiB of unpacked chunks for each part. The least recently used file is
  closed first. Opening it again costs one open(2) or H5Fopen(), and the file must not have changed.
  Memory: about 1 KiB for each file, and 8 bytes for each chunk.
*/
#pragma once

#include "io/fault.h"

#include <stdint.h>

typedef struct TrsDatasetImpl *TrsDataset;

/* Description of all files together, borrowed from the dataset. */
typedef struct {
  const char *path; /* path of the only file, or "FIRST and N more files" */
  int n_files;
  const char *const *paths;    /* [n_files] */
  const int64_t *first_sample; /* [n_files + 1] first sample of each file */
  int64_t num_samples;
  /*
    Hash of the features' names and of the samples that TrsDatasetCheckSame() compares: equal data
    has equal hashes. Never 0.
  */
  int64_t sample_hash;
  int num_dense;           /* dense features per sample; 0 without /dense */
  int dense_columns;       /* columns of /dense */
  const int *dense_column; /* [num_dense] column of each feature; NULL: all, in order */
  int n_features;
  const char *const *features;       /* [n_features] key order, the same in all files */
  const int64_t *num_embeddings;     /* [n_features] the largest value of all files */
  double *mean_lengths;              /* [n_features] means over some samples of each file */
  PetscBool has_weights, has_labels; /* has_weights: ids have weights */
  PetscBool has_sample_weights;
  int n_labels; /* labels per sample, 0 without /labels */
  /* [n_labels] names of the labels, the same in all files; NULL if /labels has one dimension */
  const char *const *label_names;
  PetscBool has_group, has_time;
  int64_t num_values;
  PetscBool has_unsigned_ids; /* ids are uint64 in the files */
  /*
    Bytes of an id that TrsDatasetReadValues() returns: 4 (int32) if all files' ids are int32 or
    smaller, else 8 (int64).
  */
  int value_bytes;
} TrsDatasetInfo;

/* Rows first .. first+n-1. */
typedef struct {
  int64_t first, n;
} TrsRowRun;

/* Destinations for the rows of n samples in n_runs runs. NULL skips a part. */
typedef struct {
  float *dense;     /* [n, dense_columns] */
  float *labels;    /* [n, n_labels] */
  int32_t *lengths; /* [n, n_features] */
  int64_t *offsets; /* [n + n_runs] one more than the samples of each run */
  float *weights;   /* [n] weights of the samples */
  int64_t *group;   /* [n] */
  int64_t *time;    /* [n] */
} TrsSampleRows;

/*
  TrsDatasetOpen - Open and check a dataset.

  Collective on comm. Rank 0 finds the files and checks the whole structure of each. It also
  compares up to 256 MiB of lengths with offsets; longer files are checked further while they are
  read. The other ranks open the files after rank 0 has agreed, and compare them with rank 0's
  (dataset_same.h).

  In:     names  [n] files in order, or patterns of glob(3). A pattern stands for the files it
                 matches, sorted by the bytes of their names. A name of an existing file is never a
                 pattern
  Errors (agreed): NO_INPUT; DATA with file, dataset, row, the value found and the value expected;
    DATA with both files if they do not belong together; DATA with the rank and its host if it has
    other files than rank 0
*/
PetscErrorCode TrsDatasetOpen(MPI_Comm comm, int n, const char *const *names, TrsDataset *dataset);
PetscErrorCode TrsDatasetClose(TrsDataset *dataset);
PetscErrorCode TrsDatasetGetInfo(TrsDataset dataset, const TrsDatasetInfo **info);

/*
  Choose n columns of /dense as the dense features, in this order. Sets info's num_dense and
  dense_column. Call this before the dataset is read. Not collective.
*/
PetscErrorCode TrsDatasetChooseDense(TrsDataset dataset, int n, const int *columns);

/* Does any file of these names exist? Not collective. */
PetscBool TrsDatasetIsThere(int n, const char *const *names);

/* Find the file that holds a sample, and the sample's row in it. Not collective, any thread. */
const char *TrsDatasetLocate(const TrsDatasetInfo *info, int64_t sample, int64_t *row);

/*
  TrsDatasetReadSamples - Read runs of samples.

  Not collective, any number of threads at a time. Raises no errors: *fault describes an error, and
  the function returns its code. Plainly stored datasets are read directly. HDF5 reads filtered or
  converted datasets under this folder's lock, so only one thread at a time. Runs that lie close
  together in a file are read in one call, together with the rows between them.

  In:     run  [n_runs] in order and disjoint; a run may extend over several files
  Out:    to   lengths and offsets must not be NULL
  Faults: DATA for lengths that are negative or disagree with offsets, with the row, and for a file
          that changed; IO
*/
PetscErrorCode TrsDatasetReadSamples(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run,
                                     const TrsSampleRows *to, TrsFault *fault);
/*
  Read runs of values (of info->value_bytes) and weights (NULL: skip them) in the same way. The runs
  may come in any order, because a damaged file's offsets may have any order.
*/
PetscErrorCode TrsDatasetReadValues(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run, void *values,
                                    float *weights, TrsFault *fault);
