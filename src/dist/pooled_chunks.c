/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/pooled_chunks.h"

#include "comm/qcomm.h"

struct TrsPooledChunksImpl {
  TrsComm comm;
  int64_t dim;
  int64_t *counts, *displs; /* [size] counts and places of the chunks, in floats */
  int64_t n;                /* floats of all chunks */
  float *rows;              /* the caller's rows; their gradients come back in their place */
  float *given;             /* the result of Wait, then the gradients that are sent */
  TrsDeviceBuffer result;
  TrsCodedExchange forward, backward;
};

PetscErrorCode TrsPooledReduceScatterCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                            TrsPooledChunks *dist)
{
  const TrsCodec forward = TrsQcommForSums(options->forward, PETSC_FALSE);
  const TrsCodec backward = TrsQcommForSums(options->backward, PETSC_TRUE);

  PetscFunctionBegin;
  PetscCall(PetscNew(dist));
  (*dist)->comm = comm;
  (*dist)->dim = dim;
  PetscCall(PetscCalloc1(2 * (size_t)comm->size, &(*dist)->counts));
  (*dist)->displs = (*dist)->counts + comm->size;
  PetscCall(TrsCodedExchangeInit(comm, &forward, &(*dist)->forward));
  PetscCall(TrsCodedExchangeInit(comm, &backward, &(*dist)->backward));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledChunksDestroy(TrsPooledChunks *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCodedExchangeFree(&(*dist)->forward));
  PetscCall(TrsCodedExchangeFree(&(*dist)->backward));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->result));
  PetscCall(PetscFree((*dist)->counts));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledChunksStart(TrsPooledChunks dist, TrsStream stream, float *rows,
                                    const int64_t *chunk_rows)
{
  PetscFunctionBegin;
  dist->n = 0;
  for (int q = 0; q < dist->comm->size; q++) {
    dist->counts[q] = chunk_rows[q] * dist->dim;
    dist->displs[q] = dist->n;
    dist->n += dist->counts[q];
  }
  dist->rows = dist->given = rows;
  if (TrsCodedExchangeStays(&dist->forward)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferReserveShared(dist->comm->device, &dist->result,
                                         dist->counts[dist->comm->rank] * (int64_t)sizeof(float)));
  dist->given = (float *)dist->result.data;
  PetscCall(TrsCodedReduceScattervStart(&dist->forward, stream, rows, dist->counts, dist->given));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledChunksWait(TrsPooledChunks dist, TrsStream stream, const float **rows)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&dist->forward, stream));
  *rows = dist->given;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledChunksGradBuffer(TrsPooledChunks dist, float **send)
{
  PetscFunctionBegin;
  *send = dist->given;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledChunksGradStart(TrsPooledChunks dist, TrsStream stream)
{
  PetscFunctionBegin;
  if (dist->given == dist->rows && TrsCodedExchangeStays(&dist->backward)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
      TrsCodedAllgathervStart(&dist->backward, stream, dist->given, dist->rows, dist->counts, dist->displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledChunksGradWait(TrsPooledChunks dist, TrsStream stream, const float **grad)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&dist->backward, stream));
  *grad = dist->rows;
  PetscFunctionReturn(PETSC_SUCCESS);
}
