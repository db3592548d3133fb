/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A trained model that predicts, without ranks and exchanges. All calls share its tables. A call
  takes a workspace: a lookup, and a model with a copy of the layers' numbers and memory for
  activations. Workspaces that are not in use wait in a list, so there are as many as calls that
  ever ran at once.

  A call works on TRS_PREDICT_SAMPLES samples at a time, so its memory does not grow with the batch.
*/
#include "api/collection.h"
#include "core/events.h"
#include "core/start.h"
#include "embed/lookup.h"
#include "io/checkpoint.h"
#include "model/two_tower.h"
#include "quant/quantised_tables.h"
#include "train/model_inputs.h"
#include "train/pair_loss.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TRS_PREDICT_SAMPLES = 256 };

static const TrsOptionSpec specs[] = {
    {"-seed", TRS_OPTION_INT, "0", "[0,]", NULL, NULL, "seed of numbers that the checkpoint replaces"},
    {"-task", TRS_OPTION_ENUM, "predict", NULL, "predict", NULL, "a predictor predicts"},
};
static const TrsOptionGroup predictor_group = TRS_OPTION_GROUP("Predictor", specs);

static const TrsOptionGroup *const groups[] = {&predictor_group,       &trs_tables_options,
                                               &trs_table_options,     &trs_model_options,
                                               &trs_tasks_options,     &trs_task_options,
                                               &trs_heads_options,     &trs_two_tower_options,
                                               &trs_pair_loss_options, &trs_dense_optimizer_options,
                                               &trs_shard_options,     &trs_sparse_optimizer_options};

/* The memory of a call. */
typedef struct TrsPredictWorkspace {
  struct TrsPredictWorkspace *next; /* in the list of those not in use */
  TrsDlrm dlrm;
  TrsLookup lookup;
  TrsKjt kjt;     /* the ids of the samples under way */
  int64_t *first; /* [features] place of these samples' first id in the caller's values */
} TrsPredictWorkspace;

struct TrshardPredictorImpl {
  TrsOptions options;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsTableConfigs tables;
  TrsShardingPlan plan; /* every table whole, on one rank */
  TrsStoredTable *stored;
  TrsEmbeddingShards shards;
  PetscBool weighted; /* some table is */
  int64_t num_dense;
  int n_features, n_outputs;
  const char **names;              /* [n_features] */
  const TrsTableConfig **table_of; /* [n_features] */
  TrsIdMap *map;                   /* [n_features] */
  TrsPredictWorkspace *model;      /* has the layers' numbers; others copy them */
  pthread_mutex_t lock;            /* of the list */
  TrsPredictWorkspace *idle;
};

/* --- opening --- */

