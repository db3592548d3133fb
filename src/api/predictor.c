/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A trained model that predicts in one process, without exchanges. All calls share its tables. Each
  call uses a workspace, which has a lookup, a copy of the layers' weights, and memory for
  activations. Unused workspaces are kept in a list for later calls. So there are as many workspaces
  as calls have ever run at the same time.

  A predictor works before MPI and PETSc have started, and does not start them: its communicator is
  MPI_COMM_SELF, for which core/ranks.h calls no MPI.

  A call predicts TRS_PREDICT_SAMPLES samples at a time, so its memory does not grow with the batch.
*/
#include "api/impl.h"
#include "core/c_locale.h"
#include "core/events.h"
#include "device/cpu_bind.h"
#include "io/checkpoint/checkpoint.h"
#include "io/preflight.h"
#include "model/two_tower.h"
#include "quant/quantised_tables.h"
#include "shard/local_tables.h"
#include "train/model_inputs.h"
#include "train/pair_loss.h"
#include "train/ragged_rows.h"
#include "train/split_tables.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRS_PREDICT_SAMPLES = 256 };

static const TrsOptionSpec specs[] = {
    {"-check_weights", TRS_OPTION_BOOL, "true", NULL, NULL, NULL,
     "compare the checkpoint's checksums and look at all numbers of its tables when it is opened, which "
     "reads the whole file, after child processes have looked at what HDF5 might crash on"},
    {"-seed", TRS_OPTION_INT, "0", "[0,]", NULL, NULL, "seed of numbers that the checkpoint replaces"},
    {"-task", TRS_OPTION_ENUM, "predict", NULL, "predict", NULL, "a predictor predicts"},
    {"-data_dense", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "of the checkpoint; a predictor has no dataset"},
    {"-data_label", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "of the checkpoint; a predictor has no dataset"},
};
static const TrsOptionGroup predictor_group = TRS_OPTION_GROUP_OF_MODEL("Predictor", NULL, specs, NULL,
                                                                        "-data_dense,-data_label");

static const TrsOptionGroup *const groups[] = {&predictor_group,       &trs_tables_options,
                                               &trs_table_options,     &trs_model_options,
                                               &trs_tasks_options,     &trs_task_options,
                                               &trs_heads_options,     &trs_two_tower_options,
                                               &trs_pair_loss_options, &trs_dense_optimizer_options,
                                               &trs_shard_options,     &trs_sparse_optimizer_options};

/* The memory that one call uses. */
typedef struct TrsPredictWorkspace {
  struct TrsPredictWorkspace *next; /* next in the list of unused workspaces */
  TrsDlrm dlrm;
  /* [n_features] first column of each of the tables' features in the model's matrix */
  int64_t *columns;
  TrsPositionWeight *position; /* [n_features] */
  TrsSplitTables split;        /* NULL if no table is split */
  TrsRaggedRows ragged;        /* NULL if no layer uses sequences */
  TrsLocalTables local;
  TrsKjt kjt; /* the ids of the samples that are being predicted, as rows of the tables */
  /* [n_names] for each of the caller's features: the caller's array `values` has the first id of
     these samples at this index */
  int64_t *first;
} TrsPredictWorkspace;

/* A feature of a table. If id_map is qr, two tables look up the same feature of the caller. */
typedef struct {
  const TrsTableConfig *table;
  TrsIdMap map;
  int from; /* index of the feature among the caller's features */
  /* largest length of a bag, for a table with position weights; 0 if lengths have no limit */
  int64_t max_length;
} TrsPredictFeature;

struct TrshardPredictorImpl {
  TrsOptions options;
  /* the CPU; its memory is private, and several threads may let it grow at the same time */
  TrsDeviceOps device;
  const TrsComputeOps *compute;
  TrsTableConfigs tables;
  TrsShardingPlan plan; /* the plan: every table is whole, on one rank */
  TrsStoredTable *stored;
  TrsEmbeddingShards shards;
  PetscBool weighted; /* true if any table is weighted */
  int64_t num_dense;
  int n_outputs;
  /* number of the caller's features, and number of the tables' features */
  int n_names, n_features;
  const char **names;         /* [n_names] names of the caller's features */
  TrsPredictFeature *feature; /* [n_features] the tables' features */
  /* the workspace with the layers' weights, which other workspaces copy */
  TrsPredictWorkspace *model;
  pthread_mutex_t lock; /* guards the list of unused workspaces */
  TrsPredictWorkspace *idle;
  /* file descriptor of the model's file if tables are mapped; -1 if none is mapped */
  int file;
  int64_t file_bytes; /* size of the model's file */
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
  static const char *const of_data[] = {"-data_dense", "-data_label"};
  TrsText words = {.data = NULL};
  PetscErrorCode ierr = collect_words(options, &words);
  PetscBool check;
  char *model = NULL;
  int precision;

