/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Division of an array into chunks, for a sum over ranks or an all-gather: chunk q belongs to rank
  q. Each request of a backend has one TrsChunks.
*/
#pragma once

#include "comm/comm.h"

/* All arrays are [size]. Counts and displacements are in elements. */
typedef struct {
  int64_t *counts, *displs;         /* the chunks, which lie one after another */
  int64_t *own_counts, *own_displs; /* this rank's chunk, which it sends to every rank */
  /* displacements at which the ranks' parts of this rank's chunk are stored */
  int64_t *part_displs;
  const float **part_of; /* addresses of the ranks' parts of this rank's chunk */
} TrsChunks;

/* Allocate the arrays for the chunks of `size` ranks. Not collective. Errors: MEMORY. */
PetscErrorCode TrsChunksAlloc(int size, TrsChunks *chunks);
PetscErrorCode TrsChunksFree(TrsChunks *chunks);

/*
  TrsChunksSet - Set the chunks: chunk q has counts[q] elements. Chunks lie one after another, and
    so do parts.

  Not collective.

  In:   counts           [size], the same on all ranks; may be chunks->counts
        gather_in_place  true: this rank's chunk is sent from its displacement in the array; false:
                         from the beginning of the send buffer
*/
void TrsChunksSet(TrsComm comm, const int64_t *counts, PetscBool gather_in_place, TrsChunks *chunks);

/* Call TrsChunksSet() for n elements in chunks of nearly equal size, with gather_in_place. */
void TrsChunksSetEven(TrsComm comm, int64_t n, TrsChunks *chunks);
