/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/pooled_chunks.h"

#include "comm/qcomm.h"

struct TrsPooledChunksImpl {
  TrsComm comm;
  /*
    For a hierarchical exchange, the level inside the hosts; this object is then the level between
    hosts. NULL if the exchange is flat. place_rows [L] and host_rows [H] are the numbers of rows in
    the chunks of the two levels.
  */
  TrsPooledChunks inside;
  int64_t *place_rows, *host_rows;
  int64_t dim;
  int64_t *counts, *displs; /* [size] sizes and positions of the chunks, in floats */
  int64_t n;                /* number of floats in all chunks */
  float *rows;              /* the caller's rows, which the gradients overwrite */
  float *given;             /* the result of Wait, later the gradients that are sent */
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

PetscErrorCode TrsPooledHierarchicalCreate(TrsComm host, TrsComm cross, int64_t dim,
                                           const TrsPooledDistOptions *options, TrsPooledChunks *dist)
{
  const TrsPooledDistOptions plain = {.reproducible = PETSC_FALSE};

  PetscFunctionBegin;
  PetscCall(TrsPooledReduceScatterCreate(cross, dim, options, dist));
  PetscCall(TrsPooledReduceScatterCreate(host, dim, &plain, &(*dist)->inside));
  PetscCall(PetscMalloc2((size_t)host->size, &(*dist)->place_rows, (size_t)cross->size, &(*dist)->host_rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledChunksDestroy(TrsPooledChunks *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPooledChunksDestroy(&(*dist)->inside));
  PetscCall(PetscFree2((*dist)->place_rows, (*dist)->host_rows));
  PetscCall(TrsCodedExchangeFree(&(*dist)->forward));
  PetscCall(TrsCodedExchangeFree(&(*dist)->backward));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->result));
  PetscCall(PetscFree((*dist)->counts));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Start the exchange between the ranks of dist->comm. */
static PetscErrorCode start_level(TrsPooledChunks dist, TrsStream stream, float *rows,
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

/* Count the rows in the chunks of both levels. */
static void count_levels(TrsPooledChunks dist, const int64_t *chunk_rows)
{
  const int L = dist->inside->comm->size, place = dist->inside->comm->rank, H = dist->comm->size;

  for (int l = 0; l < L; l++) dist->place_rows[l] = 0;
  for (int q = 0; q < H * L; q++) dist->place_rows[q % L] += chunk_rows[q];
  for (int h = 0; h < H; h++) dist->host_rows[h] = chunk_rows[h * L + place];
}

PetscErrorCode TrsPooledChunksStart(TrsPooledChunks dist, TrsStream stream, float *rows,
                                    const int64_t *chunk_rows)
{
  const TrsPooledChunks inside = dist->inside;

  PetscFunctionBegin;
  if (!inside) {
    PetscCall(start_level(dist, stream, rows, chunk_rows));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  count_levels(dist, chunk_rows);
  PetscCall(start_level(inside, stream, rows, dist->place_rows));
  /* this does not wait until the peers have read this rank's rows */
  PetscCall(TrsCodedBlocksArrive(&inside->forward, stream));
  PetscCall(start_level(dist, stream, inside->given, dist->host_rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledChunksWait(TrsPooledChunks dist, TrsStream stream, const float **rows)
{
  PetscFunctionBegin;
  if (dist->inside) PetscCall(TrsCodedExchangeWait(&dist->inside->forward, stream));
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
  if (!dist->inside) PetscFunctionReturn(PETSC_SUCCESS);
  /* the gradients from other hosts have replaced the sums of this host */
  PetscCall(TrsPooledChunksGradStart(dist->inside, stream));
  PetscCall(TrsPooledChunksGradWait(dist->inside, stream, grad));
  PetscFunctionReturn(PETSC_SUCCESS);
}
