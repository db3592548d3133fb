/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The reader: it provides batches of this rank's samples. Its threads read ahead (-reader_threads),
  so that a step does not wait for the file. If there are n threads, thread t reads the batches of
  the steps that are t modulo n.

  In global step s of W ranks with B samples each, rank r takes samples (s*W + r)*B .. +B-1 of the
  epoch's order. An epoch may end with a smaller batch (src/RULES.md, rule A17). The permutation of
  -data_shuffle depends only on (seed, epoch). All ranks do the same number of steps.
*/
#pragma once

#include "data/weight_sum.h"
#include "io/dataset.h"
#include "sparse/kjt.h"
#include "spec/table_config.h"
#include "spec/vocabulary.h"

/* An id that the bounds check repaired. */
typedef struct {
  int key; /* index of the feature among the dataset's features */
  int64_t sample, id;
} TrsBadId;

/* The repaired ids of a feature. */
typedef struct {
  int64_t n;
  TrsBadId first; /* the first repaired id, if n > 0 */
} TrsBadIds;

typedef struct {
  int64_t step; /* global step of the whole training, counted from 0 */
  int64_t epoch;
  int64_t batch;        /* B, the number of this rank's samples; may be 0 */
  int64_t global_batch; /* G, the number of samples of all ranks */
  int64_t first;        /* index of the first sample in the epoch's order */
  /* Number of samples of the epoch before this step, which a checkpoint stores. */
  int64_t position;
  float *dense;  /* [B, num_dense] */
  int n_labels;  /* number of labels of a sample */
  float *labels; /* [B, n_labels]; NULL if there are no labels */
  /* [B] weights of the samples; NULL if all weights are equal */
  float *weights;
  int64_t *group, *time; /* [B] of each sample; NULL if not read */
  /* sum of this rank's weights, as digits (data/weight_sum.h) */
  double weight_digits[TRS_WEIGHT_DIGITS];
  /* Sum of all ranks' weights. It must be set before the batch's forward. */
  double weight_sum;
  /* the selected features in their order; is_weighted is set if weights were requested */
  TrsKjt kjt;
  /*
    A batch that a device assembles has samples instead of ids. Its KJT has counts and id_begin, but
    no arrays. The device copies `memory`, which has the samples' arrays and the arrays above. The
    device sets *odd to 1 if it finds a bad id or a bag that is too long, and otherwise to 0. For a
    batch that the host assembles, `features` is NULL.
  */
  TrsSamples samples;
  const TrsSampleFeature *features; /* [kjt.n_features], borrowed */
  const void *memory;
  int64_t memory_bytes;
  int32_t *odd;
  int64_t bad_ids;    /* number of ids that the bounds check repaired in mode warning */
  TrsBadId first_bad; /* one of the repaired ids, if there are any */
  /* number of NaN, Inf and impossible labels, which -data_check warning leaves unchanged */
  int64_t bad_numbers;
} TrsBatch;

typedef struct TrsReaderImpl *TrsReader;

/* largest number of batches that may be out at the same time: the pipeline's depth */
enum { TRS_READER_OUT = 3 };

extern const TrsOptionGroup trs_reader_options;

PetscErrorCode TrsReaderCreate(MPI_Comm comm, TrsReader *reader);

enum { TRS_MAX_DENSE_COLUMNS = 4096 }; /* largest number of columns in -data_dense */

/*
  Choose the columns of -data_dense as the dataset's dense features. Must be called before the
  dataset is read. Not collective. Errors: OPTION
*/
PetscErrorCode TrsReaderChooseDense(TrsOptions options, TrsDataset dataset);

/*
  Return the number of samples of a rank in a training step, which has -accumulate_steps batches.
  Errors: OPTION
*/
PetscErrorCode TrsReaderStepBatch(TrsOptions options, int64_t *samples);

/*
  Set the reader's options. For a training they include -steps, -epochs, -data_shuffle, -drop_last
  and -accumulate_steps. If not a training, the reader reads all samples once, in file order,
  including a smaller last batch. With -steps but without -epochs, epochs are repeated until that
  number of steps; each epoch has its smaller last batch. With -epochs but without -steps, the
  reader reads that many epochs. With both options, it stops at the first limit. Not collective.
*/
PetscErrorCode TrsReaderSetFromOptions(TrsReader reader, TrsOptions options, PetscBool training);

