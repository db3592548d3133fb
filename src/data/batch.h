/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Batch assembly turns the file's sample-major rows into a feature-major batch and checks ids and
  numbers. Internal to data/.

  These functions run on the reader's threads: no MPI, no PETSc, no allocation, and HDF5 only
  through io/. The main thread allocates the memory (data/batch_room.h).
*/
#pragma once

#include "compute/assemble.h"
#include "core/buffer.h"
#include "data/batch_order.h"
#include "data/reader.h"
#include "data/shuffle.h"

typedef enum { TRS_DATA_CHECK_FATAL, TRS_DATA_CHECK_WARNING, TRS_DATA_CHECK_NONE } TrsDataCheck;

/* The composition of a batch, which is fixed after set-up. */
typedef struct {
  TrsDataset dataset;
  const TrsDatasetInfo *info;
  int n;                               /* number of selected features */
  TrsSampleFeature *feature;           /* [n] */
  int *first_of_key;                   /* [info->n_features] first selected feature, or -1 */
  TrsBoundsCheckMode *mode;            /* [n] */
  PetscBool has_twins;                 /* two features have one key */
  PetscBool is_shuffled;               /* samples come in an order of the epoch's */
  PetscBool for_device;                /* a device assembles the batches */
  PetscBool with_weights, with_labels; /* with_weights: weights of ids */
  PetscBool with_sample_weights, with_group, with_time;
  int n_labels;
  TrsReaderLabel *label; /* [n_labels] which of info->n_labels labels, and what they are */
  int group_key;         /* feature whose id is the sample's group, or TRS_GROUP_OF_DATASET */
  int64_t n_segments;    /* groups are 0 .. n_segments - 1; 0 allows any number */
  TrsDataCheck check;
} TrsBatchSpec;

/* A sample of the batch: its number in the dataset and its place in the batch. */
typedef struct {
  int64_t sample, place;
} TrsBatchSample;

/* Where a batch's samples go as they are in the file, and in the dataset's order. */
typedef struct {
  int32_t *lengths; /* [B, info->n_features] */
  int64_t *start;   /* [B + 1] where each sample's values begin in `values` */
  int32_t *sample;  /* [B] of a shuffled batch: the sample at each place */
  void *values;     /* elements of info->value_bytes bytes */
  float *weights;   /* of values */
  /* Of a batch that a device assembles: [n + 1] where each feature's ids begin in the batch, then
     [info->n_features] ids of each key. */
  int64_t *id_begin;
} TrsFileSamples;

/*
  Scratch memory for one batch at a time. The arrays have room for the largest batch. The values
  have the room that the main thread made.
*/
typedef struct {
  TrsBatchSample *sample; /* [B] in the dataset's order */
  TrsRowRun *run;         /* [B] runs of consecutive samples, later runs of their values */
  int64_t n_runs;
  /* [B, num_dense] in file order, used if the batch has another order */
  float *dense;
  float *labels;         /* [B, info->n_labels] in file order, to choose labels from */
  float *taken;          /* [B, n_labels] chosen, in file order, used like dense */
  float *sample_weights; /* [B] in file order, used likewise */
  int64_t *group, *time; /* [B] in file order, used likewise */
  int64_t *offsets;      /* [2 * B] */
  int64_t n_values;      /* values of this batch, all features */
  int64_t most_values;   /* values that fit into `values` and `weights` */
  TrsFileSamples file;   /* this scratch's, or the batch's if a device assembles it */
  TrsBuffer values, weights;
} TrsBatchScratch;

/*
  TrsBatchReadSamples - First half: read dense features, labels and lengths, and count the values.

  Runs on a thread of the reader's.

  In:   shuffle  of the epoch, or NULL for file order
  Out:  batch->dense, labels, weights, group, time; scratch
*/
PetscErrorCode TrsBatchReadSamples(const TrsBatchSpec *spec, const TrsShuffle *shuffle,
                                   TrsBatchScratch *scratch, TrsBatch *batch, TrsFault *fault);

/*
  TrsBatchReadValues - Second half: fill the KJT, once there is room for n_values ids. They are as
    in the file until TrsBatchMapIds(). If a device assembles the batch, this only puts its samples
    where batch->samples says, and finds where each feature's ids will begin.

  Runs on a thread of the reader's.

  InOut: bad_ids  [n] repaired ids are added to each feature's count; the first one is kept
*/
PetscErrorCode TrsBatchReadValues(const TrsBatchSpec *spec, TrsBatchScratch *scratch, TrsBatch *batch,
                                  TrsBadIds *bad_ids, TrsFault *fault);

/*
  Look for what a device has found in a batch's ids and lengths. scratch has the batch's samples, as
  the halves had them, and room for their order. bad_ids as of TrsBatchReadValues().
*/
PetscErrorCode TrsBatchCheckIds(const TrsBatchSpec *spec, const TrsShuffle *shuffle, TrsBatchScratch *scratch,
                                TrsBatch *batch, TrsBadIds *bad_ids, TrsFault *fault);

/* Let the ids of a batch that was read become rows. Runs on a thread of the reader's. */
void TrsBatchMapIds(const TrsBatchSpec *spec, TrsBatch *batch);
