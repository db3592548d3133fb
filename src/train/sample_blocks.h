/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The dense layers' work of -reproducible, cut into fixed blocks of the global batch: TRS_BLOCK_SAMPLES samples a block, whatever the ranks.
  A block is computed by one rank, so its bits depend on nothing else; blocks are shared out evenly, and what goes over all samples
  (gradients, losses) is added up over blocks in one fixed tree.

    own samples' rows, dense features, labels --all-to-all--> samples of my blocks; gradients of rows, predictions --all-to-all--> own samples

  Most samples stay where they are: rank r's blocks begin at most TRS_BLOCK_SAMPLES and a W-th of them before or after its samples. Host memory only.
*/
#pragma once

#include "comm/comm.h"

enum { TRS_BLOCK_SAMPLES = 64 };

typedef struct TrsSampleBlocksImpl *TrsSampleBlocks;

/* In: comm  borrowed. Not collective. */
PetscErrorCode TrsSampleBlocksCreate(TrsComm comm, TrsSampleBlocks *blocks);
PetscErrorCode TrsSampleBlocksDestroy(TrsSampleBlocks *blocks);

/*
  TrsSampleBlocksShare - Share out the blocks of a batch of which this rank has n samples; ranks' samples follow one another.

  Collective on comm.
  Out:    n_blocks, first  of this rank, in the global batch's count
          n_all            of all ranks
*/
PetscErrorCode TrsSampleBlocksShare(TrsSampleBlocks blocks, int64_t n, int64_t *n_blocks, int64_t *first,
                                    int64_t *n_all);

/* Samples of this rank's i-th block, and which they are among all samples of its blocks. Not collective. */
int64_t TrsSampleBlocksSize(TrsSampleBlocks blocks, int64_t i, int64_t *begin);

/*
  TrsSampleBlocksSend, TrsSampleBlocksReturn - `width` floats a sample from own samples to the samples of my blocks, and back.

  Collective on comm. In: buffer  which of the object's buffers takes them: each holds until the next call with it. Out: to  borrowed
*/
typedef enum {
  TRS_BLOCK_ROWS,
  TRS_BLOCK_DENSE,
  TRS_BLOCK_LABELS,
  TRS_BLOCK_RETURNED_PREDICTIONS,
  TRS_BLOCK_RETURNED_GRADS,
  TRS_N_BLOCK_BUFFERS
} TrsBlockBuffer;
PetscErrorCode TrsSampleBlocksSend(TrsSampleBlocks blocks, TrsStream stream, TrsBlockBuffer buffer,
                                   int64_t width, const float *own, float **to);
PetscErrorCode TrsSampleBlocksReturn(TrsSampleBlocks blocks, TrsStream stream, TrsBlockBuffer buffer,
                                     int64_t width, const float *of_blocks, float **to);
