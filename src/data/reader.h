/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The reader provides batches of this rank's samples. Threads read ahead (-reader_threads), so that
  a step does not wait for the file. Thread t of n reads the batches of the steps t modulo n.

  In global step s of W ranks with B samples each, rank r takes samples (s*W + r)*B .. +B-1 of the
  epoch's order. An epoch may end with a smaller batch (src/RULES.md, rule A17). The permutation of
  -data_shuffle depends only on (seed, epoch). All ranks make the same number of steps, by
  construction.
*/
#pragma once

#include "data/weight_sum.h"
#include "io/dataset.h"
#include "sparse/kjt.h"
#include "spec/table_config.h"
#include "spec/vocabulary.h"

/* An id that the bounds check repaired. */
typedef struct {
  int key; /* index into the dataset's features */
  int64_t sample, id;
} TrsBadId;

/* The repaired ids of a feature. */
typedef struct {
  int64_t n;
  TrsBadId first; /* defined if n > 0 */
} TrsBadIds;

typedef struct {
  int64_t step; /* global step of the whole training, counted from 0 */
  int64_t epoch;
  int64_t batch;        /* B, samples of this rank, may be 0 */
  int64_t global_batch; /* G, samples of all ranks */
  int64_t first;        /* place of the first sample in the epoch's order */
  /* Samples of the epoch before this step, for the checkpoint. */
  int64_t position;
  float *dense;                            /* [B, num_dense] */
  int n_labels;                            /* labels read per sample */
  float *labels;                           /* [B, n_labels]; NULL without labels */
  float *weights;                          /* [B] per sample, or NULL if all samples count alike */
  int64_t *group, *time;                   /* [B] per sample, each NULL if not read */
  double weight_digits[TRS_WEIGHT_DIGITS]; /* sum of this rank's weights as digits */
  /* Sum of all ranks' weights. The code that adds them up sets it before the batch's forward. */
  double weight_sum;
  TrsKjt kjt; /* the selected features in their order; is_weighted if requested */
  /*
    A batch that a device assembles has samples instead of ids: its KJT has numbers and id_begin,
    but no arrays. The device copies `memory`, which holds the samples' arrays and the arrays above.
    The device sets *odd to 1 if it finds a bad id or a bag that is too long, and to 0 otherwise.
    Other batches have features NULL.
  */
  TrsSamples samples;
  const TrsSampleFeature *features; /* [kjt.n_features], borrowed */
  const void *memory;
  int64_t memory_bytes;
  int32_t *odd;
  int64_t bad_ids;    /* ids that the bounds check repaired in mode warning */
  TrsBadId first_bad; /* one of the repaired ids, if any */
  /* NaN, Inf and impossible labels, which -data_check warning leaves unchanged */
  int64_t bad_numbers;
} TrsBatch;

typedef struct TrsReaderImpl *TrsReader;

enum { TRS_READER_OUT = 3 }; /* batches that may be out at the same time: the pipeline's depth */

extern const TrsOptionGroup trs_reader_options;

PetscErrorCode TrsReaderCreate(MPI_Comm comm, TrsReader *reader);

enum { TRS_MAX_DENSE_COLUMNS = 4096 }; /* most columns that -data_dense may name */

/*
  Choose the columns of -data_dense as the dataset's dense features. Call this before the dataset is
  read. Not collective. Errors: OPTION
*/
PetscErrorCode TrsReaderChooseDense(TrsOptions options, TrsDataset dataset);

/*
  Return the number of samples that a rank takes in a training step: -accumulate_steps batches.
  Errors: OPTION
*/
PetscErrorCode TrsReaderStepBatch(TrsOptions options, int64_t *samples);

/*
  A training obeys -steps, -epochs, -data_shuffle, -drop_last and -accumulate_steps. Otherwise the
  reader makes one pass in file order, including a smaller last batch. -steps without -epochs
  repeats passes until that number of steps, each pass with its smaller last batch. -epochs without
  -steps makes that many passes. With both options the reader stops at the first limit. Not
  collective.
*/
PetscErrorCode TrsReaderSetFromOptions(TrsReader reader, TrsOptions options, PetscBool training);

/* Set the dataset to read. The caller opens it, and the reader borrows it. */
PetscErrorCode TrsReaderSetDataset(TrsReader reader, TrsDataset dataset);

/*
  Set the features of a batch and their order (src/RULES.md, rule A2).

  In:  keys          [n] indices into the dataset's key order; two features may share a key if both
                     have an id map
       rows          [n] the ids of each feature must be below this number
       mode          [n] mode of each feature's bounds check
       with_weights  whether to read /sparse/weights
*/
PetscErrorCode TrsReaderSetFeatures(TrsReader reader, int n, const int *keys, const int64_t *rows,
                                    const TrsBoundsCheckMode *mode, PetscBool with_weights);

/*
  Set the rules that turn ids into rows of each feature's table, [n]; the default is none. Mapped
  ids are never out of bounds, and -1 is then an ordinary id. Call this after
  TrsReaderSetFeatures().
*/
PetscErrorCode TrsReaderSetIdMaps(TrsReader reader, const TrsIdMapRule *map);

