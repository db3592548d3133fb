/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/impl.h"
#include "train/model_inputs.h"
#include "train/product_option.h"

static const TrsOptionSpec specs[] = {
    {"-reproducible", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "give the same bits of losses, weights and metrics for every plan and number of ranks with the same "
     "global batch. Evaluations have the same bits with any global batch. The sums of tables are made in "
     "one place, in the batch's order, which costs exchanges. Dense layers work on blocks of 128 samples; "
     "an evaluation's batches are rounded up to whole blocks. Metrics are exact sums. This holds among "
     "CPUs, or GPUs, of one kind, and needs exchanges in fp32"},
    {"-dense_graphs", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "with -device cuda: capture the launches of the dense layers and of their optimizer in CUDA graphs, "
     "and replay a graph by one launch. It is faster if batches are so small that launches take longer "
     "than the work. Gives the same bits. Not with -reproducible, -accumulate_steps, or layers over "
     "sequences"},
};
const TrsOptionGroup trs_model_parallel_options = TRS_OPTION_GROUP("Reproducibility and launches", specs);

/* Create a model from the options, but do not set it up. */
static PetscErrorCode describe_model(TrsOptions options, const TrsTableConfigs *tables, TrsDlrm *dlrm, int *n,
                                     int **dims)
{
  const TrsComputeOps *compute;
  const TrsDeviceOps *device;

  PetscFunctionBegin;
  PetscCall(TrsDeviceFind("cpu", &device));
  PetscCall(TrsComputeFind("cpu", &compute));
  PetscCall(TrsDlrmCreate(device, compute, dlrm));
  PetscCall(TrsDlrmSetFromOptions(*dlrm, options));
  PetscCall(TrsModelInputs(*dlrm, options, tables, n, dims));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelDenseWork(TrsOptions options, const TrsTableConfigs *tables, int num_dense,
                                         TrsDlrmWork *work)
{
  int n, *dims;
  TrsDlrm dlrm;

  PetscFunctionBegin;
  PetscCall(describe_model(options, tables, &dlrm, &n, &dims));
  PetscCall(TrsDlrmSetForwardOnly(dlrm));
  PetscCall(TrsDlrmSetUp(dlrm, num_dense, n, dims, 1, 0));
  *work = TrsDlrmWorkOf(dlrm);
  PetscCall(TrsDlrmDestroy(&dlrm));
  PetscCall(PetscFree(dims));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if each feature of the table has one pooled vector of its own, and its gradient is used
  unchanged. limit: [tables->n] limits of gradients, or NULL.
*/
static PetscBool has_plain_vectors(const TrsTableConfigs *tables, int t, const float *limit)
{
  const TrsTableConfig *table = &tables->table[t];

  return (PetscBool)(table->pooling != TRS_POOLING_NONE && !table->whole && !(limit && limit[t] > 0.0F));
}

/*
  True if the sharded tables can leave vectors in the memory in which they arrive, and read
  gradients there (TrsShardedEbcConfig). For this, each feature must have exactly one vector of its
  own.
*/
static PetscBool tables_leave_vectors(const TrsTableConfigs *tables, const float *limit)
{
  PetscBool leave = PETSC_TRUE;

  for (int t = 0; t < tables->n; t++)
    leave = (PetscBool)(leave && has_plain_vectors(tables, t, limit) &&
                        TrsTableOutputDType(&tables->table[t]) == TRS_FP32);
  return leave;
}

PetscErrorCode TrsModelParallelDescribeDense(TrsOptions options, const TrsTableConfigs *tables, int num_dense,
                                             TrsDenseFacts *facts)
{
  TrsSparseOptimizers optimizers;
  PetscBool reproducible, graphs, variable_batch;
  int64_t accumulate;
  int n, *dims;
  TrsDlrm dlrm;

  PetscFunctionBegin;
  PetscCall(describe_model(options, tables, &dlrm, &n, &dims));
  PetscCall(TrsDlrmCountParameters(dlrm, num_dense, n, dims, &facts->parameter_bytes));
  facts->parameter_bytes *= (int64_t)sizeof(float);
  PetscCall(TrsSparseOptimizersFromOptions(options, tables, &optimizers));
  PetscCall(TrsOptionsGetBool(options, "-reproducible", &reproducible, NULL));
  PetscCall(TrsOptionsGetInt(options, "-accumulate_steps", &accumulate, NULL));
  PetscCall(TrsOptionsGetBool(options, "-dense_graphs", &graphs, NULL));
  PetscCall(TrsOptionsGetBool(options, "-ebc_variable_batch", &variable_batch, NULL));
  facts->takes_vectors = (PetscBool)(!reproducible && accumulate <= 1 && !graphs && !variable_batch &&
                                     TrsDlrmMayTakeVectors(dlrm) &&
                                     tables_leave_vectors(tables, optimizers.max_gradient));
  PetscCall(TrsSparseOptimizersFree(&optimizers));
  PetscCall(TrsDlrmDestroy(&dlrm));
  PetscCall(PetscFree(dims));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Get the model's matrices for the vectors and their gradients. */
static PetscErrorCode find_features(TrsModelParallel m)
{
  PetscFunctionBegin;
  PetscCall(TrsModelFeatures(m->dlrm, m->config.tables, m->columns, m->position));
  PetscCall(TrsDlrmEmbeddings(m->dlrm, &m->pooled.rows, NULL));
  PetscCall(TrsDlrmEmbeddingGrads(m->dlrm, &m->grad.rows, NULL));
  m->kept_stride = m->pooled.rows.stride;
  m->pooled.columns = m->grad.columns = m->columns;
  m->pooled.place = m->grad.place = m->place;
  m->pooled.by_id = TrsRaggedRowsById(m->ragged, PETSC_FALSE);
  m->grad.by_id = TrsRaggedRowsById(m->ragged, PETSC_TRUE);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  For vectors in place: create a matrix for the vectors that cannot stay where they arrive, if there
  are any.
*/
static PetscErrorCode make_rows(TrsModelParallel m)
{
  const int64_t *columns;
  const int64_t width = TrsShardedEbcMatrixWidth(m->ebc, &columns);

  PetscFunctionBegin;
  if (!m->place) PetscFunctionReturn(PETSC_SUCCESS);
  if (width) PetscCall(TrsDlrmMakeRows(m->dlrm, width));
  PetscCall(TrsDlrmEmbeddings(m->dlrm, &m->pooled.rows, NULL));
  m->grad.rows = m->pooled.rows;
  m->pooled.columns = m->grad.columns = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if the sharded tables can work on a bf16 matrix of the model. All tables must support it,
  with every plan (TrsShardedEbcConfig). The parts of a table with id_map qr do not, because a
  kernel for floats joins them.
*/
static PetscBool tables_take_bf16(TrsModelParallel m, const TrsShardedEbcConfig *ebc)
{
  const TrsTableConfigs *tables = m->config.tables;
  PetscBool take = (PetscBool)(m->dense == &trs_dense_by_ranks && !ebc->variable_batch &&
                               !m->replicas.owners);

  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    const TrsDType output = TrsTableOutputDType(table);

    take = (PetscBool)(take && has_plain_vectors(tables, t, m->optimizers.max_gradient) &&
                       !table->max_feature_lengths && (output == TRS_FP32 || output == TRS_BF16));
  }
  return take;
}

static PetscErrorCode create_dense(TrsModelParallel m, TrsOptions options, const TrsShardedEbcConfig *ebc)
{
  const PetscBool reproducible = ebc->dist.reproducible;
  const TrsTableConfigs *tables = m->config.tables;
  int n_features = 0, n, *dims;
  PetscBool graphs; /* graphs keep the addresses of the vectors */

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(options, "-dense_graphs", &graphs, NULL));
  for (int t = 0; t < tables->n; t++) n_features += tables->table[t].n_features;
  PetscCall(PetscCalloc2((size_t)n_features, &m->columns, (size_t)n_features, &m->position));
  PetscCall(TrsDlrmCreate(m->config.device, m->config.compute, &m->dlrm));
  PetscCall(TrsDlrmSetFromOptions(m->dlrm, options));
  PetscCall(TrsModelInputs(m->dlrm, options, tables, &n, &dims));
  for (int v = 0; v < n; v++) m->n_columns += dims[v];
  PetscCall(
      TrsPairLossCreate(m->config.groups->world, options, m->dlrm, tables, m->config.seed, &m->pair_loss));
  for (int s = 0; s < TRS_SHARD_SLOTS; s++)
    PetscCall(TrsPinnedBufferReserve(m->config.device, &m->slot[s].loss,
                                     TrsDlrmTasks(m->dlrm)->n * (int64_t)sizeof(double)));
  if (!m->config.training) PetscCall(TrsDlrmSetForwardOnly(m->dlrm));
  if (reproducible) TrsDlrmSetOwnSums(m->dlrm);
  if (m->dense == &trs_dense_by_blocks) TrsDlrmSetRowsElsewhere(m->dlrm);
  if (tables_take_bf16(m, ebc)) TrsDlrmSetTypedRows(m->dlrm);
  if (m->dense == &trs_dense_by_ranks && !m->replicas.owners && !m->config.keeps_embeddings && !graphs &&
      tables_leave_vectors(tables, m->optimizers.max_gradient))
    TrsDlrmSetVectorsAnywhere(m->dlrm);
  PetscCall(TrsDlrmSetUp(m->dlrm, m->config.num_dense, n, dims, m->config.max_batch, m->config.seed));
  PetscCall(PetscFree(dims));
  if (TrsDlrmTakesVectors(m->dlrm)) PetscCall(PetscCalloc1((size_t)n_features, &m->place));
  PetscCall(TrsRaggedRowsCreate(m->config.device, m->config.compute, tables, m->config.training, &m->ragged));
  PetscCall(find_features(m));
  PetscCall(
      TrsSplitTablesCreate(m->config.device, m->config.compute, m->config.tables, m->columns, &m->split));
  if (m->dense == &trs_dense_by_blocks)
    PetscCall(TrsBlockwiseCreate(&(TrsBlockwiseConfig){.comm = m->config.groups->world,
                                                       .dlrm = m->dlrm,
                                                       .num_dense = m->config.num_dense,
                                                       .size = m->config.max_batch,
                                                       .pair_loss = m->pair_loss,
                                                       .ragged = m->ragged},
                                 &m->blockwise));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_dense_optimizer(TrsModelParallel m, TrsOptions options)
{
  const TrsDenseParameter *params;
  float *values;
  int64_t n_values, *first;
  int n;

  PetscFunctionBegin;
  PetscCall(TrsDlrmParameters(m->dlrm, &n, &params, &values, NULL, &n_values));
  PetscCall(TrsDenseOptimizerCreate(m->config.device, m->config.compute, &m->dense_optimizer));
  PetscCall(TrsDenseOptimizerSetFromOptions(m->dense_optimizer, options));
  PetscCall(PetscMalloc1((size_t)n, &first));
  for (int p = 0; p < n; p++) first[p] = params[p].value - values;
  PetscCall(TrsDenseOptimizerSetTensors(m->dense_optimizer, n, first));
  PetscCall(PetscFree(first));
  PetscCall(TrsDenseOptimizerSetUp(m->dense_optimizer, values, n_values));
  TrsDenseOptimizerSetOperands(m->dense_optimizer, TrsDlrmOperands(m->dlrm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_optimizers(TrsModelParallel m, TrsOptions options)
{
  float *grads;
  int64_t n_values;

  PetscFunctionBegin;
  PetscCall(create_dense_optimizer(m, options));
  PetscCall(TrsDlrmParameters(m->dlrm, NULL, NULL, NULL, &grads, &n_values));
  if (m->blockwise) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDenseAllreduceCreate(m->config.groups->dense, m->stream, grads, n_values, &m->allreduce));
  PetscCall(TrsDenseAllreduceSetFromOptions(m->allreduce, options));
  PetscCall(TrsDenseAllreduceSetUp(m->allreduce));
  PetscCall(TrsDlrmSetGradientReady(m->dlrm, m->graphs ? TrsStepGraphsReady : TrsDenseAllreduceReady,
                                    m->graphs ? (void *)m->graphs : m->allreduce));
  TrsStepGraphsSetAllreduce(m->graphs, m->allreduce);
  if (m->graphs) TrsDenseOptimizerSetNumbers(m->dense_optimizer, &TrsStepGraphsCurrent(m->graphs)->update);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_streams(TrsModelParallel m)
{
  const TrsDeviceOps *device = m->config.device;

  PetscFunctionBegin;
  PetscCall(device->stream_create("compute", &m->stream));
  PetscCall(device->stream_create("memcpy", &m->memcpy));
  PetscCall(device->stream_create("data_dist", &m->data_dist));
  PetscCall(device->stream_create("results", &m->results));
  PetscCall(device->stream_create("prefetch", &m->prefetch));
  PetscCall(m->config.compute->workspace_create(&m->assembly));
  PetscCall(device->event_create(&m->computed));
  PetscCall(device->event_create(&m->prefetched));
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    TrsModelSlot *slot = &m->slot[s];

    PetscCall(device->event_create(&slot->ready));
    PetscCall(device->event_create(&slot->sorted));
    PetscCall(device->event_create(&slot->loss_ready));
    PetscCall(TrsDeviceBatchCreate(device, &slot->copy));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_streams(TrsModelParallel m)
{
  const TrsDeviceOps *device = m->config.device;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    TrsModelSlot *slot = &m->slot[s];

    PetscCall(TrsDeviceBatchDestroy(device, &slot->copy));
    PetscCall(TrsPinnedBufferFree(device, &slot->loss));
    PetscCall(TrsPinnedBufferFree(device, &slot->predictions));
    PetscCall(TrsPinnedBufferFree(device, &slot->pooled));
    PetscCall(TrsPinnedBufferFree(device, &slot->pairs));
    PetscCall(device->event_destroy(&slot->ready));
    PetscCall(device->event_destroy(&slot->sorted));
    PetscCall(device->event_destroy(&slot->loss_ready));
  }
  PetscCall(device->event_destroy(&m->computed));
  PetscCall(device->event_destroy(&m->prefetched));
  PetscCall(m->config.compute->workspace_destroy(&m->assembly));
  PetscCall(device->stream_destroy(&m->prefetch));
  PetscCall(device->stream_destroy(&m->results));
  PetscCall(device->stream_destroy(&m->data_dist));
  PetscCall(device->stream_destroy(&m->memcpy));
  PetscCall(device->stream_destroy(&m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse options that cannot be combined with steps of several batches. */
static PetscErrorCode check_accumulation(TrsModelParallel m, TrsOptions options, PetscBool rounded)
{
  const TrsTableConfigs *tables = m->config.tables;

  PetscFunctionBegin;
  if (rounded)
    PetscCall(TrsOptionError(options, "-dense_allreduce_precision",
                             "-accumulate_steps sums the dense layers' gradients in fp32; leave one out"));
  for (int t = 0; t < tables->n; t++)
    if (tables->table[t].max_feature_lengths)
      PetscCall(TrsOptionError(options, "-accumulate_steps",
                               "does not go with the position_weighted table \"%s\": its weights' gradients "
                               "are summed where its rows are",
                               tables->table[t].name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose how the dense layers' work is distributed. By blocks, the layers' gradients keep full
  precision. The tiles of a pair loss have the size of a -reproducible block.
*/
static PetscErrorCode choose_dense_work(TrsModelParallel m, TrsOptions options, PetscBool reproducible)
{
  const PetscBool accumulates = (PetscBool)(m->config.accumulate > 1);
  int precision = TRS_CODEC_FP32, order, loss;
  int64_t algorithms;

  PetscFunctionBegin;
  m->dense = reproducible || accumulates ? &trs_dense_by_blocks : &trs_dense_by_ranks;
  PetscCall(TrsOptionsGetEnum(options, "-dense_allreduce_precision", &precision, NULL));
  if (reproducible && precision != TRS_CODEC_FP32)
    PetscCall(TrsShardedEbcRefuseRounded(options, "-dense_allreduce_precision"));
  PetscCall(TrsOptionsGetInt(options, "-dense_product_algorithms", &algorithms, NULL));
  if (reproducible && algorithms > 1)
    PetscCall(TrsOptionError(options, "-dense_product_algorithms",
                             "-reproducible needs the algorithm that a shape names, 1"));
  PetscCall(TrsOptionsGetEnum(options, "-dense_allreduce_order", &order, NULL));
  if (order && (reproducible || accumulates))
    PetscCall(TrsOptionError(options, "-dense_allreduce_order", "any order does not go with %s",
                             reproducible ? "-reproducible" : "-accumulate_steps"));
  if (accumulates) PetscCall(check_accumulation(m, options, (PetscBool)(precision != TRS_CODEC_FP32)));
  PetscCall(TrsOptionsGetEnum(options, "-loss", &loss, NULL));
  if (reproducible || (accumulates && loss != TRS_PAIR_LOSS_BCE)) m->config.max_batch = TRS_BLOCK_SAMPLES;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Create graphs of the dense layers' launches. Not used by blocks and for sequences, because their
  launches differ from step to step.
*/
static PetscErrorCode create_graphs(TrsModelParallel m, TrsOptions options, PetscBool reproducible)
{
  const TrsTableConfigs *tables = m->config.tables;
  PetscBool wanted;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(options, "-dense_graphs", &wanted, NULL));
  if (!wanted) PetscFunctionReturn(PETSC_SUCCESS);
  if (m->dense == &trs_dense_by_blocks)
    PetscCall(
        TrsOptionError(options, "-dense_graphs",
                       "does not go with %s: the launches of a block of samples are those of no other block",
                       reproducible ? "-reproducible" : "-accumulate_steps"));
  for (int t = 0; t < tables->n; t++)
    if (TrsTableIsSequenceLayer(&tables->table[t]))
      PetscCall(TrsOptionError(
          options, "-dense_graphs",
          "does not go with the sequence_pooling of table \"%s\": its layer has another number "
          "of rows in each step",
          tables->table[t].name));
  if (!m->config.device->capture_start)
    PetscCall(TrsOptionError(options, "-dense_graphs", "-device %s has no graphs; only cuda has",
                             m->config.device->name));
  PetscCall(TrsStepGraphsCreate(m->config.device, m->stream, &m->graphs));
  TrsDlrmSetNumbers(m->dlrm, &TrsStepGraphsCurrent(m->graphs)->batch);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Create the tables' optimizers. Without training, tables have no states. */
static PetscErrorCode create_sparse_optimizers(TrsModelParallel m, TrsOptions options)
{
  PetscFunctionBegin;
  PetscCall(TrsSparseOptimizersFromOptions(options, m->config.tables, &m->optimizers));
  for (int i = 0; i < m->optimizers.n; i++) {
    m->optimizers.args[i].seed = m->config.seed;
    if (!m->config.training) m->optimizers.args[i].kind = TRS_OPTIM_NONE;
  }
  PetscCall(TrsSparseOptimizersCheck(&m->optimizers, m->config.compute));
  PetscCall(PetscMalloc1((size_t)PetscMax(m->optimizers.n, 1), &m->step_args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Let all exchanges make progress after each dense layer. The rows that travel ahead are long under
  way, and messages are only sent and received in calls of MPI.
*/
static PetscErrorCode progress(void *comm)
{
  PetscFunctionBegin;
  PetscCall(TrsCommProgressRing((TrsComm)comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelCreate(TrsOptions options, const TrsModelParallelConfig *config,
                                      TrsModelParallel *model)
{
  TrsShardedEbcConfig ebc = {0};
  double average_decay;
  TrsModelParallel m;

  PetscFunctionBegin;
  PetscCall(PetscNew(&m));
  m->config = *config;
  m->global_batch = config->max_batch * PetscMax(config->accumulate, 1) * config->groups->world->size;
  PetscCall(create_sparse_optimizers(m, options));
  PetscCall(TrsReplicasFromOptions(options, config->owners, &m->replicas));
  PetscCall(TrsScheduleFromOptions(options, &m->schedule));
  PetscCall(TrsDenseAverageFromOptions(options, &average_decay));
  m->averaged = (PetscBool)(average_decay > 0.0 && !config->training);
  PetscCall(TrsShardedEbcConfigFromOptions(options, &ebc));
  PetscCall(choose_dense_work(m, options, ebc.dist.reproducible));
  PetscCall(create_streams(m));
  PetscCall(create_dense(m, options, &ebc));
  PetscCall(TrsProductTableFromOptions(options, config->groups->world->mpi, config->compute,
                                       ebc.dist.reproducible));
  PetscCall(create_graphs(m, options, ebc.dist.reproducible));
  if (config->quantised)
    PetscCall(TrsEmbeddingShardsCreateQuantised(config->device, config->tables, config->plan,
                                                config->shards->world->rank, &m->shards));
  else
    PetscCall(TrsEmbeddingShardsCreate(config->device, config->tables, config->plan,
                                       config->shards->world->rank, &m->optimizers, &m->shards));
  if (config->notes_changes) PetscCall(TrsChangesCreate(&m->shards, config->notes_changes, &m->changes));
  if (config->snapshot_bytes) PetscCall(TrsSnapshotCreate(&m->shards, config->snapshot_bytes, &m->snapshot));
  m->shards.shared_rowwise = ebc.dist.reproducible;
  m->shards.seed = config->seed;
  /* By blocks, the model has memory for only one block and lends none. */
  if (!m->blockwise) TrsDlrmLend(m->dlrm, &ebc.lent, &ebc.lent_bytes);
  ebc.columns = m->split ? TrsSplitTablesColumns(m->split) : m->columns;
  ebc.position = m->position;
  ebc.rows = m->pooled.rows.type;
  ebc.wire = config->compute->operand_type();
  ebc.in_place = (PetscBool)(m->place != NULL);
  ebc.ids_in_place = (PetscBool) !(config->training && config->evaluates);
  ebc.owners = m->replicas.exact ? m->replicas.owners : NULL;
  ebc.replicas = m->replicas.owners && !ebc.owners ? m->replicas.owners->size : 1;
  PetscCall(TrsShardedEbcCreate(config->shards, config->device, config->compute, config->tables, config->plan,
                                &m->shards, &ebc, &m->ebc));
  PetscCall(make_rows(m));
  if (TrsShardedEbcLooksAhead(m->ebc)) TrsDlrmSetBetweenLayers(m->dlrm, progress, config->groups->world);
  m->placed = TrsShardedEbcIsPlaced(m->ebc);
  m->next_slot = -1;
  m->updated = PETSC_TRUE; /* the tables will be filled first, which changes rows */
  m->sorts_ahead = (PetscBool)(config->training && config->compute->tbe_find_occurrences);
  m->sums_ahead = (PetscBool)(m->sorts_ahead && TrsShardedEbcSortsSums(m->ebc));
  if (config->training) PetscCall(create_optimizers(m, options));
  *model = m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelFillTables(TrsModelParallel model)
{
  PetscFunctionBegin;
  PetscCall(TrsEmbeddingShardsFill(&model->shards, model->config.seed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelDestroy(TrsModelParallel *model)
{
  TrsModelParallel m = *model;

  PetscFunctionBegin;
  if (!m) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsStepGraphsDestroy(&m->graphs));
  PetscCall(TrsDenseAllreduceDestroy(&m->allreduce));
  PetscCall(TrsDenseOptimizerDestroy(&m->dense_optimizer));
  PetscCall(TrsShardedEbcDestroy(&m->ebc));
  PetscCall(TrsChangesDestroy(&m->changes));
  PetscCall(TrsSnapshotDestroy(&m->snapshot));
  PetscCall(TrsEmbeddingShardsDestroy(&m->shards));
  PetscCall(TrsDlrmDestroy(&m->dlrm));
  PetscCall(TrsSplitTablesDestroy(&m->split));
  PetscCall(TrsBlockwiseDestroy(&m->blockwise));
  PetscCall(TrsPairLossDestroy(&m->pair_loss));
  PetscCall(TrsRaggedRowsDestroy(&m->ragged));
  PetscCall(TrsReplicasFree(&m->replicas));
  PetscCall(TrsScheduleFree(&m->schedule));
  PetscCall(TrsDeviceBufferFree(m->config.device, &m->widened));
  PetscCall(PetscFree2(m->columns, m->position));
  PetscCall(PetscFree(m->place));
  PetscCall(TrsSparseOptimizersFree(&m->optimizers));
  PetscCall(PetscFree(m->step_args));
  PetscCall(destroy_streams(m));
  PetscCall(PetscFree(*model));
  PetscFunctionReturn(PETSC_SUCCESS);
}
