/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Predictions. PETSc's error handlers belong to one thread, so errors here only set this thread's
  message.

  A call predicts TRS_PREDICT_SAMPLES samples at a time, so its memory does not grow with the batch.
*/
#include "api/predictor_impl.h"
#include "core/c_locale.h"
#include "core/events.h"
#include "device/cpu_bind.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Set this thread's message, and return `status`. */
__attribute__((format(printf, 2, 3))) static int refuse(int status, const char *format, ...)
{
  static _Thread_local char message[512];
  va_list values;

  va_start(values, format);
  vsnprintf(message, sizeof(message), format, values);
  va_end(values);
  TrsApiEarlyError(message);
  return status;
}

int TrsPredictorCheckFile(TrshardPredictor p)
{
  struct stat status;

  if (p->file < 0 || fstat(p->file, &status) != 0 || status.st_size >= p->file_bytes) return TRSHARD_SUCCESS;
  return refuse(TRSHARD_ERROR_IO,
                "TrshardPredict: the model's file has become shorter since it was opened, %" PRId64
                " bytes of %" PRId64 ": its tables cannot be read any more",
                (int64_t)status.st_size, p->file_bytes);
}

/* Check that all `numbers` [batch, n] are finite. The error message names them by `what`. */
static int check_finite(const char *what, int64_t batch, int64_t n, const float *numbers)
{
  for (int64_t i = 0; i < batch * n; i++)
    if (!isfinite(numbers[i]))
      return refuse(TRSHARD_ERROR_DATA,
                    "%s %" PRId64 " of sample %" PRId64 " is %g, expected a finite number", what, i % n,
                    i / n, (double)numbers[i]);
  return TRSHARD_SUCCESS;
}

/* Check the batch, and find the first id of each feature. */
static int check_batch(TrshardPredictor p, const TrshardBatch *ids, const float *dense,
                       const float *predictions, int64_t *first)
{
  int64_t sum = 0;

  if (!ids || ids->batch < 0 || ids->n_values < 0)
    return refuse(TRSHARD_ERROR_DATA, "TrshardPredict: ids is NULL, or has a negative batch or n_values");
  if ((ids->batch > 0 && (!predictions || !ids->lengths || (!dense && p->num_dense > 0))) ||
      (ids->n_values > 0 && (!ids->values || (!ids->weights && p->weighted))))
    return refuse(TRSHARD_ERROR_DATA,
                  "TrshardPredict: predictions, dense, ids.lengths, ids.values or ids.weights is NULL");
  for (int f = 0; f < p->n_names; f++) {
    first[f] = sum;
    for (int64_t b = 0; b < ids->batch; b++) {
      const int32_t length = ids->lengths[f * ids->batch + b];

      if (length < 0 || length > ids->n_values - sum)
        return refuse(TRSHARD_ERROR_DATA,
                      "feature \"%s\": sample %" PRId64 " has %" PRId32 " ids, expected 0 to %" PRId64
                      ", the values that are left of ids.n_values",
                      p->names[f], b, length, ids->n_values - sum);
      sum += length;
    }
  }
  if (sum != ids->n_values)
    return refuse(TRSHARD_ERROR_DATA, "ids.n_values is %" PRId64 ", but the lengths add up to %" PRId64,
                  ids->n_values, sum);
  for (int64_t i = 0; p->weighted && i < ids->n_values; i++)
    if (!isfinite(ids->weights[i]))
      return refuse(TRSHARD_ERROR_DATA, "ids.weights[%" PRId64 "] is %g, expected a finite number", i,
                    (double)ids->weights[i]);
  return check_finite("dense feature", ids->batch, p->num_dense, dense);
}

/* Map n ids to the rows of their table. -1 means that an id has no row. */
static int take_ids(TrshardPredictor p, const TrsPredictFeature *feature, int64_t n, int64_t *ids)
{
  const TrsTableConfig *table = feature->table;
  int64_t n_unknown = 0;

  if (feature->map.kind != TRS_ID_MAP_NONE) {
    TrsIdMapApply(&feature->map, n, ids);
    return TRSHARD_SUCCESS;
  }
  for (int64_t i = 0; i < n; i++) {
    if ((uint64_t)ids[i] < (uint64_t)table->num_embeddings || ids[i] == -1) continue;
    if (table->bounds_check_mode == TRS_BOUNDS_FATAL)
      return refuse(TRSHARD_ERROR_DATA,
                    "feature \"%s\" has id %" PRId64 ", expected 0 to %" PRId64
                    ", a row of table \"%s\" (-bounds_check_mode warning replaces it by 0)",
                    p->names[feature->from], ids[i], table->num_embeddings - 1, table->name);
    if (table->bounds_check_mode != TRS_BOUNDS_NONE) ids[i] = 0;
    n_unknown++;
  }
  if (n_unknown) atomic_fetch_add(&p->n_unknown[feature->from], n_unknown);
  return TRSHARD_SUCCESS;
}

