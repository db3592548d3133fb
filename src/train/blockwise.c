/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/blockwise.h"

#include "core/events.h"
#include "data/batch_order.h"
#include "device/timeline.h"
#include "train/block_sum.h"

struct TrsBlockwiseImpl {
  TrsComm comm;
  const TrsDeviceOps *device;
  TrsDlrm dlrm;
  TrsPairLoss pair_loss; /* loss of pairs, or NULL */
  PetscBool keeps_pairs; /* set by TrsBlockwiseKeepPairs() */
  int num_dense;
  int64_t size;           /* number of samples per block */
  int n_tasks, n_columns; /* number of labels and of prediction values per sample */
  int64_t stride;         /* number of floats in a row of the interaction's input */
  float *grads;           /* the gradients of one block, in the model's memory */
  TrsRaggedRows ragged;   /* NULL: no layer pools a sequence */
  TrsSampleBlocks blocks;
  TrsBlockSum sum;
  /* [W + 1] index of each rank's first sample in the batch */
  int64_t *first_sample;
  /* true: the parts of the losses belong to samples; false: they belong to blocks */
  PetscBool of_samples;
  int64_t *n_losses;          /* [W] number of parts of the losses on each rank */
  const int64_t *first_block; /* [W + 1] index of each rank's first block */
  /*
    [size + B, stride] The first `size` rows are free, then come the rows of this rank's own
    samples. If samples stay on their rank, the gradients start at the first row. The gradients of a
    block then overwrite rows of the previous block, which are no longer needed.
  */
  TrsDeviceBuffer own;
  /* double, [parts, tasks] for this rank's blocks, and for all blocks */
  TrsDeviceBuffer block_losses, losses;
  TrsPinnedBuffer host_losses; /* the losses of all blocks on the host */
  int64_t n_host_losses;       /* 0 on all ranks except rank 0, and without labels */
  /* [n, stride] gradients for the samples of this rank's blocks, in `own` or in block_grads */
  float *grads_of_rows;
  /* for the samples of this rank's blocks: [n, stride] and [n, n_columns] */
  TrsDeviceBuffer block_grads, block_predictions;
  /* for the samples of this rank's blocks, if needed: [n, 2 D] the towers' outputs, and their
     gradients */
  TrsDeviceBuffer block_pairs, block_pair_grads;
  int64_t *first_row; /* [W + 1] index in the batch of the first sample of each rank's blocks */
};

