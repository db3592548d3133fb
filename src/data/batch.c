/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/batch.h"

#include "compute/assemble.h"
#include "data/id_map.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRS_PART_BYTES = 1 << 18 }; /* bytes of values that are read at a time */

static int by_sample(const void *a, const void *b)
{
  int64_t x = ((const TrsBatchSample *)a)->sample, y = ((const TrsBatchSample *)b)->sample;

  return (x > y) - (x < y);
}

/*
  Sort the batch's samples into the order of the file, so that neighbouring samples are read
  together.
*/
static void order_samples(const TrsBatchSpec *spec, const TrsShuffle *shuffle, TrsBatchScratch *scratch,
                          const TrsBatch *batch)
{
  for (int64_t i = 0; i < batch->batch; i++) {
    scratch->sample[i].place = i;
    scratch->sample[i].sample = shuffle ? TrsShuffleAt(shuffle, batch->first + i)
                                        : batch->first + i - spec->before_dataset;
  }
  if (!shuffle) return;
  qsort(scratch->sample, (size_t)batch->batch, sizeof(*scratch->sample), by_sample);
  for (int64_t i = 0; i < batch->batch; i++) scratch->file.sample[scratch->sample[i].place] = (int32_t)i;
}

/*
  Read the batch's dense features, labels and lengths, with one read for each sequence of
  consecutive samples. Then find the positions of the samples' values in the file.
*/
static PetscErrorCode read_runs(const TrsBatchSpec *spec, TrsBatchScratch *scratch, int64_t batch,
                                const TrsSampleRows *rows, TrsFault *fault)
{
  const int64_t *offsets = scratch->offsets;
  int64_t *start = scratch->file.start;

  scratch->n_runs = 0;
  scratch->n_values = 0;
  for (int64_t i = 0; i < batch; i++) {
    TrsRowRun *run = &scratch->run[scratch->n_runs - (i > 0)];

    if (i > 0 && scratch->sample[i].sample == run->first + run->n)
      run->n++;
    else
      scratch->run[scratch->n_runs++] = (TrsRowRun){scratch->sample[i].sample, 1};
  }
  if (TrsDatasetReadSamples(spec->dataset, scratch->n_runs, scratch->run, rows, fault) != PETSC_SUCCESS)
    return fault->code;
  for (int64_t r = 0; r < scratch->n_runs; r++) {
    TrsRowRun *run = &scratch->run[r];
    const int64_t *end = offsets + run->n;

    for (int64_t i = 0; i < run->n; i++) *start++ = scratch->n_values + offsets[i] - *offsets;
    *run = (TrsRowRun){*offsets, *end - *offsets};
    scratch->n_values += run->n;
    offsets = end + 1;
  }
  *start = scratch->n_values;
  return PETSC_SUCCESS;
}

/* Handle a bad number of a sample: with -data_check warning, count it; otherwise raise an error. */
static PetscErrorCode bad_number(const TrsBatchSpec *spec, TrsBatch *batch, const char *name, int64_t sample,
                                 int column, double value, const char *wanted, TrsFault *fault)
{
  const char *path;
  int64_t row;

  batch->bad_numbers++;
  if (spec->check == TRS_DATA_CHECK_WARNING) return PETSC_SUCCESS;
  path = TrsDatasetLocate(spec->info, sample, &row);
  return TrsFaultSet(fault, TRS_ERR_DATA,
                     "%s: /%s[%" PRId64 ", %d] is %g, expected %s (-data_check warning goes on)", path, name,
                     row, column, value, wanted);
}

/* True if the label's task can learn from this value. */
static inline int label_is_good(const TrsReaderLabel *label, float y)
{
  if (isnan(y)) return label->may_be_nan == PETSC_TRUE;
  if (label->kind == TRS_LABEL_NUMBER) return isfinite(y);
  if (label->kind == TRS_LABEL_CLASS) return y >= 0.0F && y < (float)label->classes && y == floorf(y);
  return y >= 0.0F && y <= 1.0F;
}

