/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/model_parallel.h"

#include "comm/qcomm.h"
#include "core/events.h"
#include "train/blockwise.h"
#include "train/device_batch.h"

#include <string.h>

static const TrsOptionSpec specs[] = {
    {"-reproducible", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "The same bits of losses and weights for every plan and number of ranks, given the global batch: "
     "tables' sums are "
     "made in one place in the batch's order, which costs exchanges; dense layers work on blocks of 64 "
     "samples. CPU, "
     "and exchanges in fp32"},
};
const TrsOptionGroup trs_model_parallel_options = TRS_OPTION_GROUP("Reproducibility", specs);

/* A batch between its input dist and the end of its backward. */
typedef struct {
  TrsDeviceBatch *copy;
  TrsEvent ready, done; /* its ids are at the shards; nothing uses them any more */
} TrsModelSlot;

/* Who does which part of the dense layers' work, and how their gradients are summed: chosen at set-up. */
typedef struct {
  /* Pooled rows to their samples, dense layers, loss. What the backward of a training batch may do at once it does. */
  PetscErrorCode (*forward)(TrsModelParallel m, int slot, const TrsBatch *batch, float scale, double *loss,
                            const float **predictions);
  /* Dense layers' backward, gradients of pooled rows to their shards, the tables' update; the layers' gradients are summed. */
  PetscErrorCode (*backward)(TrsModelParallel m, int slot, const TrsBatch *batch,
                             const TrsSparseOptimizerArgs *args);
} TrsDenseWork;

struct TrsModelParallelImpl {
  TrsModelParallelConfig config;
  TrsEmbeddingShards shards;
  TrsShardedEbc ebc;
  TrsDlrm dlrm;
  TrsDenseOptimizer dense_optimizer;
  TrsDenseAllreduce allreduce;
  TrsSparseOptimizers optimizers;
  TrsSparseOptimizerArgs *step_args; /* [optimizers.n] with a step's learning rates */
  TrsSchedule schedule;
  TrsPooledMatrix pooled, grad; /* the model's interaction input and its gradient */
  int64_t *columns;             /* [features] first of each one's in them */
  TrsPositionWeight *position;  /* [features] */
  int64_t n_columns;            /* embedding columns of the model's matrix: they are its last */
  TrsStream stream, memcpy, data_dist, results;
  TrsModelSlot slot[TRS_SHARD_SLOTS];
  TrsDeviceBatch copy[TRS_SHARD_SLOTS]; /* training batches in turn, and the last for evaluations */
  int next_copy;
  TrsEvent loss_ready;
  TrsPinnedBuffer loss, predictions; /* what comes back: one double, [B] */
  const TrsDenseWork *dense;
  TrsBlockwise blockwise; /* with -reproducible, else NULL */
};

static const TrsDenseWork dense_by_ranks, dense_by_blocks;

