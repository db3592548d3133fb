/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The reader gives batches of this rank's samples. Threads read ahead (-reader_threads), so that a
  step does not wait for the file. Of n threads, thread t reads the batches of the steps t modulo n.

  In global step s of W ranks with B samples each, rank r takes samples (s*W + r)*B .. +B-1 of the
  epoch's order. An epoch may end with a smaller batch (src/RULES.md, rule A17). -data_shuffle
  permutes by (seed, epoch) alone. All ranks make the same number of steps, by construction.
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
  int n_labels;                            /* labels of a sample that are read */
  float *labels;                           /* [B, n_labels]; NULL without labels */
  float *weights;                          /* [B] of samples, or NULL if all samples count alike */
  int64_t *group, *time;                   /* [B] of samples, each NULL if not read */
  double weight_digits[TRS_WEIGHT_DIGITS]; /* sum of this rank's weights as digits */
  /* Sum of all ranks' weights. The code that adds up sets it before the batch's forward. */
  double weight_sum;
  TrsKjt kjt; /* the selected features in their order; is_weighted if asked for */
  /*
    A batch that a device assembles has samples instead of ids: its KJT has numbers and id_begin,
    and no arrays. The device copies `memory`, in which the samples' arrays and those above lie. If
    it finds an id that is not good, or a bag that is too long, it writes 1 to *odd, else 0. Other
    batches have features NULL.
  */
  TrsSamples samples;
  const TrsSampleFeature *features; /* [kjt.n_features], borrowed */
  const void *memory;
  int64_t memory_bytes;
  int32_t *odd;
  int64_t bad_ids;    /* ids that the bounds check repaired in mode warning */
  TrsBadId first_bad; /* one of the repaired ids, if any */
  /* NaN, Inf and labels that no task can have, which -data_check warning leaves as they are */
  int64_t bad_numbers;
} TrsBatch;

typedef struct TrsReaderImpl *TrsReader;

enum { TRS_READER_OUT = 3 }; /* batches that may be out at a time: a pipeline's depth */

extern const TrsOptionGroup trs_reader_options;

PetscErrorCode TrsReaderCreate(MPI_Comm comm, TrsReader *reader);

enum { TRS_MAX_DENSE_COLUMNS = 4096 }; /* that -data_dense may name */

/*
  Take the columns of -data_dense as the dataset's dense features: before the dataset is read. Not
  collective. Errors: OPTION
*/
PetscErrorCode TrsReaderChooseDense(TrsOptions options, TrsDataset dataset);

/* The samples that a rank takes in a training step: -accumulate_steps batches. Errors: OPTION */
PetscErrorCode TrsReaderStepBatch(TrsOptions options, int64_t *samples);

/*
  In a training, -steps, -epochs, -data_shuffle, -drop_last and -accumulate_steps count. Otherwise
  the reader makes one pass in file order, including a smaller last batch. -steps alone repeats
  passes until that number of steps, each pass with its smaller last batch. -epochs alone makes that
  many passes. With both options the reader stops at the first limit. Not collective.
*/
PetscErrorCode TrsReaderSetFromOptions(TrsReader reader, TrsOptions options, PetscBool training);

/* Set the dataset to read. The caller opens it, and the reader borrows it. */
PetscErrorCode TrsReaderSetDataset(TrsReader reader, TrsDataset dataset);

/*
  Set the features of a batch and their order (src/RULES.md, rule A2).

  In:  keys          [n] indices into the dataset's key order; two features may share one, if both
                     have an id map
       rows          [n] range of each feature's ids for the bounds check
       mode          [n] mode of the bounds check
       with_weights  whether to read /sparse/weights
*/
PetscErrorCode TrsReaderSetFeatures(TrsReader reader, int n, const int *keys, const int64_t *rows,
                                    const TrsBoundsCheckMode *mode, PetscBool with_weights);

/*
  Set the rule that turns ids into rows of each feature's table, [n]; the default is none.
  Mapped ids are never out of bounds, and -1 is an id like any other. Call this after
  TrsReaderSetFeatures().
*/
PetscErrorCode TrsReaderSetIdMaps(TrsReader reader, const TrsIdMapRule *map);

/*
  Set the most ids of a sample for each feature, [n]. 0 allows any number, which is the default.
  Call this after TrsReaderSetFeatures().
*/
PetscErrorCode TrsReaderSetMaxLengths(TrsReader reader, const int *max_length);

