/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A dataset consists of one file, or of several files whose samples follow one another. It is
  checked once when it is opened, and then read in ranges of samples. input/FORMAT.md describes the
  format.

  Every rank reads independently with HDF5's serial driver. Files from other programs are not
  trusted. They must not use plug-ins, external storage, external or soft links, virtual datasets,
  or filters other than gzip, shuffle and fletcher32. Claimed sizes are compared with the file's
  size before memory is allocated.

  Indices of samples and ids count over all files. Each rank keeps 256 files open, or a quarter of
  the limit of `ulimit -n` if that is less. Files that HDF5 must read (filters, converted types)
  need more memory: up to 16 MiB of unpacked chunks for each part. So at most 4 of them stay open.
  The least recently used file is closed first. Opening it again costs one open(2) or H5Fopen(), and
  the file must not have changed. Memory: about 1 KiB for each file, and 8 bytes for each chunk.
*/
#pragma once

#include "io/fault.h"

#include <stdint.h>

/* Root attribute of datasets, checkpoints and results with the mapping (spec/mapping.h). */
#define TRS_MAPPING_ATTRIBUTE "mapping"

typedef struct TrsDatasetImpl *TrsDataset;

/* Description of all files together. Its pointers are borrowed from the dataset. */
typedef struct {
  const char *path; /* path of the only file, or "FIRST and N more files" */
  int n_files;
  const char *const *paths;    /* [n_files] */
  const int64_t *first_sample; /* [n_files + 1] index of each file's first sample */
  int64_t num_samples;
  /*
    Hash of the features' names and of the samples that TrsDatasetCheckSame() compares. Equal
    datasets have equal hashes. It is never 0.
  */
  int64_t sample_hash;
  int num_dense;     /* number of dense features per sample; 0 if the dataset has no /dense */
  int dense_columns; /* number of columns of /dense */
  /* [num_dense] column of each feature; NULL means all columns in their order */
  const int *dense_column;
  int n_features;
  const char *const *features;       /* [n_features] names in key order, the same in all files */
  const int64_t *num_embeddings;     /* [n_features] the largest value that any file has */
  double *mean_lengths;              /* [n_features] mean lengths over some samples of each file */
  PetscBool has_weights, has_labels; /* has_weights is true if ids have weights */
  PetscBool has_sample_weights;
  int n_labels; /* number of labels per sample, 0 if the dataset has no /labels */
  /* [n_labels] names of the labels, the same in all files; NULL if /labels has one dimension */
  const char *const *label_names;
  PetscBool has_group, has_time;
  /*
    [n_files] on rank 0: the mapping of each file (spec/mapping.h), NULL if the file has none. Equal
    texts have the same pointer as the first of them. On other ranks all are NULL.
  */
  const char *const *mappings;
  int64_t num_values;
  PetscBool has_unsigned_ids; /* true if the files store ids as uint64 */
  /*
    Bytes of an id that TrsDatasetReadValues() returns. It is 4 (int32) if the ids of all files are
    int32 or smaller, and 8 (int64) if not.
  */
  int value_bytes;
} TrsDatasetInfo;

/* The rows first to first+n-1. */
typedef struct {
  int64_t first, n;
} TrsRowRun;

/* Destinations for the rows of n samples in n_runs runs. If a part is NULL, it is not read. */
typedef struct {
  float *dense;     /* [n, dense_columns] */
  float *labels;    /* [n, n_labels] */
  int32_t *lengths; /* [n, n_features] */
  int64_t *offsets; /* [n + n_runs] each run has one more offset than samples */
  float *weights;   /* [n] weights of the samples */
  int64_t *group;   /* [n] */
  int64_t *time;    /* [n] */
} TrsSampleRows;

/*
  TrsDatasetOpen - Open and check a dataset.

  Collective on comm. Rank 0 finds the files and checks the whole structure of each. It also
  compares up to 256 MiB of lengths with offsets; longer files are checked further while they are
  read. If rank 0 finds no error, the other ranks open the files and compare them with rank 0's
  files (dataset_same.h).

  In:     names  [n] files in order, or patterns of glob(3). A pattern is replaced by the files that
                 it matches, sorted by the bytes of their names. A name of an existing file is never
                 a pattern
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

/*
  From now on, return ids as int64, so that files with larger ids can be appended. Must be called
  before the dataset is read. Not collective.
*/
void TrsDatasetWidenIds(TrsDataset dataset);

/*
  TrsDatasetAppend - Append the files of another dataset. Their samples and ids get the next
    indices.

  Not collective. While this function runs, no other thread may use either dataset. The ids must be
  wide (TrsDatasetWidenIds()). The function changes the numbers, paths, mappings and num_embeddings
  of TrsDatasetInfo, but not path, sample_hash and mean_lengths.

  InOut:  more  becomes NULL
  Errors: DATA with both files if they do not belong together, or if there are too many samples;
          both datasets are then unchanged
*/
PetscErrorCode TrsDatasetAppend(TrsDataset dataset, TrsDataset *more);

/*
  Close the files whose samples are all before this sample. If they are read later, they are opened
  again. While this function runs, no other thread may use the dataset. Not collective.
*/
PetscErrorCode TrsDatasetCloseBefore(TrsDataset dataset, int64_t sample);

/* True if any file with one of these names exists. Not collective. */
PetscBool TrsDatasetIsThere(int n, const char *const *names);

/* Find the file that holds a sample, and the sample's row in it. Not collective, any thread. */
const char *TrsDatasetLocate(const TrsDatasetInfo *info, int64_t sample, int64_t *row);

/*
  TrsDatasetReadSamples - Read runs of samples.

  Not collective. Any number of threads may call it at a time. It raises no errors: *fault describes
  an error, and the function returns the error's code. Plainly stored datasets are read with pread.
  Filtered or converted datasets are read by HDF5 under this folder's lock, by one thread at a time.
  Runs that lie close together in a file are read in one call, together with the rows between them.

  In:     run  [n_runs] in order and disjoint; a run may extend over several files
  Out:    to   lengths and offsets must not be NULL
  Faults: DATA for lengths that are negative or disagree with offsets, with the row, and for a file
          that changed; IO
*/
PetscErrorCode TrsDatasetReadSamples(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run,
                                     const TrsSampleRows *to, TrsFault *fault);
/*
  Read runs of values and weights in the same way as TrsDatasetReadSamples(). A value has
  info->value_bytes bytes. If weights is NULL, weights are not read. The runs may come in any order,
  because the offsets of a damaged file may have any order.
*/
PetscErrorCode TrsDatasetReadValues(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run, void *values,
                                    float *weights, TrsFault *fault);
