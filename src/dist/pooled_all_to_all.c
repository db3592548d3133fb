/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/pooled_all_to_all.h"

#include "dist/coded_exchange.h"

struct TrsPooledAllToAllImpl {
  TrsComm comm;
  PetscBool gradient_division;
  int64_t *dims; /* [size] */
  int64_t *owner_counts,
      *owner_displs; /* [size] of the rows this rank owns columns of, by their samples' rank */
  int64_t *sample_counts, *sample_displs; /* [size] of this rank's samples, by the columns' owner */
  int64_t n_owner, n_sample;              /* totals */
  TrsDeviceBuffer recv, grad_send, grad;
  TrsCodedExchange forward, backward;
};

PetscErrorCode TrsPooledAllToAllCreate(TrsComm comm, const int64_t *dims, const TrsPooledDistOptions *options,
                                       TrsPooledAllToAll *dist)
{
  const size_t size = (size_t)comm->size;

  PetscFunctionBegin;
  PetscCall(PetscNew(dist));
  (*dist)->comm = comm;
  (*dist)->gradient_division = options->gradient_division;
  PetscCall(PetscCalloc1(5 * size, &(*dist)->dims));
  (*dist)->owner_counts = (*dist)->dims + size;
  (*dist)->owner_displs = (*dist)->dims + 2 * size;
  (*dist)->sample_counts = (*dist)->dims + 3 * size;
  (*dist)->sample_displs = (*dist)->dims + 4 * size;
  PetscCall(PetscArraycpy((*dist)->dims, dims, size));
  PetscCall(TrsCodedExchangeInit(comm, &options->forward, &(*dist)->forward));
  PetscCall(TrsCodedExchangeInit(comm, &options->backward, &(*dist)->backward));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllDestroy(TrsPooledAllToAll *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCodedExchangeFree(&(*dist)->forward));
  PetscCall(TrsCodedExchangeFree(&(*dist)->backward));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->recv));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->grad_send));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->grad));
  PetscCall(PetscFree((*dist)->dims));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllStart(TrsPooledAllToAll dist, TrsStream stream, const float *pooled,
                                      const int64_t *source_batch)
{
  const int rank = dist->comm->rank;

  PetscFunctionBegin;
  dist->n_owner = 0;
  dist->n_sample = 0;
  for (int q = 0; q < dist->comm->size; q++) {
    dist->owner_counts[q] = source_batch[q] * dist->dims[rank];
    dist->owner_displs[q] = dist->n_owner;
    dist->n_owner += dist->owner_counts[q];
    dist->sample_counts[q] = source_batch[rank] * dist->dims[q];
    dist->sample_displs[q] = dist->n_sample;
    dist->n_sample += dist->sample_counts[q];
  }
  PetscCall(TrsDeviceBufferReserve(dist->comm->device, &dist->recv, dist->n_sample * (int64_t)sizeof(float)));
  PetscCall(TrsCodedAlltoallvStart(&dist->forward, stream, pooled, dist->owner_counts, dist->owner_displs,
                                   (float *)dist->recv.data, dist->sample_counts, dist->sample_displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllWait(TrsPooledAllToAll dist, TrsStream stream, const float **recv,
                                     const int64_t **block_displs)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&dist->forward, stream));
  *recv = (const float *)dist->recv.data;
  *block_displs = dist->sample_displs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllGradBuffer(TrsPooledAllToAll dist, float **send, const int64_t **block_displs)
{
  PetscFunctionBegin;
  PetscCall(
      TrsDeviceBufferReserve(dist->comm->device, &dist->grad_send, dist->n_sample * (int64_t)sizeof(float)));
  *send = (float *)dist->grad_send.data;
  *block_displs = dist->sample_displs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllGradStart(TrsPooledAllToAll dist, TrsStream stream)
{
  PetscFunctionBegin;
  if (dist->gradient_division)
    PetscCall(TrsCodedExchangeDivide(&dist->backward, stream, dist->n_sample, (float *)dist->grad_send.data));
  PetscCall(TrsDeviceBufferReserve(dist->comm->device, &dist->grad, dist->n_owner * (int64_t)sizeof(float)));
  PetscCall(TrsCodedAlltoallvStart(&dist->backward, stream, (const float *)dist->grad_send.data,
                                   dist->sample_counts, dist->sample_displs, (float *)dist->grad.data,
                                   dist->owner_counts, dist->owner_displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllGradWait(TrsPooledAllToAll dist, TrsStream stream, const float **grad)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&dist->backward, stream));
  *grad = (const float *)dist->grad.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}