static PetscErrorCode collect_words(const char *options, TrsText *words)
{
  PetscFunctionBegin;
  PetscCall(TrsApiAddWord(words, "libtrshard"));
  PetscCall(TrsApiAddText(words, "options", options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_options(TrshardPredictor p, const char *path, const char *options)
{
  TrsText words = {.data = NULL};
  PetscErrorCode ierr = collect_words(options, &words);
  char *model = NULL;
  int precision;

  PetscFunctionBegin;
  ierr = TrsApiOptionsOfWords(MPI_COMM_SELF, ierr, &words, groups, (int)(sizeof(groups) / sizeof(groups[0])),
                              &p->options);
  PetscCall(TrsTextFree(&words));
  PetscCall(ierr);
  PetscCall(TrsCheckpointModel(MPI_COMM_SELF, path, &model));
  PetscCheck(model, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s does not hold its model, expected a checkpoint that trshard 1.0.0 or later wrote", path);
  ierr = TrsOptionsTakeModel(p->options, path, model);
  PetscCall(PetscFree(model));
  PetscCall(ierr);
  PetscCall(TrsOptionsGetInt(p->options, "-num_dense", &p->num_dense, NULL));
  PetscCall(TrsOptionsGetEnum(p->options, "-dense_precision", &precision, NULL));
  if (precision != TRS_PRECISION_FP32)
    PetscCall(TrsOptionError(p->options, "-dense_precision", "a predictor's products are fp32"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse a table that only the program's exchanges can bring to the model. */
static PetscErrorCode check_table(const TrsTableConfig *table)
{
  const char *what = table->max_feature_lengths               ? "position_weighted"
                     : table->whole                           ? "id_map qr"
                     : TrsTableOutputDType(table) != TRS_FP32 ? "output_dtype"
                     : table->pooling == TRS_POOLING_NONE &&
                             table->sequence_pooling != TRS_SEQUENCE_POOLING_MEAN
                         ? "a sequence_pooling other than mean"
                         : NULL;

  PetscFunctionBegin;
  PetscCheck(!what, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "table \"%s\" has %s, which a predictor does not have yet: use -task predict", table->name,
             what);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_tables(TrshardPredictor p, const char *path)
{
  PetscFunctionBegin;
  PetscCall(TrsTableConfigsFromOptions(p->options, NULL, &p->tables));
  PetscCall(TrsApiRefuseBadIds(p->options, &p->tables));
  for (int t = 0; t < p->tables.n; t++) {
    PetscCall(check_table(&p->tables.table[t]));
    p->n_features += p->tables.table[t].n_features;
    p->weighted = (PetscBool)(p->weighted || p->tables.table[t].is_weighted);
  }
  PetscCall(PetscCalloc4((size_t)p->tables.n, &p->stored, (size_t)p->n_features, &p->names,
                         (size_t)p->n_features, &p->table_of, (size_t)p->n_features, &p->map));
  for (int t = 0, f = 0; t < p->tables.n; t++)
    for (int k = 0; k < p->tables.table[t].n_features; k++, f++) {
      p->names[f] = p->tables.table[t].features[k];
      p->table_of[f] = &p->tables.table[t];
      p->map[f] = TrsIdMapMake(&p->table_of[f]->id_map, PETSC_FALSE);
    }
  PetscCall(TrsQuantTableTypes(MPI_COMM_SELF, p->options, path, &p->tables, p->stored));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Every table whole, on the only rank. */
static PetscErrorCode make_plan(TrshardPredictor p)
{
  TrsShardingPlan *plan = &p->plan;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)p->tables.n, &plan->table));
  plan->world_size = plan->local_world_size = plan->pod_size = 1;
  for (int t = 0; t < p->tables.n; t++) {
    const TrsTableConfig *config = &p->tables.table[t];
    TrsTablePlan *table = &plan->table[plan->n_tables++];

    PetscCall(PetscStrallocpy(config->name, &table->name));
    PetscCall(PetscCalloc1(1, &table->shard));
    table->module = TrsTableModule(config);
    table->sharding_type = TRS_SHARDING_TABLE_WISE;
    table->compute_kernel = TRS_KERNEL_QUANT;
    table->n_shards = 1;
    table->shard[0].rows = config->num_embeddings;
    table->shard[0].cols = config->embedding_dim;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_lookup(TrshardPredictor p, TrsPredictWorkspace *w)
{
  TrsLookupFeature *features;
  const int64_t *columns;
  int64_t stride;
  float *x;

  PetscFunctionBegin;
  PetscCall(TrsDlrmEmbeddings(w->dlrm, &x, &stride, &columns));
  PetscCall(PetscCalloc1((size_t)p->n_features, &features));
  for (int t = 0, f = 0; t < p->tables.n; t++)
    for (int k = 0; k < p->tables.table[t].n_features; k++, f++)
      features[f] = (TrsLookupFeature){.shard = TrsEmbeddingShardsFind(&p->shards, t, 0),
                                       .mean = (PetscBool)(p->tables.table[t].pooling != TRS_POOLING_SUM),
                                       .out_column = columns[f]};
  PetscCall(TrsLookupCreate(p->compute, &p->shards, p->n_features, features, &w->lookup));
  PetscCall(PetscFree(features));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make a workspace. Its layers have the numbers of the model, if that is there. */
static PetscErrorCode create_workspace(TrshardPredictor p, TrsPredictWorkspace **workspace)
{
  TrsPredictWorkspace *w;
  float *values, *of_model;
  int n, *dims = NULL;
  int64_t n_values;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscNew(&w));
  *workspace = w;
  PetscCall(PetscMalloc1((size_t)p->n_features, &w->first));
  PetscCall(TrsDlrmCreate(p->device, p->compute, &w->dlrm));
  PetscCall(TrsDlrmSetFromOptions(w->dlrm, p->options));
  PetscCall(TrsDlrmSetForwardOnly(w->dlrm));
  PetscCall(TrsModelInputs(w->dlrm, p->options, &p->tables, &n, &dims));
  ierr = TrsDlrmSetUp(w->dlrm, (int)p->num_dense, n, dims, TRS_PREDICT_SAMPLES, 0);
  PetscCall(PetscFree(dims));
  PetscCall(ierr);
  PetscCall(create_lookup(p, w));
  if (!p->model) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDlrmParameters(p->model->dlrm, NULL, NULL, &of_model, NULL, NULL));
  PetscCall(TrsDlrmParameters(w->dlrm, NULL, NULL, &values, NULL, &n_values));
  PetscCall(PetscArraycpy(values, of_model, (size_t)n_values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_workspace(TrshardPredictor p, TrsPredictWorkspace *w)
{
  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsLookupDestroy(&w->lookup));
  PetscCall(TrsDlrmDestroy(&w->dlrm));
  PetscCall(TrsKjtFree(p->device, &w->kjt));
  PetscCall(PetscFree(w->first));
  PetscCall(PetscFree(w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the layers, and the tables, which are quantised on the way. */
static PetscErrorCode read_weights(TrshardPredictor p, const char *path)
{
  TrsCheckpointInfo info = {.step = 0};
  TrsQuantReader reader;
  TrsState state = {0};
  PetscErrorCode ierr;
  double decay;

  PetscFunctionBegin;
  PetscCall(TrsDenseAverageFromOptions(p->options, &decay));
  PetscCall(TrsDlrmAddState(p->model->dlrm, (PetscBool)(decay > 0.0), &state));
  PetscCall(TrsQuantReaderCreate(path, &p->shards, p->stored, &reader));
  PetscCall(TrsQuantReaderAddState(reader, &state));
  ierr = TrsCheckpointRead(MPI_COMM_SELF, path, &state, &info);
  PetscCall(TrsQuantReaderDestroy(&reader));
  PetscCall(TrsStateFree(&state));
  PetscCall(ierr);
  PetscCall(TrsCheckpointInfoFree(&info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Predict a sample without ids. The first product prepares its library, which is no work for several
  threads at once.
*/
static PetscErrorCode warm_up(TrshardPredictor p)
{
  int32_t *lengths;
  float *dense, *predictions;

  PetscFunctionBegin;
  PetscCall(PetscCalloc3((size_t)p->n_features, &lengths, (size_t)p->num_dense, &dense, (size_t)p->n_outputs,
                         &predictions));
  PetscCheck(TrshardPredict(p, &(TrshardBatch){.batch = 1, .lengths = lengths}, dense, predictions) ==
                 TRSHARD_SUCCESS,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s", TrshardErrorMessage());
  PetscCall(PetscFree3(lengths, dense, predictions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_predictor(const char *path, const char *options, TrshardPredictor *predictor)
{
  TrshardPredictor p;

  PetscFunctionBegin;
  PetscCall(TrsApiGiven(path, "TrshardPredictorOpen", "checkpoint"));
  PetscCall(PetscNew(&p));
  *predictor = p; /* Close frees what an error leaves */
  PetscCheck(pthread_mutex_init(&p->lock, NULL) == 0, PETSC_COMM_SELF, TRS_ERR_MEMORY, "no lock can be made");
  PetscCall(TrsDeviceFind("cpu", &p->device));
  PetscCall(TrsComputeFind("cpu", &p->compute));
  PetscCall(read_options(p, path, options));
  PetscCall(read_tables(p, path));
  PetscCall(make_plan(p));
  PetscCall(TrsEmbeddingShardsCreateQuantised(p->device, &p->tables, &p->plan, 0, &p->shards));
  PetscCall(create_workspace(p, &p->model));
  p->n_outputs = (int)TrsDlrmTasks(p->model->dlrm)->columns;
  PetscCall(read_weights(p, path));
  p->idle = p->model;
  PetscCall(warm_up(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode close_predictor(TrshardPredictor p)
{
  PetscFunctionBegin;
  if (!p->idle) p->idle = p->model; /* the opening failed */
  for (TrsPredictWorkspace *w = p->idle, *next; w; w = next) {
    next = w->next;
    PetscCall(destroy_workspace(p, w));
  }
  if (p->shards.device) PetscCall(TrsEmbeddingShardsDestroy(&p->shards));
  PetscCall(TrsShardingPlanFree(&p->plan));
  PetscCall(PetscFree4(p->stored, p->names, p->table_of, p->map));
  PetscCall(TrsTableConfigsFree(&p->tables));
  PetscCall(TrsOptionsDestroy(&p->options));
  (void)pthread_mutex_destroy(&p->lock);
  PetscCall(PetscFree(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrshardPredictorOpen(const char *checkpoint, const char *options, TrshardPredictor *predictor)
{
  int status, world;

  if (!predictor) return TRS_API_CALL(TrsApiGiven(NULL, __func__, "predictor"));
  *predictor = NULL;
  status = TrshardWorld(&world);
  if (status != TRSHARD_SUCCESS) return status;
  TrsApiEarlyError("PETSc cannot be started");
  if (TrsStartLibrary(MPI_COMM_SELF) != PETSC_SUCCESS) return TRSHARD_ERROR_INTERNAL;
  status = TRS_API_CALL(open_predictor(checkpoint, options, predictor));
  if (status == TRSHARD_SUCCESS) return status;
  /* The message of the first error stays. */
  if (*predictor && TrsErrorInstall() == PETSC_SUCCESS) (void)TrsApiFinish(close_predictor(*predictor));
  *predictor = NULL;
  return status;
}

int TrshardPredictorClose(TrshardPredictor *predictor)
{
  const TrshardPredictor p = predictor ? *predictor : NULL;

  if (predictor) *predictor = NULL;
  return p ? TRS_API_CALL(close_predictor(p)) : TRSHARD_SUCCESS;
}

int TrshardPredictorShape(TrshardPredictor p, int32_t *num_dense, int32_t *n_features,
                          const char *const **features, int32_t *n_outputs)
{
  if (!p) return TRS_API_CALL(TrsApiGiven(NULL, __func__, "predictor"));
  if (num_dense) *num_dense = (int32_t)p->num_dense;
  if (n_features) *n_features = p->n_features;
  if (features) *features = p->names;
  if (n_outputs) *n_outputs = p->n_outputs;
  return TRSHARD_SUCCESS;
}

/* --- predicting: no chain of errors and no handler, which belong to one thread --- */

/* Set this thread's message, and return DATA. */
__attribute__((format(printf, 1, 2))) static int bad_data(const char *format, ...)
{
  static _Thread_local char message[512];
  va_list values;

  va_start(values, format);
  vsnprintf(message, sizeof(message), format, values);
  va_end(values);
  TrsApiEarlyError(message);
  return TRSHARD_ERROR_DATA;
}

/* Check the batch, and find where each feature's ids begin. */
static int check_batch(TrshardPredictor p, const TrshardBatch *ids, const float *dense,
                       const float *predictions, int64_t *first)
{
  int64_t sum = 0;

  if (!ids || ids->batch < 0 || ids->n_values < 0)
    return bad_data("TrshardPredict: ids is NULL, or has a negative batch or n_values");
  if (!predictions || (ids->batch > 0 && (!ids->lengths || (!dense && p->num_dense > 0))) ||
      (ids->n_values > 0 && (!ids->values || (!ids->weights && p->weighted))))
    return bad_data("TrshardPredict: predictions, dense, ids.lengths, ids.values or ids.weights is NULL");
  for (int f = 0; f < p->n_features; f++) {
    first[f] = sum;
    for (int64_t b = 0; b < ids->batch; b++) {
      const int32_t length = ids->lengths[f * ids->batch + b];

      if (length < 0 || length > ids->n_values - sum)
        return bad_data("feature \"%s\": sample %" PRId64 " has %" PRId32 " ids, expected 0 to %" PRId64
                        ", the values that are left of ids.n_values",
                        p->names[f], b, length, ids->n_values - sum);
      sum += length;
    }
  }
  if (sum != ids->n_values)
    return bad_data("ids.n_values is %" PRId64 ", but the lengths add up to %" PRId64, ids->n_values, sum);
  return TRSHARD_SUCCESS;
}

/* Make n ids rows of their table. -1 is no id. */
static int take_ids(TrshardPredictor p, int f, int64_t n, int64_t *ids)
{
  const TrsTableConfig *table = p->table_of[f];

  if (p->map[f].kind != TRS_ID_MAP_NONE) {
    TrsIdMapApply(&p->map[f], n, ids);
    return TRSHARD_SUCCESS;
  }
  for (int64_t i = 0; i < n; i++) {
    if ((uint64_t)ids[i] < (uint64_t)table->num_embeddings || ids[i] == -1) continue;
    if (table->bounds_check_mode == TRS_BOUNDS_FATAL)
      return bad_data("feature \"%s\" has id %" PRId64 ", expected 0 to %" PRId64
                      ", a row of table \"%s\" (-bounds_check_mode warning replaces it by 0)",
                      p->names[f], ids[i], table->num_embeddings - 1, table->name);
    if (table->bounds_check_mode != TRS_BOUNDS_NONE) ids[i] = 0;
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
    const int32_t *lengths = ids->lengths + f * ids->batch + begin;
    const int64_t from = at;
    int status;

    for (int64_t b = 0; b < n; b++) {
      jagged->offsets[f * n + b] = at;
      jagged->lengths[f * n + b] = lengths[b];
      at += lengths[b];
    }
    if (at == from) continue;
    memcpy(jagged->values + from, ids->values + w->first[f], (size_t)(at - from) * sizeof(int64_t));
    for (int64_t i = 0; p->weighted && i < at - from; i++)
      jagged->weights[from + i] = p->table_of[f]->is_weighted ? ids->weights[w->first[f] + i] : 1.0F;
    status = take_ids(p, f, at - from, jagged->values + from);
    if (status != TRSHARD_SUCCESS) return status;
    w->first[f] += at - from;
  }
  jagged->offsets[p->n_features * n] = at;
  return TRSHARD_SUCCESS;
}

/* Predict n samples whose ids the workspace has. */
static PetscErrorCode predict_samples(TrshardPredictor p, TrsPredictWorkspace *w, int64_t n,
                                      const float *dense, float *to)
{
  const int64_t *columns;
  const float *predictions;
  int64_t stride;
  float *x;

  PetscFunctionBegin;
  PetscCall(TrsDlrmEmbeddings(w->dlrm, &x, &stride, &columns));
  PetscCall(TrsDlrmForwardDense(w->dlrm, NULL, n, dense));
  PetscCall(TrsLookupForward(w->lookup, NULL, &w->kjt, x, stride));
  PetscCall(TrsDlrmForward(w->dlrm, NULL, n, NULL, NULL, 0.0F, NULL, &predictions));
  PetscCall(PetscArraycpy(to, predictions, (size_t)(n * p->n_outputs)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int64_t count_ids(TrshardPredictor p, const TrshardBatch *ids, int64_t begin, int64_t n)
{
  int64_t sum = 0;

  for (int f = 0; f < p->n_features; f++)
    for (int64_t b = begin; b < begin + n; b++) sum += ids->lengths[f * ids->batch + b];
  return sum;
}

static int predict(TrshardPredictor p, TrsPredictWorkspace *w, const TrshardBatch *ids, const float *dense,
                   float *predictions)
{
  int status = check_batch(p, ids, dense, predictions, w->first);

  for (int64_t begin = 0, n; status == TRSHARD_SUCCESS && begin < ids->batch; begin += n) {
    PetscErrorCode ierr;

    n = PetscMin(ids->batch - begin, TRS_PREDICT_SAMPLES);
    ierr = TrsKjtReserve(p->device, &w->kjt, p->n_features, n, count_ids(p, ids, begin, n), p->weighted);
    if (!ierr) status = take_samples(p, w, ids, begin, n);
    if (!ierr && status == TRSHARD_SUCCESS)
      ierr = predict_samples(p, w, n, dense ? dense + begin * p->num_dense : NULL,
                             predictions + begin * p->n_outputs);
    if (!ierr) continue;
    TrsApiEarlyError("TrshardPredict: there is too little memory for the call");
    status = TrsExitStatus(ierr);
  }
  return status;
}

int TrshardPredict(TrshardPredictor p, const TrshardBatch *ids, const float *dense, float *predictions)
{
  TrsPredictWorkspace *w = NULL;
  PetscErrorCode ierr = PETSC_SUCCESS;
  int status;

  TrsApiEarlyError("TrshardPredict: predictor is NULL");
  if (!p) return TRSHARD_ERROR_OPTION;
  TrsApiEarlyError(NULL);
  (void)pthread_mutex_lock(&p->lock);
  w = p->idle;
  if (w)
    p->idle = w->next;
  else
    ierr = create_workspace(p, &w);
  (void)pthread_mutex_unlock(&p->lock);
  TrsApiEarlyError(ierr ? "TrshardPredict: there is too little memory for a workspace" : NULL);
  if (ierr) {
    (void)destroy_workspace(p, w);
    return TrsExitStatus(ierr);
  }
  TrsLogFlopsPause(PETSC_TRUE);
  status = predict(p, w, ids, dense, predictions);
  TrsLogFlopsPause(PETSC_FALSE);
  (void)pthread_mutex_lock(&p->lock);
  w->next = p->idle;
  p->idle = w;
  (void)pthread_mutex_unlock(&p->lock);
  return status;
}
