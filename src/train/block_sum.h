/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The sum of one vector per block over all blocks. The vectors are added in a binary tree over the
  blocks' numbers, which does not depend on the ranks that hold the blocks. Two siblings are added
  as soon as both are available, left plus right.

  At the end a rank has the few largest subtrees in its run of blocks: one if the number of blocks
  is a power of two that the ranks divide evenly, at most 2 log2 of the number of blocks. These
  subtrees are added slice by slice as in a reduce-scatter, then gathered. Memory: the subtrees'
  vectors, in device memory. Traffic per rank: its subtrees' vectors once and the sum once.
*/
#pragma once

#include "comm/comm.h"

typedef struct TrsBlockSumImpl *TrsBlockSum;

/* In: comm is borrowed; n is the number of floats in a vector. Not collective. */
PetscErrorCode TrsBlockSumCreate(TrsComm comm, int64_t n, TrsBlockSum *sum);
PetscErrorCode TrsBlockSumDestroy(TrsBlockSum *sum);

/*
  Add the vector [n] of the next block in this rank's run. `block` is its number among all blocks.
  The vector is copied. Not collective; ordered on the stream.
*/
PetscErrorCode TrsBlockSumAdd(TrsBlockSum sum, TrsStream stream, int64_t block, const float *vector);

/*
  Write the sum over all ranks' blocks to total [n], with the same bits on every rank and for every
  distribution of the blocks. first_block [W + 1] gives the ranks' runs. Afterwards the object is
  empty again. Collective on comm.
*/
PetscErrorCode TrsBlockSumFinish(TrsBlockSum sum, TrsStream stream, const int64_t *first_block, float *total);
