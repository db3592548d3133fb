/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The work of the dense layers is divided into fixed blocks of the global batch. With -reproducible
  a block has TRS_BLOCK_SAMPLES samples for any number of ranks. One rank computes a block, so the
  results of a block do not depend on the number of ranks. With only -accumulate_steps a block has
  -batch_size samples, or TRS_BLOCK_SAMPLES with a pair loss. Blocks are distributed evenly. Sums
  over all samples (gradients, losses) are added over blocks in one fixed tree.

    own samples' rows, dense features, labels --all-to-all--> samples of my blocks
    gradients of rows, predictions of my blocks' samples --all-to-all--> own samples

  Most samples stay on their rank: the blocks of rank r begin near its first sample. The distance is
  at most one block and a W-th of a block. If every sample stays, nothing is sent or copied. A
  block's samples begin at a multiple of the block size in their array, so that all blocks have the
  same alignment.
*/
#pragma once

#include "comm/comm.h"

enum { TRS_BLOCK_SAMPLES = 128 };

typedef struct TrsSampleBlocksImpl *TrsSampleBlocks;

/*
  Create the object. In: comm is borrowed; size is the number of samples per block. Not collective.
*/
PetscErrorCode TrsSampleBlocksCreate(TrsComm comm, int64_t size, TrsSampleBlocks *blocks);
PetscErrorCode TrsSampleBlocksDestroy(TrsSampleBlocks *blocks);

/*
  TrsSampleBlocksShare - Distribute the blocks of a batch.

  Not collective. The call only computes numbers.

  In:     sample       [W + 1] index of each rank's first sample in the batch, then the number of
                       samples; borrowed until the next call
  Out:    first_block  [W + 1] index of each rank's first block, then the number of blocks; borrowed
*/
PetscErrorCode TrsSampleBlocksShare(TrsSampleBlocks blocks, const int64_t *sample,
                                    const int64_t **first_block);

/*
  The number of samples in this rank's i-th block. *begin is the index of its first sample among all
  samples of this rank's blocks. Not collective.
*/
int64_t TrsSampleBlocksSize(TrsSampleBlocks blocks, int64_t i, int64_t *begin);

/*
  True if, on every rank, the samples of the rank's blocks are the rank's own samples, in the same
  order. The result is the same on all ranks. Not collective.
*/
PetscBool TrsSampleBlocksStay(TrsSampleBlocks blocks);

/*
  TrsSampleBlocksSend, TrsSampleBlocksSendRows, TrsSampleBlocksReturn - Send `width` floats per
    sample to the rank of the sample's block (Send, SendRows), or back to the sample's own rank
    (Return).

  Collective on comm, in device memory. If all samples stay on their rank, *to is the given memory.
  The caller may change rows after they were sent.

  In:  buffer  the buffer of the object that gets the result. The result is valid until the next
               call with this buffer
  Out: to      borrowed
*/
typedef enum {
  TRS_BLOCK_ROWS,
  TRS_BLOCK_DENSE,
  TRS_BLOCK_LABELS,
  TRS_BLOCK_WEIGHTS,
  TRS_BLOCK_PAIRS,
  TRS_BLOCK_LENGTHS,
  TRS_BLOCK_RETURNED_PREDICTIONS,
  TRS_BLOCK_RETURNED_GRADS,
  TRS_BLOCK_RETURNED_PAIRS,
  TRS_N_BLOCK_BUFFERS
} TrsBlockBuffer;
PetscErrorCode TrsSampleBlocksSend(TrsSampleBlocks blocks, TrsStream stream, TrsBlockBuffer buffer,
                                   int64_t width, const float *own, const float **to);
PetscErrorCode TrsSampleBlocksSendRows(TrsSampleBlocks blocks, TrsStream stream, int64_t width, float *own,
                                       float **to);
PetscErrorCode TrsSampleBlocksReturn(TrsSampleBlocks blocks, TrsStream stream, TrsBlockBuffer buffer,
                                     int64_t width, float *of_blocks, float **to);

/*
  TrsSampleBlocksSendRagged, TrsSampleBlocksReturnRagged - Send the rows of samples, with `width`
    floats each, to the rank of the sample's block, or back to the sample's own rank.

  Collective on comm, in host memory. The offsets give each sample's rows.

  In:  own_offsets    [own samples + 1] index of each sample's first row
       block_offsets  [samples of this rank's blocks + 1] the same for these samples
  Out: the rows, all overwritten
*/
PetscErrorCode TrsSampleBlocksSendRagged(TrsSampleBlocks blocks, TrsStream stream, int64_t width,
                                         const int64_t *own_offsets, const float *own,
                                         const int64_t *block_offsets, float *of_blocks);
PetscErrorCode TrsSampleBlocksReturnRagged(TrsSampleBlocks blocks, TrsStream stream, int64_t width,
                                           const int64_t *block_offsets, const float *of_blocks,
                                           const int64_t *own_offsets, float *own);
