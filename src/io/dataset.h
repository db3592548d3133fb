/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Datasets: checked once on opening, then read in ranges of samples (format: INTERFACE section 2, input/FORMAT.md).

  Every rank reads for itself with the serial driver. Files from elsewhere are not trusted: no plug-ins, external storage, external or soft links,
  virtual datasets or filters other than gzip, shuffle, fletcher32; claimed sizes are held against the file's size before anything is allocated.
*/
#pragma once

#include "io/fault.h"

#include <stdint.h>

typedef struct TrsDatasetImpl *TrsDataset;

/* What the file says; borrowed from the dataset. */
typedef struct {
  const char *path;
  int64_t num_samples;
  int num_dense; /* 0: no /dense */
  int n_features;
  const char *const *features;   /* [n_features] key order */
  const int64_t *num_embeddings; /* [n_features] */
  double *mean_lengths;          /* [n_features], over a sample of the file */
  PetscBool has_weights, has_labels;
  int64_t num_values;
  int value_bytes; /* of an id as TrsDatasetReadValues() gives it: 4 (int32) where the file's are no larger, else 8 (int64) */
} TrsDatasetInfo;

/* Rows first .. first+n-1. */
typedef struct {
  int64_t first, n;
} TrsRowRun;

/*
  TrsDatasetOpen - Open and check a dataset.

  Collective on comm: rank 0 checks the whole structure (and, up to 256 MiB of them, lengths against offsets) first, the others open after it
  agreed. Larger files' lengths are checked as they are read.
  Errors (agreed): NO_INPUT, DATA naming file, dataset, row, what was found and what was expected
*/
PetscErrorCode TrsDatasetOpen(MPI_Comm comm, const char *path, TrsDataset *dataset);
PetscErrorCode TrsDatasetClose(TrsDataset *dataset);
PetscErrorCode TrsDatasetGetInfo(TrsDataset dataset, const TrsDatasetInfo **info);

/*
  TrsDatasetReadSamples - Read runs of samples.

  Not collective, any thread: nothing is raised, what went wrong is in *fault, whose code is returned. Datasets stored plainly are read
  directly; HDF5 is called (under this folder's lock) for filtered or converted ones. Runs that lie close together are read in one go, with what
  is between them.

  In:     run      [n_runs] in the file's order, apart from each other; n samples in all
  Out:    dense    [n, num_dense] or NULL
          labels   [n] or NULL
          lengths  [n, n_features]
          offsets  as in the file, of each run one more than its samples: [n + n_runs]
  Faults: DATA (lengths that are negative or disagree with offsets, naming the row), IO
*/
PetscErrorCode TrsDatasetReadSamples(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run, float *dense,
                                     float *labels, int32_t *lengths, int64_t *offsets, TrsFault *fault);
/* Runs of values (of info->value_bytes) and weights (NULL: not wanted), in the same way; in any order, as a damaged file's offsets may have them. */
PetscErrorCode TrsDatasetReadValues(TrsDataset dataset, int64_t n_runs, const TrsRowRun *run, void *values,
                                    float *weights, TrsFault *fault);
