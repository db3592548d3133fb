/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/sample_blocks.h"

struct TrsSampleBlocksImpl {
  TrsComm comm;
  int64_t size;          /* number of samples per block */
  const int64_t *sample; /* [W + 1] index of each rank's first sample, borrowed */
  int64_t *block;        /* [W + 1] index of each rank's first block */
  /* [W] number of this rank's samples in each rank's blocks, and of this rank's samples before
     them */
  int64_t *to_blocks, *to_blocks_at;
  /* [W] number of samples in this rank's blocks that each rank owns, and of samples before them */
  int64_t *to_owners, *to_owners_at;
  /* [W] each: number of rows to send, of rows before them, of rows to receive, and of rows
     before them */
  int64_t *rows[4];
  TrsDeviceBuffer buffer[TRS_N_BLOCK_BUFFERS];
};

PetscErrorCode TrsSampleBlocksCreate(TrsComm comm, int64_t size, TrsSampleBlocks *blocks)
{
  const size_t W = (size_t)comm->size;
  TrsSampleBlocks b;

  PetscFunctionBegin;
  PetscCall(PetscNew(&b));
  b->comm = comm;
  b->size = size;
  PetscCall(PetscCalloc5(W + 1, &b->block, W, &b->to_blocks, W, &b->to_blocks_at, W, &b->to_owners, W,
                         &b->to_owners_at));
  PetscCall(PetscCalloc4(W, &b->rows[0], W, &b->rows[1], W, &b->rows[2], W, &b->rows[3]));
  *blocks = b;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSampleBlocksDestroy(TrsSampleBlocks *blocks)
{
  TrsSampleBlocks b = *blocks;

  PetscFunctionBegin;
  if (!b) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < TRS_N_BLOCK_BUFFERS; i++)
    PetscCall(TrsDeviceBufferFree(b->comm->device, &b->buffer[i]));
  PetscCall(PetscFree5(b->block, b->to_blocks, b->to_blocks_at, b->to_owners, b->to_owners_at));
  PetscCall(PetscFree4(b->rows[0], b->rows[1], b->rows[2], b->rows[3]));
  PetscCall(PetscFree(*blocks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The index of a block's first sample. */
static int64_t begin_of(const struct TrsSampleBlocksImpl *b, int64_t block)
{
  return PetscMin(block * b->size, b->sample[b->comm->size]);
}

/*
  Count the samples in [begin, end) that are also in [other_begin, other_end). *at is the number of
  samples before them.
*/
static int64_t overlap(int64_t begin, int64_t end, int64_t other_begin, int64_t other_end, int64_t *at)
{
  const int64_t from = PetscMin(PetscMax(begin, other_begin), end), to = PetscMin(end, other_end);

  *at = from - begin;
  return PetscMax(to - from, 0);
}

PetscErrorCode TrsSampleBlocksShare(TrsSampleBlocks b, const int64_t *sample, const int64_t **first_block)
{
  const int W = b->comm->size, rank = b->comm->rank;
  int64_t n_blocks;

  PetscFunctionBegin;
  b->sample = sample;
  n_blocks = (b->sample[W] + b->size - 1) / b->size;
  for (int q = 0; q < W; q++) b->block[q + 1] = (q + 1) * n_blocks / W;
  for (int q = 0; q < W; q++) {
    b->to_blocks[q] = overlap(b->sample[rank], b->sample[rank + 1], begin_of(b, b->block[q]),
                              begin_of(b, b->block[q + 1]), &b->to_blocks_at[q]);
    b->to_owners[q] = overlap(begin_of(b, b->block[rank]), begin_of(b, b->block[rank + 1]), b->sample[q],
                              b->sample[q + 1], &b->to_owners_at[q]);
  }
  *first_block = b->block;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsSampleBlocksSize(TrsSampleBlocks b, int64_t i, int64_t *begin)
{
  const int64_t first = b->block[b->comm->rank];

  *begin = begin_of(b, first + i) - begin_of(b, first);
  return begin_of(b, first + i + 1) - begin_of(b, first + i);
}

PetscBool TrsSampleBlocksStay(TrsSampleBlocks b)
{
  PetscBool stay = PETSC_TRUE;

  for (int q = 0; q < b->comm->size; q++)
    if (begin_of(b, b->block[q]) != b->sample[q]) stay = PETSC_FALSE;
  return stay;
}

/* Exchange rows of `width` floats. They arrive in a buffer, and *to is set to their address. */
static PetscErrorCode exchange(TrsSampleBlocks b, TrsStream stream, TrsBlockBuffer buffer, int64_t width,
                               TrsSentBlocks send, TrsReceivedBlocks recv, float **to)
{
  const int last = b->comm->size - 1;
  const int64_t bytes = width * (int64_t)sizeof(float);
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(b->comm->device, &b->buffer[buffer],
                                   (recv.displs[last] + recv.counts[last]) * bytes));
  *to = (float *)b->buffer[buffer].data;
  recv.data = *to;
  PetscCall(TrsCommAlltoallv(b->comm, stream, send, recv, bytes, &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode send(TrsSampleBlocks b, TrsStream stream, TrsBlockBuffer buffer, int64_t width,
                           const float *own, float **to)
{
  PetscFunctionBegin;
  PetscCall(exchange(b, stream, buffer, width, (TrsSentBlocks){own, b->to_blocks, b->to_blocks_at},
                     (TrsReceivedBlocks){NULL, b->to_owners, b->to_owners_at}, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSampleBlocksSend(TrsSampleBlocks b, TrsStream stream, TrsBlockBuffer buffer, int64_t width,
                                   const float *own, const float **to)
{
  float *received;

  PetscFunctionBegin;
  *to = own;
  if (TrsSampleBlocksStay(b)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(send(b, stream, buffer, width, own, &received));
  *to = received;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSampleBlocksSendRows(TrsSampleBlocks b, TrsStream stream, int64_t width, float *own,
                                       float **to)
{
  PetscFunctionBegin;
  *to = own;
  if (TrsSampleBlocksStay(b)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(send(b, stream, TRS_BLOCK_ROWS, width, own, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSampleBlocksReturn(TrsSampleBlocks b, TrsStream stream, TrsBlockBuffer buffer,
                                     int64_t width, float *of_blocks, float **to)
{
  PetscFunctionBegin;
  *to = of_blocks;
  if (TrsSampleBlocksStay(b)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(exchange(b, stream, buffer, width, (TrsSentBlocks){of_blocks, b->to_owners, b->to_owners_at},
                     (TrsReceivedBlocks){NULL, b->to_blocks, b->to_blocks_at}, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Count the rows for each rank. For rank q they are the rows of n[q] samples, after at[q] other
  samples.
*/
static void count_rows(int W, const int64_t *offsets, const int64_t *n, const int64_t *at, int64_t *rows,
                       int64_t *rows_at)
{
  for (int q = 0; q < W; q++) {
    rows_at[q] = offsets[at[q]];
    rows[q] = offsets[at[q] + n[q]] - offsets[at[q]];
  }
}

PetscErrorCode TrsSampleBlocksSendRagged(TrsSampleBlocks b, TrsStream stream, int64_t width,
                                         const int64_t *own_offsets, const float *own,
                                         const int64_t *block_offsets, float *of_blocks)
{
  const int W = b->comm->size;
  TrsRequest request = NULL;

  PetscFunctionBegin;
  count_rows(W, own_offsets, b->to_blocks, b->to_blocks_at, b->rows[0], b->rows[1]);
  count_rows(W, block_offsets, b->to_owners, b->to_owners_at, b->rows[2], b->rows[3]);
  PetscCall(TrsCommAlltoallv(b->comm, stream, (TrsSentBlocks){own, b->rows[0], b->rows[1]},
                             (TrsReceivedBlocks){of_blocks, b->rows[2], b->rows[3]},
                             width * (int64_t)sizeof(float), &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSampleBlocksReturnRagged(TrsSampleBlocks b, TrsStream stream, int64_t width,
                                           const int64_t *block_offsets, const float *of_blocks,
                                           const int64_t *own_offsets, float *own)
{
  const int W = b->comm->size;
  TrsRequest request = NULL;

  PetscFunctionBegin;
  count_rows(W, block_offsets, b->to_owners, b->to_owners_at, b->rows[0], b->rows[1]);
  count_rows(W, own_offsets, b->to_blocks, b->to_blocks_at, b->rows[2], b->rows[3]);
  PetscCall(TrsCommAlltoallv(b->comm, stream, (TrsSentBlocks){of_blocks, b->rows[0], b->rows[1]},
                             (TrsReceivedBlocks){own, b->rows[2], b->rows[3]}, width * (int64_t)sizeof(float),
                             &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
