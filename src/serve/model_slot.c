/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve/model_slot.h"

#include <string.h>

struct TrsServeSlotImpl {
  pthread_mutex_t lock; /* guards `model` and the models' n_users */
  pthread_cond_t given_back;
  TrsServeModel *model;
  TrsServeModel *replaced; /* a model that requests still use; NULL if there is none */
  char *options;
  TrsServeShape shape;
  /* [n_features] ids and unknown ids of models that were replaced; memory for those of one model */
  int64_t *n_ids, *n_unknown, *of_model;
};

/* --- the model's inputs and outputs --- */

static PetscErrorCode copy_names(int32_t n, const char *const *from, char ***to)
{
  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)n + 1, to));
  for (int32_t i = 0; i < n; i++) PetscCall(PetscStrallocpy(from[i], &(*to)[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_names(int32_t n, char ***names)
{
  PetscFunctionBegin;
  for (int32_t i = 0; *names && i < n; i++) PetscCall(PetscFree((*names)[i]));
  PetscCall(PetscFree(*names));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Raise the error of a call of the library. */
static PetscErrorCode check_call(int status)
{
  char message[1024];

  PetscFunctionBegin;
  if (status == TRSHARD_SUCCESS) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrncpy(message, TrshardErrorMessage(), sizeof(message)));
  TrsErrorClear();
  SETERRQ(PETSC_COMM_SELF, status + 1000, "%s", message);
}

/* Copy the raw columns of a model whose mapping makes all inputs. */
static PetscErrorCode copy_columns(TrshardEncoder encoder, TrsServeShape *shape)
{
  const TrshardColumnInfo *columns;

  PetscFunctionBegin;
  if (!encoder) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(check_call(TrshardEncoderColumns(encoder, &shape->n_columns, &columns)));
  PetscCall(PetscCalloc1((size_t)shape->n_columns + 1, &shape->column));
  PetscCall(PetscCalloc1((size_t)shape->n_columns + 1, &shape->column_name));
  for (int32_t c = 0; c < shape->n_columns; c++) {
    PetscCall(PetscStrallocpy(columns[c].name, &shape->column_name[c]));
    shape->column[c] = columns[c];
    shape->column[c].name = shape->column_name[c];
    shape->column[c].unit = NULL;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_shape(const TrsServeModel *model, TrsServeShape *shape)
{
  const TrshardPredictor predictor = model->predictor;
  const char *const *features, *const *outputs;

  PetscFunctionBegin;
  PetscCall(check_call(
      TrshardPredictorShape(predictor, &shape->num_dense, &shape->n_features, &features, &shape->n_outputs)));
  PetscCall(check_call(TrshardPredictorNames(predictor, NULL, &outputs)));
  PetscCall(copy_names(shape->n_features, features, &shape->feature));
  PetscCall(copy_names(shape->n_outputs, outputs, &shape->output));
  PetscCall(copy_columns(model->encoder, shape));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_shape(TrsServeShape *shape)
{
  PetscFunctionBegin;
  PetscCall(free_names(shape->n_features, &shape->feature));
  PetscCall(free_names(shape->n_outputs, &shape->output));
  PetscCall(free_names(shape->n_columns, &shape->column_name));
  PetscCall(PetscFree(shape->column));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool same_names(int32_t n, char **a, char **b)
{
  for (int32_t i = 0; i < n; i++)
    if (strcmp(a[i], b[i]) != 0) return PETSC_FALSE;
  return PETSC_TRUE;
}

static PetscBool same_columns(const TrsServeShape *a, const TrsServeShape *b)
{
  if (a->n_columns != b->n_columns || !same_names(a->n_columns, a->column_name, b->column_name))
    return PETSC_FALSE;
  for (int32_t c = 0; c < a->n_columns; c++)
    if (a->column[c].wants != b->column[c].wants || a->column[c].width != b->column[c].width ||
        a->column[c].is_bag != b->column[c].is_bag)
      return PETSC_FALSE;
  return PETSC_TRUE;
}

static PetscBool same_shape(const TrsServeShape *a, const TrsServeShape *b)
{
  return (PetscBool)(a->num_dense == b->num_dense && a->n_features == b->n_features &&
                     a->n_outputs == b->n_outputs && same_names(a->n_features, a->feature, b->feature) &&
                     same_names(a->n_outputs, a->output, b->output) && same_columns(a, b));
}

/* --- models --- */

PetscErrorCode TrsServeModelClose(TrsServeModel **model)
{
  PetscFunctionBegin;
  if (!*model) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(check_call(TrshardEncoderDestroy(&(*model)->encoder)));
  PetscCall(check_call(TrshardPredictorClose(&(*model)->predictor)));
  PetscCall(PetscFree(*model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_model(const char *path, const char *options, TrsServeModel **model)
{
  const char *mapping = NULL;

  PetscFunctionBegin;
  PetscCall(PetscNew(model));
  PetscCall(check_call(TrshardPredictorOpen(path, options, &(*model)->predictor)));
  PetscCall(check_call(TrshardPredictorCheckpoint((*model)->predictor, NULL, &mapping)));
  /* a mapping that does not make all inputs is no error: clients then send ids */
  if (mapping && TrshardEncoderCreate((*model)->predictor, &(*model)->encoder)) TrsErrorClear();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Open a model, or close what an error has left of it. */
static PetscErrorCode open_or_close(const char *path, const char *options, TrsServeModel **model)
{
  const PetscErrorCode ierr = open_model(path, options, model);

  PetscFunctionBegin;
  if (ierr) PetscCall(TrsServeModelClose(model));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsServeSlotCreate(const char *path, const char *options, TrsServeSlot *slot)
{
  TrsServeSlot s;

  PetscFunctionBegin;
  PetscCall(PetscNew(&s));
  *slot = s;
  PetscCheck(pthread_mutex_init(&s->lock, NULL) == 0 && pthread_cond_init(&s->given_back, NULL) == 0,
             PETSC_COMM_SELF, TRS_ERR_MEMORY, "no lock can be made");
  PetscCall(PetscStrallocpy(options, &s->options));
  PetscCall(open_or_close(path, options, &s->model));
  PetscCall(take_shape(s->model, &s->shape));
  PetscCall(PetscCalloc3((size_t)s->shape.n_features, &s->n_ids, (size_t)s->shape.n_features, &s->n_unknown,
                         2 * (size_t)s->shape.n_features, &s->of_model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the counts of a model, which may be NULL. The lock is held. */
static void add_counts(TrsServeSlot s, const TrsServeModel *model, int64_t *ids, int64_t *unknown)
{
  if (!model) return;
  (void)TrshardPredictorIdCounts(model->predictor, s->of_model, s->of_model + s->shape.n_features);
  for (int32_t f = 0; f < s->shape.n_features; f++) {
    ids[f] += s->of_model[f];
    unknown[f] += s->of_model[s->shape.n_features + f];
  }
}

PetscErrorCode TrsServeSlotReplace(TrsServeSlot s, TrsServeModel **model)
{
  TrsServeModel *old;

  PetscFunctionBegin;
  (void)pthread_mutex_lock(&s->lock);
  s->replaced = old = s->model;
  s->model = *model;
  *model = NULL;
  while (old && old->n_users > 0) (void)pthread_cond_wait(&s->given_back, &s->lock);
  add_counts(s, old, s->n_ids, s->n_unknown);
  s->replaced = NULL;
  (void)pthread_mutex_unlock(&s->lock);
  PetscCall(TrsServeModelClose(&old));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsServeSlotOpen(TrsServeSlot s, const char *path, TrsServeModel **model)
{
  TrsServeShape shape = {.num_dense = 0};
  PetscBool same;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *model = NULL;
  PetscCall(open_or_close(path, s->options, model));
  ierr = take_shape(*model, &shape);
  same = (PetscBool)(!ierr && same_shape(&shape, &s->shape));
  PetscCall(free_shape(&shape));
  if (!same) PetscCall(TrsServeModelClose(model));
  PetscCall(ierr);
  PetscCheck(
      same, PETSC_COMM_SELF, TRS_ERR_DATA,
      "%s: its model has other dense features, sparse features, columns or outputs than the served model",
      path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsServeModelApply(TrsServeModel *model, const char *path, TrshardDeltaFit *fit)
{
  PetscFunctionBegin;
  PetscCall(check_call(TrshardPredictorApplyDelta(model->predictor, path, fit)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsServeModelStep(const TrsServeModel *model)
{
  int64_t step = 0;

  (void)TrshardPredictorCheckpoint(model->predictor, &step, NULL);
  return step;
}

TrsServeModel *TrsServeSlotModel(TrsServeSlot s)
{
  return s->model;
}

PetscErrorCode TrsServeSlotDestroy(TrsServeSlot *slot)
{
  TrsServeModel *none = NULL;
  TrsServeSlot s = *slot;

  PetscFunctionBegin;
  if (!s) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsServeSlotReplace(s, &none));
  PetscCall(free_shape(&s->shape));
  PetscCall(PetscFree3(s->n_ids, s->n_unknown, s->of_model));
  PetscCall(PetscFree(s->options));
  (void)pthread_cond_destroy(&s->given_back);
  (void)pthread_mutex_destroy(&s->lock);
  PetscCall(PetscFree(*slot));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsServeShape *TrsServeSlotShape(TrsServeSlot s)
{
  return &s->shape;
}

TrsServeModel *TrsServeSlotTake(TrsServeSlot s)
{
  TrsServeModel *model;

  (void)pthread_mutex_lock(&s->lock);
  model = s->model;
  model->n_users++;
  (void)pthread_mutex_unlock(&s->lock);
  return model;
}

void TrsServeSlotGiveBack(TrsServeSlot s, TrsServeModel *model)
{
  (void)pthread_mutex_lock(&s->lock);
  if (--model->n_users == 0) (void)pthread_cond_signal(&s->given_back);
  (void)pthread_mutex_unlock(&s->lock);
}

void TrsServeSlotCounts(TrsServeSlot s, int64_t *ids, int64_t *unknown)
{
  (void)pthread_mutex_lock(&s->lock);
  for (int32_t f = 0; f < s->shape.n_features; f++) {
    ids[f] = s->n_ids[f];
    unknown[f] = s->n_unknown[f];
  }
  add_counts(s, s->model, ids, unknown);
  add_counts(s, s->replaced, ids, unknown);
  (void)pthread_mutex_unlock(&s->lock);
}

int64_t TrsServeSlotStep(TrsServeSlot s)
{
  int64_t step;

  (void)pthread_mutex_lock(&s->lock);
  step = TrsServeModelStep(s->model);
  (void)pthread_mutex_unlock(&s->lock);
  return step;
}