/*
  Copy the bag lengths of a feature for samples [begin, begin + n). *at is the number of ids so far.
*/
static int take_bags(TrshardPredictor p, const TrsPredictFeature *feature, const TrshardBatch *ids,
                     int64_t begin, int64_t n, TrsJagged *jagged, int64_t *at)
{
  const int32_t *lengths = ids->lengths + feature->from * ids->batch + begin;
  const int64_t bag = (feature - p->feature) * n;

  for (int64_t b = 0; b < n; b++) {
    jagged->offsets[bag + b] = *at;
    jagged->lengths[bag + b] = lengths[b];
    *at += lengths[b];
    if (feature->max_length && lengths[b] > feature->max_length)
      return refuse(TRSHARD_ERROR_DATA,
                    "feature \"%s\" of sample %" PRId64 " has %" PRId32 " ids, expected at most %" PRId64
                    " (max_feature_lengths of its position-weighted table)",
                    p->names[feature->from], begin + b, lengths[b], feature->max_length);
  }
  return TRSHARD_SUCCESS;
}

/* Copy the ids of samples [begin, begin + n) to the workspace, as rows of the tables. */
static int take_samples(TrshardPredictor p, TrsPredictWorkspace *w, const TrshardBatch *ids, int64_t begin,
                        int64_t n)
{
  TrsJagged *jagged = &w->kjt.jagged;
  int64_t at = 0;

  for (int f = 0; f < p->n_features; f++) {
    const TrsPredictFeature *feature = &p->feature[f];
    const int64_t from = at, first = w->first[feature->from];
    int status = take_bags(p, feature, ids, begin, n, jagged, &at);

    if (status != TRSHARD_SUCCESS) return status;
    if (at == from) continue;
    memcpy(jagged->values + from, ids->values + first, (size_t)(at - from) * sizeof(int64_t));
    if (feature->table->is_weighted)
      memcpy(jagged->weights + from, ids->weights + first, (size_t)(at - from) * sizeof(float));
    status = take_ids(p, feature, at - from, jagged->values + from);
    if (status != TRSHARD_SUCCESS) return status;
  }
  jagged->offsets[p->n_features * n] = at;
  return TRSHARD_SUCCESS;
}

/* Count the ids that were looked up, and those that had no row. */
static void count_unknown(TrshardPredictor p, const TrsPredictWorkspace *w, int64_t n)
{
  const int64_t *unknown = TrsLocalTablesUnknown(w->local), *offsets = w->kjt.jagged.offsets;

  for (int f = 0; f < p->n_features; f++) {
    const int64_t n_ids = offsets[(f + 1) * n] - offsets[f * n];

    if (p->feature[f].table->id_map.kind == TRS_ID_MAP_REMAINDER || n_ids == 0) continue;
    atomic_fetch_add_explicit(&p->n_ids[p->feature[f].from], n_ids, memory_order_relaxed);
    if (unknown[f])
      atomic_fetch_add_explicit(&p->n_unknown[p->feature[f].from], unknown[f], memory_order_relaxed);
  }
}