PetscErrorCode TrsBlockwiseCreate(const TrsBlockwiseConfig *config, TrsBlockwise *blockwise)
{
  const TrsComm comm = config->comm;
  const TrsDlrm dlrm = config->dlrm;
  int64_t n_grads;
  TrsMatrix x;
  TrsBlockwise b;

  PetscFunctionBegin;
  PetscCall(PetscNew(&b));
  b->comm = comm;
  b->device = comm->device;
  b->dlrm = dlrm;
  b->pair_loss = config->pair_loss;
  b->num_dense = config->num_dense;
  b->size = config->size;
  b->ragged = config->ragged;
  b->n_tasks = TrsDlrmTasks(dlrm)->n;
  b->n_columns = TrsDlrmTasks(dlrm)->columns;
  PetscCall(TrsDlrmEmbeddings(dlrm, &x, NULL));
  b->stride = x.stride;
  PetscCall(TrsDlrmParameters(dlrm, NULL, NULL, NULL, &b->grads, &n_grads));
  PetscCall(TrsSampleBlocksCreate(comm, config->size, &b->blocks));
  PetscCall(TrsBlockSumCreate(comm, n_grads, &b->sum));
  PetscCall(PetscMalloc3((size_t)comm->size + 1, &b->first_sample, (size_t)comm->size, &b->n_losses,
                         (size_t)comm->size + 1, &b->first_row));
  *blockwise = b;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseDestroy(TrsBlockwise *blockwise)
{
  TrsBlockwise b = *blockwise;
  TrsDeviceBuffer *buffers[7];

  PetscFunctionBegin;
  if (!b) PetscFunctionReturn(PETSC_SUCCESS);
  buffers[0] = &b->own;
  buffers[1] = &b->block_losses;
  buffers[2] = &b->losses;
  buffers[3] = &b->block_grads;
  buffers[4] = &b->block_predictions;
  buffers[5] = &b->block_pairs;
  buffers[6] = &b->block_pair_grads;
  for (int i = 0; i < 7; i++) PetscCall(TrsDeviceBufferFree(b->device, buffers[i]));
  PetscCall(TrsPinnedBufferFree(b->device, &b->host_losses));
  PetscCall(TrsSampleBlocksDestroy(&b->blocks));
  PetscCall(TrsBlockSumDestroy(&b->sum));
  PetscCall(PetscFree3(b->first_sample, b->n_losses, b->first_row));
  PetscCall(PetscFree(*blockwise));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of this rank's own samples. */
static float *rows_of(TrsBlockwise b)
{
  return (float *)b->own.data + b->size * b->stride;
}

PetscErrorCode TrsBlockwiseRows(TrsBlockwise b, int64_t n, float **rows)
{
  PetscFunctionBegin;
  PetscCall(
      TrsDeviceBufferReserveShared(b->device, &b->own, (b->size + n) * b->stride * (int64_t)sizeof(float)));
  *rows = rows_of(b);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The inputs of a block, and the memory for its results. */
typedef struct {
  float *rows;                 /* for all samples of this rank's blocks, as the next two fields */
  const float *dense, *labels; /* labels may be NULL */
  const float *weights;        /* NULL: all weights are 1 */
  PetscBool has_pairs;         /* true: there is a pair loss, and there are labels */
  /* pairs of the samples of this rank's blocks; NULL: there are none */
  const TrsPair *pair;
  float scale;
  PetscBool backward, predict;
  /* training step, and the position in the epoch's order of the first sample of this rank's blocks
     */
  int64_t step, first;
} TrsBlockJob;

/* If the towers' outputs are needed, keep those of a block. */
static PetscErrorCode keep_pairs(TrsBlockwise b, TrsStream stream, int64_t begin, int64_t n)
{
  const TrsPairs pairs = TrsDlrmPairs(b->dlrm);

  PetscFunctionBegin;
  if (b->pair_loss || b->keeps_pairs)
    PetscCall(b->device->copy((float *)b->block_pairs.data + begin * pairs.stride, pairs.out,
                              n * pairs.stride * (int64_t)sizeof(float), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_block(TrsBlockwise b, TrsStream stream, const TrsBlockJob *job, int64_t begin,
                                    int64_t n, double *loss)
{
  const float *dense = job->dense ? job->dense + begin * b->num_dense : NULL, *predictions;
  const PetscBool has_loss = (PetscBool)(job->labels && !b->pair_loss);

  PetscFunctionBegin;
  TrsDlrmPlaceRows(b->dlrm, job->rows + begin * b->stride, b->grads_of_rows + begin * b->stride);
  TrsDlrmPlaceLosses(b->dlrm, b->of_samples ? (double *)b->block_losses.data + begin * b->n_tasks : NULL);
  TrsDlrmDraw(b->dlrm, job->backward, job->step, job->first + begin);
  if (b->ragged) TrsDlrmSetBags(b->dlrm, TrsRaggedRowsOfBlock(b->ragged, begin, n));
  PetscCall(TrsDlrmForwardDense(b->dlrm, stream, n, dense));
  PetscCall(TrsDlrmForward(b->dlrm, stream, n, has_loss ? job->labels + begin * b->n_tasks : NULL,
                           job->weights ? job->weights + begin : NULL, job->scale, loss,
                           job->predict ? &predictions : NULL));
  PetscCall(keep_pairs(b, stream, begin, n));
  if (job->predict)
    PetscCall(b->device->copy((float *)b->block_predictions.data + begin * b->n_columns, predictions,
                              n * b->n_columns * (int64_t)sizeof(float), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Run the backward of this rank's i-th block, and add the gradients to the sum. */
static PetscErrorCode backward_block(TrsBlockwise b, TrsStream stream, const TrsBlockJob *job, int64_t i)
{
  int64_t begin;
  const int64_t n = TrsSampleBlocksSize(b->blocks, i, &begin);
  const float *dense = job->dense ? job->dense + begin * b->num_dense : NULL;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_DENSE_BACKWARD, &before));
  PetscCall(TrsTimelineMark(TRS_TRACE_COMPUTE, stream, TRS_STAGE_DENSE_BACKWARD));
  PetscCall(TrsDlrmBackwardOver(b->dlrm, stream, n));
  PetscCall(TrsDlrmBackwardDense(b->dlrm, stream, n, dense));
  PetscCall(TrsBlockSumAdd(b->sum, stream, b->first_block[b->comm->rank] + i, b->grads));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscCall(TrsTimelineMark(TRS_TRACE_COMPUTE, stream, (int)before));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Run the forward, and if needed the backward, of this rank's blocks, one block after the other. */
static PetscErrorCode run_blocks(TrsBlockwise b, TrsStream stream, const TrsBlockJob *job)
{
  const int64_t n_blocks = b->first_block[b->comm->rank + 1] - b->first_block[b->comm->rank];
  int64_t begin;

  PetscFunctionBegin;
  for (int64_t i = 0; i < n_blocks; i++) {
    const int64_t n = TrsSampleBlocksSize(b->blocks, i, &begin);

    PetscCall(forward_block(b, stream, job, begin, n,
                            b->of_samples ? NULL : (double *)b->block_losses.data + i * b->n_tasks));
    if (job->backward) PetscCall(backward_block(b, stream, job, i));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute the towers' outputs of all blocks, then the loss of their pairs. */
static PetscErrorCode run_pairs(TrsBlockwise b, TrsStream stream, const TrsBlockJob *job)
{
  const int64_t n_blocks = b->first_block[b->comm->rank + 1] - b->first_block[b->comm->rank];
  TrsPairRows rows = {.first = b->first_row,
                      .out = (const float *)b->block_pairs.data,
                      .pair = job->pair,
                      .scale = job->scale,
                      .step = job->step,
                      .backward = job->backward};
  int64_t begin;

  PetscFunctionBegin;
  for (int64_t i = 0; i < n_blocks; i++) {
    const int64_t n = TrsSampleBlocksSize(b->blocks, i, &begin);

    PetscCall(forward_block(b, stream, job, begin, n, NULL));
  }
  if (job->has_pairs) {
    PetscCall(b->device->zero(b->block_losses.data, n_blocks * (int64_t)sizeof(double), stream));
    PetscCall(TrsPairLossRun(b->pair_loss, stream, &rows, (double *)b->block_losses.data, 1,
                             (float *)b->block_pair_grads.data));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Like run_blocks(), but with a pair loss. The forward of a block runs again before its backward.
*/
static PetscErrorCode run_pair_blocks(TrsBlockwise b, TrsStream stream, const TrsBlockJob *job)
{
  const int64_t n_blocks = b->first_block[b->comm->rank + 1] - b->first_block[b->comm->rank];
  const TrsPairs pairs = TrsDlrmPairs(b->dlrm);
  TrsBlockJob again = *job;
  int64_t begin;

  PetscFunctionBegin;
  PetscCall(run_pairs(b, stream, job));
  again.predict = PETSC_FALSE;
  for (int64_t i = 0; job->backward && i < n_blocks; i++) {
    const int64_t n = TrsSampleBlocksSize(b->blocks, i, &begin);

    PetscCall(forward_block(b, stream, &again, begin, n, NULL));
    PetscCall(b->device->copy(pairs.dout, (float *)b->block_pair_grads.data + begin * pairs.stride,
                              n * pairs.stride * (int64_t)sizeof(float), stream));
    PetscCall(backward_block(b, stream, &again, i));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Start to copy the losses of all blocks to the host. */
static PetscErrorCode gather_losses(TrsBlockwise b, TrsStream stream)
{
  const int64_t *first = b->of_samples ? b->first_row : b->first_block, n = first[b->comm->size];
  const int64_t of_part = b->n_tasks * (int64_t)sizeof(double), bytes = n * of_part;
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(b->device, &b->losses, bytes));
  for (int q = 0; q < b->comm->size; q++) b->n_losses[q] = first[q + 1] - first[q];
  PetscCall(TrsCommAllgatherv(b->comm, stream, b->block_losses.data, b->losses.data, b->n_losses, first,
                              of_part, &request));
  PetscCall(TrsRequestWait(&request, stream));
  if (b->comm->rank > 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPinnedBufferReserve(b->device, &b->host_losses, bytes));
  PetscCall(b->device->copy(b->host_losses.data, b->losses.data, bytes, stream));
  b->n_host_losses = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsBlockwiseLosses(TrsBlockwise b, int64_t *n, const double **losses)
{
  *n = b->n_host_losses;
  *losses = (const double *)b->host_losses.data;
}

static PetscErrorCode send_samples(TrsBlockwise b, TrsStream stream, const TrsBatch *batch, TrsBlockJob *job)
{
  const TrsSampleBlocks blocks = b->blocks;
  const TrsPair *pairs;
  const float *to;

  PetscFunctionBegin;
  PetscCall(TrsSampleBlocksSendRows(blocks, stream, b->stride, rows_of(b), &job->rows));
  if (b->num_dense)
    PetscCall(TrsSampleBlocksSend(blocks, stream, TRS_BLOCK_DENSE, b->num_dense, batch->dense, &job->dense));
  if (batch->labels)
    PetscCall(TrsSampleBlocksSend(blocks, stream, TRS_BLOCK_LABELS, b->n_tasks, batch->labels, &job->labels));
  if (batch->weights)
    PetscCall(TrsSampleBlocksSend(blocks, stream, TRS_BLOCK_WEIGHTS, 1, batch->weights, &job->weights));
  job->has_pairs = (PetscBool)(b->pair_loss && batch->labels);
  if (job->has_pairs) {
    PetscCall(TrsPairLossPairs(b->pair_loss, stream, batch, &pairs));
    PetscCall(TrsSampleBlocksSend(blocks, stream, TRS_BLOCK_PAIRS, (int64_t)(sizeof(TrsPair) / sizeof(float)),
                                  (const float *)pairs, &to));
    job->pair = (const TrsPair *)to;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Allocate memory for the results of the n samples in this rank's blocks. */
static PetscErrorCode reserve_results(TrsBlockwise b, int64_t n_blocks, int64_t n)
{
  const int64_t pair_bytes = b->pair_loss || b->keeps_pairs
                                 ? n * TrsDlrmPairs(b->dlrm).stride * (int64_t)sizeof(float)
                                 : 0;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(b->device, &b->block_losses,
                                   (b->of_samples ? n : n_blocks) * b->n_tasks * (int64_t)sizeof(double)));
  PetscCall(
      TrsDeviceBufferReserve(b->device, &b->block_predictions, n * b->n_columns * (int64_t)sizeof(float)));
  PetscCall(TrsDeviceBufferReserve(b->device, &b->block_pairs, pair_bytes));
  PetscCall(TrsDeviceBufferReserve(b->device, &b->block_pair_grads, pair_bytes));
  b->grads_of_rows = (float *)b->own.data;
  if (TrsSampleBlocksStay(b->blocks)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferReserveShared(b->device, &b->block_grads, n * b->stride * (int64_t)sizeof(float)));
  b->grads_of_rows = (float *)b->block_grads.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the first sample and the first block of each rank. */
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
  for (int q = 0; q <= b->comm->size; q++)
    b->first_row[q] = PetscMin(b->first_block[q] * b->size, b->first_sample[b->comm->size]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseForward(TrsBlockwise b, TrsStream stream, const TrsBatch *batch, float scale,
                                   PetscBool backward, const float **predictions)
{
  TrsBlockJob job = {.scale = scale, .backward = backward, .predict = (PetscBool)(predictions != NULL)};
  int64_t first, n_blocks, n_samples;
  float *own_predictions;

  PetscFunctionBegin;
  PetscCall(share_blocks(b, batch));
  first = b->first_block[b->comm->rank];
  job.step = batch->step;
  job.first = batch->position + first * b->size;
  n_blocks = b->first_block[b->comm->rank + 1] - first;
  (void)TrsSampleBlocksSize(b->blocks, n_blocks, &n_samples);
  b->n_host_losses = 0;
  b->of_samples = (PetscBool)(!backward && !b->pair_loss);
  PetscCall(reserve_results(b, n_blocks, n_samples));
  PetscCall(send_samples(b, stream, batch, &job));
  if (b->ragged) PetscCall(TrsRaggedRowsToBlocks(b->ragged, b->blocks, stream, n_samples));
  PetscCall(b->pair_loss ? run_pair_blocks(b, stream, &job) : run_blocks(b, stream, &job));
  if (batch->labels) PetscCall(gather_losses(b, stream));
  if (predictions) {
    PetscCall(TrsSampleBlocksReturn(b->blocks, stream, TRS_BLOCK_RETURNED_PREDICTIONS, b->n_columns,
                                    (float *)b->block_predictions.data, &own_predictions));
    *predictions = own_predictions;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsBlockwiseKeepPairs(TrsBlockwise b)
{
  b->keeps_pairs = PETSC_TRUE;
}

PetscErrorCode TrsBlockwisePairs(TrsBlockwise b, TrsStream stream, const float **pairs)
{
  float *own;

  PetscFunctionBegin;
  PetscCall(TrsSampleBlocksReturn(b->blocks, stream, TRS_BLOCK_RETURNED_PAIRS, TrsDlrmPairs(b->dlrm).stride,
                                  (float *)b->block_pairs.data, &own));
  *pairs = own;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseRowGradients(TrsBlockwise b, TrsStream stream, float **grads)
{
  PetscFunctionBegin;
  PetscCall(
      TrsSampleBlocksReturn(b->blocks, stream, TRS_BLOCK_RETURNED_GRADS, b->stride, b->grads_of_rows, grads));
  if (b->ragged) PetscCall(TrsRaggedRowsFromBlocks(b->ragged, b->blocks, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockwiseGradients(TrsBlockwise b, TrsStream stream, float *grads)
{
  PetscFunctionBegin;
  PetscCall(TrsBlockSumFinish(b->sum, stream, b->first_block, grads));
  PetscFunctionReturn(PETSC_SUCCESS);
}
