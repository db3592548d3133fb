/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/one_to_all.h"

#include "dist/pooled_chunks.h"

struct TrsOneToAllImpl {
  TrsComm comm;
  int root;
  TrsKjtExchange exchange;
  TrsKjt nothing; /* what the other ranks send */
};

PetscErrorCode TrsOneToAllCreate(TrsComm comm, int root, const int *n_features, int n_local,
                                 PetscBool is_weighted, TrsOneToAll *dist)
{
  int n_sent = 0;

  PetscFunctionBegin;
  PetscCall(PetscNew(dist));
  (*dist)->comm = comm;
  (*dist)->root = root;
  PetscCall(TrsKjtExchangeCreate(comm, n_features, n_local, is_weighted, NULL, &(*dist)->exchange));
  for (int q = 0; q < comm->size; q++) n_sent += n_features[q];
  PetscCall(TrsKjtReserve(comm->device, &(*dist)->nothing, n_sent, 0, 0, is_weighted));
  PetscCall(TrsKjtOffsets(comm->compute, NULL, &(*dist)->nothing));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOneToAllDestroy(TrsOneToAll *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsKjtExchangeDestroy(&(*dist)->exchange));
  PetscCall(TrsKjtFree((*dist)->comm->device, &(*dist)->nothing));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOneToAllStart(TrsOneToAll dist, TrsStream stream, const TrsKjt *batch)
{
  const TrsKjt *send = dist->comm->rank == dist->root ? batch : &dist->nothing;

  PetscFunctionBegin;
  PetscCall(TrsKjtExchangeStartSplits(1, &dist->exchange, &send, stream));
  PetscCall(TrsKjtExchangeStartTensors(1, &dist->exchange, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOneToAllWait(TrsOneToAll dist, TrsStream stream, TrsKjt *recv)
{
  const int64_t *source_batch;

  PetscFunctionBegin;
  PetscCall(TrsKjtExchangeWait(dist->exchange, stream, recv, &source_batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct TrsAllToOneImpl {
  int root;
  int64_t *batches;              /* [size] samples of each rank: none but the root's */
  TrsPooledAllToAll concatenate; /* one of the two */
  TrsPooledChunks sum;
};

static PetscErrorCode create_all_to_one(TrsComm comm, int root, TrsAllToOne *dist)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(dist));
  (*dist)->root = root;
  PetscCall(PetscCalloc1((size_t)comm->size, &(*dist)->batches));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAllToOneCreate(TrsComm comm, int root, const int64_t *dims, const TrsCodec *forward,
                                 TrsAllToOne *dist)
{
  const TrsPooledDistOptions options = {.forward = *forward};

  PetscFunctionBegin;
  PetscCall(create_all_to_one(comm, root, dist));
  PetscCall(TrsPooledAllToAllCreate(comm, dims, &options, &(*dist)->concatenate));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAllToOneReduceCreate(TrsComm comm, int root, int64_t dim, const TrsCodec *forward,
                                       TrsAllToOne *dist)
{
  const TrsPooledDistOptions options = {.forward = *forward};

  PetscFunctionBegin;
  PetscCall(create_all_to_one(comm, root, dist));
  PetscCall(TrsPooledReduceScatterCreate(comm, dim, &options, &(*dist)->sum));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAllToOneDestroy(TrsAllToOne *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPooledAllToAllDestroy(&(*dist)->concatenate));
  PetscCall(TrsPooledChunksDestroy(&(*dist)->sum));
  PetscCall(PetscFree((*dist)->batches));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAllToOneStart(TrsAllToOne dist, TrsStream stream, float *pooled, int64_t batch)
{
  PetscFunctionBegin;
  dist->batches[dist->root] = batch;
  if (dist->sum) {
    PetscCall(TrsPooledChunksStart(dist->sum, stream, pooled, dist->batches));
  } else {
    PetscCall(TrsPooledAllToAllStart(dist->concatenate, stream, pooled, dist->batches));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAllToOneWait(TrsAllToOne dist, TrsStream stream, const float **recv,
                               const int64_t **block_displs)
{
  PetscFunctionBegin;
  *block_displs = NULL;
  if (dist->sum) {
    PetscCall(TrsPooledChunksWait(dist->sum, stream, recv));
  } else {
    PetscCall(TrsPooledAllToAllWait(dist->concatenate, stream, recv, block_displs));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
