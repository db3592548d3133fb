/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The chunks of a sum or an all-gather: chunk q belongs to rank q. Backends use them, and keep one
  TrsChunks in each request.
*/
#pragma once

#include "comm/comm.h"

/* All arrays are [size], in elements. */
typedef struct {
  int64_t *counts, *displs;         /* the chunks, one after the other */
  int64_t *own_counts, *own_displs; /* this rank's chunk, as it is sent to every rank */
  int64_t *part_displs;             /* where the ranks' parts of this rank's chunk are stored */
  const float **part_of;            /* addresses of the ranks' parts of this rank's chunk */
} TrsChunks;

/* Make room for the chunks of `size` ranks. Not collective. Errors: MEMORY. */
PetscErrorCode TrsChunksAlloc(int size, TrsChunks *chunks);
PetscErrorCode TrsChunksFree(TrsChunks *chunks);

/*
  TrsChunksSet - Give chunk q counts[q] elements. Chunks and parts are adjacent.

  Not collective.

  In:   counts           [size], the same on all ranks; may be chunks->counts
        gather_in_place  true: this rank's chunk is sent from its place among the others; false:
                         from the beginning of the send buffer
*/
void TrsChunksSet(TrsComm comm, const int64_t *counts, PetscBool gather_in_place, TrsChunks *chunks);

/* TrsChunksSet() for n elements in chunks of nearly equal size, gathered in place. */
void TrsChunksSetEven(TrsComm comm, int64_t n, TrsChunks *chunks);