static PetscErrorCode check_label(const TrsBatchSpec *spec, TrsBatch *batch, int64_t sample,
                                  const TrsReaderLabel *label, float y, TrsFault *fault)
{
  char wanted[64] = "a number in [0, 1]";

  if (label_is_good(label, y)) return PETSC_SUCCESS;
  if (label->kind == TRS_LABEL_NUMBER) strcpy(wanted, "a finite number");
  if (label->kind == TRS_LABEL_CLASS)
    snprintf(wanted, sizeof(wanted), "a class, a whole number from 0 to %d", label->classes - 1);
  return bad_number(spec, batch, "labels", sample, label->place, (double)y, wanted, fault);
}

/* True if all numbers are finite. The loop has no branch. */
static int are_finite(int64_t n, const float *numbers)
{
  const uint32_t exponent = 0x7f800000;
  int odd = 0;

  for (int64_t i = 0; i < n; i++) {
    uint32_t bits;

    memcpy(&bits, &numbers[i], sizeof(bits));
    odd |= (bits & exponent) == exponent;
  }
  return !odd;
}

/*
  True if all numbers of the batch are good, so that check_numbers() need not search for a bad one.
*/
static int are_good(const TrsBatchSpec *spec, int64_t batch, const TrsSampleRows *rows)
{
  int good = !rows->dense || are_finite(batch * spec->info->dense_columns, rows->dense);

  for (int l = 0; rows->labels && l < spec->n_labels; l++)
    for (int64_t i = 0; i < batch; i++)
      good &= label_is_good(&spec->label[l], rows->labels[i * spec->n_labels + l]);
  for (int64_t i = 0; rows->weights && i < batch; i++)
    good &= rows->weights[i] >= 0.0f && isfinite(rows->weights[i]);
  return good;
}

static PetscErrorCode check_numbers(const TrsBatchSpec *spec, const TrsBatchScratch *scratch, TrsBatch *batch,
                                    const TrsSampleRows *rows, TrsFault *fault)
{
  const float *dense = rows->dense, *labels = rows->labels, *weights = rows->weights;
  const int num_dense = spec->info->num_dense, *const column = spec->info->dense_column;
  PetscErrorCode code = PETSC_SUCCESS;

  if (spec->check == TRS_DATA_CHECK_NONE || are_good(spec, batch->batch, rows)) return PETSC_SUCCESS;
  for (int64_t i = 0; i < batch->batch; i++) {
    int64_t sample = scratch->sample[i].sample;

    for (int d = 0; d < num_dense && code == PETSC_SUCCESS; d++) {
      const int c = column ? column[d] : d;
      float x = dense[i * spec->info->dense_columns + c];

      if (!isfinite(x))
        code = bad_number(spec, batch, "dense", sample, c, (double)x, "a finite number", fault);
    }
    for (int l = 0; labels && l < spec->n_labels && code == PETSC_SUCCESS; l++)
      code = check_label(spec, batch, sample, &spec->label[l], labels[i * spec->n_labels + l], fault);
    if (weights && code == PETSC_SUCCESS && !(weights[i] >= 0.0f && isfinite(weights[i])))
      code = bad_number(spec, batch, "weights", sample, 0, (double)weights[i],
                        "a finite number that is not negative", fault);
    if (code != PETSC_SUCCESS) return code;
  }
  return PETSC_SUCCESS;
}

/* Copy the labels with which the run trains from rows that have all labels. */
static void take_labels(const TrsBatchSpec *spec, int64_t n, const float *rows, float *labels)
{
  for (int64_t i = 0; i < n; i++)
    for (int l = 0; l < spec->n_labels; l++)
      labels[i * spec->n_labels + l] = rows[i * spec->info->n_labels + spec->label[l].place];
}

/* Copy a sample's dense features from a row of /dense. */
static void take_dense(const TrsDatasetInfo *info, const float *row, float *dense)
{
  if (!info->dense_column) memcpy(dense, row, (size_t)info->num_dense * sizeof(*dense));
  for (int d = 0; info->dense_column && d < info->num_dense; d++) dense[d] = row[info->dense_column[d]];
}

