/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/blockwise.h"

#include "data/batch_order.h"
#include "train/block_sum.h"

struct TrsBlockwiseImpl {
  TrsComm comm;
  const TrsDeviceOps *device;
  TrsDlrm dlrm;
  int num_dense;
  int n_tasks, n_columns; /* labels, and numbers of a prediction, of a sample */
  int64_t stride;         /* floats in a row of the interaction's input */
  float *x, *dx;          /* rows of one block and their gradients, in the model's memory */
  float *grads;           /* gradients of one block, in the model's memory */
  TrsRaggedRows ragged;   /* NULL: no sequence has a layer */
  TrsSampleBlocks blocks;
  TrsBlockSum sum;
  /* [W + 1] first sample of each rank in the batch */
  int64_t *first_sample;
  int64_t *n_losses;          /* [W] number of each rank's blocks */
  const int64_t *first_block; /* [W + 1] */
  TrsDeviceBuffer own;        /* [B, stride] rows of own samples */
  /* double, [blocks, tasks] of my blocks and of all blocks */
  TrsDeviceBuffer block_losses, losses;
  TrsPinnedBuffer host_losses; /* losses of all blocks on the host */
  int64_t n_host_losses;       /* 0 on other ranks and without labels */
  /* of my blocks' samples: [n, stride] and [n, n_columns] */
  TrsDeviceBuffer block_grads, block_predictions;
};

