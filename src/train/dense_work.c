/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/model_parallel_impl.h"

/*
  Copy the pooled rows of own samples to the host if they are kept. They are there once loss_ready,
  recorded after the forward, has happened. A place that a batch had in another slot is given up.
*/
static PetscErrorCode keep_pooled(TrsModelParallel m, int slot, int64_t batch, const TrsPooledMatrix *pooled)
{
  const int64_t bytes = batch * pooled->stride * (int64_t)sizeof(float);
  const TrsBatch *host = m->slot[slot].copy.host;
  TrsModelSlot *s = &m->slot[slot];

  PetscFunctionBegin;
  if (!m->keeps_pooled) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < TRS_SHARD_SLOTS; i++)
    if (m->slot[i].pooled_of == host) m->slot[i].pooled_of = NULL;
  s->pooled_of = host;
  PetscCall(TrsPinnedBufferReserve(m->config.device, &s->pooled, bytes));
  if (bytes) PetscCall(m->config.device->copy(s->pooled.data, pooled->data, bytes, m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Run lookups and dense arch side by side. */
static PetscErrorCode forward_by_ranks(TrsModelParallel m, int slot, const TrsBatch *batch, float scale,
                                       const float **predictions)
{
  double *loss = (double *)m->slot[slot].loss.data;

  PetscFunctionBegin;
  PetscCall(TrsShardedEbcForwardStart(m->ebc, slot, m->stream, &m->pooled));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(TrsDlrmForwardDense(m->dlrm, m->stream, batch->batch, batch->dense));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcForwardWait(m->ebc, slot, m->stream, &m->pooled));
  PetscCall(keep_pooled(m, slot, batch->batch, &m->pooled));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(TrsDlrmForward(m->dlrm, m->stream, batch->batch, batch->labels, batch->weights, scale, loss,
                           predictions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_by_ranks(TrsModelParallel m, int slot, const TrsBatch *batch,
                                        const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  PetscCall(TrsDlrmBackwardOver(m->dlrm, m->stream, batch->batch));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcBackwardStart(m->ebc, slot, m->stream, &m->grad));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_DENSE_BACKWARD, NULL));
  PetscCall(TrsDlrmBackwardDense(m->dlrm, m->stream, batch->batch, batch->dense));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_EMBEDDING_BACKWARD, NULL));
  PetscCall(TrsModelParallelUpdateTables(m, slot, &m->grad, args));
  PetscCall(TrsDlrmPositionGradientsReady(m->dlrm));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OPTIMIZER, NULL));
  PetscCall(TrsDenseAllreduceWait(m->allreduce, m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_by_blocks(TrsModelParallel m, int slot, const TrsBatch *batch, float scale,
                                        const float **predictions)
{
  const PetscBool training = (PetscBool)(m->config.training && slot < TRS_TRAINING_SLOTS);
  TrsPooledMatrix own = m->pooled;

  PetscFunctionBegin;
  PetscCall(TrsBlockwiseRows(m->blockwise, batch->batch, &own.data));
  PetscCall(TrsShardedEbcForwardStart(m->ebc, slot, m->stream, &own));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsShardedEbcForwardWait(m->ebc, slot, m->stream, &own));
  PetscCall(keep_pooled(m, slot, batch->batch, &own));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_DENSE_FORWARD, NULL));
  PetscCall(TrsBlockwiseForward(m->blockwise, m->stream, batch, scale, training, predictions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_by_blocks(TrsModelParallel m, int slot, const TrsBatch *batch,
                                         const TrsSparseOptimizerArgs *args)
{
  TrsPooledMatrix own = m->grad;
  float *grads;

  PetscFunctionBegin;
  (void)batch; /* its gradients are in blocks */
  PetscCall(TrsDlrmParameters(m->dlrm, NULL, NULL, NULL, &grads, NULL));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OUTPUT_DIST, NULL));
  PetscCall(TrsBlockwiseRowGradients(m->blockwise, m->stream, &own.data));
  PetscCall(TrsShardedEbcBackwardStart(m->ebc, slot, m->stream, &own));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_EMBEDDING_BACKWARD, NULL));
  PetscCall(TrsModelParallelUpdateTables(m, slot, &own, args));
  PetscCall(TrsModelParallelEnter(m, TRS_STAGE_OPTIMIZER, NULL));
  PetscCall(TrsBlockwiseGradients(m->blockwise, m->stream, grads));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsDenseWork trs_dense_by_ranks = {.forward = forward_by_ranks, .backward = backward_by_ranks};
const TrsDenseWork trs_dense_by_blocks = {.forward = forward_by_blocks, .backward = backward_by_blocks};
