/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The sum of one vector per block over all blocks. The vectors are added in a binary tree over the
  indices of the blocks. The tree does not depend on the ranks that hold the blocks. Two siblings
  are added as soon as both are available, left plus right.

  A rank adds a range of consecutive blocks. At the end it has the few largest subtrees in this
  range. It has one if the number of blocks is a power of two that the ranks divide evenly, and at
  most 2 log2 of the number of blocks. These subtrees are added slice by slice as in a
  reduce-scatter, and the sums are gathered. A rank needs device memory for the subtrees' vectors.
  It sends the vectors once and the sum once.
*/
#pragma once

#include "comm/comm.h"

typedef struct TrsBlockSumImpl *TrsBlockSum;

/* Create a sum. In: comm is borrowed; n is the number of floats in a vector. Not collective. */
PetscErrorCode TrsBlockSumCreate(TrsComm comm, int64_t n, TrsBlockSum *sum);
PetscErrorCode TrsBlockSumDestroy(TrsBlockSum *sum);

/*
  Add the vector [n] of the next block of this rank. `block` is the block's index among all blocks.
  The vector is copied. Not collective. The work runs in the stream's order.
*/
PetscErrorCode TrsBlockSumAdd(TrsBlockSum sum, TrsStream stream, int64_t block, const float *vector);

/*
  Write the sum over all ranks' blocks to total [n]. The bits are the same on every rank, and for
  every distribution of the blocks. first_block [W + 1] has the first block of each rank; the last
  entry is the number of blocks. Afterwards the object is empty again. Collective on comm.
*/
PetscErrorCode TrsBlockSumFinish(TrsBlockSum sum, TrsStream stream, const int64_t *first_block, float *total);
