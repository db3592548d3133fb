/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Reader: batches of this rank's samples, read ahead by a thread so that a step does not wait for the file.

  In global step s of W ranks with B samples each, rank r takes samples (s*W + r)*B .. +B-1 of the
  epoch's order. An epoch may end with a smaller batch (src/RULES.md, rule A17). -data_shuffle
  permutes by (seed, epoch) alone. All ranks make the same number of steps, by construction.
*/
#pragma once

#include "data/weight_sum.h"
#include "io/dataset.h"
#include "sparse/kjt.h"
#include "spec/table_config.h"

/* An id that the bounds check repaired. */
typedef struct {
  int key; /* index into the dataset's features */
  int64_t sample, id;
} TrsBadId;

/* Those of a feature. */
typedef struct {
  int64_t n;
  TrsBadId first; /* if there are any */
} TrsBadIds;

typedef struct {
  int64_t step; /* global step, counted from 0 of the whole training */
  int64_t epoch;
  int64_t batch;                           /* B: samples of this rank, may be 0 */
  int64_t global_batch;                    /* G: over all ranks */
  int64_t first;                           /* place of the first sample in the epoch's order */
  int64_t position;                        /* samples of the epoch before this step, for the checkpoint */
  float *dense;                            /* [B, num_dense] */
  float *labels;                           /* [B]; NULL without labels */
  float *weights;                          /* [B] of samples; NULL: all count alike */
  double weight_digits[TRS_WEIGHT_DIGITS]; /* their sum on this rank */
  double weight_sum;                       /* of all ranks: set by who adds up, before the batch's forward */
  TrsKjt kjt;          /* the selected features, in the selected order; is_weighted where asked */
  int64_t bad_ids;     /* repaired by the bounds check in mode warning */
  TrsBadId first_bad;  /* one of them, if any */
  int64_t bad_numbers; /* NaN, Inf, labels outside [0, 1], under -data_check warning: left as they are */
} TrsBatch;

typedef struct TrsReaderImpl *TrsReader;

enum { TRS_READER_OUT = 3 }; /* batches that may be out at a time: the depth of a pipeline */

/* -data_train -data_eval -data_weights -batch_size -steps -epochs -drop_last -data_shuffle -seed -data_check -data_read_ahead */
extern const TrsOptionGroup trs_reader_options;

PetscErrorCode TrsReaderCreate(MPI_Comm comm, TrsReader *reader);

/*
  training: -steps, -epochs, -data_shuffle, -drop_last count; else one pass in file order, the last batch whatever its size. -steps alone repeats passes
  until it is reached (each with its smaller last batch), -epochs alone makes that many, both: what ends first. Not collective.
*/
PetscErrorCode TrsReaderSetFromOptions(TrsReader reader, TrsOptions options, PetscBool training);

/* The dataset to read, opened by the caller, borrowed. */
PetscErrorCode TrsReaderSetDataset(TrsReader reader, TrsDataset dataset);

/*
  Which features a batch holds, in order: keys [n] indices into the dataset's key order; rows [n] id range of each for the bounds check and its mode;
  with_weights: read /sparse/weights. Source of the order: src/RULES.md, rule A2.
*/
PetscErrorCode TrsReaderSetFeatures(TrsReader reader, int n, const int *keys, const int64_t *rows,
                                    const TrsBoundsCheckMode *mode, PetscBool with_weights);

/* The most ids of a sample of each feature, [n]; 0: any number. After SetFeatures; default: any. */
PetscErrorCode TrsReaderSetMaxLengths(TrsReader reader, const int *max_length);

/* The device that batches are copied to: they are kept in memory that it copies from quickly. Default: cpu. Call before SetUp. */
PetscErrorCode TrsReaderSetDevice(TrsReader reader, const TrsDeviceOps *device);

/* Start at this global step (resume), with batches as if all before had been read. Call before SetUp. */
PetscErrorCode TrsReaderSetStart(TrsReader reader, int64_t step);

/* Allocate, start the thread. Collective. Errors (agreed): OPTION (-drop_last leaves no batch), DATA (no /labels, no /sparse/weights), MEMORY */
PetscErrorCode TrsReaderSetUp(TrsReader reader);

/* Steps of the whole run (from 0, not from the start step), and of one epoch. Needs the dataset, not SetUp. */
PetscErrorCode TrsReaderSteps(TrsReader reader, int64_t *total, int64_t *per_epoch);

/*
  TrsReaderNext - The next batch, borrowed until TrsReaderReturn. TRS_READER_OUT batches may be out at
  a time, one more with a device that copies them.

  Not collective: an error on one rank is returned on that rank only; the pipeline agrees on it at the step's agreement.
  Out: batch  NULL after the last step (the same step on all ranks)
  Errors: DATA (an id out of range under mode fatal: feature, sample, id; NaN in dense; ...), IO
*/
PetscErrorCode TrsReaderNext(TrsReader reader, TrsBatch **batch);
PetscErrorCode TrsReaderReturn(TrsReader reader, TrsBatch **batch);

/* Ids repaired so far, under modes warning and ignore, per selected feature [n]; not collective. Borrowed. */
PetscErrorCode TrsReaderBadIds(TrsReader reader, const TrsBadIds **per_feature);
PetscErrorCode TrsReaderDestroy(TrsReader *reader);
