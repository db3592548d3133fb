/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/qcomm.h"
#include "dist/coded_exchange.h"
#include "dist/pooled_all_to_all.h"

struct TrsPooledReduceScatterImpl {
  TrsComm comm;
  PetscBool gradient_division;
  int64_t dim;
  int64_t *counts, *displs; /* [size] of the chunks, in floats */
  int64_t n;                /* in all chunks */
  TrsDeviceBuffer summed, grad_send, grad;
  TrsCodedExchange forward, backward;
};

PetscErrorCode TrsPooledReduceScatterCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                            TrsPooledReduceScatter *dist)
{
  const TrsCodec forward = TrsQcommForSums(options->forward, PETSC_FALSE);
  const TrsCodec backward = TrsQcommForSums(options->backward, PETSC_TRUE);

  PetscFunctionBegin;
  PetscCall(PetscNew(dist));
  (*dist)->comm = comm;
  (*dist)->gradient_division = options->gradient_division;
  (*dist)->dim = dim;
  PetscCall(PetscCalloc1(2 * (size_t)comm->size, &(*dist)->counts));
  (*dist)->displs = (*dist)->counts + comm->size;
  PetscCall(TrsCodedExchangeInit(comm, &forward, &(*dist)->forward));
  PetscCall(TrsCodedExchangeInit(comm, &backward, &(*dist)->backward));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledReduceScatterDestroy(TrsPooledReduceScatter *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCodedExchangeFree(&(*dist)->forward));
  PetscCall(TrsCodedExchangeFree(&(*dist)->backward));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->summed));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->grad_send));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->grad));
  PetscCall(PetscFree((*dist)->counts));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledReduceScatterStart(TrsPooledReduceScatter dist, TrsStream stream,
                                           const float *partial, const int64_t *chunk_rows)
{
  const int rank = dist->comm->rank;

  PetscFunctionBegin;
  dist->n = 0;
  for (int q = 0; q < dist->comm->size; q++) {
    dist->counts[q] = chunk_rows[q] * dist->dim;
    dist->displs[q] = dist->n;
    dist->n += dist->counts[q];
  }
  PetscCall(
      TrsDeviceBufferReserve(dist->comm->device, &dist->summed, dist->counts[rank] * (int64_t)sizeof(float)));
  PetscCall(
      TrsCodedReduceScattervStart(&dist->forward, stream, partial, dist->counts, (float *)dist->summed.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledReduceScatterWait(TrsPooledReduceScatter dist, TrsStream stream, const float **summed)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&dist->forward, stream));
  *summed = (const float *)dist->summed.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledReduceScatterGradBuffer(TrsPooledReduceScatter dist, float **send)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(dist->comm->device, &dist->grad_send,
                                   dist->counts[dist->comm->rank] * (int64_t)sizeof(float)));
  *send = (float *)dist->grad_send.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledReduceScatterGradStart(TrsPooledReduceScatter dist, TrsStream stream)
{
  PetscFunctionBegin;
  if (dist->gradient_division)
    PetscCall(TrsCodedExchangeDivide(&dist->backward, stream, dist->counts[dist->comm->rank],
                                     (float *)dist->grad_send.data));
  PetscCall(TrsDeviceBufferReserve(dist->comm->device, &dist->grad, dist->n * (int64_t)sizeof(float)));
  PetscCall(TrsCodedAllgathervStart(&dist->backward, stream, (const float *)dist->grad_send.data,
                                    (float *)dist->grad.data, dist->counts, dist->displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledReduceScatterGradWait(TrsPooledReduceScatter dist, TrsStream stream,
                                              const float **grad)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&dist->backward, stream));
  *grad = (const float *)dist->grad.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}
