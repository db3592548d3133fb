/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/pooled_all_gather.h"

#include "comm/qcomm.h"

struct TrsPooledAllGatherImpl {
  TrsComm comm;
  PetscBool gradient_division;
  int64_t dim;
  int64_t *counts, *displs; /* [size] in floats */
  int64_t n;                /* of all ranks */
  TrsDeviceBuffer gathered, grad_send, grad;
  TrsCodedExchange forward, backward;
};

PetscErrorCode TrsPooledAllGatherCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                        TrsPooledAllGather *dist)
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

PetscErrorCode TrsPooledAllGatherDestroy(TrsPooledAllGather *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCodedExchangeFree(&(*dist)->forward));
  PetscCall(TrsCodedExchangeFree(&(*dist)->backward));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->gathered));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->grad_send));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->grad));
  PetscCall(PetscFree((*dist)->counts));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllGatherStart(TrsPooledAllGather dist, TrsStream stream, const float *local,
                                       const int64_t *rows)
{
  PetscFunctionBegin;
  dist->n = 0;
  for (int q = 0; q < dist->comm->size; q++) {
    dist->counts[q] = rows[q] * dist->dim;
    dist->displs[q] = dist->n;
    dist->n += dist->counts[q];
  }
  PetscCall(TrsDeviceBufferReserve(dist->comm->device, &dist->gathered, dist->n * (int64_t)sizeof(float)));
  PetscCall(TrsCodedAllgathervStart(&dist->forward, stream, local, (float *)dist->gathered.data, dist->counts,
                                    dist->displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllGatherWait(TrsPooledAllGather dist, TrsStream stream, const float **gathered)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&dist->forward, stream));
  *gathered = (const float *)dist->gathered.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllGatherGradBuffer(TrsPooledAllGather dist, float **send)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(dist->comm->device, &dist->grad_send, dist->n * (int64_t)sizeof(float)));
  *send = (float *)dist->grad_send.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllGatherGradStart(TrsPooledAllGather dist, TrsStream stream)
{
  const int64_t own = dist->counts[dist->comm->rank];

  PetscFunctionBegin;
  if (dist->gradient_division)
    PetscCall(TrsCodedExchangeDivide(&dist->backward, stream, dist->n, (float *)dist->grad_send.data));
  PetscCall(TrsDeviceBufferReserve(dist->comm->device, &dist->grad, own * (int64_t)sizeof(float)));
  PetscCall(TrsCodedReduceScattervStart(&dist->backward, stream, (const float *)dist->grad_send.data,
                                        dist->counts, (float *)dist->grad.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllGatherGradWait(TrsPooledAllGather dist, TrsStream stream, const float **grad)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&dist->backward, stream));
  *grad = (const float *)dist->grad.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}
