/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Batch assembly: from the file's sample-major rows to a feature-major batch, with the checks of ids and numbers. Internal to data/.

  Runs on the reader's thread: no MPI, no PETSc, no allocation; HDF5 only through io/. Room is made by the main thread.
*/
#pragma once

#include "core/buffer.h"
#include "data/batch_order.h"
#include "data/reader.h"
#include "data/shuffle.h"

typedef enum { TRS_DATA_CHECK_FATAL, TRS_DATA_CHECK_WARNING, TRS_DATA_CHECK_NONE } TrsDataCheck;

/* What a batch is made of; fixed after set-up. */
typedef struct {
  TrsDataset dataset;
  const TrsDatasetInfo *info;
  int n;                /* selected features */
  int *selected_of_key; /* [info->n_features] place among the selected ones, -1: not selected */
  int64_t *rows;        /* [n] */
  TrsBoundsCheckMode *mode;
  int32_t *max_length;                 /* [n] ids of a sample; 0: any number */
  PetscBool with_weights, with_labels; /* weights of ids */
  PetscBool with_sample_weights;
  TrsDataCheck check;
} TrsBatchSpec;

/* A sample of the batch: its number in the dataset and its place in the batch. */
typedef struct {
  int64_t sample, place;
} TrsBatchSample;

/* Scratch for one batch at a time; arrays of the largest batch, values as large as main made them. */
typedef struct {
  TrsBatchSample *sample; /* [B] in the dataset's order */
  TrsRowRun *run;         /* [B] of consecutive samples; then of their values */
  int64_t n_runs;
  float *dense, *labels; /* [B, num_dense], [B]: file order, used when that is not the batch's */
  float *sample_weights; /* [B], likewise */
  int32_t *lengths;      /* [B, info->n_features], file order */
  int64_t *offsets;      /* [2 * B] */
  int64_t n_values;      /* of this batch, all features */
  TrsBuffer values;      /* of info->value_bytes */
  TrsBuffer weights;
} TrsBatchScratch;

/* Not collective, main thread. */
PetscErrorCode TrsBatchScratchCreate(const TrsBatchSpec *spec, int64_t max_batch, TrsBatchScratch *scratch);
PetscErrorCode TrsBatchScratchReserve(const TrsBatchSpec *spec, TrsBatchScratch *scratch, int64_t n_values);
PetscErrorCode TrsBatchScratchFree(TrsBatchScratch *scratch);

/*
  TrsBatchReadSamples - First half: dense, labels and lengths of the batch's samples, and how many values they have.

  Thread. In: shuffle of the epoch, or NULL for file order. Out: batch->dense, labels; scratch
*/
PetscErrorCode TrsBatchReadSamples(const TrsBatchSpec *spec, const TrsShuffle *shuffle,
                                   TrsBatchScratch *scratch, TrsBatch *batch, TrsFault *fault);

/* Second half, once there is room for n_values ids: the KJT. Thread. InOut: bad_ids [n] repaired ids of each feature, added to; the first is kept */
PetscErrorCode TrsBatchReadValues(const TrsBatchSpec *spec, TrsBatchScratch *scratch, TrsBatch *batch,
                                  TrsBadIds *bad_ids, TrsFault *fault);