/* Predict the n samples whose ids are in the workspace. */
static PetscErrorCode predict_samples(TrshardPredictor p, TrsPredictWorkspace *w, int64_t n,
                                      const float *dense, float *to)
{
  TrsPooledMatrix model = {.columns = w->columns}, arrived;
  const float *predictions;

  PetscFunctionBegin;
  PetscCall(TrsDlrmEmbeddings(w->dlrm, &model.rows, NULL));
  PetscCall(TrsDlrmForwardDense(w->dlrm, NULL, n, dense));
  PetscCall(TrsRaggedRowsBegin(w->ragged, NULL, &w->kjt));
  TrsDlrmSetBags(w->dlrm, TrsRaggedRowsBags(w->ragged));
  arrived = model;
  if (w->split) PetscCall(TrsSplitTablesRows(w->split, n, &arrived));
  arrived.by_id = TrsRaggedRowsById(w->ragged, PETSC_FALSE);
  PetscCall(TrsLocalTablesForward(w->local, &w->kjt, &arrived));
  count_unknown(p, w, n);
  if (w->split) PetscCall(TrsSplitTablesForward(w->split, NULL, n, &model));
  PetscCall(TrsDlrmForward(w->dlrm, NULL, n, NULL, NULL, 0.0F, NULL, &predictions));
  PetscCall(PetscArraycpy(to, predictions, (size_t)(n * p->n_outputs)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Count the ids of samples [begin, begin + n) in all features of the tables. */
static int64_t count_ids(TrshardPredictor p, const TrshardBatch *ids, int64_t begin, int64_t n)
{
  int64_t sum = 0;

  for (int f = 0; f < p->n_features; f++)
    for (int64_t b = begin; b < begin + n; b++) sum += ids->lengths[p->feature[f].from * ids->batch + b];
  return sum;
}

/* Set the first ids of the features to the ids that follow samples [begin, begin + n). */
static void pass_samples(TrshardPredictor p, TrsPredictWorkspace *w, const TrshardBatch *ids, int64_t begin,
                         int64_t n)
{
  for (int f = 0; f < p->n_names; f++)
    for (int64_t b = begin; b < begin + n; b++) w->first[f] += ids->lengths[f * ids->batch + b];
}

static int predict(TrshardPredictor p, TrsPredictWorkspace *w, const TrshardBatch *ids, const float *dense,
                   float *predictions)
{
  int status = TrsPredictorCheckFile(p);

  if (status == TRSHARD_SUCCESS) status = check_batch(p, ids, dense, predictions, w->first);

  for (int64_t begin = 0, n; status == TRSHARD_SUCCESS && begin < ids->batch; begin += n) {
    PetscErrorCode ierr;

    n = PetscMin(ids->batch - begin, TRS_PREDICT_SAMPLES);
    ierr = TrsKjtReserve(&p->device, &w->kjt, p->n_features, n, count_ids(p, ids, begin, n), p->weighted);
    if (!ierr) status = take_samples(p, w, ids, begin, n);
    if (!ierr && status == TRSHARD_SUCCESS)
      ierr = predict_samples(p, w, n, dense ? dense + begin * p->num_dense : NULL,
                             predictions + begin * p->n_outputs);
    pass_samples(p, w, ids, begin, n);
    if (!ierr) continue;
    TrsApiEarlyError("TrshardPredict: there is too little memory for the call");
    status = TrsExitStatus(ierr);
  }
  return status;
}

/* Take the current side and a workspace of it. The caller gives them back. */
static PetscErrorCode take_workspace(TrshardPredictor p, TrsPredictSide **side, TrsPredictWorkspace **w)
{
  PetscErrorCode ierr = PETSC_SUCCESS;

  (void)pthread_mutex_lock(&p->lock);
  *side = &p->side[p->current];
  (*side)->n_users++;
  *w = (*side)->idle;
  if (*w)
    (*side)->idle = (*w)->next;
  else
    ierr = TrsPredictorCreateWorkspace(p, *side, w);
  (void)pthread_mutex_unlock(&p->lock);
  return ierr;
}

static void give_back(TrshardPredictor p, TrsPredictSide *side, TrsPredictWorkspace *w)
{
  (void)pthread_mutex_lock(&p->lock);
  if (w) {
    w->next = side->idle;
    side->idle = w;
  }
  if (--side->n_users == 0) (void)pthread_cond_signal(&p->unused);
  (void)pthread_mutex_unlock(&p->lock);
}

/*
  Predict a batch on the caller's thread only. Waking a team of threads would take longer than a
  small batch. Each of several callers would have a team of its own, and a forked child would wait
  for a team that does not exist in the child.
*/
int TrsPredictorPredict(TrshardPredictor p, const TrshardBatch *ids, const float *dense, float *predictions,
                        int64_t *step)
{
  TrsPredictWorkspace *w = NULL;
  TrsPredictSide *side;
  PetscErrorCode ierr;
  locale_t before;
  int status, threads;

  TrsApiEarlyError(NULL);
  TrsErrorClear();
  before = TrsCLocale();
  ierr = take_workspace(p, &side, &w);
  (void)uselocale(before);
  TrsApiEarlyError(ierr ? "TrshardPredict: there is too little memory for a workspace" : NULL);
  if (ierr) {
    (void)TrsPredictorDestroyWorkspace(p, w);
    give_back(p, side, NULL);
    return TrsExitStatus(ierr);
  }
  if (step) *step = side->step;
  TrsLogFlopsPause(PETSC_TRUE);
  threads = TrsCpuTeam(1);
  status = predict(p, w, ids, dense, predictions);
  (void)TrsCpuTeam(threads);
  TrsLogFlopsPause(PETSC_FALSE);
  give_back(p, side, w);
  return status;
}

int TrshardPredictStep(TrshardPredictor p, const TrshardBatch *ids, const float *dense, float *predictions,
                       int64_t *step)
{
  if (!p) return refuse(TRSHARD_ERROR_OPTION, "TrshardPredict: predictor is NULL");
  if (!TrsApiHandleIsAlive(p))
    return refuse(TRSHARD_ERROR_OPTION,
                  "TrshardPredict: the predictor is not alive: it was closed, or never opened");
  return TrsPredictorPredict(p, ids, dense, predictions, step);
}

int TrshardPredict(TrshardPredictor p, const TrshardBatch *ids, const float *dense, float *predictions)
{
  return TrshardPredictStep(p, ids, dense, predictions, NULL);
}
