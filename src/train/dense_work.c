/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/impl.h"

/* Copy vectors from their addresses to a matrix of floats. */
static PetscErrorCode widen_places(TrsModelParallel m, int64_t batch, TrsMatrix to)
{
  const TrsTableConfigs *tables = m->config.tables;
  TrsColumnCopy *copy;
  int n = 0;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) n += tables->table[t].n_features;
  PetscCall(PetscMalloc1((size_t)n, &copy));
  for (int t = 0, f = 0; t < tables->n; t++)
    for (int end = f + tables->table[t].n_features; f < end; f++)
      copy[f] = (TrsColumnCopy){
          .from = {.type = m->pooled.rows.type, .stride = m->place[f].stride, .data = m->place[f].data},
          .to = TrsMatrixColumns(to, m->columns[f]),
          .cols = tables->table[t].embedding_dim};
  PetscCall(m->config.compute->copy_columns(m->stream, batch, n, copy));
  PetscCall(PetscFree(copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If pooled rows are kept, copy those of this rank's samples to the host. They are valid after
  loss_ready, which is recorded after the forward. If another slot has rows of the same batch, they
  become invalid.
*/
static PetscErrorCode keep_pooled(TrsModelParallel m, int slot, int64_t batch, const TrsPooledMatrix *pooled)
{
  const int64_t stride = m->kept_stride, bytes = batch * stride * (int64_t)sizeof(float);
  const void *rows = pooled->rows.data;
  const TrsBatch *host = m->slot[slot].copy.host;
  TrsModelSlot *s = &m->slot[slot];

  PetscFunctionBegin;
  if (!m->keeps_pooled) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < TRS_SHARD_SLOTS; i++)
    if (m->slot[i].pooled_of == host) m->slot[i].pooled_of = NULL;
  s->pooled_of = host;
  PetscCall(TrsPinnedBufferReserve(m->config.device, &s->pooled, bytes));
  if (bytes && (m->place || pooled->rows.type != TRS_FP32)) {
    TrsMatrix wide;

    PetscCall(TrsDeviceBufferReserve(m->config.device, &m->widened, bytes));
    wide = TrsFloats((const float *)m->widened.data, stride);
    if (m->place)
      PetscCall(widen_places(m, batch, wide));
    else
      PetscCall(m->config.compute->convert_matrix(m->stream, batch, stride, stride, pooled->rows, wide));
    rows = m->widened.data;
  }
  if (bytes) PetscCall(m->config.device->copy(s->pooled.data, rows, bytes, m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If the towers' outputs are kept, copy those of this rank's samples to the host, like
  keep_pooled().
*/
static PetscErrorCode keep_pairs(TrsModelParallel m, int slot, int64_t batch, const float *out)
{
  const int64_t bytes = batch * TrsDlrmPairs(m->dlrm).stride * (int64_t)sizeof(float);
  const TrsBatch *host = m->slot[slot].copy.host;
  TrsModelSlot *s = &m->slot[slot];

  PetscFunctionBegin;
  if (!m->keeps_pairs) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < TRS_SHARD_SLOTS; i++)
    if (m->slot[i].pairs_of == host) m->slot[i].pairs_of = NULL;
  s->pairs_of = host;
  PetscCall(TrsPinnedBufferReserve(m->config.device, &s->pairs, bytes));
  if (bytes) PetscCall(m->config.device->copy(s->pairs.data, out, bytes, m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Get the matrix in which the pooled vectors of n samples arrive. It is the model's matrix, unless a
  table is split.
*/
static PetscErrorCode arrival(TrsModelParallel m, int64_t n, const TrsPooledMatrix *model,
                              TrsPooledMatrix *arrived)
{
  PetscFunctionBegin;
  *arrived = *model;
  if (m->split) PetscCall(TrsSplitTablesRows(m->split, n, arrived));
  arrived->by_id = model->by_id;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute the model's vectors of a batch from the vectors that arrived. */
static PetscErrorCode finish_vectors(TrsModelParallel m, int slot, int64_t n, const TrsPooledMatrix *model)
{
  PetscFunctionBegin;
  if (m->split) PetscCall(TrsSplitTablesForward(m->split, m->stream, n, model));
  PetscCall(keep_pooled(m, slot, n, model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute the gradients of the vectors that arrived from the gradients of the model's vectors.
  Afterwards BackwardStart may be called.
*/
static PetscErrorCode begin_gradients(TrsModelParallel m, int slot, int64_t n, const TrsPooledMatrix *model,
                                      TrsPooledMatrix *arrived)
{
  PetscFunctionBegin;
  if (m->sums_ahead) PetscCall(m->config.device->stream_wait(m->stream, m->slot[slot].sorted));
  *arrived = *model;
  if (m->split) PetscCall(TrsSplitTablesBackward(m->split, m->stream, n, model, arrived));
  arrived->by_id = model->by_id;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if the slot's batch belongs to a training, so that a backward follows. */
static PetscBool is_training(TrsModelParallel m, int slot)
{
  return (PetscBool)(m->config.training && slot < TRS_TRAINING_SLOTS);
}

/* --- trs_dense_by_ranks: the parts of a step that graphs may replay (step_graphs.h) --- */

typedef struct {
  TrsModelParallel m;
  double *loss; /* the slot's loss sums */
  float scale;  /* factor of the loss' gradient */
  TrsStepArguments batch;
} TrsDensePart;

static TrsDensePart part_of(TrsModelParallel m, int slot, const TrsBatch *batch)
{
  return (TrsDensePart){.m = m,
                        .loss = (double *)m->slot[slot].loss.data,
                        .batch = {.n = batch->batch,
                                  .dense = batch->dense,
                                  .labels = m->pair_loss ? NULL : batch->labels,
                                  .weights = batch->weights}};
}

static PetscErrorCode forward_dense_part(void *context)
{
  const TrsDensePart *part = (const TrsDensePart *)context;

  PetscFunctionBegin;
  PetscCall(TrsDlrmForwardDense(part->m->dlrm, part->m->stream, part->batch.n, part->batch.dense));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_over_part(void *context)
{
  const TrsDensePart *part = (const TrsDensePart *)context;
  TrsModelParallel m = part->m;

  PetscFunctionBegin;
  PetscCall(TrsDlrmForward(m->dlrm, m->stream, part->batch.n, part->batch.labels, part->batch.weights,
                           part->scale, part->loss, part->batch.predicts ? &m->predictions : NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_over_part(void *context)
{
  const TrsDensePart *part = (const TrsDensePart *)context;

  PetscFunctionBegin;
  PetscCall(TrsDlrmBackwardOver(part->m->dlrm, part->m->stream, part->batch.n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_dense_part(void *context)
{
  const TrsDensePart *part = (const TrsDensePart *)context;

  PetscFunctionBegin;
  PetscCall(TrsDlrmBackwardDense(part->m->dlrm, part->m->stream, part->batch.n, part->batch.dense));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_part(TrsDensePart *part, int slot, TrsStepPart which,
                               PetscErrorCode (*work)(void *context))
{
  PetscFunctionBegin;
  PetscCall(TrsStepGraphsRun(part->m->graphs, slot, which, &part->batch, work, part));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Run the dense layers on vectors that have arrived. A pair loss needs the pairs of all ranks, so it
  is computed after the layers.
*/
static PetscErrorCode forward_over(TrsModelParallel m, int slot, const TrsBatch *batch, float scale,
                                   const float **predictions)
{
  TrsDensePart part = part_of(m, slot, batch);
  const TrsPairs pairs = TrsDlrmPairs(m->dlrm);

  PetscFunctionBegin;
  part.scale = scale;
  part.batch.predicts = (PetscBool)(predictions != NULL);
  PetscCall(run_part(&part, slot, TRS_PART_FORWARD_OVER, forward_over_part));
  if (predictions) *predictions = m->predictions;
  PetscCall(keep_pairs(m, slot, batch->batch, pairs.out));
  if (m->pair_loss && batch->labels)
    PetscCall(TrsPairLossByRanks(m->pair_loss, m->stream, batch, pairs.out, scale, part.loss,
                                 is_training(m, slot) ? pairs.dout : NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Run the forward of own samples. The lookups overlap with the dense arch. */
static PetscErrorCode forward_by_ranks(TrsModelParallel m, int slot, const TrsBatch *batch, float scale,
                                       const float **predictions)
{
  TrsStepNumbers *numbers = TrsStepGraphsNumbers(m->graphs, slot);
  TrsDensePart part = part_of(m, slot, batch);
  TrsPooledMatrix arrived;

  PetscFunctionBegin;
  TrsDlrmDraw(m->dlrm, is_training(m, slot), batch->step, batch->first);
  if (numbers)
    numbers->batch = (TrsBatchNumbers){.step = batch->step, .first = batch->first, .loss_scale = scale};
  PetscCall(TrsRaggedRowsBegin(m->ragged, m->stream, &batch->kjt));
  TrsDlrmSetBags(m->dlrm, TrsRaggedRowsBags(m->ragged));
  PetscCall(arrival(m, batch->batch, &m->pooled, &arrived));
  PetscCall(TrsShardedEbcForwardStart(m->ebc, slot, m->stream, &arrived));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(run_part(&part, slot, TRS_PART_FORWARD_DENSE, forward_dense_part));
  PetscCall(TrsModelParallelTellAhead(m, slot));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcForwardWait(m->ebc, slot, m->stream, &arrived));
  PetscCall(finish_vectors(m, slot, batch->batch, &m->pooled));
  if (m->place) TrsDlrmPlaceVectors(m->dlrm, m->place);
  PetscCall(TrsModelParallelSendAhead(m));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(forward_over(m, slot, batch, scale, predictions));
  if (m->place && !is_training(m, slot)) PetscCall(TrsShardedEbcForwardEnd(m->ebc, m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_by_ranks(TrsModelParallel m, int slot, const TrsBatch *batch,
                                        const TrsSparseOptimizerArgs *args)
{
  TrsDensePart part = part_of(m, slot, batch);
  TrsPooledMatrix grad;

  PetscFunctionBegin;
  PetscCall(run_part(&part, slot, TRS_PART_BACKWARD_OVER, backward_over_part));
  PetscCall(begin_gradients(m, slot, batch->batch, &m->grad, &grad));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcBackwardStart(m->ebc, slot, m->stream, &grad));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_DENSE_BACKWARD, NULL));
  PetscCall(run_part(&part, slot, TRS_PART_BACKWARD_DENSE, backward_dense_part));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_EMBEDDING_BACKWARD, NULL));
  PetscCall(TrsModelParallelUpdateTables(m, slot, &grad, args));
  PetscCall(TrsDlrmPositionGradientsReady(m->dlrm));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OPTIMIZER, NULL));
  PetscCall(TrsDenseAllreduceWait(m->allreduce, m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_by_blocks(TrsModelParallel m, int slot, const TrsBatch *batch, float scale,
                                        const float **predictions)
{
  const PetscBool training = is_training(m, slot);
  TrsPooledMatrix own = m->pooled, arrived;
  const float *pairs;
  float *rows;

  PetscFunctionBegin;
  PetscCall(TrsBlockwiseRows(m->blockwise, batch->batch, &rows));
  own.rows.data = rows;
  PetscCall(TrsRaggedRowsBegin(m->ragged, m->stream, &batch->kjt));
  PetscCall(arrival(m, batch->batch, &own, &arrived));
  PetscCall(TrsShardedEbcForwardStart(m->ebc, slot, m->stream, &arrived));
  PetscCall(TrsModelParallelTellAhead(m, slot));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcForwardWait(m->ebc, slot, m->stream, &arrived));
  PetscCall(finish_vectors(m, slot, batch->batch, &own));
  PetscCall(TrsModelParallelSendAhead(m));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(TrsBlockwiseForward(m->blockwise, m->stream, batch, scale, training, predictions));
  if (m->keeps_pairs) {
    PetscCall(TrsBlockwisePairs(m->blockwise, m->stream, &pairs));
    PetscCall(keep_pairs(m, slot, batch->batch, pairs));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_by_blocks(TrsModelParallel m, int slot, const TrsBatch *batch,
                                         const TrsSparseOptimizerArgs *args)
{
  TrsPooledMatrix own = m->grad, grad;
  float *grads, *rows;

  PetscFunctionBegin;
  (void)batch; /* the gradients of `batch` are in the blocks */
  PetscCall(TrsDlrmParameters(m->dlrm, NULL, NULL, NULL, &grads, NULL));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsBlockwiseRowGradients(m->blockwise, m->stream, &rows));
  own.rows.data = rows;
  PetscCall(begin_gradients(m, slot, batch->batch, &own, &grad));
  PetscCall(TrsShardedEbcBackwardStart(m->ebc, slot, m->stream, &grad));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_EMBEDDING_BACKWARD, NULL));
  PetscCall(TrsModelParallelUpdateTables(m, slot, &grad, args));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OPTIMIZER, NULL));
  PetscCall(TrsBlockwiseGradients(m->blockwise, m->stream, grads));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsDenseWork trs_dense_by_ranks = {.forward = forward_by_ranks, .backward = backward_by_ranks};
const TrsDenseWork trs_dense_by_blocks = {.forward = forward_by_blocks, .backward = backward_by_blocks};
