/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Forward and backward of the dense layers by fixed blocks of the global batch (sample_blocks.h),
  for -reproducible, -accumulate_steps and pair losses. A block's backward directly follows its
  forward, because the layers keep only one block's activations. A pair loss (pair_loss.h) first
  needs the outputs of all blocks, so each block's forward runs again before its backward. The
  layers' gradients are added up in a fixed tree (block_sum.h).

  On a device a block's bits depend only on the sizes and addresses of its kernels' operands. Sizes
  are the same in all blocks except the batch's last one. Activations and parameters have fixed
  addresses in the model, and all blocks' samples have the same alignment (sample_blocks.h). All
  work is enqueued, and the host never waits here.

  Cost in addition to the work of the layers: a sample whose block is on another rank is sent there,
  and its results are sent back. Layers run on one block at a time. With -reproducible on a GPU,
  there are about 6 launches for each layer and block, which take longer than the work of small
  layers. Gradients are sent after the backward instead of during it.
*/
#pragma once

#include "data/batch.h"
#include "model/dlrm.h"
#include "train/pair_loss.h"
#include "train/ragged_rows.h"
#include "train/sample_blocks.h"

typedef struct TrsBlockwiseImpl *TrsBlockwise;

/* The objects that work on blocks use. All are borrowed. */
typedef struct {
  TrsComm comm;
  TrsDlrm dlrm; /* must be set up for batches with `size` samples */
  int num_dense;
  int64_t size;          /* number of samples per block */
  TrsPairLoss pair_loss; /* or NULL */
  TrsRaggedRows ragged;  /* or NULL */
} TrsBlockwiseConfig;

/* Create the object. Not collective. */
PetscErrorCode TrsBlockwiseCreate(const TrsBlockwiseConfig *config, TrsBlockwise *blockwise);
PetscErrorCode TrsBlockwiseDestroy(TrsBlockwise *blockwise);

/*
  Provide memory for the interaction's input of n own samples. The caller must write their
  embeddings before the Forward. Borrowed until the next call. Not collective.
*/
PetscErrorCode TrsBlockwiseRows(TrsBlockwise blockwise, int64_t n, float **rows);

/*
  TrsBlockwiseForward - Run the forward of the dense layers on all samples. With `backward`, also
    run their backward.

  Collective on comm.

  In:     batch   this rank's samples, on the device; the global batch is distributed as in
                  data/batch_order.h
          scale   factor of the loss' gradient: 1/G
  Out:    predictions  [B, columns] for this rank's samples, borrowed until the next Forward. May be
                       NULL
*/
PetscErrorCode TrsBlockwiseForward(TrsBlockwise blockwise, TrsStream stream, const TrsBatch *batch,
                                   float scale, PetscBool backward, const float **predictions);

/* Make every Forward keep the towers' outputs, for TrsBlockwisePairs(). Not collective. */
void TrsBlockwiseKeepPairs(TrsBlockwise blockwise);

/*
  Get the towers' outputs for this rank's samples, [B, 2 D], after a Forward. Borrowed until the
  next call. Collective.
*/
PetscErrorCode TrsBlockwisePairs(TrsBlockwise blockwise, TrsStream stream, const float **pairs);

/*
  Get the losses of the last Forward in n parts, [n, tasks]. The stream must have finished its work.
  Rank 0 gets the losses of all ranks' samples. On other ranks, and without labels, n is 0, so that
  the losses can be summed over ranks. After a Forward without backward, a part is the loss of one
  sample. After a Forward with backward, and with a loss of pairs, it is the loss of one block.
  Borrowed until the next Forward. Not collective.
*/
void TrsBlockwiseLosses(TrsBlockwise blockwise, int64_t *n, const double **losses);

/*
  Get the gradients of the rows of this rank's samples, after a Forward with backward. The caller
  may change them. Gradients of ragged rows are written to their own matrices. Borrowed until the
  next call. Collective.
*/
PetscErrorCode TrsBlockwiseRowGradients(TrsBlockwise blockwise, TrsStream stream, float **grads);

/*
  Write the layers' gradients, summed over all samples, to `grads`, which has the layout of the
  model's flat array. The bits are the same on every rank. Collective.
*/
PetscErrorCode TrsBlockwiseGradients(TrsBlockwise blockwise, TrsStream stream, float *grads);
