/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/chunks.h"

PetscErrorCode TrsChunksAlloc(int size, TrsChunks *chunks)
{
  const size_t n = (size_t)size;

  PetscFunctionBegin;
  PetscCall(PetscCalloc5(n, &chunks->counts, n, &chunks->displs, n, &chunks->own_counts, n,
                         &chunks->own_displs, n, &chunks->part_displs));
  PetscCall(PetscCalloc1(n, &chunks->part_of));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsChunksFree(TrsChunks *chunks)
{
  PetscFunctionBegin;
  PetscCall(PetscFree5(chunks->counts, chunks->displs, chunks->own_counts, chunks->own_displs,
                       chunks->part_displs));
  PetscCall(PetscFree(chunks->part_of));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsChunksSet(TrsComm comm, const int64_t *counts, PetscBool gather_in_place, TrsChunks *chunks)
{
  int64_t n = 0;

  for (int q = 0; q < comm->size; q++) {
    chunks->counts[q] = counts[q];
    chunks->displs[q] = n;
    chunks->own_counts[q] = counts[comm->rank];
    chunks->part_displs[q] = q * counts[comm->rank];
    n += counts[q];
  }
  for (int q = 0; q < comm->size; q++)
    chunks->own_displs[q] = gather_in_place ? chunks->displs[comm->rank] : 0;
}

void TrsChunksSetEven(TrsComm comm, int64_t n, TrsChunks *chunks)
{
  for (int q = 0; q < comm->size; q++) chunks->counts[q] = n / comm->size + (q < n % comm->size);
  TrsChunksSet(comm, chunks->counts, PETSC_TRUE, chunks);
}