/* Set the dataset to read. The caller must have opened it; the reader borrows it. */
PetscErrorCode TrsReaderSetDataset(TrsReader reader, TrsDataset dataset);

/*
  Set the features of a batch and their order (src/RULES.md, rule A2).

  In:  keys          [n] index of each feature's key in the dataset; two features may have the same
                     key if both have an id map
       rows          [n] each feature's ids must be less than this
       mode          [n] mode of each feature's bounds check
       with_weights  whether to read /sparse/weights
*/
PetscErrorCode TrsReaderSetFeatures(TrsReader reader, int n, const int *keys, const int64_t *rows,
                                    const TrsBoundsCheckMode *mode, PetscBool with_weights);

/*
  Set the rules that map ids to rows of each feature's table, [n]. By default, ids are not mapped.
  Ids that are mapped are never out of bounds, and -1 is then an ordinary id. Must be called after
  TrsReaderSetFeatures().
*/
PetscErrorCode TrsReaderSetIdMaps(TrsReader reader, const TrsIdMapRule *map);

/*
  Set the largest number of ids that a sample may have, for each feature [n]. 0, the default, allows
  any number. Must be called after TrsReaderSetFeatures().
*/
PetscErrorCode TrsReaderSetMaxLengths(TrsReader reader, const int *max_length);

/*
  Call the three functions above for the features of the tables. If map_ids is PETSC_FALSE, ids are
  not mapped even if their feature has an id map. The dataset may declare more rows than a table
  has; bounds_check_mode decides about an id outside of the table. Errors: DATA if the dataset does
  not have a feature.
*/
PetscErrorCode TrsReaderSetTables(TrsReader reader, const TrsDatasetInfo *info, const TrsTableConfigs *tables,
                                  PetscBool map_ids);

/* A dataset's label that batches have, and its valid values. */
typedef struct {
  int place; /* index among the dataset's labels (data/label.h) */
  TrsLabelKind kind;
  int classes;          /* number of classes, only for TRS_LABEL_CLASS */
  PetscBool may_be_nan; /* true if NaN means that the sample does not have this label */
} TrsReaderLabel;

/*
  Set the labels that batches have, [n], which are copied. By default, this is the first label, as a
  probability. Must be called before TrsReaderSetUp().
*/
PetscErrorCode TrsReaderSetLabels(TrsReader reader, int n, const TrsReaderLabel *labels);

/*
  Set the source of the samples' groups: the dataset's /group (TRS_GROUP_OF_DATASET), or the ids of
  a feature, given by the index of its key in the dataset. Each sample must have exactly one id of
  this feature. The group is the id in the file, before maps and checks. If this function is not
  called, a training reads no groups, and an evaluation reads /group if the dataset has it. If
  n_segments is not 0, a group outside 0 .. n_segments - 1 is an error in the data; 0 allows any
  group. Must be called before TrsReaderSetUp().
*/
enum { TRS_GROUP_OF_DATASET = -1 };
PetscErrorCode TrsReaderSetGroup(TrsReader reader, int key, int64_t n_segments);

/*
  Set the device that receives the batches. A device with its own memory assembles the batches
  itself. They then have the file's layout, in memory from which the device copies quickly. The
  default is cpu. Must be called before TrsReaderSetUp().
*/
PetscErrorCode TrsReaderSetDevice(TrsReader reader, const TrsDeviceOps *device);

/*
  Set the number of samples of a rank in a full batch, instead of -batch_size. Must be called before
  TrsReaderSetUp().
*/
PetscErrorCode TrsReaderSetBatch(TrsReader reader, int64_t samples);

/*
  Start at this global step, to resume a training. The batches are the same as if all earlier
  batches had been read. Must be called before TrsReaderSetUp().
*/
PetscErrorCode TrsReaderSetStart(TrsReader reader, int64_t step);

