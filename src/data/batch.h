/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Assembly of batches: the sample-major rows of the file are converted to a feature-major batch, and
  ids and numbers are checked. Internal to data/.

  These functions run on the reader's threads. They do not call MPI or PETSc, they allocate no
  memory, and they call HDF5 only through io/. The main thread allocates the memory
  (data/batch_room.h).
*/
#pragma once

#include "compute/assemble.h"
#include "core/buffer.h"
#include "data/batch_order.h"
#include "data/reader.h"
#include "data/shuffle.h"

typedef enum { TRS_DATA_CHECK_FATAL, TRS_DATA_CHECK_WARNING, TRS_DATA_CHECK_NONE } TrsDataCheck;

/*
  The data that a batch has: features, labels and more. This does not change after the reader was
  set up.
*/
typedef struct {
  TrsDataset dataset;
  const TrsDatasetInfo *info;
  int n;                     /* number of selected features */
  TrsSampleFeature *feature; /* [n] */
  /* [info->n_features] the first selected feature of each key, or -1 */
  int *first_of_key;
  TrsBoundsCheckMode *mode; /* [n] */
  PetscBool has_twins;      /* several features have the same key */
  PetscBool is_shuffled;    /* true if each epoch has an order of its own */
  /*
    Number of samples that are before the dataset's first sample in the order of the batches. It is
    negative if the batches begin within the dataset.
  */
  int64_t before_dataset;
  PetscBool for_device;                /* true if a device assembles the batches */
  PetscBool with_weights, with_labels; /* with_weights is true if ids have weights */
  PetscBool with_sample_weights, with_group, with_time;
  int n_labels;
  TrsReaderLabel *label; /* [n_labels] the labels that were chosen from the dataset's labels */
  int group_key;         /* the feature whose id is the sample's group, or TRS_GROUP_OF_DATASET */
  int64_t n_segments;    /* groups must be less than this; 0 if any group is allowed */
  TrsDataCheck check;
} TrsBatchSpec;

/* A sample of the batch: its number in the dataset, and its index in the batch. */
typedef struct {
  int64_t sample, place;
} TrsBatchSample;

/* The data of a batch's samples, in the file's layout and in the order of the dataset. */
typedef struct {
  int32_t *lengths; /* [B, info->n_features] */
  int64_t *start;   /* [B + 1] index in `values` of each sample's first value */
  int32_t *sample;  /* [B] for a shuffled batch: the sample at each index of the batch */
  void *values;     /* elements of info->value_bytes bytes */
  float *weights;   /* weights of the ids in `values` */
  /* Used only if a device assembles the batch: [n + 1] index of each feature's first id in the
     batch, then [info->n_features] number of ids of each key. */
  int64_t *id_begin;
} TrsFileSamples;

/*
  Scratch memory, for one batch at a time. The arrays are large enough for the largest batch; the
  main thread enlarges the arrays for values.
*/
typedef struct {
  TrsBatchSample *sample; /* [B] in the dataset's order */
  /* [B] sequences of consecutive samples, later sequences of their values */
  TrsRowRun *run;
  int64_t n_runs;
  /* [B, num_dense] in file order; used only if the batch has another order */
  float *dense;
  /* [B, info->n_labels] all labels, in file order, from which labels are chosen */
  float *labels;
  float *taken;          /* [B, n_labels] chosen labels, in file order; used like `dense` */
  float *sample_weights; /* [B] in file order; used like `dense` */
  int64_t *group, *time; /* [B] in file order; used like `dense` */
  int64_t *offsets;      /* [2 * B] */
  int64_t n_values;      /* number of values in this batch, of all features */
  int64_t most_values;   /* number of values for which `values` and `weights` have space */
  /* in this scratch memory; if a device assembles the batch, in the batch's memory */
  TrsFileSamples file;
  TrsBuffer values, weights;
} TrsBatchScratch;

/*
  TrsBatchReadSamples - Read the first half of a batch: dense features, labels and lengths. Count
    the values.

  Runs on a reader thread.

  In:   shuffle  the order of the epoch's samples; NULL for the order of the file
  Out:  batch->dense, labels, weights, group, time; scratch
*/
PetscErrorCode TrsBatchReadSamples(const TrsBatchSpec *spec, const TrsShuffle *shuffle,
                                   TrsBatchScratch *scratch, TrsBatch *batch, TrsFault *fault);

/*
  TrsBatchReadValues - Read the second half of a batch: fill the KJT, which must have space for
    n_values ids. Ids are not mapped before TrsBatchMapIds(). If a device assembles the batch, this
    function only reads the samples to the memory of batch->samples, and finds the index of each
    feature's first id.

  Runs on a reader thread.

  InOut: bad_ids  [n] for each feature, the number of repaired ids is added to its count, and the
                  first repaired id is kept
*/
PetscErrorCode TrsBatchReadValues(const TrsBatchSpec *spec, TrsBatchScratch *scratch, TrsBatch *batch,
                                  TrsBadIds *bad_ids, TrsFault *fault);

/*
  Search the ids and lengths of a batch on the host, after a device has found bad ones, to count or
  report them. scratch must have the batch's samples, as the two halves had them, and space for
  their order. bad_ids is as for TrsBatchReadValues().
*/
PetscErrorCode TrsBatchCheckIds(const TrsBatchSpec *spec, const TrsShuffle *shuffle, TrsBatchScratch *scratch,
                                TrsBatch *batch, TrsBadIds *bad_ids, TrsFault *fault);

/* Map the ids of a batch, which has been read, to rows. Runs on a reader thread. */
void TrsBatchMapIds(const TrsBatchSpec *spec, TrsBatch *batch);
