/* SPDX-License-Identifier: BSD-3-Clause */
/* The chunks of a sum, or of what is gathered: chunk q belongs to rank q. For backends, whose requests have one each. */
#pragma once

#include "comm/comm.h"

/* All [size], in elements. Plain data. */
typedef struct {
  int64_t *counts, *displs;         /* of the chunks, one after the other */
  int64_t *own_counts, *own_displs; /* the own chunk, as it goes to every rank */
  int64_t *part_displs;             /* where the ranks' parts of the own chunk are put */
  const float **part_of;            /* and where they are found */
} TrsChunks;

/* Room for a group's chunks. Not collective. Errors: MEMORY */
PetscErrorCode TrsChunksAlloc(int size, TrsChunks *chunks);
PetscErrorCode TrsChunksFree(TrsChunks *chunks);

/*
  TrsChunksSet - Chunk q has counts[q] elements, the same on all ranks; parts lie side by side.

  Not collective.

  In:   counts           [size], may be chunks->counts
        gather_in_place  the own chunk is sent from its place among the others; else from the beginning of what is given
*/
void TrsChunksSet(TrsComm comm, const int64_t *counts, PetscBool gather_in_place, TrsChunks *chunks);

/* The same for n elements in chunks as even as can be, gathered in place. */
void TrsChunksSetEven(TrsComm comm, int64_t n, TrsChunks *chunks);
