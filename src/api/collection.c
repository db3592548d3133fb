/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/impl.h"
#include "api/machine_plan.h"
#include "api/memory_check.h"
#include "core/c_locale.h"
#include "core/start.h"
#include "core/version.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRS_EVALUATION = TRS_TRAINING_SLOTS };
_Static_assert((int)TRSHARD_BATCHES < (int)TRS_TRAINING_SLOTS, "a device may not have ended the last batch");

/* The message of an error that was found while PETSc could not be used. */
static _Thread_local const char *early_error;

/* The locale that this thread had before the call. */
static _Thread_local locale_t callers_locale;

/* The device that this thread used before the call. If `of` is NULL, the device did not change. */
static _Thread_local struct {
  const TrsDeviceOps *of;
  int number;
} callers_device;

PetscErrorCode TrsApiEnterAgain(void)
{
  PetscFunctionBegin;
  PetscCall(TrsErrorInstall());
  callers_locale = TrsCLocale();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiUseDevice(TrshardCollection c)
{
  const TrsDeviceOps *device = c->machine.device;

  PetscFunctionBegin;
  if (!device->use) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(device->use(c->machine.device_number, &callers_device.number));
  callers_device.of = device;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiEnter(void)
{
  TrsErrorClear();
  early_error = NULL;
  return TrsApiEnterAgain();
}

void TrsApiEarlyError(const char *message)
{
  early_error = message;
}

PetscErrorCode TrsApiGiven(const void *pointer, const char *function, const char *what)
{
  PetscFunctionBegin;
  PetscCheck(pointer, PETSC_COMM_SELF, TRS_ERR_OPTION, "%s: %s is NULL", function, what);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiMpiGoesOn(void)
{
  int finalised;

  PetscFunctionBegin;
  PetscCheck(MPI_Finalized(&finalised) == MPI_SUCCESS && !finalised, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "MPI is finalised already");
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsApiFinish(PetscErrorCode ierr)
{
  int ours;

  if (callers_device.of) (void)callers_device.of->use(callers_device.number, &ours);
  callers_device.of = NULL;
  (void)TrsErrorRemove();
  (void)uselocale(callers_locale);
  return TrsExitStatus(ierr);
}

int TrsApiStart(MPI_Comm comm)
{
  locale_t before;
  int initialised, status;

  early_error = "MPI is not initialised, expected MPI_Init_thread() first (TrshardWorld() for callers "
                "without mpi.h)";
  if (MPI_Initialized(&initialised) != MPI_SUCCESS || !initialised) return TRSHARD_ERROR_OPTION;
  status = TRS_API_CALL(TrsApiMpiGoesOn());
  if (status) return status;
  early_error = "the communicator is MPI_COMM_NULL, which has no ranks";
  if (comm == MPI_COMM_NULL) return TRSHARD_ERROR_OPTION;
  early_error = "PETSc cannot be started";
  before = TrsCLocale();
  status = TrsStartLibrary() == PETSC_SUCCESS ? TRSHARD_SUCCESS : TRSHARD_ERROR_INTERNAL;
  (void)uselocale(before);
  return status;
}

const char *TrshardErrorMessage(void)
{
  return early_error ? early_error : TrsErrorMessage();
}

const char *TrshardVersion(int *api_version)
{
  if (api_version) *api_version = TRSHARD_API_VERSION;
  return TRS_VERSION;
}

PetscErrorCode TrsApiRefuseBadIds(TrsOptions options, TrsTableConfigs *tables)
{
  const char *name, *own, *all;

  PetscFunctionBegin;
  PetscCall(TrsOptionsSource(options, "-bounds_check_mode", &all));
  for (int t = 0; t < tables->n && strcmp(all, "default") == 0; t++) {
    TrsTableConfig *table = &tables->table[t];

    PetscCall(TrsOptionsObjectName(options, "table", table->name, "bounds_check_mode", &name));
    PetscCall(TrsOptionsSource(options, name, &own));
    if (strcmp(own, "default") == 0) table->bounds_check_mode = TRS_BOUNDS_FATAL;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Refuse a mix of tables with and without pooling: without pooling, the rows of all ids form one
  matrix, which has no columns for pooled tables.
*/
static PetscErrorCode check_poolings(TrshardCollection c)
{
  const TrsTableConfig *first = &c->tables.table[0];

  PetscFunctionBegin;
  c->by_id = (PetscBool)(first->pooling == TRS_POOLING_NONE);
  for (int t = 1; t < c->tables.n; t++) {
    const TrsTableConfig *table = &c->tables.table[t];

    PetscCheck(
        (table->pooling == TRS_POOLING_NONE) == c->by_id, PETSC_COMM_SELF, TRS_ERR_OPTION,
        "only one of the tables \"%s\" and \"%s\" has pooling none, expected a collection for each kind",
        first->name, table->name);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* For each feature, find its table, its id map, and its columns in a row of the pooled matrix. */
static PetscErrorCode find_features(TrshardCollection c)
{
  PetscFunctionBegin;
  for (int t = 0; t < c->tables.n; t++) c->n_features += c->tables.table[t].n_features;
  PetscCall(check_poolings(c));
  PetscCall(PetscMalloc4(c->n_features, &c->columns, c->n_features, &c->places_columns, c->n_features,
                         &c->table_of, c->n_features, &c->map));
  for (int t = 0, f = 0; t < c->tables.n; t++) {
    const TrsTableConfig *table = &c->tables.table[t];

    PetscCheck(!table->max_feature_lengths, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "table \"%s\": position weights belong to trshard's own model, not to a collection",
               table->name);
    PetscCheck(!table->whole, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "table \"%s\": id_map qr belongs to trshard's own model, not to a collection", table->whole);
    PetscCheck(!TrsTableIsSequenceLayer(table), PETSC_COMM_SELF, TRS_ERR_OPTION,
               "table \"%s\": a sequence_pooling with parameters belongs to trshard's own model, not to a "
               "collection",
               table->name);
    c->weighted = (PetscBool)(c->weighted || table->is_weighted);
    c->changes = (PetscBool)(c->changes || table->pooling == TRS_POOLING_MEAN ||
                             TrsTableOutputDType(table) != TRS_FP32);
    for (int k = 0; k < table->n_features; k++, f++) {
      c->columns[f] = c->by_id ? 0 : c->width;
      c->places_columns[f] = c->places_width;
      c->table_of[f] = table;
      c->map[f] = TrsIdMapMake(&table->id_map);
      c->places_width += TrsTableColumns(table);
      c->width = c->by_id ? TrsTableColumns(table) : c->places_width;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read the configuration of the tables from the options, which include the options for the structs'
  fields.
*/
static PetscErrorCode read_tables(TrshardCollection c, const TrshardConfig *config)
{
  TrsDatasetFeatures features = {.n_features = 0};
  PetscErrorCode ierr;
  const char **names;
  /* all 0: the ids have no range to check here, because each batch's ids are checked */
  int64_t *rows;
  int n = 0;

  PetscFunctionBegin;
  for (int32_t t = 0; t < config->n_tables; t++)
    n += config->tables[t].features ? config->tables[t].n_features : 1;
  PetscCall(PetscCalloc2(n, &names, n, &rows));
  for (int32_t t = 0, f = 0; t < config->n_tables; t++) {
    const TrshardTable *table = &config->tables[t];

    for (int32_t k = 0; k < (table->features ? table->n_features : 1); k++)
      names[f++] = table->features ? table->features[k] : table->name;
    features.has_weights = (PetscBool)(features.has_weights || table->weighted);
  }
  features.n_features = n;
  features.names = names;
  features.num_embeddings = rows;
  ierr = TrsTableConfigsFromOptions(c->options, &features, &c->tables);
  PetscCall(PetscFree2(names, rows));
  PetscCall(ierr);
  PetscCall(TrsApiRefuseBadIds(c->options, &c->tables));
  PetscCall(find_features(c));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Create the plan's shards and their exchanges, and fill the shards. */
static PetscErrorCode create_tables(TrshardCollection c)
{
  const TrsMachine *machine = &c->machine;
  TrsShardedEbcConfig config = {.columns = c->places_columns};
  int64_t seed;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(c->options, "-seed", &seed, NULL));
  PetscCall(TrsSparseOptimizersFromOptions(c->options, &c->tables, &c->optimizers));
  for (int i = 0; i < c->optimizers.n; i++) c->optimizers.args[i].seed = (uint64_t)seed;
  for (int t = 0; t < c->tables.n; t++)
    c->changes = (PetscBool)(c->changes || c->optimizers.max_gradient[t] > 0.0F);
  PetscCall(TrsSparseOptimizersCheck(&c->optimizers, machine->compute));
  PetscCall(PetscMalloc1(c->optimizers.n, &c->step_args));
  PetscCall(TrsScheduleFromOptions(c->options, &c->schedule));
  PetscCall(TrsShardedEbcConfigFromOptions(c->options, &config));
  if (machine->replicas > 1)
    PetscCall(TrsOptionError(c->options, "-plan_replicas", "is for trainings of the program itself"));
  /* Only one rank may lack memory, so all ranks must agree on the result. */
  PetscCall(TrsAgree(c->comm, TrsEmbeddingShardsCreate(machine->device, &c->tables, &c->plan, machine->rank,
                                                       &c->optimizers, &c->shards)));
  c->shards.shared_rowwise = config.dist.reproducible;
  PetscCall(TrsAgree(c->comm, TrsShardedEbcCreate(&machine->groups, machine->device, machine->compute,
                                                  &c->tables, &c->plan, &c->shards, &config, &c->ebc)));
  c->shards.seed = (uint64_t)seed;
  PetscCall(TrsAgree(c->comm, TrsEmbeddingShardsFill(&c->shards, (uint64_t)seed)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_batches(TrshardCollection c)
{
  const TrsDeviceOps *device = c->machine.device;

  PetscFunctionBegin;
  c->host = TrsDeviceStaging(device);
  PetscCall(device->stream_create("compute", &c->stream));
  c->stream_made = PETSC_TRUE;
  PetscCall(device->event_create(&c->reached));
  for (int s = 0; s <= TRS_EVALUATION; s++) PetscCall(TrsDeviceBatchCreate(device, &c->slot[s].copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create(MPI_Comm comm, const TrshardConfig *config, TrshardCollection *collection)
{
  const TrsPlanWishes wishes = {.num_dense = 0};
  const TrsBatchShape shape = {.batch_size = config->batch_size, .training = PETSC_TRUE};
  TrshardCollection c;

  PetscFunctionBegin;
  PetscCall(TrsApiHandleCreate(sizeof(*c), &c));
  *collection = c; /* set also after an error: the caller frees it with Destroy */
  c->factor = 1;
  c->batch_size = config->batch_size;
  PetscCallMPI(MPI_Comm_dup(comm, &c->comm));
  PetscCall(TrsApiOptions(c->comm, config, &c->options));
  PetscCall(TrsAgree(c->comm, read_tables(c, config)));
  /* undo the limit that an earlier run in this process has set */
  (void)TrsCommWaitAtMost(TRS_COMM_WAIT_SECONDS);
  PetscCall(TrsMachineCreate(c->comm, c->options, &c->machine));
  PetscCall(TrsMachinePlan(&c->machine, &wishes, &c->tables, &c->plan));
  PetscCall(TrsMemoryCheck(&c->machine, &c->tables, &c->plan, &shape, PETSC_FALSE));
  PetscCall(create_batches(c));
  PetscCall(TrsApiRowsCreate(c));
  PetscCall(create_tables(c));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(TrshardCollection c)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (!TrsApiHandleTake(c)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsApiReadersClose(c));
  ierr = TrsApiAwaitAll(c); /* after a failure, continue to free memory */
  PetscCall(TrsShardedEbcDestroy(&c->ebc));
  if (c->shards.device) PetscCall(TrsEmbeddingShardsDestroy(&c->shards));
  PetscCall(TrsApiRowsDestroy(c));
  for (int s = 0; c->stream_made && s <= TRS_EVALUATION; s++) {
    PetscCall(TrsDeviceBatchDestroy(c->machine.device, &c->slot[s].copy));
    PetscCall(TrsKjtFree(&c->host, &c->slot[s].batch.kjt));
  }
  if (c->reached) PetscCall(c->machine.device->event_destroy(&c->reached));
  if (c->stream_made) PetscCall(c->machine.device->stream_destroy(&c->stream));
  PetscCall(PetscFree(c->step_args));
  PetscCall(TrsSparseOptimizersFree(&c->optimizers));
  PetscCall(TrsScheduleFree(&c->schedule));
  PetscCall(TrsShardingPlanFree(&c->plan));
  PetscCall(TrsMachineDestroy(&c->machine));
  PetscCall(PetscFree4(c->columns, c->places_columns, c->table_of, c->map));
  PetscCall(TrsTableConfigsFree(&c->tables));
  PetscCall(PetscFree(c->plan_text));
  PetscCall(TrsApiFreeMappings(c));
  PetscCall(TrsOptionsDestroy(&c->options));
  PetscCallMPI(MPI_Comm_free(&c->comm));
  TrsApiHandleFree(c);
  PetscFunctionReturn(ierr);
}

int TrshardCollectionCreate(MPI_Comm comm, const TrshardConfig *config, TrshardCollection *collection)
{
  int status;

  if (!collection) return TRS_API_CALL(TrsApiGiven(NULL, __func__, "collection"));
  *collection = NULL;
  status = TrsApiStart(comm);
  if (status) return status;
  if (!config) return TRS_API_CALL(TrsApiGiven(NULL, __func__, "config"));
  status = TRS_API_CALL(create(comm, config, collection));
  if (status == TRSHARD_SUCCESS) return status;
  TRS_API_CLEAR(destroy(*collection));
  *collection = NULL;
  return status;
}

int TrshardCollectionCreateFortran(int comm, const TrshardConfig *config, TrshardCollection *collection)
{
  return TrshardCollectionCreate(MPI_Comm_f2c((MPI_Fint)comm), config, collection);
}

static void finalise_mpi(void)
{
  int finalised;

  if (MPI_Finalized(&finalised) == MPI_SUCCESS && !finalised) MPI_Finalize();
}

int TrshardWorld(int *comm)
{
  int initialised, provided, status;

  status = TRS_API_CALL(TrsApiGiven(comm, __func__, "comm") || TrsApiMpiGoesOn() ? TRS_ERR_OPTION
                                                                                 : PETSC_SUCCESS);
  if (status) return status;
  early_error = "MPI cannot be initialised";
  if (MPI_Initialized(&initialised) != MPI_SUCCESS) return TRSHARD_ERROR_UNAVAILABLE;
  if (!initialised) {
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
      return TRSHARD_ERROR_UNAVAILABLE;
    (void)atexit(finalise_mpi);
  }
  *comm = (int)MPI_Comm_c2f(MPI_COMM_WORLD);
  return TRSHARD_SUCCESS;
}

int TrshardCollectionDestroy(TrshardCollection *collection)
{
  TrshardCollection c = collection ? *collection : NULL;

  if (collection) *collection = NULL;
  return c ? TRS_API_CALL_OF(c, destroy(c)) : TRSHARD_SUCCESS;
}

int TrshardCollectionColumns(TrshardCollection c, int32_t *n_features, const int64_t **columns,
                             int64_t *width)
{
  if (!TrsApiHandleIsAlive(c)) return TRS_API_CALL(TrsApiAlive(c, __func__, "collection"));
  if (n_features) *n_features = c->n_features;
  if (columns) *columns = c->columns;
  if (width) *width = c->width;
  return TRSHARD_SUCCESS;
}

static PetscErrorCode plan_text(TrshardCollection c, const char **json)
{
  PetscFunctionBegin;
  PetscCall(TrsApiGiven(json, "TrshardCollectionPlan", "json"));
  if (!c->plan_text) PetscCall(TrsShardingPlanToJson(&c->plan, &c->plan_text));
  *json = c->plan_text;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrshardCollectionPlan(TrshardCollection c, const char **json)
{
  return TRS_API_CALL_OF(c, plan_text(c, json));
}

static PetscErrorCode set_factor(TrshardCollection c, double factor)
{
  PetscFunctionBegin;
  PetscCheck(isfinite(factor) && factor >= 0, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "TrshardSetLearningRateFactor: factor is %g, expected a finite number, 0 or more", factor);
  for (int i = 0; i < c->optimizers.n; i++)
    PetscCheck(
        factor == 1 || c->optimizers.args[i].kind != TRS_OPTIM_FTRL, PETSC_COMM_SELF, TRS_ERR_OPTION,
        "TrshardSetLearningRateFactor: factor is %g, but ftrl takes 1 alone: a weight is a function of "
        "its gradients and of one learning rate",
        factor);
  c->factor = factor;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrshardSetLearningRateFactor(TrshardCollection c, double factor)
{
  return TRS_API_CALL_OF(c, set_factor(c, factor));
}