  PetscFunctionBegin;
  ierr = TrsApiOptionsOfWords(MPI_COMM_SELF, ierr, &words, groups, (int)(sizeof(groups) / sizeof(groups[0])),
                              &p->options);
  PetscCall(TrsTextFree(&words));
  PetscCall(ierr);
  for (int i = 0; i < 2; i++)
    if (TrsOptionsIsGiven(p->options, of_data[i]))
      PetscCall(
          TrsOptionError(p->options, of_data[i], "is of datasets; a predictor is given what they choose"));
  PetscCall(TrsOptionsGetBool(p->options, "-check_weights", &check, NULL));
  TrsPreflightSkip((PetscBool)!check);
  PetscCall(TrsCheckpointModel(MPI_COMM_SELF, path, &model));
  PetscCheck(model, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s does not hold its model, which a predictor needs: -init_from it in trshard, with the "
             "model's options, and write it with -checkpoint_final",
             path);
  ierr = TrsOptionsTakeModel(p->options, path, model);
  PetscCall(PetscFree(model));
  PetscCall(ierr);
  PetscCall(TrsOptionsGetInt(p->options, "-num_dense", &p->num_dense, NULL));
  PetscCall(TrsOptionsGetEnum(p->options, "-dense_precision", &precision, NULL));
  if (precision != TRS_PRECISION_FP32)
    PetscCall(TrsOptionError(p->options, "-dense_precision", "a predictor's products are fp32"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  List the features of table t. A remainder table has the features of its quotient table, which is
  the table before it.
*/
static void add_features(TrshardPredictor p, int t)
{
  const TrsTableConfig *table = &p->tables.table[t];
  const PetscBool remainder = (PetscBool)(table->id_map.kind == TRS_ID_MAP_REMAINDER);

  p->weighted = (PetscBool)(p->weighted || table->is_weighted);
  for (int k = 0; k < table->n_features; k++) {
    const int from = remainder ? p->n_names - table->n_features + k : p->n_names + k;

    p->names[from] = table->features[k];
    p->feature[p->n_features++] = (TrsPredictFeature){
        .table = table,
        .map = TrsIdMapMake(&table->id_map),
        .from = from,
        .max_length = table->max_feature_lengths ? table->max_feature_lengths[k] : 0};
  }
  if (!remainder) p->n_names += table->n_features;
}

static PetscErrorCode read_tables(TrshardPredictor p, const char *path)
{
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsTableConfigsFromOptions(p->options, NULL, &p->tables));
  PetscCall(TrsApiRefuseBadIds(p->options, &p->tables));
  for (int t = 0; t < p->tables.n; t++) n += p->tables.table[t].n_features;
  PetscCall(PetscCalloc3((size_t)p->tables.n, &p->stored, (size_t)n, &p->names, (size_t)n, &p->feature));
  for (int t = 0; t < p->tables.n; t++) add_features(p, t);
  PetscCall(TrsQuantTableTypes(MPI_COMM_SELF, p->options, path, &p->tables, p->stored));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make a plan in which every table is whole, on the only rank. */
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

/* Create the layers of a workspace, without their weights. */
static PetscErrorCode create_layers(TrshardPredictor p, TrsPredictWorkspace **workspace)
{
  TrsPredictWorkspace *w;
  int n, *dims = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscNew(&w));
  *workspace = w;
  PetscCall(TrsDlrmCreate(&p->device, p->compute, &w->dlrm));
  PetscCall(TrsDlrmSetFromOptions(w->dlrm, p->options));
  PetscCall(TrsDlrmSetForwardOnly(w->dlrm));
  PetscCall(TrsModelInputs(w->dlrm, p->options, &p->tables, &n, &dims));
  ierr = TrsDlrmSetUp(w->dlrm, (int)p->num_dense, n, dims, TRS_PREDICT_SAMPLES, 0);
  PetscCall(PetscFree(dims));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Create the parts of a workspace that look up the tables' vectors for its model. The tables must
  exist.
*/
static PetscErrorCode create_vectors(TrshardPredictor p, TrsPredictWorkspace *w)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc3((size_t)p->n_names, &w->first, (size_t)p->n_features, &w->columns,
                         (size_t)p->n_features, &w->position));
  PetscCall(TrsModelFeatures(w->dlrm, &p->tables, w->columns, w->position));
  PetscCall(TrsRaggedRowsCreate(&p->device, p->compute, &p->tables, PETSC_FALSE, &w->ragged));
  PetscCall(TrsSplitTablesCreate(&p->device, p->compute, &p->tables, w->columns, &w->split));
  PetscCall(TrsLocalTablesCreate(p->compute, &p->shards,
                                 w->split ? TrsSplitTablesColumns(w->split) : w->columns, w->position,
                                 &w->local));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Create a workspace whose layers have the model's weights. */
static PetscErrorCode create_workspace(TrshardPredictor p, TrsPredictWorkspace **workspace)
{
  float *values, *of_model;
  int64_t n_values;

  PetscFunctionBegin;
  PetscCall(create_layers(p, workspace));
  PetscCall(TrsDlrmParameters(p->model->dlrm, NULL, NULL, &of_model, NULL, NULL));
  PetscCall(TrsDlrmParameters((*workspace)->dlrm, NULL, NULL, &values, NULL, &n_values));
  PetscCall(PetscArraycpy(values, of_model, (size_t)n_values));
  PetscCall(create_vectors(p, *workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_workspace(TrshardPredictor p, TrsPredictWorkspace *w)
{
  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsLocalTablesDestroy(&w->local));
  PetscCall(TrsSplitTablesDestroy(&w->split));
  PetscCall(TrsRaggedRowsDestroy(&w->ragged));
  PetscCall(TrsDlrmDestroy(&w->dlrm));
  PetscCall(TrsKjtFree(&p->device, &w->kjt));
  PetscCall(PetscFree3(w->first, w->columns, w->position));
  PetscCall(PetscFree(w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read the layers, the directories and the tables. A table is mapped if the file has it in the type
  that the predictor uses. Other tables are read and converted.
*/
static PetscErrorCode read_weights(TrshardPredictor p, const char *path)
{
  TrsCheckpointInfo info = {.step = 0};
  TrsQuantReader reader;
  TrsState state = {0};
  PetscBool check;
  PetscErrorCode ierr;
  double decay;

  PetscFunctionBegin;
  PetscCall(TrsDenseAverageFromOptions(p->options, &decay));
  PetscCall(TrsDlrmAddState(p->model->dlrm, (PetscBool)(decay > 0.0), &state));
  PetscCall(TrsOptionsGetBool(p->options, "-check_weights", &check, NULL));
  state.unverified = (PetscBool)!check;
  /* Directories come first, because reading the rows may need them. */
  PetscCall(TrsEmbeddingShardsAddState(&p->shards, &state));
  PetscCall(TrsQuantReaderCreate(path, &p->shards, p->stored, &reader));
  TrsQuantReaderMap(reader, check);
  PetscCall(TrsQuantReaderAddState(reader, &state));
  ierr = TrsCheckpointRead(MPI_COMM_SELF, path, &state, &info);
  PetscCall(TrsQuantReaderDestroy(&reader));
  PetscCall(TrsStateFree(&state));
  PetscCall(ierr);
  PetscCall(TrsCheckpointInfoFree(&info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int predict_batch(TrshardPredictor p, const TrshardBatch *ids, const float *dense, float *predictions);

/*
  Predict one sample without ids, and then the largest number of samples that a call predicts at a
  time. The first matrix products initialise their library. Several threads must not do this at the
  same time, and no request should wait the 50 ms that it takes.
*/
static PetscErrorCode warm_up(TrshardPredictor p)
{
  const size_t n = TRS_PREDICT_SAMPLES;
  int32_t *lengths;
  float *dense, *predictions;

  PetscFunctionBegin;
  PetscCall(PetscCalloc3(n * (size_t)p->n_names, &lengths, n * (size_t)p->num_dense, &dense,
                         n * (size_t)p->n_outputs, &predictions));
  for (int32_t batch = 1; batch <= TRS_PREDICT_SAMPLES; batch += TRS_PREDICT_SAMPLES - 1)
    PetscCheck(predict_batch(p, &(TrshardBatch){.batch = batch, .lengths = lengths}, dense, predictions) ==
                   TRSHARD_SUCCESS,
               PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s", TrshardErrorMessage());
  PetscCall(PetscFree3(lengths, dense, predictions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_predictor(const char *path, const char *options, TrshardPredictor *predictor)
{
  const TrsDeviceOps *cpu;
  TrshardPredictor p;

  PetscFunctionBegin;
  PetscCall(TrsApiGiven(path, "TrshardPredictorOpen", "checkpoint"));
  PetscCall(TrsApiHandleCreate(sizeof(*p), &p));
  *predictor = p; /* set also after an error: the caller frees it with Close */
  p->file = -1;
  PetscCheck(pthread_mutex_init(&p->lock, NULL) == 0, PETSC_COMM_SELF, TRS_ERR_MEMORY, "no lock can be made");
  PetscCall(TrsDeviceFind("cpu", &cpu));
  p->device = TrsDeviceStaging(cpu);
  p->device.alloc_shared = NULL;
  PetscCall(TrsComputeFind("cpu", &p->compute));
  PetscCall(read_options(p, path, options));
  PetscCall(read_tables(p, path));
  PetscCall(make_plan(p));
  PetscCall(TrsEmbeddingShardsCreateQuantised(&p->device, &p->tables, &p->plan, 0, &p->shards));
  PetscCall(create_layers(p, &p->model));
  p->n_outputs = (int)TrsDlrmTasks(p->model->dlrm)->columns;
  PetscCall(read_weights(p, path));
  PetscCall(create_vectors(p, p->model));
  p->idle = p->model;
  PetscCall(warm_up(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode close_predictor(TrshardPredictor p)
{
  PetscFunctionBegin;
  if (!TrsApiHandleTake(p)) PetscFunctionReturn(PETSC_SUCCESS);
  if (p->file >= 0) (void)close(p->file);
  /* after a failed opening, the list may not yet have the first workspace */
  if (!p->idle) p->idle = p->model;
  for (TrsPredictWorkspace *w = p->idle, *next; w; w = next) {
    next = w->next;
    PetscCall(destroy_workspace(p, w));
  }
  if (p->shards.device) PetscCall(TrsEmbeddingShardsDestroy(&p->shards));
  PetscCall(TrsShardingPlanFree(&p->plan));
  PetscCall(PetscFree3(p->stored, p->names, p->feature));
  PetscCall(TrsTableConfigsFree(&p->tables));
  PetscCall(TrsOptionsDestroy(&p->options));
  (void)pthread_mutex_destroy(&p->lock);
  TrsApiHandleFree(p);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If tables are mapped, keep a file descriptor of the model's file. It opens the file of `hold`
  again, without the lock of `hold`.
*/
static void keep_file(TrshardPredictor p, int hold)
{
  char path[64];
  struct stat status;
  PetscBool maps = PETSC_FALSE;

  for (int i = 0; i < p->shards.n; i++) maps = (PetscBool)(maps || p->shards.shard[i].map);
  if (!maps || hold < 0 || fstat(hold, &status) != 0) return;
  snprintf(path, sizeof(path), "/proc/self/fd/%d", hold);
  p->file = open(path, O_RDONLY | O_CLOEXEC);
  p->file_bytes = status.st_size;
}

static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
/*
  true in a process that was forked from a process with a predictor: the predictor's threads do not
  exist here
*/
static PetscBool is_fork;

static void note_fork(void)
{
  is_fork = PETSC_TRUE;
}

static void watch_forks(void)
{
  (void)pthread_atfork(NULL, NULL, note_fork);
}

int TrshardPredictorOpen(const char *checkpoint, const char *options, TrshardPredictor *predictor)
{
  int status, threads, hold;

  if (!predictor) return TRS_API_CALL(TrsApiGiven(NULL, __func__, "predictor"));
  *predictor = NULL;
  (void)pthread_once(&watch_once, watch_forks);
  threads = TrsCpuTeam(is_fork ? 1 : 0);
  /* all opens below then read the same file, even if it is replaced meanwhile */
  hold = checkpoint ? TrsCheckpointHold(checkpoint) : -1;
  status = TRS_API_CALL(open_predictor(checkpoint, options, predictor));
  if (status == TRSHARD_SUCCESS) keep_file(*predictor, hold);
  TrsCheckpointRelease(&hold);
  (void)TrsCpuTeam(threads);
  TrsPreflightSkip(PETSC_FALSE);
  if (status == TRSHARD_SUCCESS) return status;
  if (*predictor) TRS_API_CLEAR(close_predictor(*predictor));
  *predictor = NULL;
  return status;
}

int TrshardPredictorClose(TrshardPredictor *predictor)
{
  const TrshardPredictor p = predictor ? *predictor : NULL;

  if (predictor) *predictor = NULL;
  if (!p) return TRSHARD_SUCCESS;
  return TRS_API_CALL(TrsApiAlive(p, __func__, "predictor") ? TRS_ERR_OPTION : close_predictor(p));
}

int TrshardPredictorShape(TrshardPredictor p, int32_t *num_dense, int32_t *n_features,
                          const char *const **features, int32_t *n_outputs)
{
  if (!TrsApiHandleIsAlive(p)) return TRS_API_CALL(TrsApiAlive(p, __func__, "predictor"));
  if (num_dense) *num_dense = (int32_t)p->num_dense;
  if (n_features) *n_features = p->n_names;
  if (features) *features = p->names;
  if (n_outputs) *n_outputs = p->n_outputs;
  return TRSHARD_SUCCESS;
}

/*
  --- predicting: PETSc's error handlers belong to one thread, so errors here only set this thread's
  message ---
*/

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

/*
  Check that the file still has all pages of the mapped tables. Reading a page beyond the file's end
  would raise SIGBUS.
*/
static int check_file(TrshardPredictor p)
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
  }
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
  int status = check_file(p);

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

/*
  Predict a batch on the caller's thread only. Waking a team of threads would take longer than a
  small batch. Each of several callers would have a team of its own, and a forked child would wait
  for a team that does not exist in the child.
*/
static int predict_batch(TrshardPredictor p, const TrshardBatch *ids, const float *dense, float *predictions)
{
  TrsPredictWorkspace *w = NULL;
  PetscErrorCode ierr = PETSC_SUCCESS;
  locale_t before;
  int status, threads;

  TrsApiEarlyError(NULL);
  TrsErrorClear();
  before = TrsCLocale();
  (void)pthread_mutex_lock(&p->lock);
  w = p->idle;
  if (w)
    p->idle = w->next;
  else
    ierr = create_workspace(p, &w);
  (void)pthread_mutex_unlock(&p->lock);
  (void)uselocale(before);
  TrsApiEarlyError(ierr ? "TrshardPredict: there is too little memory for a workspace" : NULL);
  if (ierr) {
    (void)destroy_workspace(p, w);
    return TrsExitStatus(ierr);
  }
  TrsLogFlopsPause(PETSC_TRUE);
  threads = TrsCpuTeam(1);
  status = predict(p, w, ids, dense, predictions);
  (void)TrsCpuTeam(threads);
  TrsLogFlopsPause(PETSC_FALSE);
  (void)pthread_mutex_lock(&p->lock);
  w->next = p->idle;
  p->idle = w;
  (void)pthread_mutex_unlock(&p->lock);
  return status;
}

int TrshardPredict(TrshardPredictor p, const TrshardBatch *ids, const float *dense, float *predictions)
{
  if (!p) return refuse(TRSHARD_ERROR_OPTION, "TrshardPredict: predictor is NULL");
  if (!TrsApiHandleIsAlive(p))
    return refuse(TRSHARD_ERROR_OPTION,
                  "TrshardPredict: the predictor is not alive: it was closed, or never opened");
  return predict_batch(p, ids, dense, predictions);
}
