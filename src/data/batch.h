/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Batch assembly turns sample-major rows of the file into a feature-major batch, and checks ids and
  numbers. Internal to data/.

  These functions run on the reader's threads. They do not call MPI or PETSc or allocate memory, and
  they call HDF5 only through io/. The main thread allocates the memory (data/batch_room.h).
*/
#pragma once

#include "compute/assemble.h"
#include "core/buffer.h"
#include "data/batch_order.h"
#include "data/reader.h"
#include "data/shuffle.h"

typedef enum { TRS_DATA_CHECK_FATAL, TRS_DATA_CHECK_WARNING, TRS_DATA_CHECK_NONE } TrsDataCheck;

/* The composition of a batch. It is fixed after set-up. */
typedef struct {
  TrsDataset dataset;
  const TrsDatasetInfo *info;
  int n;                               /* number of selected features */
  TrsSampleFeature *feature;           /* [n] */
  int *first_of_key;                   /* [info->n_features] first selected feature, or -1 */
  TrsBoundsCheckMode *mode;            /* [n] */
  PetscBool has_twins;                 /* some features share a key */
  PetscBool is_shuffled;               /* each epoch has its own order of samples */
  PetscBool for_device;                /* a device assembles the batches */
  PetscBool with_weights, with_labels; /* with_weights: ids have weights */
  PetscBool with_sample_weights, with_group, with_time;
  int n_labels;
  TrsReaderLabel *label; /* [n_labels] the chosen ones of info->n_labels labels */
  int group_key;         /* feature whose id is the sample's group, or TRS_GROUP_OF_DATASET */
  int64_t n_segments;    /* groups must be below n_segments; 0: any group is fine */
  TrsDataCheck check;
} TrsBatchSpec;

/* A sample of the batch: its number in the dataset and its place in the batch. */
typedef struct {
  int64_t sample, place;
} TrsBatchSample;

/* Memory for a batch's samples, in the file's layout and the dataset's order. */
typedef struct {
  int32_t *lengths; /* [B, info->n_features] */
  int64_t *start;   /* [B + 1] where each sample's values begin in `values` */
  int32_t *sample;  /* [B] for a shuffled batch: the sample at each place */
  void *values;     /* elements of info->value_bytes bytes */
  float *weights;   /* of the ids in `values` */
  /* Only if a device assembles the batch: [n + 1] the beginning of each feature's ids in the batch,
     then [info->n_features] the number of ids of each key. */
  int64_t *id_begin;
} TrsFileSamples;

/*
  Scratch memory for one batch at a time. The arrays have room for the largest batch. The main
  thread enlarges the room for values.
*/
typedef struct {
  TrsBatchSample *sample; /* [B] in the dataset's order */
  TrsRowRun *run;         /* [B] runs of consecutive samples, later runs of their values */
  int64_t n_runs;
  /* [B, num_dense] in file order, used if the batch has another order */
  float *dense;
  float *labels;         /* [B, info->n_labels] in file order, to choose labels from */
  float *taken;          /* [B, n_labels] chosen, in file order, used like dense */
  float *sample_weights; /* [B] in file order, used like dense */
  int64_t *group, *time; /* [B] in file order, used like dense */
  int64_t *offsets;      /* [2 * B] */
  int64_t n_values;      /* number of values in this batch, all features */
  int64_t most_values;   /* values that fit into `values` and `weights` */
  TrsFileSamples file;   /* this scratch memory's, or the batch's if a device assembles it */
  TrsBuffer values, weights;
} TrsBatchScratch;

/*
  TrsBatchReadSamples - First half: read dense features, labels and lengths, and count the values.

  Runs on a reader thread.

  In:   shuffle  the epoch's order, or NULL for file order
  Out:  batch->dense, labels, weights, group, time; scratch
*/
PetscErrorCode TrsBatchReadSamples(const TrsBatchSpec *spec, const TrsShuffle *shuffle,
                                   TrsBatchScratch *scratch, TrsBatch *batch, TrsFault *fault);

/*
  TrsBatchReadValues - Second half: fill the KJT, once there is room for n_values ids. The ids stay
    as in the file until TrsBatchMapIds(). If a device assembles the batch, this function only puts
    the samples where batch->samples points, and finds the beginning of each feature's ids.

  Runs on a reader thread.

  InOut: bad_ids  [n] repaired ids are added to each feature's count; the first one is kept
*/
PetscErrorCode TrsBatchReadValues(const TrsBatchSpec *spec, TrsBatchScratch *scratch, TrsBatch *batch,
                                  TrsBadIds *bad_ids, TrsFault *fault);

/*
  After a device has found bad ids or lengths in a batch, find them again on the host to count or
  report them. scratch has the batch's samples, as the two halves had them, and room for their
  order. bad_ids is that of TrsBatchReadValues().
*/
PetscErrorCode TrsBatchCheckIds(const TrsBatchSpec *spec, const TrsShuffle *shuffle, TrsBatchScratch *scratch,
                                TrsBatch *batch, TrsBadIds *bad_ids, TrsFault *fault);

/* Replace the ids of a batch that has been read by rows. Runs on a reader thread. */
void TrsBatchMapIds(const TrsBatchSpec *spec, TrsBatch *batch);
