/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/batch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PetscErrorCode TrsBatchScratchCreate(const TrsBatchSpec *spec, int64_t max_batch, TrsBatchScratch *scratch)
{
  PetscFunctionBegin;
  memset(scratch, 0, sizeof(*scratch));
  PetscCall(TrsAlloc(max_batch, sizeof(*scratch->sample), &scratch->sample));
  PetscCall(TrsAlloc(max_batch, sizeof(*scratch->run), &scratch->run));
  PetscCall(TrsAlloc(max_batch * spec->info->dense_columns, sizeof(*scratch->dense), &scratch->dense));
  PetscCall(TrsAlloc(max_batch * spec->info->n_labels, sizeof(*scratch->labels), &scratch->labels));
  PetscCall(TrsAlloc(max_batch * spec->n_labels, sizeof(*scratch->taken), &scratch->taken));
  PetscCall(TrsAlloc(max_batch, sizeof(*scratch->sample_weights), &scratch->sample_weights));
  if (spec->with_group) PetscCall(TrsAlloc(max_batch, sizeof(*scratch->group), &scratch->group));
  if (spec->with_time) PetscCall(TrsAlloc(max_batch, sizeof(*scratch->time), &scratch->time));
  PetscCall(TrsAlloc(max_batch * spec->info->n_features, sizeof(*scratch->lengths), &scratch->lengths));
  PetscCall(TrsAlloc(2 * max_batch, sizeof(*scratch->offsets), &scratch->offsets));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBatchScratchReserve(const TrsBatchSpec *spec, TrsBatchScratch *scratch, int64_t n_values)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&scratch->values, n_values * spec->info->value_bytes, PETSC_FALSE));
  if (spec->with_weights)
    PetscCall(TrsBufferReserve(&scratch->weights, n_values * (int64_t)sizeof(float), PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBatchScratchFree(TrsBatchScratch *scratch)
{
  PetscFunctionBegin;
  PetscCall(TrsFree(&scratch->sample));
  PetscCall(TrsFree(&scratch->run));
  PetscCall(TrsFree(&scratch->dense));
  PetscCall(TrsFree(&scratch->labels));
  PetscCall(TrsFree(&scratch->taken));
  PetscCall(TrsFree(&scratch->sample_weights));
  PetscCall(TrsFree(&scratch->group));
  PetscCall(TrsFree(&scratch->time));
  PetscCall(TrsFree(&scratch->lengths));
  PetscCall(TrsFree(&scratch->offsets));
  PetscCall(TrsBufferFree(&scratch->values));
  PetscCall(TrsBufferFree(&scratch->weights));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int by_sample(const void *a, const void *b)
{
  int64_t x = ((const TrsBatchSample *)a)->sample, y = ((const TrsBatchSample *)b)->sample;

  return (x > y) - (x < y);
}

/* Sort the batch's samples into file order, so that neighbours are read together. */
static void order_samples(const TrsShuffle *shuffle, TrsBatchScratch *scratch, const TrsBatch *batch)
{
  for (int64_t i = 0; i < batch->batch; i++) {
    scratch->sample[i].place = i;
    scratch->sample[i].sample = shuffle ? TrsShuffleAt(shuffle, batch->first + i) : batch->first + i;
  }
  if (shuffle) qsort(scratch->sample, (size_t)batch->batch, sizeof(*scratch->sample), by_sample);
}

/* Read dense features, labels and lengths run by run, and find where the samples' values are. */
static PetscErrorCode read_runs(const TrsBatchSpec *spec, TrsBatchScratch *scratch, int64_t batch,
                                const TrsSampleRows *rows, TrsFault *fault)
{
  const int64_t *offsets = scratch->offsets;

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

    *run = (TrsRowRun){*offsets, *end - *offsets};
    scratch->n_values += run->n;
    offsets = end + 1;
  }
  return PETSC_SUCCESS;
}

/*
  Report a `bad` value at (row of the batch, column).
  A warning is counted, a fatal value ends the run.
*/
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

/* Check that a label is what its task learns from. */
static PetscErrorCode check_label(const TrsBatchSpec *spec, TrsBatch *batch, int64_t sample,
                                  const TrsReaderLabel *label, float y, TrsFault *fault)
{
  char wanted[64] = "a number in [0, 1]";
  PetscBool good = (PetscBool)(y >= 0.0F && y <= 1.0F);

  if (isnan(y) && label->may_be_nan) return PETSC_SUCCESS;
  if (label->kind == TRS_LABEL_NUMBER) good = (PetscBool)isfinite(y);
  if (label->kind == TRS_LABEL_CLASS)
    good = (PetscBool)(y >= 0.0F && y < (float)label->classes && y == floorf(y));
  if (good) return PETSC_SUCCESS;
  if (label->kind == TRS_LABEL_NUMBER) strcpy(wanted, "a finite number");
  if (label->kind == TRS_LABEL_CLASS)
    snprintf(wanted, sizeof(wanted), "a class, a whole number from 0 to %d", label->classes - 1);
  return bad_number(spec, batch, "labels", sample, label->place, (double)y, wanted, fault);
}

static PetscErrorCode check_numbers(const TrsBatchSpec *spec, const TrsBatchScratch *scratch, TrsBatch *batch,
                                    const TrsSampleRows *rows, TrsFault *fault)
{
  const float *dense = rows->dense, *labels = rows->labels, *weights = rows->weights;
  const int num_dense = spec->info->num_dense, *const column = spec->info->dense_column;
  PetscErrorCode code = PETSC_SUCCESS;

  if (spec->check == TRS_DATA_CHECK_NONE) return PETSC_SUCCESS;
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

/* Copy the labels to train on out of rows of all labels. */
static void take_labels(const TrsBatchSpec *spec, int64_t n, const float *rows, float *labels)
{
  for (int64_t i = 0; i < n; i++)
    for (int l = 0; l < spec->n_labels; l++)
      labels[i * spec->n_labels + l] = rows[i * spec->info->n_labels + spec->label[l].place];
}

/* Copy the dense features of a sample out of a row of /dense. */
static void take_dense(const TrsDatasetInfo *info, const float *row, float *dense)
{
  if (!info->dense_column) memcpy(dense, row, (size_t)info->num_dense * sizeof(*dense));
  for (int d = 0; info->dense_column && d < info->num_dense; d++) dense[d] = row[info->dense_column[d]];
}

/* Check that the group of a sample is one of the segments, if there are segments. */
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
                        .lengths = scratch->lengths,
                        .offsets = scratch->offsets};

  order_samples(shuffle, scratch, batch);
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

/* Fill the lengths feature-major, and the offsets as their prefix sums. */
static void fill_lengths(const TrsBatchSpec *spec, const TrsBatchScratch *scratch, TrsBatch *batch)
{
  TrsJagged *jagged = &batch->kjt.jagged;
  int64_t B = batch->batch, sum = 0;

  for (int64_t i = 0; i < B; i++) {
    const int32_t *row = scratch->lengths + i * spec->info->n_features;

    for (int k = 0; k < spec->info->n_features; k++)
      if (spec->selected_of_key[k] >= 0)
        jagged->lengths[spec->selected_of_key[k] * B + scratch->sample[i].place] = row[k];
  }
  for (int f = 0; f < spec->n; f++)
    if (spec->twin[f] >= 0)
      memcpy(jagged->lengths + f * B, jagged->lengths + spec->twin[f] * B,
             (size_t)B * sizeof(*jagged->lengths));
  for (int64_t bag = 0; bag < spec->n * B; bag++) {
    jagged->offsets[bag] = sum;
    sum += jagged->lengths[bag];
  }
  jagged->offsets[spec->n * B] = sum;
  jagged->n_bags = spec->n * B;
  jagged->n_values = sum;
  batch->kjt.batch = B;
}

/* Let -1 pass and replace other ids outside of the table by 0 (src/RULES.md, rule A24). */
static PetscErrorCode check_ids(const TrsBatchSpec *spec, TrsBatch *batch, int feature, int key,
                                int64_t sample, int32_t n, int64_t *ids, TrsBadIds *bad_ids, TrsFault *fault)
{
  int64_t rows = spec->rows[feature], row;
  const char *path;

  for (int32_t i = 0; i < n; i++) {
    if ((uint64_t)ids[i] < (uint64_t)rows || ids[i] == -1) continue;
    if (spec->mode[feature] == TRS_BOUNDS_FATAL) {
      path = TrsDatasetLocate(spec->info, sample, &row);
      return TrsFaultSet(fault, TRS_ERR_DATA,
                         "%s: feature \"%.100s\" of sample %" PRId64 " has id %" PRId64
                         ", expected 0 to %" PRId64 " (-bounds_check_mode warning replaces it by 0)",
                         path, spec->info->features[key], row, ids[i], rows - 1);
    }
    if (spec->mode[feature] == TRS_BOUNDS_WARNING && batch->bad_ids++ == 0)
      batch->first_bad = (TrsBadId){key, sample, ids[i]};
    if (bad_ids[feature].n++ == 0) bad_ids[feature].first = (TrsBadId){key, sample, ids[i]};
    ids[i] = 0;
  }
  return PETSC_SUCCESS;
}

/* Check that a sample has no more ids than the feature allows. Places beyond have no weight. */
static PetscErrorCode check_length(const TrsBatchSpec *spec, int feature, int key, int64_t sample, int32_t n,
                                   TrsFault *fault)
{
  const int32_t most = spec->max_length[feature];
  const char *path;
  int64_t row;

  if (most == 0 || n <= most) return PETSC_SUCCESS;
  path = TrsDatasetLocate(spec->info, sample, &row);
  return TrsFaultSet(fault, TRS_ERR_DATA,
                     "%s: feature \"%.100s\" of sample %" PRId64 " has %" PRId32
                     " ids, expected at most %" PRId32
                     " (max_feature_lengths of its position-weighted table)",
                     path, spec->info->features[key], row, n, most);
}

/* Widen n ids. Tells whether any id needs a look because it is neither a row nor pruned. */
static inline __attribute__((always_inline)) int copy_ids(const void *from, PetscBool narrow, int32_t n,
                                                          int64_t rows, int64_t *restrict to)
{
  int odd = 0;

  for (int32_t i = 0; i < n; i++) {
    to[i] = narrow ? ((const int32_t *)from)[i] : ((const int64_t *)from)[i];
    odd |= (uint64_t)to[i] >= (uint64_t)rows;
  }
  return odd;
}

/* Copy one sample's ids from the file's order to their bags. */
static inline __attribute__((always_inline)) PetscErrorCode place_sample(
    const TrsBatchSpec *spec, const TrsBatchScratch *scratch, TrsBatch *batch, int64_t i, PetscBool narrow,
    const char *values, const float *weights, TrsBadIds *bad_ids, TrsFault *fault)
{
  const int64_t value_bytes = narrow ? (int64_t)sizeof(int32_t) : (int64_t)sizeof(int64_t);
  const TrsBatchSample *sample = &scratch->sample[i];
  const int n_features = spec->info->n_features;
  const int32_t *row = scratch->lengths + i * n_features;
  TrsJagged *jagged = &batch->kjt.jagged;
  int64_t at = 0;

  for (int k = 0; k < n_features; at += row[k++]) {
    const int f = spec->selected_of_key[k];
    int64_t to;

    if (f < 0 || row[k] == 0) continue;
    if (spec->max_length[f] && check_length(spec, f, k, sample->sample, row[k], fault) != PETSC_SUCCESS)
      return fault->code;
    to = jagged->offsets[f * batch->batch + sample->place];
    if (weights) memcpy(jagged->weights + to, weights + at, (size_t)row[k] * sizeof(*weights));
    if (copy_ids(values + at * value_bytes, narrow, row[k], spec->rows[f], jagged->values + to) &&
        spec->mode[f] != TRS_BOUNDS_NONE && spec->map[f].kind == TRS_ID_MAP_NONE &&
        check_ids(spec, batch, f, k, sample->sample, row[k], jagged->values + to, bad_ids, fault) !=
            PETSC_SUCCESS)
      return fault->code;
  }
  return PETSC_SUCCESS;
}

static inline __attribute__((always_inline)) PetscErrorCode place_samples(const TrsBatchSpec *spec,
                                                                          const TrsBatchScratch *scratch,
                                                                          TrsBatch *batch, PetscBool narrow,
                                                                          TrsBadIds *bad_ids, TrsFault *fault)
{
  const float *weights = spec->with_weights ? (const float *)scratch->weights.data : NULL;
  const char *values = (const char *)scratch->values.data;

  for (int64_t i = 0; i < batch->batch; i++) {
    const int32_t *row = scratch->lengths + i * spec->info->n_features;
    int64_t n = 0;

    if (place_sample(spec, scratch, batch, i, narrow, values, weights, bad_ids, fault) != PETSC_SUCCESS)
      return fault->code;
    for (int k = 0; k < spec->info->n_features; k++) n += row[k];
    values += n * (narrow ? (int64_t)sizeof(int32_t) : (int64_t)sizeof(int64_t));
    if (weights) weights += n;
  }
  return PETSC_SUCCESS;
}

/* Copy the ids and weights of a feature from the earlier one that has the same key. */
static void copy_twin(const TrsBatchSpec *spec, int f, TrsBatch *batch)
{
  const TrsJagged *jagged = &batch->kjt.jagged;
  const int64_t to = jagged->offsets[f * batch->batch], from = jagged->offsets[spec->twin[f] * batch->batch];
  const size_t n = (size_t)(jagged->offsets[(f + 1) * batch->batch] - to);

  memcpy(jagged->values + to, jagged->values + from, n * sizeof(*jagged->values));
  if (spec->with_weights) memcpy(jagged->weights + to, jagged->weights + from, n * sizeof(*jagged->weights));
}

/* The sample of the batch's i-th value, where the values of all features follow one another. */
static int64_t sample_of_value(const TrsBatchScratch *scratch, const TrsBatch *batch, int64_t i)
{
  const int64_t *offsets = batch->kjt.jagged.offsets;
  int64_t bag = 0, k = 0;

  while (offsets[bag + 1] <= i) bag++;
  while (scratch->sample[k].place != bag % batch->batch) k++;
  return scratch->sample[k].sample;
}

static PetscErrorCode check_weights(const TrsBatchSpec *spec, const TrsBatchScratch *scratch, TrsBatch *batch,
                                    TrsFault *fault)
{
  const TrsJagged *jagged = &batch->kjt.jagged;
  const char *path;
  int64_t row;

  if (!spec->with_weights || spec->check == TRS_DATA_CHECK_NONE) return PETSC_SUCCESS;
  for (int64_t i = 0; i < jagged->n_values; i++) {
    if (isfinite(jagged->weights[i])) continue;
    batch->bad_numbers++;
    if (spec->check == TRS_DATA_CHECK_WARNING) continue;
    path = TrsDatasetLocate(spec->info, sample_of_value(scratch, batch, i), &row);
    return TrsFaultSet(fault, TRS_ERR_DATA,
                       "%s: /sparse/weights holds %g in sample %" PRId64
                       ", expected finite numbers (-data_check warning goes on)",
                       path, (double)jagged->weights[i], row);
  }
  return PETSC_SUCCESS;
}

/* Take a feature's only id as each sample's group, as the file has it. */
static PetscErrorCode take_groups(const TrsBatchSpec *spec, const TrsBatchScratch *scratch, TrsBatch *batch,
                                  TrsFault *fault)
{
  const PetscBool narrow = (PetscBool)(spec->info->value_bytes == 4);
  const char *path;
  int64_t at = 0, row;

  for (int64_t i = 0; i < batch->batch; i++) {
    const int32_t *lengths = scratch->lengths + i * spec->info->n_features;
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
      *group = narrow ? ((const int32_t *)scratch->values.data)[at]
                      : ((const int64_t *)scratch->values.data)[at];
      if (check_segment(spec, scratch->sample[i].sample, *group, fault) != PETSC_SUCCESS) return fault->code;
    }
  }
  return PETSC_SUCCESS;
}

PetscErrorCode TrsBatchReadValues(const TrsBatchSpec *spec, TrsBatchScratch *scratch, TrsBatch *batch,
                                  TrsBadIds *bad_ids, TrsFault *fault)
{
  PetscErrorCode code;

  batch->bad_ids = 0;
  if (TrsDatasetReadValues(spec->dataset, scratch->n_runs, scratch->run, scratch->values.data,
                           spec->with_weights ? (float *)scratch->weights.data : NULL,
                           fault) != PETSC_SUCCESS)
    return fault->code;
  if (spec->with_group && spec->group_key != TRS_GROUP_OF_DATASET &&
      take_groups(spec, scratch, batch, fault) != PETSC_SUCCESS)
    return fault->code;
  fill_lengths(spec, scratch, batch);
  code = spec->info->value_bytes == 4 ? place_samples(spec, scratch, batch, PETSC_TRUE, bad_ids, fault)
                                      : place_samples(spec, scratch, batch, PETSC_FALSE, bad_ids, fault);
  if (code != PETSC_SUCCESS) return code;
  for (int f = 0; f < spec->n; f++)
    if (spec->twin[f] >= 0) copy_twin(spec, f, batch);
  return check_weights(spec, scratch, batch, fault);
}

void TrsBatchMapIds(const TrsBatchSpec *spec, TrsBatch *batch)
{
  for (int f = 0; f < spec->n; f++) {
    const int64_t *offsets = batch->kjt.jagged.offsets + f * batch->batch;

    TrsIdMapApply(&spec->map[f], offsets[batch->batch] - offsets[0], batch->kjt.jagged.values + offsets[0]);
  }
}