/* If the samples have segments, check that a sample's group is one of them. */
static PetscErrorCode check_segment(const TrsBatchSpec *spec, int64_t sample, int64_t group, TrsFault *fault)
{
  const char *path, *feature = "";
  int64_t row;

  if (spec->n_segments == 0 || (uint64_t)group < (uint64_t)spec->n_segments) return PETSC_SUCCESS;
  if (spec->group_key != TRS_GROUP_OF_DATASET) feature = spec->info->features[spec->group_key];
  path = TrsDatasetLocate(spec->info, sample, &row);
  return TrsFaultSet(fault, TRS_ERR_DATA,
                     "%s: the group of sample %" PRId64 " (%s%.100s) is %" PRId64 ", expected 0 to %" PRId64
                     " (-metrics_segments %" PRId64 ")",
                     path, row, *feature ? "feature " : "/group", feature, group, spec->n_segments - 1,
                     spec->n_segments);
}

PetscErrorCode TrsBatchReadSamples(const TrsBatchSpec *spec, const TrsShuffle *shuffle,
                                   TrsBatchScratch *scratch, TrsBatch *batch, TrsFault *fault)
{
  const TrsDatasetInfo *info = spec->info;
  const PetscBool copy_dense = (PetscBool)(info->num_dense && (shuffle || info->dense_column));
  float *dense = copy_dense ? scratch->dense : batch->dense;
  const size_t label_bytes = (size_t)spec->n_labels * sizeof(float);
  float *labels = !spec->with_labels ? NULL : shuffle ? scratch->taken : batch->labels;
  float *weights = !spec->with_sample_weights ? NULL : shuffle ? scratch->sample_weights : batch->weights;
  const PetscBool read_group = (PetscBool)(spec->with_group && spec->group_key == TRS_GROUP_OF_DATASET);
  int64_t *group = !read_group ? NULL : shuffle ? scratch->group : batch->group;
  int64_t *time = !spec->with_time ? NULL : shuffle ? scratch->time : batch->time;
  const PetscBool choose = (PetscBool)(labels && (info->n_labels > 1 || spec->n_labels > 1));
  TrsSampleRows rows = {.dense = info->num_dense ? dense : NULL,
                        .labels = choose ? scratch->labels : labels,
                        .weights = weights,
                        .group = group,
                        .time = time,
                        .lengths = scratch->file.lengths,
                        .offsets = scratch->offsets};

  order_samples(spec, shuffle, scratch, batch);
  batch->bad_numbers = 0;
  if (read_runs(spec, scratch, batch->batch, &rows, fault) != PETSC_SUCCESS) return fault->code;
  if (choose) take_labels(spec, batch->batch, scratch->labels, labels);
  rows.labels = labels;
  for (int64_t i = 0; group && i < batch->batch; i++)
    if (check_segment(spec, scratch->sample[i].sample, group[i], fault) != PETSC_SUCCESS) return fault->code;
  if (check_numbers(spec, scratch, batch, &rows, fault) != PETSC_SUCCESS) return fault->code;
  for (int64_t i = 0; copy_dense && i < batch->batch; i++)
    take_dense(info, dense + i * info->dense_columns,
               batch->dense + scratch->sample[i].place * info->num_dense);
  for (int64_t i = 0; shuffle && i < batch->batch; i++) {
    int64_t place = scratch->sample[i].place;

    if (labels) memcpy(batch->labels + place * spec->n_labels, labels + i * spec->n_labels, label_bytes);
    if (weights) batch->weights[place] = weights[i];
    if (group) batch->group[place] = group[i];
    if (time) batch->time[place] = time[i];
  }
  memset(batch->weight_digits, 0, sizeof(batch->weight_digits));
  if (weights) TrsWeightSumAdd(batch->weight_digits, batch->batch, batch->weights);
  return PETSC_SUCCESS;
}

/* Read an id from the file's values. */
static int64_t id_at(int value_bytes, const void *values, int64_t i)
{
  return value_bytes == (int)sizeof(int32_t) ? ((const int32_t *)values)[i] : ((const int64_t *)values)[i];
}

/* Read an id of the part of the batch that is in memory. */
static int64_t value_at(const TrsBatchSpec *spec, const TrsBatchScratch *scratch, int64_t i)
{
  return id_at(spec->info->value_bytes, scratch->file.values, i);
}

/* A feature's bag in `sample`: n ids, beginning at index `at`. */
typedef struct {
  int feature;
  int64_t sample, at;
  int32_t n;
} TrsFileBag;

