/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The chunks of a sum or of an all-gather: chunk q belongs to rank q. Used by backends, which keep
  one TrsChunks in each request.
*/
#pragma once

#include "comm/comm.h"

/* Plain data. All arrays are [size], in elements. */
typedef struct {
  int64_t *counts, *displs;         /* the chunks, one after the other */
  int64_t *own_counts, *own_displs; /* this rank's chunk, as it goes to every rank */
  int64_t *part_displs;             /* where the ranks' parts of this rank's chunk are stored */
  const float **part_of;            /* where the ranks' parts of this rank's chunk are found */
} TrsChunks;

/* Make room for the chunks of `size` ranks. Not collective. Errors: MEMORY. */
PetscErrorCode TrsChunksAlloc(int size, TrsChunks *chunks);
PetscErrorCode TrsChunksFree(TrsChunks *chunks);

/*
  TrsChunksSet - Give chunk q counts[q] elements. Parts lie side by side.

  Not collective.

  In:   counts           [size], the same on all ranks; may be chunks->counts
        gather_in_place  this rank's chunk is sent from its place among the others; else from the
                         beginning of the send buffer
*/
void TrsChunksSet(TrsComm comm, const int64_t *counts, PetscBool gather_in_place, TrsChunks *chunks);

/* TrsChunksSet() for n elements in chunks that are as even as possible, gathered in place. */
void TrsChunksSetEven(TrsComm comm, int64_t n, TrsChunks *chunks);