PetscErrorCode TrsBlockwiseCreate(TrsComm comm, TrsDlrm dlrm, int num_dense, TrsRaggedRows ragged,
                                  TrsBlockwise *blockwise)
{
  const int64_t *columns;
  int64_t n_grads;
  TrsBlockwise b;

  PetscFunctionBegin;
  PetscCall(PetscNew(&b));
  b->comm = comm;
  b->device = comm->device;
  b->dlrm = dlrm;
  b->num_dense = num_dense;
  b->ragged = ragged;
  b->n_tasks = TrsDlrmTasks(dlrm)->n;
  b->n_columns = TrsDlrmTasks(dlrm)->columns;
  PetscCall(TrsDlrmEmbeddings(dlrm, &b->x, &b->stride, &columns));
  PetscCall(TrsDlrmEmbeddingGrads(dlrm, &b->dx, &b->stride, &columns));
  PetscCall(TrsDlrmParameters(dlrm, NULL, NULL, NULL, &b->grads, &n_grads));
  PetscCall(TrsSampleBlocksCreate(comm, &b->blocks));
  PetscCall(TrsBlockSumCreate(comm, n_grads, &b->sum));
  PetscCall(PetscMalloc2((size_t)comm->size + 1, &b->first_sample, (size_t)comm->size, &b->n_losses));
  *blockwise = b;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseDestroy(TrsBlockwise *blockwise)
{
  TrsBlockwise b = *blockwise;
  TrsDeviceBuffer *buffers[5];

  PetscFunctionBegin;
  if (!b) PetscFunctionReturn(PETSC_SUCCESS);
  buffers[0] = &b->own;
  buffers[1] = &b->block_losses;
  buffers[2] = &b->losses;
  buffers[3] = &b->block_grads;
  buffers[4] = &b->block_predictions;
  for (int i = 0; i < 5; i++) PetscCall(TrsDeviceBufferFree(b->device, buffers[i]));
  PetscCall(TrsPinnedBufferFree(b->device, &b->host_losses));
  PetscCall(TrsSampleBlocksDestroy(&b->blocks));
  PetscCall(TrsBlockSumDestroy(&b->sum));
  PetscCall(PetscFree2(b->first_sample, b->n_losses));
  PetscCall(PetscFree(*blockwise));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseRows(TrsBlockwise b, int64_t n, float **rows)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(b->device, &b->own, n * b->stride * (int64_t)sizeof(float)));
  *rows = (float *)b->own.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The inputs of a block and the places of its results. */
typedef struct {
  const float *rows, *dense, *labels; /* of all my blocks' samples; labels may be NULL */
  const float *weights;               /* NULL: all 1 */
  float scale;
  PetscBool backward, predict;
  int64_t step, first; /* of the training; place of my blocks' first sample in the epoch's order */
} TrsBlockJob;

static PetscErrorCode compute_block(TrsBlockwise b, TrsStream stream, const TrsBlockJob *job, int64_t begin,
                                    int64_t n, double *loss)
{
  const int64_t row_bytes = b->stride * (int64_t)sizeof(float);
  const float *dense = job->dense ? job->dense + begin * b->num_dense : NULL, *predictions;

  PetscFunctionBegin;
  PetscCall(b->device->copy(b->x, job->rows + begin * b->stride, n * row_bytes, stream));
  TrsDlrmDraw(b->dlrm, job->backward, job->step, job->first + begin);
  if (b->ragged) TrsDlrmSetBags(b->dlrm, TrsRaggedRowsOfBlock(b->ragged, begin));
  PetscCall(TrsDlrmForwardDense(b->dlrm, stream, n, dense));
  PetscCall(TrsDlrmForward(b->dlrm, stream, n, job->labels ? job->labels + begin * b->n_tasks : NULL,
                           job->weights ? job->weights + begin : NULL, job->scale, loss,
                           job->predict ? &predictions : NULL));
  if (job->predict)
    PetscCall(b->device->copy((float *)b->block_predictions.data + begin * b->n_columns, predictions,
                              n * b->n_columns * (int64_t)sizeof(float), stream));
  if (!job->backward) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDlrmBackwardOver(b->dlrm, stream, n));
  PetscCall(TrsDlrmBackwardDense(b->dlrm, stream, n, dense));
  PetscCall(b->device->copy((float *)b->block_grads.data + begin * b->stride, b->dx, n * row_bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Start the losses of all blocks on their way to the host. */
static PetscErrorCode gather_losses(TrsBlockwise b, TrsStream stream)
{
  const int64_t n = b->first_block[b->comm->size];
  const int64_t of_block = b->n_tasks * (int64_t)sizeof(double), bytes = n * of_block;
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(b->device, &b->losses, bytes));
  for (int q = 0; q < b->comm->size; q++) b->n_losses[q] = b->first_block[q + 1] - b->first_block[q];
  PetscCall(TrsCommAllgatherv(b->comm, stream, b->block_losses.data, b->losses.data, b->n_losses,
                              b->first_block, of_block, &request));
  PetscCall(TrsRequestWait(&request, stream));
  if (b->comm->rank > 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPinnedBufferReserve(b->device, &b->host_losses, bytes));
  PetscCall(b->device->copy(b->host_losses.data, b->losses.data, bytes, stream));
  b->n_host_losses = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsBlockwiseLosses(TrsBlockwise b, double *losses)
{
  for (int t = 0; t < b->n_tasks; t++) {
    losses[t] = 0.0;
    for (int64_t i = 0; i < b->n_host_losses; i++)
      losses[t] += ((const double *)b->host_losses.data)[i * b->n_tasks + t];
  }
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
    PetscCall(TrsSampleBlocksSend(b->blocks, stream, TRS_BLOCK_LABELS, b->n_tasks, batch->labels, &to));
    job->labels = to;
  }
  if (batch->weights) {
    PetscCall(TrsSampleBlocksSend(b->blocks, stream, TRS_BLOCK_WEIGHTS, 1, batch->weights, &to));
    job->weights = to;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find where the ranks' samples and blocks begin. */
static PetscErrorCode share_blocks(TrsBlockwise b, const TrsBatch *batch)
{
  const int rank = b->comm->rank;

  PetscFunctionBegin;
  for (int q = 0; q <= b->comm->size; q++)
    b->first_sample[q] = TrsBatchOrderShare(batch->global_batch, b->comm->size, q);
  PetscCheck(batch->batch == b->first_sample[rank + 1] - b->first_sample[rank], PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "a rank with %" PRId64 " of %" PRId64 " samples", batch->batch,
             batch->global_batch);
  PetscCall(TrsSampleBlocksShare(b->blocks, b->first_sample, &b->first_block));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseForward(TrsBlockwise b, TrsStream stream, const TrsBatch *batch, float scale,
                                   PetscBool backward, const float **predictions)
{
  TrsBlockJob job = {.scale = scale, .backward = backward, .predict = (PetscBool)(predictions != NULL)};
  int64_t first, n_blocks, n_samples, begin;
  float *own_predictions;

  PetscFunctionBegin;
  PetscCall(share_blocks(b, batch));
  first = b->first_block[b->comm->rank];
  job.step = batch->step;
  job.first = batch->position + first * TRS_BLOCK_SAMPLES;
  n_blocks = b->first_block[b->comm->rank + 1] - first;
  (void)TrsSampleBlocksSize(b->blocks, n_blocks, &n_samples);
  b->n_host_losses = 0;
  PetscCall(
      TrsDeviceBufferReserve(b->device, &b->block_losses, n_blocks * b->n_tasks * (int64_t)sizeof(double)));
  PetscCall(TrsDeviceBufferReserveShared(b->device, &b->block_grads,
                                         n_samples * b->stride * (int64_t)sizeof(float)));
  PetscCall(TrsDeviceBufferReserve(b->device, &b->block_predictions,
                                   n_samples * b->n_columns * (int64_t)sizeof(float)));
  PetscCall(send_samples(b, stream, batch, &job));
  if (b->ragged) PetscCall(TrsRaggedRowsToBlocks(b->ragged, b->blocks, stream, n_samples));
  for (int64_t i = 0; i < n_blocks; i++) {
    const int64_t n = TrsSampleBlocksSize(b->blocks, i, &begin);
    PetscCall(compute_block(b, stream, &job, begin, n, (double *)b->block_losses.data + i * b->n_tasks));
    if (backward) PetscCall(TrsBlockSumAdd(b->sum, stream, first + i, b->grads));
  }
  if (batch->labels) PetscCall(gather_losses(b, stream));
  if (predictions) {
    PetscCall(TrsSampleBlocksReturn(b->blocks, stream, TRS_BLOCK_RETURNED_PREDICTIONS, b->n_columns,
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
  if (b->ragged) PetscCall(TrsRaggedRowsFromBlocks(b->ragged, b->blocks, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseGradients(TrsBlockwise b, TrsStream stream, float *grads)
{
  PetscFunctionBegin;
  PetscCall(TrsBlockSumFinish(b->sum, stream, b->first_block, grads));
  PetscFunctionReturn(PETSC_SUCCESS);
}