/*
  Read only n samples of the dataset, from sample `first` on, as if the dataset had no others. Must
  be called after TrsReaderSetDataset(), and before TrsReaderSetUp(). Not collective.
*/
PetscErrorCode TrsReaderSetPart(TrsReader reader, int64_t first, int64_t n);

/*
  Read a stream: a dataset that grows while it is read (TrsReaderAppend()). As with
  TrsReaderSetStart(), the reader starts at this step. The step's first sample is sample
  `first_sample` of the stream, counted from 0. The dataset's first sample is sample
  `before_dataset` of the stream. The samples must not be shuffled or repeated, and there is one
  epoch. Must be called before TrsReaderSetUp(). Not collective.
*/
PetscErrorCode TrsReaderSetStream(TrsReader reader, int64_t step, int64_t first_sample,
                                  int64_t before_dataset);

/*
  TrsReaderAppend - Append a dataset to the stream's dataset with TrsDatasetAppend(). The threads
    pause while the dataset changes. Files whose samples have all been read are closed.

  Not collective, but all ranks must call it between the same two steps. Errors: those of
  TrsDatasetAppend(); the reader is then unchanged
*/
PetscErrorCode TrsReaderAppend(TrsReader reader, TrsDataset *more);

/*
  End the stream: the last samples make a smaller batch, unless -drop_last leaves them out. Not
  collective, but all ranks must call it between the same two steps.
*/
PetscErrorCode TrsReaderEndStream(TrsReader reader);

/*
  Return the number of batches that the reader and a pipeline may hold. If fewer batches are left, a
  pipeline may run dry.
*/
int64_t TrsReaderAhead(TrsReader reader);

/*
  Allocate the memory and start the threads. Collective. Errors (agreed): OPTION if -drop_last
  leaves no batch, DATA if /labels or /sparse/weights is missing, MEMORY.
*/
PetscErrorCode TrsReaderSetUp(TrsReader reader);

/*
  Return the number of steps of the whole run and of one epoch. The run's steps are counted from 0,
  also if the reader starts at a later step. The dataset must be set, but TrsReaderSetUp() is not
  necessary. For a stream, both count the steps for which the stream has samples so far, and the
  total is at most -steps.
*/
PetscErrorCode TrsReaderSteps(TrsReader reader, int64_t *total, int64_t *per_epoch);

/*
  TrsReaderNext - Return the next batch, which is borrowed until TrsReaderReturn().

  At most TRS_READER_OUT batches may be out at the same time, or one more if a device copies them.

  Not collective: an error is returned only on the rank where it occurs. In the pipeline, the ranks
  agree on the error at the end of the step.

  Out:    batch  NULL after the last step, which all ranks have at the same time. For a stream, also
                 NULL if the next batch is not complete yet
  Errors: DATA, for example for NaN in dense or for an id out of range under mode fatal (with
          feature, sample and id); IO
*/
PetscErrorCode TrsReaderNext(TrsReader reader, TrsBatch **batch);
PetscErrorCode TrsReaderReturn(TrsReader reader, TrsBatch **batch);

/*
  TrsReaderCheck - If a device found bad ids while it assembled a batch, count the repaired ids. For
    all other batches, the reader itself counts them.

  Must be called once for each batch that is out, after the device has assembled it. If there are
  bad ids, the function searches all ids of the batch. Not collective.

  Errors: DATA, as for TrsReaderNext()
*/
PetscErrorCode TrsReaderCheck(TrsReader reader, TrsBatch *batch);

/*
  Return the first id of a feature's bag in sample b, as a row of the table. Returns -1 if the bag
  is empty.
*/
int64_t TrsBatchFirstId(const TrsBatch *batch, int feature, int64_t b);

/*
  Return, for each selected feature [n], the number of ids that were repaired so far in the modes
  warning and ignore. The array is borrowed. Not collective.
*/
PetscErrorCode TrsReaderBadIds(TrsReader reader, const TrsBadIds **per_feature);
/*
  Return the number of bad numbers that were accepted so far with -data_check warning
  (TrsBatch.bad_numbers). Not collective.
*/
int64_t TrsReaderBadNumbers(TrsReader reader);
PetscErrorCode TrsReaderDestroy(TrsReader *reader);
