/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/model_parallel.h"

#include "comm/qcomm.h"
#include "core/events.h"

struct TrsModelParallelImpl {
  TrsModelParallelConfig config;
  TrsEmbeddingShards shards;
  TrsShardedEbc ebc;
  TrsDlrm dlrm;
  TrsDenseOptimizer dense_optimizer;
  TrsDenseAllreduce allreduce;
  TrsSparseOptimizerConfig sparse;
  TrsSchedule schedule;
  TrsPooledMatrix pooled, grad; /* the model's interaction input and its gradient */
  int64_t n_columns;            /* embedding columns of the model's matrix: they are its last */
  TrsStream stream;             /* compute */
};

static PetscErrorCode create_dense(TrsModelParallel m, TrsOptions options)
{
  const TrsTableConfigs *tables = m->config.tables;
  int n = 0, *dims;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) n += tables->table[t].n_features;
  PetscCall(PetscMalloc1((size_t)n, &dims));
  for (int t = 0, f = 0; t < tables->n; t++)
    for (int k = 0; k < tables->table[t].n_features; k++, f++) {
      dims[f] = tables->table[t].embedding_dim;
      m->n_columns += dims[f];
    }
  PetscCall(TrsDlrmCreate(m->config.device, m->config.compute, &m->dlrm));
  PetscCall(TrsDlrmSetFromOptions(m->dlrm, options));
  PetscCall(TrsDlrmSetUp(m->dlrm, m->config.num_dense, n, dims, m->config.max_batch, m->config.seed));
  PetscCall(PetscFree(dims));
  PetscCall(TrsDlrmEmbeddings(m->dlrm, &m->pooled.data, &m->pooled.stride, &m->pooled.columns));
  PetscCall(TrsDlrmEmbeddingGrads(m->dlrm, &m->grad.data, &m->grad.stride, &m->grad.columns));
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
  PetscCall(TrsDenseAllreduceCreate(m->config.groups->dense, m->stream, grads, n_values, &m->allreduce));
  PetscCall(TrsDenseAllreduceSetFromOptions(m->allreduce, options));
  PetscCall(TrsDenseAllreduceSetUp(m->allreduce));
  PetscCall(TrsDlrmSetGradientReady(m->dlrm, TrsDenseAllreduceReady, m->allreduce));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelCreate(TrsOptions options, const TrsModelParallelConfig *config,
                                      TrsModelParallel *model)
{
  TrsPooledDistOptions dist = {
      .gradient_division = PETSC_FALSE}; /* the loss is scaled by 1/G at the source */
  TrsModelParallel m;

  PetscFunctionBegin;
  PetscCall(PetscNew(&m));
  m->config = *config;
  PetscCall(TrsSparseOptimizerFromOptions(options, &m->sparse));
  PetscCall(TrsScheduleFromOptions(options, &m->schedule));
  PetscCall(TrsQcommFromOptions(options, &dist.forward, &dist.backward));
  m->sparse.args.seed = config->seed;
  if (!config->training) m->sparse.args.kind = TRS_OPTIM_NONE;
  PetscCall(config->device->stream_create("compute", &m->stream));
  PetscCall(create_dense(m, options));
  PetscCall(TrsEmbeddingShardsCreate(config->device, config->compute, config->tables, config->plan,
                                     config->groups->world->rank, m->sparse.args.kind, config->seed,
                                     &m->shards));
  PetscCall(TrsShardedEbcCreate(config->groups, config->device, config->compute, config->tables, config->plan,
                                &m->shards, m->pooled.columns, &dist, &m->ebc));
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
  PetscCall(TrsScheduleFree(&m->schedule));
  PetscCall(m->config.device->stream_destroy(&m->stream));
  PetscCall(PetscFree(*model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelAddState(TrsModelParallel m, TrsState *state)
{
  PetscFunctionBegin;
  PetscCall(TrsEmbeddingShardsAddState(&m->shards, state));
  PetscCall(TrsDlrmAddState(m->dlrm, state));
  if (m->dense_optimizer) PetscCall(TrsDlrmAddOptimizerState(m->dlrm, m->dense_optimizer, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelInputDistStart(TrsModelParallel m, int slot, const TrsBatch *batch)
{
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_INPUT_DIST, &before));
  PetscCall(TrsShardedEbcInputDistStart(m->ebc, slot, &batch->kjt, m->stream));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelInputDistTensors(TrsModelParallel m, int slot)
{
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_INPUT_DIST, &before));
  PetscCall(TrsShardedEbcInputDistTensors(m->ebc, slot, m->stream));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelInputDistWait(TrsModelParallel m, int slot)
{
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_INPUT_DIST, &before));
  PetscCall(TrsShardedEbcInputDistWait(m->ebc, slot, m->stream));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelForward(TrsModelParallel m, int slot, const TrsBatch *batch, double *loss_sum,
                                       const float **predictions)
{
  const float scale = (float)(1.0 / (double)PetscMax(batch->global_batch, 1));
  double sum = 0;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_LOOKUP, &before));
  PetscCall(TrsShardedEbcForwardStart(m->ebc, slot, m->stream, &m->pooled));
  PetscCall(TrsStageSwitch(TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(TrsDlrmForwardDense(m->dlrm, m->stream, batch->batch, batch->dense));
  PetscCall(TrsStageSwitch(TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcForwardWait(m->ebc, slot, m->stream, &m->pooled));
  PetscCall(TrsStageSwitch(TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(TrsDlrmForward(m->dlrm, m->stream, batch->batch, batch->labels, scale, &sum, predictions));
  PetscCall(TrsCommProgress(m->config.groups->input));
  PetscCall(TrsStageSwitch(before, NULL));
  if (loss_sum) *loss_sum = sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -embedding_max_gradient acts on the pooled output's gradient, here where no plan has touched it yet (rule A9). */
static PetscErrorCode clamp_gradients(TrsModelParallel m, int64_t batch)
{
  PetscFunctionBegin;
  if (m->sparse.max_gradient <= 0.0F) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(m->config.compute->clamp_matrix(m->stream, batch, m->n_columns, m->sparse.max_gradient,
                                            m->grad.data + m->grad.columns[0], m->grad.stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelBackward(TrsModelParallel m, int slot, const TrsBatch *batch, int64_t step)
{
  const double factor = TrsScheduleFactor(&m->schedule, step + 1);
  TrsSparseOptimizerArgs args = m->sparse.args;
  float *grads;
  TrsStage before;

  PetscFunctionBegin;
  args.step = step + 1;
  args.learning_rate = (float)((double)args.learning_rate * factor);
  PetscCall(TrsStageSwitch(TRS_STAGE_DENSE_BACKWARD, &before));
  PetscCall(TrsDlrmBackwardOver(m->dlrm, m->stream, batch->batch));
  PetscCall(clamp_gradients(m, batch->batch));
  PetscCall(TrsStageSwitch(TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcBackwardStart(m->ebc, slot, m->stream, &m->grad));
  PetscCall(TrsStageSwitch(TRS_STAGE_DENSE_BACKWARD, NULL));
  PetscCall(TrsDlrmBackwardDense(m->dlrm, m->stream, batch->batch, batch->dense));
  PetscCall(TrsStageSwitch(TRS_STAGE_EMBEDDING_BACKWARD, NULL));
  PetscCall(TrsShardedEbcBackwardUpdate(m->ebc, slot, m->stream, &m->grad, &args));
  PetscCall(TrsStageSwitch(TRS_STAGE_OPTIMIZER, NULL));
  PetscCall(TrsDenseAllreduceWait(m->allreduce, m->stream));
  PetscCall(TrsDlrmParameters(m->dlrm, NULL, NULL, NULL, &grads, NULL));
  PetscCall(TrsDenseOptimizerStep(m->dense_optimizer, m->stream, step + 1, factor, grads));
  PetscCall(TrsStageSwitch(before, NULL));
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
  *dense = n_values * (int64_t)sizeof(float) * (2 + n_states);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelView(TrsModelParallel m, MPI_Comm comm)
{
  PetscFunctionBegin;
  PetscCall(TrsDlrmView(m->dlrm, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}
