/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Forward and backward of the dense layers by fixed blocks of the global batch (sample_blocks.h), for -reproducible. A block's backward
  follows its forward at once, for the layers keep one block's activations; gradients of the layers are added up in a fixed tree (block_sum.h).

  On a device a block's bits depend on the sizes and addresses of its kernels' operands alone: sizes are the same in all blocks but the batch's last
  one, activations and parameters lie where the model has them, and a block's samples are aligned like any other's (sample_blocks.h).
  All of it is enqueued; the host waits for nothing here.

  Cost beside the work itself: samples move to their blocks' ranks and back, layers run on TRS_BLOCK_SAMPLES samples at a time (on a GPU their
  launches, some 6 a layer and block, take longer than small layers' work), and gradients travel after the backward, not under it.
*/
#pragma once

#include "data/batch.h"
#include "model/dlrm.h"
#include "train/sample_blocks.h"

typedef struct TrsBlockwiseImpl *TrsBlockwise;

/* In: comm, dlrm  borrowed; the model is set up for batches of TRS_BLOCK_SAMPLES. Not collective. */
PetscErrorCode TrsBlockwiseCreate(TrsComm comm, TrsDlrm dlrm, int num_dense, TrsBlockwise *blockwise);
PetscErrorCode TrsBlockwiseDestroy(TrsBlockwise *blockwise);

/* Room for the interaction's input of n own samples, to be filled with their embeddings before Forward. Borrowed until the next call. Not collective. */
PetscErrorCode TrsBlockwiseRows(TrsBlockwise blockwise, int64_t n, float **rows);

/*
  TrsBlockwiseForward - The dense layers' forward of all samples, and their backward when it is wanted.

  Collective on comm.

  In:     batch   own samples, on the device; ranks share the global batch as data/batch_order.h does
          scale   of the loss' gradient: 1/G
  Out:    predictions  [B] of own samples, borrowed until the next Forward. May be NULL
*/
PetscErrorCode TrsBlockwiseForward(TrsBlockwise blockwise, TrsStream stream, const TrsBatch *batch,
                                   float scale, PetscBool backward, const float **predictions);

/*
  The last Forward's loss, once the stream has come to its end: of all ranks' samples, on rank 0; 0 on the others, so that ranks add up, and without
  labels. Not collective.
*/
double TrsBlockwiseLoss(TrsBlockwise blockwise);

/* After a Forward with backward: gradients of own samples' rows, the caller may change them; borrowed until the next call. Collective. */
PetscErrorCode TrsBlockwiseRowGradients(TrsBlockwise blockwise, TrsStream stream, float **grads);

/* And the layers' gradients, summed over all samples, to grads: the model's flat array, the same bits on every rank. Collective. */
PetscErrorCode TrsBlockwiseGradients(TrsBlockwise blockwise, TrsStream stream, float *grads);
