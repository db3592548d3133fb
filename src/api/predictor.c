/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A trained model that predicts in one process, without exchanges. All calls share its tables. Each
  call uses a workspace (predict.c), which has a lookup, a copy of the layers' weights, and memory
  for activations. Unused workspaces are kept in a list for later calls. So there are as many
  workspaces as calls have ever run at the same time. Deltas change the weights (predictor_delta.c).

  A predictor works before MPI and PETSc have started, and does not start them: its communicator is
  MPI_COMM_SELF, for which core/ranks.h calls no MPI.
*/
#include "api/predictor_impl.h"
#include "device/cpu_bind.h"
#include "io/preflight.h"
#include "model/two_tower.h"
#include "quant/quantised_tables.h"
#include "train/model_inputs.h"
#include "train/pair_loss.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

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
  PetscCall(TrsOptionsGetBool(p->options, "-check_weights", &p->checks, NULL));
  TrsPreflightSkip((PetscBool)!p->checks);
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
  PetscCall(PetscCalloc2((size_t)p->n_names, &p->n_ids, (size_t)p->n_names, &p->n_unknown));
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

PetscErrorCode TrsPredictorCreateLayers(TrshardPredictor p, TrsPredictWorkspace **workspace)
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

PetscErrorCode TrsPredictorCreateVectors(TrshardPredictor p, const TrsPredictSide *side,
                                         TrsPredictWorkspace *w)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc3((size_t)p->n_names, &w->first, (size_t)p->n_features, &w->columns,
                         (size_t)p->n_features, &w->position));
  PetscCall(TrsModelFeatures(w->dlrm, &p->tables, w->columns, w->position));
  PetscCall(TrsRaggedRowsCreate(&p->device, p->compute, &p->tables, PETSC_FALSE, &w->ragged));
  PetscCall(TrsSplitTablesCreate(&p->device, p->compute, &p->tables, w->columns, &w->split));
  PetscCall(TrsLocalTablesCreate(p->compute, &side->shards,
                                 w->split ? TrsSplitTablesColumns(w->split) : w->columns, w->position,
                                 &w->local));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPredictorCreateWorkspace(TrshardPredictor p, TrsPredictSide *side,
                                           TrsPredictWorkspace **workspace)
{
  float *values, *of_model;
  int64_t n_values;

  PetscFunctionBegin;
  PetscCall(TrsPredictorCreateLayers(p, workspace));
  PetscCall(TrsDlrmParameters(side->model->dlrm, NULL, NULL, &of_model, NULL, NULL));
  PetscCall(TrsDlrmParameters((*workspace)->dlrm, NULL, NULL, &values, NULL, &n_values));
  PetscCall(PetscArraycpy(values, of_model, (size_t)n_values));
  PetscCall(TrsPredictorCreateVectors(p, side, *workspace));
  side->n++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPredictorDestroyWorkspace(TrshardPredictor p, TrsPredictWorkspace *w)
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
  TrsPredictSide *side = &p->side[0];
  TrsCheckpointInfo info = {.step = 0};
  TrsQuantReader reader;
  TrsState state = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsDenseAverageFromOptions(p->options, &p->decay));
  PetscCall(TrsDlrmAddState(side->model->dlrm, (PetscBool)(p->decay > 0.0), &state));
  state.unverified = (PetscBool)!p->checks;
  /* Directories come first, because reading the rows may need them. */
  PetscCall(TrsEmbeddingShardsAddState(&side->shards, &state));
  PetscCall(TrsQuantReaderCreate(path, &side->shards, p->stored, &reader));
  TrsQuantReaderMap(reader, p->checks);
  PetscCall(TrsQuantReaderAddState(reader, &state));
  ierr = TrsCheckpointRead(MPI_COMM_SELF, path, &state, &info);
  PetscCall(TrsQuantReaderDestroy(&reader));
  PetscCall(TrsStateFree(&state));
  PetscCall(ierr);
  side->step = info.step;
  PetscCall(TrsCheckpointId(MPI_COMM_SELF, path, p->own_id));
  p->place = info.place;
  if (!p->place.base[0]) {
    p->place = (TrsDeltaPlace){.base_step = info.step, .step = info.step};
    PetscCall(PetscStrncpy(p->place.base, p->own_id, sizeof(p->place.base)));
    PetscCall(PetscStrncpy(p->place.id, p->own_id, sizeof(p->place.id)));
  }
  p->described.mapping = info.mapping_read;
  info.mapping_read = NULL;
  PetscCall(TrsCheckpointInfoFree(&info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

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
    PetscCheck(TrsPredictorPredict(p, &(TrshardBatch){.batch = batch, .lengths = lengths}, dense, predictions,
                                   NULL) == TRSHARD_SUCCESS,
               PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s", TrshardErrorMessage());
  PetscCall(PetscFree3(lengths, dense, predictions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_predictor(const char *path, const char *options, TrshardPredictor *predictor)
{
  const TrsDeviceOps *cpu;
  TrsPredictSide *side;
  TrshardPredictor p;

  PetscFunctionBegin;
  PetscCall(TrsApiGiven(path, "TrshardPredictorOpen", "checkpoint"));
  PetscCall(TrsApiHandleCreate(sizeof(*p), &p));
  *predictor = p; /* set also after an error: the caller frees it with Close */
  p->file = -1;
  p->process = getpid();
  side = &p->side[0];
  PetscCheck(pthread_mutex_init(&p->lock, NULL) == 0 && pthread_cond_init(&p->unused, NULL) == 0,
             PETSC_COMM_SELF, TRS_ERR_MEMORY, "no lock can be made");
  PetscCall(TrsDeviceFind("cpu", &cpu));
  p->device = TrsDeviceStaging(cpu);
  p->device.alloc_shared = NULL;
  PetscCall(TrsComputeFind("cpu", &p->compute));
  PetscCall(read_options(p, path, options));
  PetscCall(read_tables(p, path));
  PetscCall(make_plan(p));
  PetscCall(TrsEmbeddingShardsCreateQuantised(&p->device, &p->tables, &p->plan, 0, &side->shards));
  PetscCall(TrsPredictorCreateLayers(p, &side->model));
  p->n_outputs = (int)TrsDlrmTasks(side->model->dlrm)->columns;
  PetscCall(read_weights(p, path));
  PetscCall(TrsPredictorNamesTake(p->options, TrsDlrmTasks(side->model->dlrm), path, &p->described));
  PetscCall(TrsPredictorCreateVectors(p, side, side->model));
  side->idle = side->model;
  side->n = 1;
  PetscCall(warm_up(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPredictorDestroySide(TrshardPredictor p, TrsPredictSide *side)
{
  PetscFunctionBegin;
  /* after an error, the list may not yet have the first workspace */
  if (!side->idle) side->idle = side->model;
  for (TrsPredictWorkspace *w = side->idle, *next; w; w = next) {
    next = w->next;
    PetscCall(TrsPredictorDestroyWorkspace(p, w));
  }
  if (side->shards.device) PetscCall(TrsEmbeddingShardsDestroy(&side->shards));
  *side = (TrsPredictSide){.n = 0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode close_predictor(TrshardPredictor p)
{
  PetscFunctionBegin;
  if (!TrsApiHandleTake(p)) PetscFunctionReturn(PETSC_SUCCESS);
  if (p->file >= 0) (void)close(p->file);
  for (int i = 0; i < 2; i++) PetscCall(TrsPredictorDestroySide(p, &p->side[i]));
  PetscCall(PetscFree2(p->n_ids, p->n_unknown));
  PetscCall(TrsShardingPlanFree(&p->plan));
  PetscCall(PetscFree3(p->stored, p->names, p->feature));
  PetscCall(TrsPredictorNamesFree(&p->described));
  PetscCall(TrsTableConfigsFree(&p->tables));
  PetscCall(TrsOptionsDestroy(&p->options));
  (void)pthread_cond_destroy(&p->unused);
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

  for (int i = 0; i < p->side[0].shards.n; i++) maps = (PetscBool)(maps || p->side[0].shards.shard[i].map);
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

int TrshardPredictorNames(TrshardPredictor p, const char *const **dense, const char *const **outputs)
{
  if (!TrsApiHandleIsAlive(p)) return TRS_API_CALL(TrsApiAlive(p, __func__, "predictor"));
  if (dense) *dense = (const char *const *)p->described.dense;
  if (outputs) *outputs = p->described.output;
  return TRSHARD_SUCCESS;
}

int TrshardPredictorCheckpoint(TrshardPredictor p, int64_t *step, const char **mapping)
{
  if (!TrsApiHandleIsAlive(p)) return TRS_API_CALL(TrsApiAlive(p, __func__, "predictor"));
  if (step) {
    (void)pthread_mutex_lock(&p->lock);
    *step = p->side[p->current].step;
    (void)pthread_mutex_unlock(&p->lock);
  }
  if (mapping) *mapping = p->described.mapping;
  return TRSHARD_SUCCESS;
}

int TrshardPredictorIdCounts(TrshardPredictor p, int64_t *ids, int64_t *unknown)
{
  if (!TrsApiHandleIsAlive(p)) return TRS_API_CALL(TrsApiAlive(p, __func__, "predictor"));
  for (int f = 0; f < p->n_names; f++) {
    if (ids) ids[f] = atomic_load(&p->n_ids[f]);
    if (unknown) unknown[f] = atomic_load(&p->n_unknown[f]);
  }
  return TRSHARD_SUCCESS;
}
