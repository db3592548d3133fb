/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/blockwise.h"

#include "train/block_sum.h"

#include <string.h>

struct TrsBlockwiseImpl {
  TrsComm comm;
  TrsDlrm dlrm;
  int num_dense;
  int64_t stride; /* floats of a row of the interaction's input */
  float *x, *dx;  /* one block's rows and their gradients: the model's */
  float *grads;   /* one block's: the model's */
  TrsSampleBlocks blocks;
  TrsBlockSum sum;
  TrsBuffer own;                            /* [B, stride] */
  TrsBuffer losses;                         /* double, of each block of the batch */
  TrsBuffer block_grads, block_predictions; /* of my blocks' samples: [n, stride], [n] */
};

PetscErrorCode TrsBlockwiseCreate(TrsComm comm, TrsDlrm dlrm, int num_dense, TrsBlockwise *blockwise)
{
  const int64_t *columns;
  int64_t n_grads;
  TrsBlockwise b;

  PetscFunctionBegin;
  PetscCall(PetscNew(&b));
  b->comm = comm;
  b->dlrm = dlrm;
  b->num_dense = num_dense;
  PetscCall(TrsDlrmEmbeddings(dlrm, &b->x, &b->stride, &columns));
  PetscCall(TrsDlrmEmbeddingGrads(dlrm, &b->dx, &b->stride, &columns));
  PetscCall(TrsDlrmParameters(dlrm, NULL, NULL, NULL, &b->grads, &n_grads));
  PetscCall(TrsSampleBlocksCreate(comm, &b->blocks));
  PetscCall(TrsBlockSumCreate(comm, n_grads, &b->sum));
  *blockwise = b;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseDestroy(TrsBlockwise *blockwise)
{
  TrsBlockwise b = *blockwise;

  PetscFunctionBegin;
  if (!b) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsSampleBlocksDestroy(&b->blocks));
  PetscCall(TrsBlockSumDestroy(&b->sum));
  PetscCall(TrsBufferFree(&b->own));
  PetscCall(TrsBufferFree(&b->losses));
  PetscCall(TrsBufferFree(&b->block_grads));
  PetscCall(TrsBufferFree(&b->block_predictions));
  PetscCall(PetscFree(*blockwise));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseRows(TrsBlockwise b, int64_t n, float **rows)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&b->own, n * b->stride * (int64_t)sizeof(float), PETSC_FALSE));
  *rows = (float *)b->own.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a block is computed from, and where its results go. */
typedef struct {
  const float *rows, *dense, *labels; /* of all my blocks' samples; labels NULL: none */
  float scale;
  PetscBool backward, predict;
} TrsBlockJob;

static PetscErrorCode compute_block(TrsBlockwise b, TrsStream stream, const TrsBlockJob *job, int64_t begin,
                                    int64_t n, double *loss)
{
  const size_t row_bytes = (size_t)b->stride * sizeof(float);
  const float *dense = job->dense ? job->dense + begin * b->num_dense : NULL, *predictions;

  PetscFunctionBegin;
  memcpy(b->x, job->rows + begin * b->stride, (size_t)n * row_bytes);
  PetscCall(TrsDlrmForwardDense(b->dlrm, stream, n, dense));
  PetscCall(TrsDlrmForward(b->dlrm, stream, n, job->labels ? job->labels + begin : NULL, job->scale, loss,
                           job->predict ? &predictions : NULL));
  if (job->predict)
    memcpy((float *)b->block_predictions.data + begin, predictions, (size_t)n * sizeof(float));
  if (!job->backward) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDlrmBackwardOver(b->dlrm, stream, n));
  PetscCall(TrsDlrmBackwardDense(b->dlrm, stream, n, dense));
  memcpy((float *)b->block_grads.data + begin * b->stride, b->dx, (size_t)n * row_bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The losses of all blocks, added up in their order. */
static PetscErrorCode sum_losses(TrsBlockwise b, int64_t n, double *losses, double *total)
{
  int count;

  PetscFunctionBegin;
  PetscCall(TrsMPIIntCast(n, &count));
  PetscCallMPI(
      MPI_Allreduce(MPI_IN_PLACE, losses, count, MPI_DOUBLE, MPI_SUM, b->comm->mpi)); /* one and zeros */
  *total = 0.0;
  for (int64_t i = 0; b->comm->rank == 0 && i < n; i++) *total += losses[i];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode send_samples(TrsBlockwise b, TrsStream stream, const TrsBatch *batch, TrsBlockJob *job)
{
  float *to;

  PetscFunctionBegin;
  PetscCall(
      TrsSampleBlocksSend(b->blocks, stream, TRS_BLOCK_ROWS, b->stride, (const float *)b->own.data, &to));
  job->rows = to;
  if (b->num_dense) {
    PetscCall(TrsSampleBlocksSend(b->blocks, stream, TRS_BLOCK_DENSE, b->num_dense, batch->dense, &to));
    job->dense = to;
  }
  if (batch->labels) {
    PetscCall(TrsSampleBlocksSend(b->blocks, stream, TRS_BLOCK_LABELS, 1, batch->labels, &to));
    job->labels = to;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseForward(TrsBlockwise b, TrsStream stream, const TrsBatch *batch, float scale,
                                   PetscBool backward, double *loss, const float **predictions)
{
  TrsBlockJob job = {.scale = scale, .backward = backward, .predict = (PetscBool)(predictions != NULL)};
  int64_t n_blocks, first, n_all, n_samples, begin;
  double *losses;
  float *own_predictions;

  PetscFunctionBegin;
  PetscCall(TrsSampleBlocksShare(b->blocks, batch->batch, &n_blocks, &first, &n_all));
  (void)TrsSampleBlocksSize(b->blocks, n_blocks, &n_samples);
  PetscCall(TrsBufferReserve(&b->losses, n_all * (int64_t)sizeof(*losses), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&b->block_grads, n_samples * b->stride * (int64_t)sizeof(float), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&b->block_predictions, n_samples * (int64_t)sizeof(float), PETSC_FALSE));
  losses = (double *)b->losses.data;
  for (int64_t i = 0; i < n_all; i++) losses[i] = 0.0;
  PetscCall(send_samples(b, stream, batch, &job));
  for (int64_t i = 0; i < n_blocks; i++) {
    const int64_t n = TrsSampleBlocksSize(b->blocks, i, &begin);
    PetscCall(compute_block(b, stream, &job, begin, n, &losses[first + i]));
    if (backward) PetscCall(TrsBlockSumAdd(b->sum, first + i, b->grads));
  }
  if (batch->labels) PetscCall(sum_losses(b, n_all, losses, loss));
  if (predictions) {
    PetscCall(TrsSampleBlocksReturn(b->blocks, stream, TRS_BLOCK_RETURNED_PREDICTIONS, 1,
                                    (const float *)b->block_predictions.data, &own_predictions));
    *predictions = own_predictions;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseRowGradients(TrsBlockwise b, TrsStream stream, float **grads)
{
  PetscFunctionBegin;
  PetscCall(TrsSampleBlocksReturn(b->blocks, stream, TRS_BLOCK_RETURNED_GRADS, b->stride,
                                  (const float *)b->block_grads.data, grads));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseGradients(TrsBlockwise b, TrsStream stream, float *grads)
{
  PetscFunctionBegin;
  PetscCall(TrsBlockSumFinish(b->sum, stream, grads));
  PetscFunctionReturn(PETSC_SUCCESS);
}