/* Position weights of the features that have them: dense parameters of the model. Before or after its set-up. */
static PetscErrorCode add_position_weights(TrsModelParallel m)
{
  const TrsTableConfigs *tables = m->config.tables;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    for (int k = 0; table->max_feature_lengths && k < table->n_features; k++)
      PetscCall(TrsDlrmAddPositionWeights(m->dlrm, table->features[k], table->max_feature_lengths[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Every feature's place in the model's matrix, and its position weights. */
static PetscErrorCode find_features(TrsModelParallel m)
{
  const TrsTableConfigs *tables = m->config.tables;
  const int64_t *columns;
  int n_positions = 0;

  PetscFunctionBegin;
  PetscCall(TrsDlrmEmbeddings(m->dlrm, &m->pooled.data, &m->pooled.stride, &columns));
  PetscCall(TrsDlrmEmbeddingGrads(m->dlrm, &m->grad.data, &m->grad.stride, NULL));
  m->pooled.columns = m->grad.columns = m->columns;
  for (int t = 0, f = 0, v = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    for (int k = 0; k < table->n_features; k++, f++, v += TrsTableVectors(table)) {
      m->columns[f] = columns[v];
      if (!table->max_feature_lengths) continue;
      m->position[f].length = table->max_feature_lengths[k];
      PetscCall(TrsDlrmPositionWeights(m->dlrm, n_positions++, &m->position[f].weight, &m->position[f].grad));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_dense(TrsModelParallel m, TrsOptions options)
{
  const TrsTableConfigs *tables = m->config.tables;
  int n_features = 0, n = 0, *dims;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    n_features += tables->table[t].n_features;
    n += tables->table[t].n_features * TrsTableVectors(&tables->table[t]);
  }
  PetscCall(PetscMalloc1((size_t)n, &dims));
  PetscCall(PetscCalloc2((size_t)n_features, &m->columns, (size_t)n_features, &m->position));
  for (int t = 0, v = 0; t < tables->n; t++)
    for (int k = 0; k < tables->table[t].n_features * TrsTableVectors(&tables->table[t]); k++, v++) {
      dims[v] = tables->table[t].embedding_dim;
      m->n_columns += dims[v];
    }
  PetscCall(TrsDlrmCreate(m->config.device, m->config.compute, &m->dlrm));
  PetscCall(TrsDlrmSetFromOptions(m->dlrm, options));
  if (!m->config.training) PetscCall(TrsDlrmSetForwardOnly(m->dlrm));
  PetscCall(add_position_weights(m));
  if (m->dense == &dense_by_blocks) m->config.max_batch = TRS_BLOCK_SAMPLES;
  PetscCall(TrsDlrmSetUp(m->dlrm, m->config.num_dense, n, dims, m->config.max_batch, m->config.seed));
  PetscCall(PetscFree(dims));
  PetscCall(find_features(m));
  if (m->dense == &dense_by_blocks)
    PetscCall(TrsBlockwiseCreate(m->config.groups->world, m->dlrm, m->config.num_dense, &m->blockwise));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_optimizers(TrsModelParallel m, TrsOptions options)
{
  float *values, *grads;
  int64_t n_values;

  PetscFunctionBegin;
  PetscCall(TrsDlrmParameters(m->dlrm, NULL, NULL, &values, &grads, &n_values));
  PetscCall(TrsDenseOptimizerCreate(m->config.device, m->config.compute, &m->dense_optimizer));
  PetscCall(TrsDenseOptimizerSetFromOptions(m->dense_optimizer, options));
  PetscCall(TrsDenseOptimizerSetUp(m->dense_optimizer, values, n_values));
  if (m->blockwise) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDenseAllreduceCreate(m->config.groups->dense, m->stream, grads, n_values, &m->allreduce));
  PetscCall(TrsDenseAllreduceSetFromOptions(m->allreduce, options));
  PetscCall(TrsDenseAllreduceSetUp(m->allreduce));
  PetscCall(TrsDlrmSetGradientReady(m->dlrm, TrsDenseAllreduceReady, m->allreduce));
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
  PetscCall(device->event_create(&m->loss_ready));
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    PetscCall(device->event_create(&m->slot[s].ready));
    PetscCall(device->event_create(&m->slot[s].done));
    PetscCall(TrsDeviceBatchCreate(device, &m->copy[s]));
  }
  PetscCall(TrsPinnedBufferReserve(device, &m->loss, (int64_t)sizeof(double)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_streams(TrsModelParallel m)
{
  const TrsDeviceOps *device = m->config.device;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    PetscCall(TrsDeviceBatchDestroy(device, &m->copy[s]));
    PetscCall(device->event_destroy(&m->slot[s].ready));
    PetscCall(device->event_destroy(&m->slot[s].done));
  }
  PetscCall(TrsPinnedBufferFree(device, &m->loss));
  PetscCall(TrsPinnedBufferFree(device, &m->predictions));
  PetscCall(device->event_destroy(&m->loss_ready));
  PetscCall(device->stream_destroy(&m->results));
  PetscCall(device->stream_destroy(&m->data_dist));
  PetscCall(device->stream_destroy(&m->memcpy));
  PetscCall(device->stream_destroy(&m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_reproducible(TrsModelParallel m, TrsOptions options, TrsPooledDistOptions *dist)
{
  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(options, "-reproducible", &dist->reproducible, NULL));
  m->dense = dist->reproducible ? &dense_by_blocks : &dense_by_ranks;
  if (!dist->reproducible) PetscFunctionReturn(PETSC_SUCCESS);
  if (!m->config.device->host_memory)
    PetscCall(TrsOptionError(options, "-reproducible", "only the CPU's kernels do it; use -device cpu"));
  if (dist->forward.kind != TRS_CODEC_FP32)
    PetscCall(TrsOptionError(options, "-qcomm_forward_precision",
                             "-reproducible needs fp32: what is rounded on the way depends on the plan"));
  if (dist->backward.kind != TRS_CODEC_FP32)
    PetscCall(TrsOptionError(options, "-qcomm_backward_precision",
                             "-reproducible needs fp32: what is rounded on the way depends on the plan"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Without training no table has states. */
static PetscErrorCode create_sparse_optimizers(TrsModelParallel m, TrsOptions options)
{
  PetscFunctionBegin;
  PetscCall(TrsSparseOptimizersFromOptions(options, m->config.tables, &m->optimizers));
  for (int i = 0; i < m->optimizers.n; i++) {
    m->optimizers.args[i].seed = m->config.seed;
    if (!m->config.training) m->optimizers.args[i].kind = TRS_OPTIM_NONE;
  }
  PetscCall(PetscMalloc1((size_t)PetscMax(m->optimizers.n, 1), &m->step_args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelCreate(TrsOptions options, const TrsModelParallelConfig *config,
                                      TrsModelParallel *model)
{
  TrsShardedEbcConfig ebc = {
      .dist.gradient_division = PETSC_FALSE}; /* the loss is scaled by 1/G at the source */
  TrsModelParallel m;

  PetscFunctionBegin;
  PetscCall(PetscNew(&m));
  m->config = *config;
  PetscCall(create_sparse_optimizers(m, options));
  PetscCall(TrsScheduleFromOptions(options, &m->schedule));
  PetscCall(TrsQcommFromOptions(options, &ebc.dist.forward, &ebc.dist.backward));
  PetscCall(TrsOptionsGetBool(options, "-ec_index_dedup", &ebc.index_dedup, NULL));
  PetscCall(TrsOptionsGetBool(options, "-ebc_variable_batch", &ebc.variable_batch, NULL));
  PetscCall(read_reproducible(m, options, &ebc.dist));
  PetscCall(create_streams(m));
  PetscCall(create_dense(m, options));
  if (config->quantised)
    PetscCall(TrsEmbeddingShardsCreateQuantised(config->device, config->tables, config->plan,
                                                config->groups->world->rank, &m->shards));
  else
    PetscCall(TrsEmbeddingShardsCreate(config->device, config->tables, config->plan,
                                       config->groups->world->rank, &m->optimizers, config->seed,
                                       &m->shards));
  m->shards.shared_rowwise = ebc.dist.reproducible;
  ebc.columns = m->columns;
  ebc.position = m->position;
  PetscCall(TrsShardedEbcCreate(config->groups, config->device, config->compute, config->tables, config->plan,
                                &m->shards, &ebc, &m->ebc));
  if (config->training) PetscCall(create_optimizers(m, options));
  *model = m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelDestroy(TrsModelParallel *model)
{
  TrsModelParallel m = *model;

  PetscFunctionBegin;
  if (!m) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDenseAllreduceDestroy(&m->allreduce));
  PetscCall(TrsDenseOptimizerDestroy(&m->dense_optimizer));
  PetscCall(TrsShardedEbcDestroy(&m->ebc));
  PetscCall(TrsEmbeddingShardsDestroy(&m->shards));
  PetscCall(TrsDlrmDestroy(&m->dlrm));
  PetscCall(TrsBlockwiseDestroy(&m->blockwise));
  PetscCall(TrsScheduleFree(&m->schedule));
  PetscCall(PetscFree2(m->columns, m->position));
  PetscCall(TrsSparseOptimizersFree(&m->optimizers));
  PetscCall(PetscFree(m->step_args));
  PetscCall(destroy_streams(m));
  PetscCall(PetscFree(*model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How io/ reaches tensors on the device: after what was started on the compute stream, which changes them. */
static PetscErrorCode alloc_stage(const void *model, int64_t bytes, void **host)
{
  PetscFunctionBegin;
  PetscCall(((const struct TrsModelParallelImpl *)model)->config.device->alloc_host(bytes, host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_stage(const void *model, void **host)
{
  PetscFunctionBegin;
  PetscCall(((const struct TrsModelParallelImpl *)model)->config.device->release_host(host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_stage(const void *model, void *to, const void *from, int64_t bytes)
{
  const struct TrsModelParallelImpl *m = (const struct TrsModelParallelImpl *)model;

  PetscFunctionBegin;
  PetscCall(m->config.device->copy(to, from, bytes, m->stream));
  PetscCall(m->config.device->stream_synchronize(m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Numbers of a checkpoint whose tables were of another type. */
static PetscErrorCode convert_numbers(int64_t n, TrsDType from, const void *source, TrsDType to, void *result)
{
  const TrsComputeOps *host;
  float *wide = NULL;

  PetscFunctionBegin;
  PetscCall(TrsComputeFind("cpu", &host));
  if (from != TRS_FP32 && to != TRS_FP32) { /* from one half to the other: by way of fp32, which holds both */
    PetscCall(TrsAlloc(n, sizeof(*wide), &wide));
    PetscCall(host->convert(NULL, n, from, source, TRS_FP32, wide));
    from = TRS_FP32;
    source = wide;
  }
  PetscCall(host->convert(NULL, n, from, source, to, result));
  PetscCall(TrsFree(&wide));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelAddState(TrsModelParallel m, TrsState *state)
{
  PetscFunctionBegin;
  state->convert = convert_numbers;
  if (!m->config.device->host_memory)
    state->memory = (TrsStateMemory){
        .context = m, .alloc = alloc_stage, .release = release_stage, .copy = copy_stage};
  PetscCall(TrsEmbeddingShardsAddState(&m->shards, state));
  PetscCall(TrsDlrmAddState(m->dlrm, state));
  if (m->dense_optimizer) PetscCall(TrsDlrmAddOptimizerState(m->dlrm, m->dense_optimizer, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsEmbeddingShards *TrsModelParallelShards(TrsModelParallel m)
{
  return &m->shards;
}

PetscErrorCode TrsModelParallelCopyStart(TrsModelParallel m, const TrsBatch *batch)
{
  TrsDeviceBatch *copy = &m->copy[m->next_copy];

  PetscFunctionBegin;
  if (m->config.device->host_memory) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(!copy->host, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "more than %d training batches on the device",
             TRS_TRAINING_SLOTS);
  PetscCall(TrsDeviceBatchCopy(m->config.device, m->memcpy, batch, m->config.num_dense, copy));
  m->next_copy = (m->next_copy + 1) % TRS_TRAINING_SLOTS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The slot's batch on the device: copied ahead, or now. */
static PetscErrorCode take_batch(TrsModelParallel m, int slot, const TrsBatch *batch)
{
  const PetscBool in_turn = (PetscBool)(slot < TRS_TRAINING_SLOTS && !m->config.device->host_memory);
  int i = in_turn ? 0 : slot;

  PetscFunctionBegin;
  if (in_turn) {
    while (i < TRS_TRAINING_SLOTS && m->copy[i].host != batch) i++;
    if (i == TRS_TRAINING_SLOTS) {
      i = m->next_copy;
      PetscCall(TrsModelParallelCopyStart(m, batch));
    }
  } else {
    PetscCall(TrsDeviceBatchCopy(m->config.device, m->memcpy, batch, m->config.num_dense, &m->copy[i]));
  }
  m->slot[slot].copy = &m->copy[i];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelInputDistStart(TrsModelParallel m, int slot, const TrsBatch *batch)
{
  const TrsDeviceOps *device = m->config.device;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_INPUT_DIST, &before));
  PetscCall(take_batch(m, slot, batch));
  PetscCall(device->stream_wait(m->data_dist, m->slot[slot].copy->copied));
  PetscCall(device->stream_wait(m->data_dist, m->slot[slot].done));
  PetscCall(TrsShardedEbcInputDistStart(m->ebc, slot, &m->slot[slot].copy->batch->kjt, m->data_dist));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelInputDistTensors(TrsModelParallel m, int slot)
{
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_INPUT_DIST, &before));
  PetscCall(TrsShardedEbcInputDistTensors(m->ebc, slot, m->data_dist));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelInputDistWait(TrsModelParallel m, int slot)
{
  const TrsDeviceOps *device = m->config.device;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_INPUT_DIST, &before));
  PetscCall(TrsShardedEbcInputDistWait(m->ebc, slot, m->data_dist));
  PetscCall(device->event_record(m->slot[slot].ready, m->data_dist));
  PetscCall(device->stream_wait(m->stream, m->slot[slot].ready));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Quantised tables' output_dtype: pooled vectors are rounded where they are whole, so that the plan does not change them. (TorchRec rounds the partial sums of
  row_wise shards.)
*/
static PetscErrorCode round_outputs(TrsModelParallel m, int64_t batch, const TrsPooledMatrix *pooled)
{
  const TrsTableConfigs *tables = m->config.tables;

  PetscFunctionBegin;
  for (int t = 0, f = 0; m->config.quantised && t < tables->n; f += tables->table[t++].n_features) {
    const TrsTableConfig *table = &tables->table[t];
    if (!table->constraints.has_output_dtype || table->constraints.output_dtype == TRS_FP32) continue;
    for (int k = f; k < f + table->n_features; k++)
      PetscCall(m->config.compute->round_matrix(
          m->stream, batch, (int64_t)table->embedding_dim * TrsTableVectors(table),
          table->constraints.output_dtype, pooled->data + pooled->columns[k], pooled->stride));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What was started so far is the last to use the slot and its batch. */
static PetscErrorCode release_slot(TrsModelParallel m, int slot)
{
  PetscFunctionBegin;
  PetscCall(m->config.device->event_record(m->slot[slot].done, m->stream));
  PetscCall(m->config.device->event_record(m->slot[slot].copy->used, m->stream));
  m->slot[slot].copy->host = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The probabilities to where the host can read them, once loss_ready is recorded behind this. */
static PetscErrorCode fetch_predictions(TrsModelParallel m, int64_t n, const float **predictions)
{
  const TrsDeviceOps *device = m->config.device;
  const int64_t bytes = n * (int64_t)sizeof(**predictions);

  PetscFunctionBegin;
  if (device->host_memory) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPinnedBufferReserve(device, &m->predictions, bytes));
  PetscCall(device->copy(m->predictions.data, *predictions, bytes, m->stream));
  *predictions = (const float *)m->predictions.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  -embedding_max_gradient acts on the pooled output's gradient, here where no plan has touched it yet (rule A9). Tables that follow each other
  with one limit are one matrix.
*/
static PetscErrorCode clamp_gradients(TrsModelParallel m, int64_t batch, const TrsPooledMatrix *grad)
{
  const TrsTableConfigs *tables = m->config.tables;
  const float *limit = m->optimizers.max_gradient;
  const int64_t *columns = grad->columns, end = columns[0] + m->n_columns;
  int n_features = 0;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) n_features += tables->table[t].n_features;
  for (int t = 0, f = 0; t < tables->n;) {
    const float most = limit[t];
    const int64_t from = columns[f];

    for (; t < tables->n && limit[t] == most; t++) f += tables->table[t].n_features;
    if (most > 0.0F)
      PetscCall(m->config.compute->clamp_matrix(m->stream, batch, (f < n_features ? columns[f] : end) - from,
                                                most, grad->data + from, grad->stride));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lookups and dense arch side by side. */
static PetscErrorCode forward_by_ranks(TrsModelParallel m, int slot, const TrsBatch *batch, float scale,
                                       double *loss, const float **predictions)
{
  PetscFunctionBegin;
  PetscCall(TrsShardedEbcForwardStart(m->ebc, slot, m->stream, &m->pooled));
  PetscCall(TrsStageSwitch(TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(TrsDlrmForwardDense(m->dlrm, m->stream, batch->batch, batch->dense));
  PetscCall(TrsStageSwitch(TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcForwardWait(m->ebc, slot, m->stream, &m->pooled));
  PetscCall(round_outputs(m, batch->batch, &m->pooled));
  PetscCall(TrsStageSwitch(TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(TrsDlrmForward(m->dlrm, m->stream, batch->batch, batch->labels, scale, loss, predictions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_by_ranks(TrsModelParallel m, int slot, const TrsBatch *batch,
                                        const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  PetscCall(TrsDlrmBackwardOver(m->dlrm, m->stream, batch->batch));
  PetscCall(clamp_gradients(m, batch->batch, &m->grad));
  PetscCall(TrsStageSwitch(TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcBackwardStart(m->ebc, slot, m->stream, &m->grad));
  PetscCall(TrsStageSwitch(TRS_STAGE_DENSE_BACKWARD, NULL));
  PetscCall(TrsDlrmBackwardDense(m->dlrm, m->stream, batch->batch, batch->dense));
  PetscCall(TrsStageSwitch(TRS_STAGE_EMBEDDING_BACKWARD, NULL));
  PetscCall(TrsShardedEbcBackwardUpdate(m->ebc, slot, m->stream, &m->grad, args));
  PetscCall(TrsDlrmPositionGradientsReady(m->dlrm));
  PetscCall(TrsStageSwitch(TRS_STAGE_OPTIMIZER, NULL));
  PetscCall(TrsDenseAllreduceWait(m->allreduce, m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_by_blocks(TrsModelParallel m, int slot, const TrsBatch *batch, float scale,
                                        double *loss, const float **predictions)
{
  const PetscBool training = (PetscBool)(m->config.training && slot < TRS_TRAINING_SLOTS);
  TrsPooledMatrix own = m->pooled;

  PetscFunctionBegin;
  PetscCall(TrsBlockwiseRows(m->blockwise, batch->batch, &own.data));
  PetscCall(TrsShardedEbcForwardStart(m->ebc, slot, m->stream, &own));
  PetscCall(TrsStageSwitch(TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcForwardWait(m->ebc, slot, m->stream, &own));
  PetscCall(round_outputs(m, batch->batch, &own));
  PetscCall(TrsStageSwitch(TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(TrsBlockwiseForward(m->blockwise, m->stream, batch, scale, training, loss, predictions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_by_blocks(TrsModelParallel m, int slot, const TrsBatch *batch,
                                         const TrsSparseOptimizerArgs *args)
{
  TrsPooledMatrix own = m->grad;
  float *grads;

  PetscFunctionBegin;
  PetscCall(TrsDlrmParameters(m->dlrm, NULL, NULL, NULL, &grads, NULL));
  PetscCall(TrsStageSwitch(TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsBlockwiseRowGradients(m->blockwise, m->stream, &own.data));
  PetscCall(clamp_gradients(m, batch->batch, &own));
  PetscCall(TrsShardedEbcBackwardStart(m->ebc, slot, m->stream, &own));
  PetscCall(TrsStageSwitch(TRS_STAGE_EMBEDDING_BACKWARD, NULL));
  PetscCall(TrsShardedEbcBackwardUpdate(m->ebc, slot, m->stream, &own, args));
  PetscCall(TrsStageSwitch(TRS_STAGE_OPTIMIZER, NULL));
  PetscCall(TrsBlockwiseGradients(m->blockwise, m->stream, grads));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const TrsDenseWork dense_by_ranks = {.forward = forward_by_ranks, .backward = backward_by_ranks};
static const TrsDenseWork dense_by_blocks = {.forward = forward_by_blocks, .backward = backward_by_blocks};

PetscErrorCode TrsModelParallelForward(TrsModelParallel m, int slot, const TrsBatch *batch, double *loss_sum,
                                       const float **predictions)
{
  const float scale = (float)(1.0 / (double)PetscMax(batch->global_batch, 1));
  double *sum = (double *)m->loss.data;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_LOOKUP, &before));
  *sum = 0;
  PetscCall(m->dense->forward(m, slot, m->slot[slot].copy->batch, scale, sum, predictions));
  if (predictions) PetscCall(fetch_predictions(m, batch->batch, predictions));
  PetscCall(m->config.device->event_record(m->loss_ready, m->stream));
  PetscCall(TrsCommProgress(m->config.groups->input));
  PetscCall(TrsStageSwitch(before, NULL));
  if (loss_sum) PetscCall(TrsModelParallelLoss(m, loss_sum));
  if (slot >= TRS_TRAINING_SLOTS) PetscCall(release_slot(m, slot));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelLoss(TrsModelParallel m, double *loss_sum)
{
  const TrsDeviceOps *device = m->config.device;

  PetscFunctionBegin;
  PetscCall(device->stream_wait(m->results, m->loss_ready));
  PetscCall(device->stream_synchronize(m->results));
  *loss_sum = *(const double *)m->loss.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsModelParallelIsAsynchronous(TrsModelParallel m)
{
  return (PetscBool)!m->config.device->host_memory;
}

PetscErrorCode TrsModelParallelBackward(TrsModelParallel m, int slot, const TrsBatch *batch, int64_t step)
{
  const double factor = TrsScheduleFactor(&m->schedule, step + 1);
  float *grads;
  TrsStage before;

  PetscFunctionBegin;
  (void)batch; /* the slot has it */
  for (int i = 0; i < m->optimizers.n; i++) {
    m->step_args[i] = m->optimizers.args[i];
    m->step_args[i].step = step + 1;
    m->step_args[i].learning_rate = (float)((double)m->optimizers.args[i].learning_rate * factor);
  }
  PetscCall(TrsDlrmParameters(m->dlrm, NULL, NULL, NULL, &grads, NULL));
  PetscCall(TrsStageSwitch(TRS_STAGE_DENSE_BACKWARD, &before));
  PetscCall(m->dense->backward(m, slot, m->slot[slot].copy->batch, m->step_args));
  PetscCall(TrsStageSwitch(TRS_STAGE_OPTIMIZER, NULL));
  PetscCall(TrsDenseOptimizerStep(m->dense_optimizer, m->stream, step + 1, factor, grads));
  PetscCall(release_slot(m, slot));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelEmbeddings(TrsModelParallel m, const float **pooled, const float **grads,
                                          int64_t *stride, int64_t *n_columns)
{
  PetscFunctionBegin;
  PetscCheck(
      !m->blockwise, PETSC_COMM_SELF, TRS_ERR_OPTION,
      "-reproducible keeps one block of the batch's embeddings at a time: leave it out to look at them all");
  *pooled = m->pooled.data + m->columns[0];
  *grads = m->grad.data + m->columns[0];
  *stride = m->pooled.stride;
  *n_columns = m->n_columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelBytes(TrsModelParallel m, int64_t *tables, int64_t *states, int64_t *dense)
{
  const char *names[TRS_DENSE_MAX_STATES];
  float *unused[TRS_DENSE_MAX_STATES];
  int64_t n_values;
  int n_states = 0;

  PetscFunctionBegin;
  TrsEmbeddingShardsBytes(&m->shards, tables, states);
  PetscCall(TrsDlrmParameters(m->dlrm, NULL, NULL, NULL, NULL, &n_values));
  if (m->dense_optimizer) PetscCall(TrsDenseOptimizerStates(m->dense_optimizer, &n_states, names, unused));
  *dense = n_values * (int64_t)sizeof(float) * (m->config.training ? 2 + n_states : 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelView(TrsModelParallel m, MPI_Comm comm)
{
  PetscFunctionBegin;
  PetscCall(TrsDlrmView(m->dlrm, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}