/*
  Call the three functions above for the features of tables. map_ids: PETSC_FALSE leaves ids that an
  id map turns into rows as they are in the file. Errors: DATA for a feature that the dataset lacks,
  or that has more ids than its table has rows.
*/
PetscErrorCode TrsReaderSetTables(TrsReader reader, const TrsDatasetInfo *info, const TrsTableConfigs *tables,
                                  PetscBool map_ids);

/* A label of a dataset that batches hold, and what it must be. */
typedef struct {
  int place; /* among the dataset's labels (data/label.h) */
  TrsLabelKind kind;
  int classes;          /* of TRS_LABEL_CLASS */
  PetscBool may_be_nan; /* NaN says that the sample has no such label */
} TrsReaderLabel;

/*
  Set which of a dataset's labels batches hold, [n], copied. The default is the first one, as a
  probability. Call this before TrsReaderSetUp().
*/
PetscErrorCode TrsReaderSetLabels(TrsReader reader, int n, const TrsReaderLabel *labels);

/*
  Read the samples' groups: the dataset's /group (TRS_GROUP_OF_DATASET), or the ids of a feature, by
  its place in the dataset's key order. A sample must have one id of this feature; the id is that of
  the file, before maps and checks. Otherwise a training reads no groups, and an evaluation those of
  a dataset that has them. With n_segments another group than 0 .. n_segments - 1 is an error of the
  data; 0 allows any number. Call this before TrsReaderSetUp().
*/
enum { TRS_GROUP_OF_DATASET = -1 };
PetscErrorCode TrsReaderSetGroup(TrsReader reader, int key, int64_t n_segments);

/*
  Set the device that batches are for. One whose memory is not the host's assembles them: they then
  lie as in the file, in memory from which the device copies quickly. The default is cpu. Call this
  before TrsReaderSetUp().
*/
PetscErrorCode TrsReaderSetDevice(TrsReader reader, const TrsDeviceOps *device);

/*
  Start at this global step to resume a training. The batches are as if all earlier ones had been
  read. Call this before TrsReaderSetUp().
*/
PetscErrorCode TrsReaderSetStart(TrsReader reader, int64_t step);

/*
  Allocate the memory and start the threads. Collective. Errors (agreed): OPTION if -drop_last
  leaves no batch, DATA if /labels or /sparse/weights is missing, MEMORY.
*/
PetscErrorCode TrsReaderSetUp(TrsReader reader);

/*
  Steps of the whole run, counted from 0 and not from the start step, and steps of one epoch. The
  dataset must be set, but TrsReaderSetUp() is not needed.
*/
PetscErrorCode TrsReaderSteps(TrsReader reader, int64_t *total, int64_t *per_epoch);

/*
  TrsReaderNext - The next batch, borrowed until TrsReaderReturn().

  TRS_READER_OUT batches may be out at a time, and one more if a device copies them.

  Not collective: an error on one rank is returned on that rank only. The pipeline agrees on the
  error at the end of the step.

  Out:    batch  NULL after the last step, which is the same step on all ranks
  Errors: DATA for an id out of range under mode fatal (with feature, sample and id), NaN in dense
          and so on; IO
*/
PetscErrorCode TrsReaderNext(TrsReader reader, TrsBatch **batch);
PetscErrorCode TrsReaderReturn(TrsReader reader, TrsBatch **batch);

/*
  TrsReaderCheck - Look for what a device has found when it assembled a batch, if anything: ids that
  it has repaired are counted, as the reader counts those of other batches.

  Call this once for each batch that is out, when the device has assembled it. It takes as long as
  the batch has ids, if there is something. Not collective.

  Errors: DATA as of TrsReaderNext()
*/
PetscErrorCode TrsReaderCheck(TrsReader reader, TrsBatch *batch);

/* The first id of a feature's bag of sample b, as a row of the table; -1 for none. */
int64_t TrsBatchFirstId(const TrsBatch *batch, int feature, int64_t b);

/*
  Ids repaired so far under modes warning and ignore, for each selected feature [n]. The array is
  borrowed. Not collective.
*/
PetscErrorCode TrsReaderBadIds(TrsReader reader, const TrsBadIds **per_feature);
/* Numbers that -data_check warning let pass so far (TrsBatch.bad_numbers). Not collective. */
int64_t TrsReaderBadNumbers(TrsReader reader);
PetscErrorCode TrsReaderDestroy(TrsReader *reader);