/*
  Count the ids of a bag that became 0, and keep the first of them. The id -1 is valid
  (src/RULES.md, rule A24).
*/
static PetscErrorCode check_ids(const TrsBatchSpec *spec, const TrsBatchScratch *scratch, TrsBatch *batch,
                                TrsFileBag bag, TrsBadIds *bad_ids, TrsFault *fault)
{
  const int64_t rows = spec->feature[bag.feature].rows;
  const int key = spec->feature[bag.feature].key;
  const char *path;
  int64_t row;

  for (int32_t i = 0; rows > 0 && i < bag.n; i++) {
    const int64_t id = value_at(spec, scratch, bag.at + i);

    if ((uint64_t)id < (uint64_t)rows || id == -1) continue;
    if (spec->mode[bag.feature] == TRS_BOUNDS_FATAL) {
      path = TrsDatasetLocate(spec->info, bag.sample, &row);
      return TrsFaultSet(fault, TRS_ERR_DATA,
                         "%s: feature \"%.100s\" of sample %" PRId64 " has id %" PRId64
                         ", expected 0 to %" PRId64 " (-bounds_check_mode warning replaces it by 0)",
                         path, spec->info->features[key], row, id, rows - 1);
    }
    if (spec->mode[bag.feature] == TRS_BOUNDS_WARNING && batch->bad_ids++ == 0)
      batch->first_bad = (TrsBadId){key, bag.sample, id};
    if (bad_ids[bag.feature].n++ == 0) bad_ids[bag.feature].first = (TrsBadId){key, bag.sample, id};
  }
  return PETSC_SUCCESS;
}

/*
  Check that a sample has no more ids than the feature allows. Position weights exist only for that
  number of positions.
*/
static PetscErrorCode check_length(const TrsBatchSpec *spec, TrsFileBag bag, TrsFault *fault)
{
  const int32_t most = spec->feature[bag.feature].max_length;
  const char *path;
  int64_t row;

  if (most == 0 || bag.n <= most) return PETSC_SUCCESS;
  path = TrsDatasetLocate(spec->info, bag.sample, &row);
  return TrsFaultSet(fault, TRS_ERR_DATA,
                     "%s: feature \"%.100s\" of sample %" PRId64 " has %" PRId32
                     " ids, expected at most %" PRId32
                     " (max_feature_lengths of its position-weighted table)",
                     path, spec->info->features[spec->feature[bag.feature].key], row, bag.n, most);
}

/* Count the weights of a bag that are not finite. */
static PetscErrorCode check_weights(const TrsBatchSpec *spec, const TrsBatchScratch *scratch, TrsBatch *batch,
                                    TrsFileBag bag, TrsFault *fault)
{
  const char *path;
  int64_t row;

  for (int32_t i = 0; i < bag.n; i++) {
    const float weight = scratch->file.weights[bag.at + i];

    if (isfinite(weight)) continue;
    batch->bad_numbers++;
    if (spec->check == TRS_DATA_CHECK_WARNING) continue;
    path = TrsDatasetLocate(spec->info, bag.sample, &row);
    return TrsFaultSet(fault, TRS_ERR_DATA,
                       "%s: /sparse/weights holds %g in sample %" PRId64
                       ", expected finite numbers (-data_check warning goes on)",
                       path, (double)weight, row);
  }
  return PETSC_SUCCESS;
}

/* The kinds of mistakes that the bags of a part have. */
typedef struct {
  PetscBool ids, weights; /* `ids` stands for bad ids or lengths */
} TrsOddities;

static PetscErrorCode check_bag(const TrsBatchSpec *spec, const TrsBatchScratch *scratch, TrsOddities odd,
                                TrsBatch *batch, TrsFileBag bag, TrsBadIds *bad_ids, TrsFault *fault)
{
  if (odd.ids && check_length(spec, bag, fault) != PETSC_SUCCESS) return fault->code;
  if (odd.ids && check_ids(spec, scratch, batch, bag, bad_ids, fault) != PETSC_SUCCESS) return fault->code;
  return odd.weights ? check_weights(spec, scratch, batch, bag, fault) : PETSC_SUCCESS;
}

