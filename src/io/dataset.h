/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Datasets: one file or several, one after the other, checked once on opening, then read in ranges of
  samples. The format is in input/FORMAT.md.

  Every rank reads for itself with the serial driver. Files from elsewhere are not trusted: no plug-ins, external storage, external or soft links,
  virtual datasets or filters other than gzip, shuffle, fletcher32; claimed sizes are held against the file's size before anything is allocated.

  Samples and ids are counted over all files. Of a dataset's files 256 stay open on a rank, of those that HDF5 must read (filters,
  converted types) 4, each with up to 16 MiB of unpacked chunks a part; the least recently used one gives way. A file that is opened again costs
  one open(2), or H5Fopen(), and must not have changed. Memory: about 1 KiB a file, and 8 bytes a chunk.
*/
#pragma once

#include "io/fault.h"

#include <stdint.h>

typedef struct TrsDatasetImpl *TrsDataset;

/* What the files say together; borrowed from the dataset. */
typedef struct {
  const char *path; /* the file's, or of several "FIRST and N more files" */
  int n_files;
  const char *const *paths;    /* [n_files] */
  const int64_t *first_sample; /* [n_files + 1] of each file */
  int64_t num_samples;
  int num_dense; /* 0: no /dense */
  int n_features;
  const char *const *features;       /* [n_features] key order, the same in all */
  const int64_t *num_embeddings;     /* [n_features] the largest of all files, */
  const char *const *largest_in;     /* [n_features] and the first file that says so */
  double *mean_lengths;              /* [n_features], over a sample of each file */
  PetscBool has_weights, has_labels; /* weights of ids */
  PetscBool has_sample_weights;
  int64_t num_values;
  int value_bytes; /* of an id as TrsDatasetReadValues() gives it: 4 (int32) where the files' are no larger, else 8 (int64) */
} TrsDatasetInfo;

/* Rows first .. first+n-1. */
typedef struct {
  int64_t first, n;
} TrsRowRun;

/* Where the rows of n samples in n_runs runs go; NULL: not wanted. */
typedef struct {
  float *dense;     /* [n, num_dense] */
  float *labels;    /* [n] */
  int32_t *lengths; /* [n, n_features] */
  int64_t *offsets; /* [n + n_runs] of each run one more than its samples */
  float *weights;   /* [n] of samples */
} TrsSampleRows;

/*
  TrsDatasetOpen - Open and check a dataset.

  Collective on comm: rank 0 finds the files, checks the whole structure of each (and, up to 256 MiB of them, lengths against offsets) first, the others
  open them after it agreed. Larger files' lengths are checked as they are read.

  In:     names [n] files in order, or patterns of glob(3): each stands for the files it matches, sorted by the bytes of their names. A file that is
          there under the very name is that file
  Errors (agreed): NO_INPUT, DATA naming file, dataset, row, what was found and what was expected; both files where they do not go together
*/
PetscErrorCode TrsDatasetOpen(MPI_Comm comm, int n, const char *const *names, TrsDataset *dataset);
PetscErrorCode TrsDatasetClose(TrsDataset *dataset);
PetscErrorCode TrsDatasetGetInfo(TrsDataset dataset, const TrsDatasetInfo **info);

/* Is there a file of these names at all? Not collective. */
PetscBool TrsDatasetIsThere(int n, const char *const *names);

/* The file that holds a sample, and its row there. Not collective, any thread. */
const char *TrsDatasetLocate(const TrsDatasetInfo *info, int64_t sample, int64_t *row);

/*
  TrsDatasetReadSamples - Read runs of samples.

  Not collective, any thread, one at a time: nothing is raised, what went wrong is in *fault, whose code is returned. Datasets stored plainly are read
  directly; HDF5 is called (under this folder's lock) for filtered or converted ones. Runs that lie close together in a file are read in one go, with
  what is between them.

  In:     run  [n_runs] in order, apart from each other; one may reach over several files
  Out:    to   lengths and offsets are always wanted
  Faults: DATA (lengths that are negative or disagree with offsets, naming the row; a file that changed), IO
*/
PetscErrorCode TrsDatasetReadSamples(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run,
                                     const TrsSampleRows *to, TrsFault *fault);
/* Runs of values (of info->value_bytes) and weights (NULL: not wanted), in the same way; in any order, as a damaged file's offsets may have them. */
PetscErrorCode TrsDatasetReadValues(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run, void *values,
                                    float *weights, TrsFault *fault);
