/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/names.h"
#include "train/impl.h"

#include <string.h>

const TrsEmbeddingShards *TrsModelParallelShards(TrsModelParallel m)
{
  return &m->shards;
}

PetscErrorCode TrsModelParallelCopyStart(TrsModelParallel m, int slot, const TrsBatch *batch)
{
  TrsDeviceBatch *copy = &m->slot[slot].copy;

  PetscFunctionBegin;
  if (m->config.device->host_memory) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(!copy->host, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "two batches in slot %d", slot);
  PetscCall(TrsDeviceBatchCopy(m->config.device, m->config.compute, m->memcpy, m->assembly, batch, copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelInputDistStart(TrsModelParallel m, int slot, const TrsBatch *batch)
{
  const TrsDeviceOps *device = m->config.device;
  TrsDeviceBatch *copy = &m->slot[slot].copy;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_INPUT_DIST, &before));
  if (copy->host != batch)
    PetscCall(TrsDeviceBatchCopy(device, m->config.compute, m->memcpy, m->assembly, batch, copy));
  /* The copy itself has already waited until the slot was unused. */
  PetscCall(device->stream_wait(m->data_dist, copy->copied));
  PetscCall(TrsTimelineMark(TRS_TRACE_DATA_DIST, m->data_dist, TRS_STAGE_INPUT_DIST));
  PetscCall(TrsShardedEbcInputDistStart(m->ebc, slot, &copy->batch->kjt, m->data_dist));
  PetscCall(TrsTimelineMark(TRS_TRACE_DATA_DIST, m->data_dist, TRS_STAGE_NONE));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelInputDistTensors(TrsModelParallel m, int slot)
{
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_INPUT_DIST, &before));
  PetscCall(TrsTimelineMark(TRS_TRACE_DATA_DIST, m->data_dist, TRS_STAGE_INPUT_DIST));
  PetscCall(TrsShardedEbcInputDistTensors(m->ebc, slot, m->data_dist));
  PetscCall(TrsTimelineMark(TRS_TRACE_DATA_DIST, m->data_dist, TRS_STAGE_NONE));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Sort the ids of a training batch for its update. This overlaps with the work of earlier batches.
  Only the batch's own update waits for it.
*/
static PetscErrorCode sort_ahead(TrsModelParallel m, int slot)
{
  const TrsDeviceOps *device = m->config.device;

  PetscFunctionBegin;
  if (!m->sorts_ahead || slot >= TRS_TRAINING_SLOTS) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(device->stream_wait(m->prefetch, m->slot[slot].ready));
  PetscCall(TrsTimelineMark(TRS_TRACE_PREFETCH, m->prefetch, TRS_STAGE_EMBEDDING_BACKWARD));
  PetscCall(TrsShardedEbcSort(m->ebc, slot, m->prefetch));
  PetscCall(TrsTimelineMark(TRS_TRACE_PREFETCH, m->prefetch, TRS_STAGE_NONE));
  PetscCall(device->event_record(m->slot[slot].sorted, m->prefetch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelInputDistWait(TrsModelParallel m, int slot)
{
  const TrsDeviceOps *device = m->config.device;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_INPUT_DIST, &before));
  PetscCall(TrsTimelineMark(TRS_TRACE_DATA_DIST, m->data_dist, TRS_STAGE_INPUT_DIST));
  PetscCall(TrsShardedEbcInputDistWait(m->ebc, slot, m->data_dist));
  PetscCall(TrsTimelineMark(TRS_TRACE_DATA_DIST, m->data_dist, TRS_STAGE_NONE));
  PetscCall(device->event_record(m->slot[slot].ready, m->data_dist));
  PetscCall(device->stream_wait(m->stream, m->slot[slot].ready));
  PetscCall(sort_ahead(m, slot));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  This work runs after the last update and all work that was started after it. The cache lines of
  batches in flight stay in the caches. Other rows may move, but do not change. An evaluation
  updates nothing, so its prefetch does not wait for a forward.
*/
PetscErrorCode TrsModelParallelPrefetch(TrsModelParallel m, int slot)
{
  const TrsDeviceOps *device = m->config.device;

  PetscFunctionBegin;
  if (!m->placed) PetscFunctionReturn(PETSC_SUCCESS);
  if (slot < TRS_TRAINING_SLOTS || m->updated) {
    PetscCall(device->event_record(m->computed, m->stream));
    PetscCall(device->stream_wait(m->prefetch, m->computed));
    m->updated = PETSC_FALSE;
  }
  PetscCall(device->stream_wait(m->prefetch, m->slot[slot].ready));
  PetscCall(TrsTimelineMark(TRS_TRACE_PREFETCH, m->prefetch, TRS_STAGE_CACHE));
  PetscCall(TrsShardedEbcPrefetch(m->ebc, slot, m->prefetch));
  PetscCall(TrsTimelineMark(TRS_TRACE_PREFETCH, m->prefetch, TRS_STAGE_NONE));
  PetscCall(device->event_record(m->prefetched, m->prefetch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsModelParallelLooksAhead(TrsModelParallel m)
{
  return TrsShardedEbcLooksAhead(m->ebc);
}

void TrsModelParallelLookAhead(TrsModelParallel m, int next)
{
  m->next_slot = next;
}

PetscErrorCode TrsModelParallelCancelAhead(TrsModelParallel m)
{
  PetscFunctionBegin;
  PetscCall(TrsShardedEbcCancelAhead(m->ebc, m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelLookAheadView(TrsModelParallel m, MPI_Comm comm)
{
  PetscFunctionBegin;
  PetscCall(TrsShardedEbcLookAheadView(m->ebc, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelTellAhead(TrsModelParallel m, int slot)
{
  TrsStage before;

  PetscFunctionBegin;
  if (m->next_slot < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsModelParallelInputDistWait(m, m->next_slot));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_LOOKUP, &before));
  PetscCall(TrsShardedEbcLookAhead(m->ebc, slot, m->next_slot, m->stream));
  PetscCall(TrsModelParallelEnter(m, before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelSendAhead(TrsModelParallel m)
{
  TrsStage before;

  PetscFunctionBegin;
  if (m->next_slot < 0) PetscFunctionReturn(PETSC_SUCCESS);
  m->next_slot = -1;
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_LOOKUP, &before));
  PetscCall(TrsShardedEbcSendAhead(m->ebc, m->stream));
  PetscCall(TrsModelParallelEnter(m, before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelUpdateTables(TrsModelParallel m, int slot, const TrsPooledMatrix *grad,
                                            const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  if (m->placed) PetscCall(m->config.device->stream_wait(m->stream, m->prefetched));
  if (m->sorts_ahead) PetscCall(m->config.device->stream_wait(m->stream, m->slot[slot].sorted));
  PetscCall(TrsShardedEbcBackwardUpdate(m->ebc, slot, m->stream, grad, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Record that the work started so far is the last use of the slot and its batch. */
static PetscErrorCode release_slot(TrsModelParallel m, int slot)
{
  PetscFunctionBegin;
  PetscCall(m->config.device->event_record(m->slot[slot].copy.used, m->stream));
  m->slot[slot].copy.host = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Copy the predictions to host memory. They are valid after loss_ready, which is recorded after the
  copy.
*/
static PetscErrorCode fetch_predictions(TrsModelParallel m, int slot, int64_t n, const float **predictions)
{
  const TrsDeviceOps *device = m->config.device;
  const int64_t bytes = n * TrsDlrmTasks(m->dlrm)->columns * (int64_t)sizeof(**predictions);
  TrsPinnedBuffer *host = &m->slot[slot].predictions;

  PetscFunctionBegin;
  if (device->host_memory) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPinnedBufferReserve(device, host, bytes));
  PetscCall(device->copy(host->data, *predictions, bytes, m->stream));
  *predictions = (const float *)host->data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelEnter(TrsModelParallel m, TrsStage stage, TrsStage *before)
{
  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(stage, before));
  PetscCall(TrsTimelineMark(TRS_TRACE_COMPUTE, m->stream, (int)stage));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute 1 / (sum of the global batch's weights). The result is 0 if all weights are 0. It is also
  0 if no gradient is needed and the weights were not summed.
*/
static float loss_scale(const TrsBatch *batch)
{
  const double sum = batch->weights ? batch->weight_sum : (double)PetscMax(batch->global_batch, 1);

  return sum > 0.0 ? (float)(1.0 / sum) : sum == 0.0 ? 0.0f : NAN;
}

PetscErrorCode TrsModelParallelForward(TrsModelParallel m, int slot, const TrsBatch *batch,
                                       const float **predictions)
{
  const float scale = loss_scale(batch);
  TrsModelSlot *s = &m->slot[slot];
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_LOOKUP, &before));
  memset(s->loss.data, 0, (size_t)TrsDlrmTasks(m->dlrm)->n * sizeof(double));
  if (m->placed) PetscCall(m->config.device->stream_wait(m->stream, m->prefetched));
  if (!m->operands_written) PetscCall(TrsDlrmRefresh(m->dlrm, m->stream));
  PetscCall(m->dense->forward(m, slot, s->copy.batch, scale, predictions));
  if (predictions) PetscCall(fetch_predictions(m, slot, batch->batch, predictions));
  PetscCall(m->config.device->event_record(s->loss_ready, m->stream));
  PetscCall(TrsTimelineMark(TRS_TRACE_COMPUTE, m->stream, TRS_STAGE_NONE));
  PetscCall(TrsCommProgress(m->config.groups->input));
  PetscCall(TrsStageSwitch(before, NULL));
  if (slot >= TRS_TRAINING_SLOTS) PetscCall(release_slot(m, slot));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsModelParallelLossParts(TrsModelParallel m, int64_t *n, const double **losses)
{
  if (m->blockwise) TrsBlockwiseLosses(m->blockwise, n, losses);
}

PetscErrorCode TrsModelParallelLosses(TrsModelParallel m, int slot, double *losses)
{
  const TrsDeviceOps *device = m->config.device;
  const int n_tasks = TrsDlrmTasks(m->dlrm)->n;
  const double *parts = (const double *)m->slot[slot].loss.data;
  int64_t n = 1;

  PetscFunctionBegin;
  PetscCall(device->stream_wait(m->results, m->slot[slot].loss_ready));
  PetscCall(device->stream_synchronize(m->results));
  TrsModelParallelLossParts(m, &n, &parts);
  for (int t = 0; t < n_tasks; t++) losses[t] = 0.0;
  for (int64_t i = 0; i < n * n_tasks; i++) losses[i % n_tasks] += parts[i];
  /* release the slot's cache lines, because its forward is over */
  if (slot >= TRS_TRAINING_SLOTS && m->placed) {
    PetscCall(TrsShardedEbcEvaluated(m->ebc, slot, m->prefetch));
    /* Recorded here, so that the event also covers the release of the lines. */
    PetscCall(device->event_record(m->prefetched, m->prefetch));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsTaskConfigs *TrsModelParallelTasks(TrsModelParallel m)
{
  return TrsDlrmTasks(m->dlrm);
}

PetscBool TrsModelParallelIsAsynchronous(TrsModelParallel m)
{
  return (PetscBool)!m->config.device->host_memory;
}

PetscBool TrsModelParallelForwardsAhead(TrsModelParallel m)
{
  return (PetscBool)(TrsModelParallelIsAsynchronous(m) && !m->blockwise);
}

PetscBool TrsModelParallelGivesRows(TrsModelParallel m)
{
  for (int t = 0; t < m->config.tables->n; t++)
    if (TrsPlacementTreats(&m->shards, t, PETSC_TRUE)) return PETSC_TRUE;
  return PETSC_FALSE;
}

/* The arguments for a step of the dense optimizer. */
typedef struct {
  TrsModelParallel m;
  int64_t step; /* index of the step, counted from 1 */
  double factor;
} TrsOptimizerPart;

static PetscErrorCode optimizer_part(void *context)
{
  const TrsOptimizerPart *part = (const TrsOptimizerPart *)context;
  TrsModelParallel m = part->m;
  float *grads;

  PetscFunctionBegin;
  PetscCall(TrsDlrmParameters(m->dlrm, NULL, NULL, NULL, &grads, NULL));
  PetscCall(TrsDenseOptimizerStep(m->dense_optimizer, m->stream, part->step, part->factor, grads));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode step_optimizer(TrsModelParallel m, int slot, int64_t step, double factor)
{
  TrsStepNumbers *numbers = TrsStepGraphsNumbers(m->graphs, slot);
  TrsOptimizerPart part = {.m = m, .step = step, .factor = factor};

  PetscFunctionBegin;
  if (numbers) numbers->update = TrsDenseOptimizerNumbers(m->dense_optimizer, step, factor);
  PetscCall(TrsStepGraphsRun(m->graphs, slot, TRS_PART_OPTIMIZER, &(TrsStepArguments){.n = 0}, optimizer_part,
                             &part));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelBackward(TrsModelParallel m, int slot, const TrsBatch *batch, int64_t step)
{
  const double factor = TrsScheduleFactor(&m->schedule, step + 1);
  TrsStage before;

  PetscFunctionBegin;
  (void)batch; /* unused, because the slot has the batch */
  for (int i = 0; i < m->optimizers.n; i++) {
    m->step_args[i] = m->optimizers.args[i];
    m->step_args[i].step = step + 1 - m->states_from[TRS_STATES_TABLES];
    m->step_args[i].learning_rate = (float)((double)m->optimizers.args[i].learning_rate * factor);
  }
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_DENSE_BACKWARD, &before));
  PetscCall(m->dense->backward(m, slot, m->slot[slot].copy.batch, m->step_args));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OPTIMIZER, NULL));
  PetscCall(step_optimizer(m, slot, step + 1 - m->states_from[TRS_STATES_DENSE], factor));
  PetscCall(TrsTimelineMark(TRS_TRACE_COMPUTE, m->stream, TRS_STAGE_NONE));
  PetscCall(release_slot(m, slot));
  m->updated = m->operands_written = PETSC_TRUE;
  m->replicas.differ = (PetscBool)!m->replicas.exact;
  if ((step + 1) % m->replicas.every == 0) PetscCall(TrsModelParallelSynchronise(m));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsModelParallelNextMean(TrsModelParallel m, int64_t updates)
{
  const int64_t every = m->replicas.every, past = updates % every;

  return m->replicas.owners && m->replicas.differ && past ? updates + (every - past) : updates;
}

PetscErrorCode TrsModelParallelSynchronise(TrsModelParallel m)
{
  PetscFunctionBegin;
  if (m->replicas.owners && m->replicas.differ) {
    if (m->placed) PetscCall(m->config.device->stream_wait(m->stream, m->prefetched));
    PetscCall(TrsShardedEbcSettle(m->ebc, m->stream, PETSC_TRUE));
    m->updated = PETSC_TRUE;
  }
  PetscCall(TrsReplicasAverage(&m->replicas, &m->shards, m->stream));
  if (m->dense_optimizer) PetscCall(TrsDenseOptimizerFillAverage(m->dense_optimizer, m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelEmbeddings(TrsModelParallel m, const float **pooled, const float **grads,
                                          int64_t *stride, int64_t *n_columns)
{
  PetscFunctionBegin;
  PetscCheck(
      !m->blockwise, PETSC_COMM_SELF, TRS_ERR_OPTION,
      "-reproducible and -accumulate_steps keep one part of the batch's embeddings at a time: leave them out "
      "to look at them all");
  PetscCheck(m->pooled.rows.type == TRS_FP32 && !m->place, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "embeddings of %s that are not kept", TrsDTypeName(m->pooled.rows.type));
  *pooled = TrsPooledFloats(&m->pooled, m->columns[0]);
  *grads = TrsPooledFloats(&m->grad, m->columns[0]);
  *stride = m->pooled.rows.stride;
  *n_columns = m->n_columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelKeepPooled(TrsModelParallel m)
{
  PetscFunctionBegin;
  m->keeps_pooled = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelPooled(TrsModelParallel m, const TrsBatch *batch, int feature,
                                      const float **rows, int64_t *stride)
{
  int s = 0;

  PetscFunctionBegin;
  while (s < TRS_SHARD_SLOTS && m->slot[s].pooled_of != batch) s++;
  PetscCheck(s < TRS_SHARD_SLOTS, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "no pooled rows of this batch are kept");
  *rows = (const float *)m->slot[s].pooled.data + m->columns[feature];
  *stride = m->kept_stride;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsModelParallelPairWidth(TrsModelParallel m)
{
  return TrsDlrmPairs(m->dlrm).width;
}

PetscErrorCode TrsModelParallelKeepPairs(TrsModelParallel m)
{
  PetscFunctionBegin;
  m->keeps_pairs = PETSC_TRUE;
  if (m->blockwise) TrsBlockwiseKeepPairs(m->blockwise);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelPairs(TrsModelParallel m, const TrsBatch *batch, const float **rows)
{
  int s = 0;

  PetscFunctionBegin;
  while (s < TRS_SHARD_SLOTS && m->slot[s].pairs_of != batch) s++;
  PetscCheck(s < TRS_SHARD_SLOTS, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "no pairs of this batch are kept");
  *rows = (const float *)m->slot[s].pairs.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelBytes(TrsModelParallel m, int64_t *tables, int64_t *states, int64_t *dense)
{
  const char *names[TRS_DENSE_MAX_STATES];
  float *unused[TRS_DENSE_MAX_STATES];
  int64_t n_values;
  int n_states = 0, averages = 0;

  PetscFunctionBegin;
  TrsEmbeddingShardsBytes(&m->shards, tables, states);
  PetscCall(TrsDlrmParameters(m->dlrm, NULL, NULL, NULL, NULL, &n_values));
  if (m->dense_optimizer) PetscCall(TrsDenseOptimizerStates(m->dense_optimizer, &n_states, names, unused));
  for (int i = 0; i < n_states; i++) averages += strcmp(names[i], TRS_DENSE_AVERAGE) == 0;
  /* The average also needs a buffer, which swaps it with the weights. */
  *dense = n_values * (int64_t)sizeof(float) * (m->config.training ? 2 + n_states + averages : 1);
  /* and a copy of the weights in the operands' type */
  if (m->config.compute->operand_type() != TRS_FP32)
    *dense += n_values * TrsDTypeBytes(m->config.compute->operand_type());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelHostBytes(TrsModelParallel m, int64_t *host_rows, int64_t *caches)
{
  PetscFunctionBegin;
  *host_rows = TrsEmbeddingShardsHostBytes(&m->shards);
  *caches = 0;
  for (int i = 0; i < TrsModelParallelCaches(m); i++) {
    TrsRowCacheInfo info;

    PetscCall(TrsModelParallelCacheInfo(m, i, &info));
    *caches += info.bytes;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsModelParallelCaches(TrsModelParallel m)
{
  return TrsShardedEbcCaches(m->ebc);
}

PetscErrorCode TrsModelParallelCacheInfo(TrsModelParallel m, int i, TrsRowCacheInfo *info)
{
  PetscFunctionBegin;
  PetscCall(m->config.device->stream_wait(m->stream, m->prefetched));
  PetscCall(TrsShardedEbcCacheInfo(m->ebc, i, m->stream, info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelSwapAverage(TrsModelParallel m)
{
  PetscFunctionBegin;
  m->operands_written = PETSC_FALSE;
  if (m->dense_optimizer) PetscCall(TrsDenseOptimizerSwapAverage(m->dense_optimizer, m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsDlrmWork TrsModelParallelWork(TrsModelParallel model)
{
  return TrsDlrmWorkOf(model->dlrm);
}

PetscErrorCode TrsModelParallelView(TrsModelParallel m, MPI_Comm comm)
{
  PetscFunctionBegin;
  PetscCall(TrsDlrmView(m->dlrm, comm));
  PetscCall(TrsPairLossView(m->pair_loss, m->global_batch, comm));
  if (m->replicas.owners && m->replicas.exact)
    PetscCall(PetscPrintf(comm, "%-10s %d copies of the tables, with the same updates\n", "replicas",
                          m->replicas.owners->size));
  else if (m->replicas.owners)
    PetscCall(PetscPrintf(comm, "%-10s %d copies of the tables, averaged every %" PRId64 " step%s\n",
                          "replicas", m->replicas.owners->size, m->replicas.every,
                          TrsPlural(m->replicas.every, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}