/*
  Check the bags of a part one by one, in the file's order, after a mistake was found in one of
  them.
*/
static PetscErrorCode check_bags(const TrsBatchSpec *spec, const TrsBatchScratch *scratch,
                                 const TrsSamples *part, TrsOddities odd, TrsBatch *batch, TrsBadIds *bad_ids,
                                 TrsFault *fault)
{
  const int n_keys = spec->info->n_features;

  for (int64_t i = part->begin; i < part->end; i++) {
    const int32_t *lengths = part->lengths + i * n_keys;
    const int64_t sample = scratch->sample[i].sample;
    int64_t at = part->start[i] - part->start[part->begin];

    for (int k = 0; k < n_keys; at += lengths[k++])
      for (int f = spec->first_of_key[k]; f >= 0; f = spec->feature[f].next)
        if (check_bag(spec, scratch, odd, batch, (TrsFileBag){f, sample, at, lengths[k]}, bad_ids, fault))
          return fault->code;
  }
  return PETSC_SUCCESS;
}

/*
  For each sample of a part, set the sample's group to the only id of a feature. The id is not
  mapped.
*/
static PetscErrorCode take_groups(const TrsBatchSpec *spec, const TrsBatchScratch *scratch,
                                  const TrsSamples *part, TrsBatch *batch, TrsFault *fault)
{
  const char *path;
  int64_t at = 0, row;

  for (int64_t i = part->begin; i < part->end; i++) {
    const int32_t *lengths = scratch->file.lengths + i * spec->info->n_features;
    int64_t *group = &batch->group[scratch->sample[i].place];

    for (int k = 0; k < spec->info->n_features; at += lengths[k++]) {
      if (k != spec->group_key) continue;
      if (lengths[k] != 1) {
        path = TrsDatasetLocate(spec->info, scratch->sample[i].sample, &row);
        return TrsFaultSet(fault, TRS_ERR_DATA,
                           "%s: feature \"%.100s\" of sample %" PRId64 " has %" PRId32
                           " ids, expected one, the sample's group (-metrics_group)",
                           path, spec->info->features[k], row, lengths[k]);
      }
      *group = value_at(spec, scratch, at);
      if (check_segment(spec, scratch->sample[i].sample, *group, fault) != PETSC_SUCCESS) return fault->code;
    }
  }
  return PETSC_SUCCESS;
}

/*
  Choose the end of the part that begins at part->begin. A part has so few values that they are
  still in the cache when they are copied to the KJT. A shuffled batch is one part, because its
  samples are copied in the batch's order. A batch that a device assembles is also one part.
*/
static void end_part(const TrsBatchSpec *spec, TrsSamples *part)
{
  const int64_t most = TRS_PART_BYTES / spec->info->value_bytes;

  part->end = part->begin + 1;
  if (part->sample || part->batch == 0 || spec->for_device) part->end = part->batch;
  while (part->end < part->batch && part->start[part->end + 1] - part->start[part->begin] <= most)
    part->end++;
}

/*
  Find the index of each feature's first id in a batch that a device assembles. The KJT has no
  arrays.
*/
static void begin_ids(const TrsBatchSpec *spec, const TrsSamples *samples, int64_t *begin, TrsKjt *kjt)
{
  int64_t *of_key = begin + spec->n + 1;

  memset(of_key, 0, (size_t)samples->n_keys * sizeof(*of_key));
  for (int64_t i = 0; i < samples->batch; i++)
    for (int k = 0; k < samples->n_keys; k++) of_key[k] += samples->lengths[i * samples->n_keys + k];
  begin[0] = 0;
  for (int f = 0; f < spec->n; f++) begin[f + 1] = begin[f] + of_key[spec->feature[f].key];
  kjt->id_begin = begin;
  kjt->n_features = spec->n;
  kjt->is_weighted = spec->with_weights;
  kjt->jagged = (TrsJagged){.n_bags = spec->n * samples->batch, .n_values = begin[spec->n]};
}

