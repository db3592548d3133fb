/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The dense layers' work of -reproducible, cut into fixed blocks of the global batch: TRS_BLOCK_SAMPLES samples a block, whatever the ranks.
  A block is computed by one rank, so its bits depend on nothing else; blocks are shared out evenly, and what goes over all samples
  (gradients, losses) is added up over blocks in one fixed tree.

    own samples' rows, dense features, labels --all-to-all--> samples of my blocks; gradients of rows, predictions --all-to-all--> own samples

  Most samples stay where they are: rank r's blocks begin at most TRS_BLOCK_SAMPLES and a W-th of them before or after its samples. A block's samples begin at a multiple of TRS_BLOCK_SAMPLES in their array,
  so that the addresses of all blocks are aligned alike.
*/
#pragma once

#include "comm/comm.h"

enum { TRS_BLOCK_SAMPLES = 64 };

typedef struct TrsSampleBlocksImpl *TrsSampleBlocks;

/* In: comm  borrowed. Not collective. */
PetscErrorCode TrsSampleBlocksCreate(TrsComm comm, TrsSampleBlocks *blocks);
PetscErrorCode TrsSampleBlocksDestroy(TrsSampleBlocks *blocks);

/*
  TrsSampleBlocksShare - Share out the blocks of a batch.

  Not collective: arithmetic alone.
  In:     sample       [W + 1] where each rank's samples begin in the batch, and how many there are; borrowed until the next call
  Out:    first_block  [W + 1] borrowed: the first block of each rank, and how many there are
*/
PetscErrorCode TrsSampleBlocksShare(TrsSampleBlocks blocks, const int64_t *sample,
                                    const int64_t **first_block);

/* Samples of this rank's i-th block, and which they are among all samples of its blocks. Not collective. */
int64_t TrsSampleBlocksSize(TrsSampleBlocks blocks, int64_t i, int64_t *begin);

/*
  TrsSampleBlocksSend, TrsSampleBlocksReturn - `width` floats a sample from own samples to the samples of my blocks, and back; device memory.

  Collective on comm. In: buffer  which of the object's buffers takes them: each holds until the next call with it. Out: to  borrowed
*/
typedef enum {
  TRS_BLOCK_ROWS,
  TRS_BLOCK_DENSE,
  TRS_BLOCK_LABELS,
  TRS_BLOCK_WEIGHTS,
  TRS_BLOCK_RETURNED_PREDICTIONS,
  TRS_BLOCK_RETURNED_GRADS,
  TRS_N_BLOCK_BUFFERS
} TrsBlockBuffer;
PetscErrorCode TrsSampleBlocksSend(TrsSampleBlocks blocks, TrsStream stream, TrsBlockBuffer buffer,
                                   int64_t width, const float *own, float **to);
PetscErrorCode TrsSampleBlocksReturn(TrsSampleBlocks blocks, TrsStream stream, TrsBlockBuffer buffer,
                                     int64_t width, const float *of_blocks, float **to);
