/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Forward and backward of the dense layers by fixed blocks of the global batch (sample_blocks.h),
  for -reproducible, -accumulate_steps and losses of pairs. A block's backward follows its forward
  at once, because the layers keep one block's activations. A loss of pairs (pair_loss.h) needs the
  outputs of all blocks first; each block's forward then runs again before its backward. The layers'
  gradients are added up in a fixed tree (block_sum.h).

  On a device a block's bits depend only on the sizes and addresses of its kernels' operands. Sizes
  are the same in all blocks except the batch's last one. Activations and parameters lie where the
  model has them, and all blocks' samples have the same alignment (sample_blocks.h). All work is
  enqueued, and the host waits for nothing here.

  Cost beside the work itself: samples that do not stay move to their blocks' ranks and back. Layers
  run on one block at a time; with -reproducible, on a GPU, the launches, some 6 for each layer and
  block, take longer than the work of small layers. Gradients travel after the backward and not
  under it.
*/
#pragma once

#include "data/batch.h"
#include "model/dlrm.h"
#include "train/pair_loss.h"
#include "train/ragged_rows.h"
#include "train/sample_blocks.h"

typedef struct TrsBlockwiseImpl *TrsBlockwise;

/* What the blocks work on. All is borrowed. */
typedef struct {
  TrsComm comm;
  TrsDlrm dlrm; /* set up for batches of `size` samples */
  int num_dense;
  int64_t size;          /* samples of a block */
  TrsPairLoss pair_loss; /* or NULL */
  TrsRaggedRows ragged;  /* or NULL */
} TrsBlockwiseConfig;

/* Not collective. */
PetscErrorCode TrsBlockwiseCreate(const TrsBlockwiseConfig *config, TrsBlockwise *blockwise);
PetscErrorCode TrsBlockwiseDestroy(TrsBlockwise *blockwise);

/*
  Room for the interaction's input of n own samples. The caller fills in their embeddings before the
  Forward. Borrowed until the next call. Not collective.
*/
PetscErrorCode TrsBlockwiseRows(TrsBlockwise blockwise, int64_t n, float **rows);

/*
  TrsBlockwiseForward - The dense layers' forward of all samples, and their backward if it is
    wanted.

  Collective on comm.

  In:     batch   own samples, on the device; ranks share the global batch as data/batch_order.h
                  does
          scale   of the loss' gradient: 1/G
  Out:    predictions  [B, columns] of own samples, borrowed until the next Forward. May be NULL
*/
PetscErrorCode TrsBlockwiseForward(TrsBlockwise blockwise, TrsStream stream, const TrsBatch *batch,
                                   float scale, PetscBool backward, const float **predictions);

/* Let every Forward keep the towers' outputs, for TrsBlockwisePairs(). Not collective. */
void TrsBlockwiseKeepPairs(TrsBlockwise blockwise);

/*
  The towers' outputs of own samples, [B, 2 D], after a Forward. Borrowed until the next call.
  Collective.
*/
PetscErrorCode TrsBlockwisePairs(TrsBlockwise blockwise, TrsStream stream, const float **pairs);

/*
  The losses [tasks] of the last Forward, once the stream has finished. On rank 0 they are those of
  all ranks' samples. On other ranks, and without labels, they are 0, so that the ranks can add up.
  Not collective.
*/
void TrsBlockwiseLosses(TrsBlockwise blockwise, double *losses);

/*
  The gradients of own samples' rows, after a Forward with backward. The caller may change them.
  Those of ragged rows come back to their own matrices.
  Borrowed until the next call. Collective.
*/
PetscErrorCode TrsBlockwiseRowGradients(TrsBlockwise blockwise, TrsStream stream, float **grads);

/*
  Write the layers' gradients, summed over all samples, to grads, the model's flat array. The bits
  are the same on every rank. Collective.
*/
PetscErrorCode TrsBlockwiseGradients(TrsBlockwise blockwise, TrsStream stream, float *grads);