/* Read the values of a part, and copy them to the KJT. Bad ids become 0. */
static PetscErrorCode read_part(const TrsBatchSpec *spec, const TrsBatchScratch *scratch,
                                const TrsSamples *part, TrsBatch *batch, TrsBadIds *bad_ids, TrsFault *fault)
{
  const int64_t begin = part->start[part->begin], n_values = part->start[part->end] - begin;
  /* the samples of a batch in file order are consecutive */
  const TrsRowRun piece = {part->batch ? scratch->run[0].first + begin : 0, n_values};
  TrsOddities odd = {PETSC_FALSE, PETSC_FALSE};

  if (TrsDatasetReadValues(spec->dataset, scratch->n_runs, part->sample ? scratch->run : &piece,
                           scratch->file.values, spec->with_weights ? scratch->file.weights : NULL,
                           fault) != PETSC_SUCCESS)
    return fault->code;
  if (spec->with_group && spec->group_key != TRS_GROUP_OF_DATASET &&
      take_groups(spec, scratch, part, batch, fault) != PETSC_SUCCESS)
    return fault->code;
  if (spec->for_device)
    begin_ids(spec, part, scratch->file.id_begin, &batch->kjt);
  else
    odd.ids = TrsAssemble(part, spec->n, spec->feature, &batch->kjt.jagged);
  odd.weights = (PetscBool)(spec->with_weights && spec->check != TRS_DATA_CHECK_NONE &&
                            !are_finite(n_values, scratch->file.weights));
  if (!odd.ids && !odd.weights) return PETSC_SUCCESS;
  return check_bags(spec, scratch, part, odd, batch, bad_ids, fault);
}

/* Describe all samples of a batch as one part, in the file's layout. */
static TrsSamples all_samples(const TrsBatchSpec *spec, const TrsFileSamples *file, int64_t batch)
{
  return (TrsSamples){.batch = batch,
                      .end = batch,
                      .n_keys = spec->info->n_features,
                      .first = spec->first_of_key,
                      .lengths = file->lengths,
                      .start = file->start,
                      .sample = spec->is_shuffled ? file->sample : NULL,
                      .value_bytes = spec->info->value_bytes,
                      .values = file->values,
                      .weights = spec->with_weights ? file->weights : NULL};
}

PetscErrorCode TrsBatchReadValues(const TrsBatchSpec *spec, TrsBatchScratch *scratch, TrsBatch *batch,
                                  TrsBadIds *bad_ids, TrsFault *fault)
{
  TrsSamples part = all_samples(spec, &scratch->file, batch->batch);

  if (spec->for_device) batch->samples = part;
  batch->bad_ids = 0;
  do {
    end_part(spec, &part);
    if (read_part(spec, scratch, &part, batch, bad_ids, fault) != PETSC_SUCCESS) return fault->code;
    part.begin = part.end;
  } while (part.begin < part.batch);
  batch->kjt.batch = batch->batch;
  return PETSC_SUCCESS;
}

PetscErrorCode TrsBatchCheckIds(const TrsBatchSpec *spec, const TrsShuffle *shuffle, TrsBatchScratch *scratch,
                                TrsBatch *batch, TrsBadIds *bad_ids, TrsFault *fault)
{
  const TrsOddities odd = {.ids = PETSC_TRUE};

  order_samples(spec, shuffle, scratch, batch);
  batch->bad_ids = 0;
  return check_bags(spec, scratch, &batch->samples, odd, batch, bad_ids, fault);
}

/* Do the work of TrsBatchFirstId() for a batch that a device assembles. */
static int64_t first_of_samples(const TrsSamples *samples, const TrsSampleFeature *feature, int64_t b)
{
  const int64_t i = samples->sample ? samples->sample[b] : b;
  const int32_t *lengths = samples->lengths + i * samples->n_keys;
  int64_t at = samples->start[i];
  PetscBool odd;

  if (lengths[feature->key] == 0) return -1;
  for (int k = 0; k < feature->key; k++) at += lengths[k];
  return TrsSampleRow(&feature->map, feature->map.kind, feature->rows,
                      id_at(samples->value_bytes, samples->values, at), &odd);
}

int64_t TrsBatchFirstId(const TrsBatch *batch, int feature, int64_t b)
{
  const TrsJagged *ids = &batch->kjt.jagged;
  const int64_t bag = feature * batch->batch + b;

  if (batch->features) return first_of_samples(&batch->samples, &batch->features[feature], b);
  return ids->lengths[bag] ? ids->values[ids->offsets[bag]] : -1;
}

void TrsBatchMapIds(const TrsBatchSpec *spec, TrsBatch *batch)
{
  for (int f = 0; f < spec->n; f++) {
    const int64_t *offsets = batch->kjt.jagged.offsets + f * batch->batch;

    TrsIdMapApply(&spec->feature[f].map, offsets[batch->batch] - offsets[0],
                  batch->kjt.jagged.values + offsets[0]);
  }
}