/*
  Set the largest number of ids that a sample may have, for each feature [n]. 0, the default, allows
  any number. Call this after TrsReaderSetFeatures().
*/
PetscErrorCode TrsReaderSetMaxLengths(TrsReader reader, const int *max_length);

/*
  Call the three functions above for the tables' features. If map_ids is PETSC_FALSE, ids of
  features with an id map stay as in the file. The dataset may declare more rows than a table has;
  bounds_check_mode says what an id outside of the table does. Errors: DATA if the dataset lacks a
  feature.
*/
PetscErrorCode TrsReaderSetTables(TrsReader reader, const TrsDatasetInfo *info, const TrsTableConfigs *tables,
                                  PetscBool map_ids);

/* A dataset's label that batches hold, and its valid values. */
typedef struct {
  int place; /* among the dataset's labels (data/label.h) */
  TrsLabelKind kind;
  int classes;          /* number of classes, only for TRS_LABEL_CLASS */
  PetscBool may_be_nan; /* NaN means that the sample lacks this label */
} TrsReaderLabel;

/*
  Set the dataset's labels that batches hold, [n], copied. The default is the first label, as a
  probability. Call this before TrsReaderSetUp().
*/
PetscErrorCode TrsReaderSetLabels(TrsReader reader, int n, const TrsReaderLabel *labels);

/*
  Read the samples' groups from the dataset's /group (TRS_GROUP_OF_DATASET), or from the ids of a
  feature, given by its place in the dataset's key order. Each sample must have exactly one id of
  this feature. The group is the id as in the file, before maps and checks. Without this call, a
  training reads no groups, and an evaluation reads /group if the dataset has it. With n_segments, a
  group outside 0 .. n_segments - 1 is an error in the data; 0 allows any group. Call this before
  TrsReaderSetUp().
*/
enum { TRS_GROUP_OF_DATASET = -1 };
PetscErrorCode TrsReaderSetGroup(TrsReader reader, int key, int64_t n_segments);

/*
  Set the device that receives the batches. A device with its own memory assembles them itself: the
  batches then keep the file's layout, in memory from which the device copies quickly. The default
  is cpu. Call this before TrsReaderSetUp().
*/
PetscErrorCode TrsReaderSetDevice(TrsReader reader, const TrsDeviceOps *device);

/* Set the samples of a rank in a full batch, instead of -batch_size. Before TrsReaderSetUp(). */
PetscErrorCode TrsReaderSetBatch(TrsReader reader, int64_t samples);

/*
  Start at this global step to resume a training. The batches are the same as if all earlier ones
  had been read. Call this before TrsReaderSetUp().
*/
PetscErrorCode TrsReaderSetStart(TrsReader reader, int64_t step);

/*
  Allocate the memory and start the threads. Collective. Errors (agreed): OPTION if -drop_last
  leaves no batch, DATA if /labels or /sparse/weights is missing, MEMORY.
*/
PetscErrorCode TrsReaderSetUp(TrsReader reader);

/*
  Return the steps of the whole run, counted from 0 and not from the start step, and the steps of
  one epoch. The dataset must be set, but TrsReaderSetUp() is not needed.
*/
PetscErrorCode TrsReaderSteps(TrsReader reader, int64_t *total, int64_t *per_epoch);

/*
  TrsReaderNext - Return the next batch, borrowed until TrsReaderReturn().

  TRS_READER_OUT batches may be out at the same time, and one more if a device copies them.

  Not collective: an error on one rank is returned on that rank only. The pipeline agrees on the
  error at the end of the step.

  Out:    batch  NULL after the last step, which is the same step on all ranks
  Errors: DATA, for example for NaN in dense or for an id out of range under mode fatal (with
          feature, sample and id); IO
*/
PetscErrorCode TrsReaderNext(TrsReader reader, TrsBatch **batch);
PetscErrorCode TrsReaderReturn(TrsReader reader, TrsBatch **batch);

/*
  TrsReaderCheck - If a device found bad ids when it assembled a batch, count the repaired ids, as
    the reader does for other batches.

  Call this once for each batch that is out, after the device has assembled it. If something is bad,
  the call searches all ids of the batch. Not collective.

  Errors: DATA, as for TrsReaderNext()
*/
PetscErrorCode TrsReaderCheck(TrsReader reader, TrsBatch *batch);

/*
  Return the first id of a feature's bag in sample b, as a row of the table; -1 if the bag is
  empty.
*/
int64_t TrsBatchFirstId(const TrsBatch *batch, int feature, int64_t b);

/*
  Return the number of ids repaired so far under modes warning and ignore, for each selected feature
  [n]. The array is borrowed. Not collective.
*/
PetscErrorCode TrsReaderBadIds(TrsReader reader, const TrsBadIds **per_feature);
/*
  Return the number of bad numbers that -data_check warning has let pass so far
  (TrsBatch.bad_numbers). Not collective.
*/
int64_t TrsReaderBadNumbers(TrsReader reader);
PetscErrorCode TrsReaderDestroy(TrsReader *reader);
