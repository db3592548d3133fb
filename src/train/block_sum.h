/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sum of one vector a block over all blocks, in a binary tree over their numbers that does not depend on who has which: two siblings are
  added as soon as both are here, left plus right. A rank is left with the few largest subtrees that its run of blocks holds (one, when the
  ranks divide a power of two of blocks; at most 2 log2 of the blocks), and these are added up slice by slice like a reduce-scatter, then gathered.

  Memory: the subtrees' vectors. Traffic of a rank: its subtrees' vectors once and the sum once. Device memory.
*/
#pragma once

#include "comm/comm.h"

typedef struct TrsBlockSumImpl *TrsBlockSum;

/* In: comm  borrowed; n  floats of a vector. Not collective. */
PetscErrorCode TrsBlockSumCreate(TrsComm comm, int64_t n, TrsBlockSum *sum);
PetscErrorCode TrsBlockSumDestroy(TrsBlockSum *sum);

/* The vector [n] of the next block of this rank's run, which is block number `block` of all; copied. Not collective; ordered on the stream. */
PetscErrorCode TrsBlockSumAdd(TrsBlockSum sum, TrsStream stream, int64_t block, const float *vector);

/*
  The sum over all ranks' blocks to total [n], the same bits on every rank and for every share of the blocks; first_block [W + 1]: the ranks' runs.
  Starts anew. Collective on comm.
*/
PetscErrorCode TrsBlockSumFinish(TrsBlockSum sum, TrsStream stream, const int64_t *first_block, float *total);
