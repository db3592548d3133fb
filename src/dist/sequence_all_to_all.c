/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/sequence_all_to_all.h"

#include "dist/coded_exchange.h"

struct TrsSequenceAllToAllImpl {
  TrsComm comm;
  PetscBool gradient_division;
  int64_t dim;
  int64_t *owner_counts, *owner_displs;   /* [size] floats of ids this rank looks up, by their source */
  int64_t *sample_counts, *sample_displs; /* [size] floats of ids this rank sent, by where they went */
  int64_t n_owner, n_sample;              /* totals */
  TrsDeviceBuffer recv, grad_send, grad;
  TrsCodedExchange forward, backward;
};

PetscErrorCode TrsSequenceAllToAllCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                         TrsSequenceAllToAll *dist)
{
  const size_t size = (size_t)comm->size;

  PetscFunctionBegin;
  PetscCall(PetscNew(dist));
  (*dist)->comm = comm;
  (*dist)->gradient_division = options->gradient_division;
  (*dist)->dim = dim;
  PetscCall(PetscCalloc1(4 * size, &(*dist)->owner_counts));
  (*dist)->owner_displs = (*dist)->owner_counts + size;
  (*dist)->sample_counts = (*dist)->owner_counts + 2 * size;
  (*dist)->sample_displs = (*dist)->owner_counts + 3 * size;
  PetscCall(TrsCodedExchangeInit(comm, &options->forward, &(*dist)->forward));
  PetscCall(TrsCodedExchangeInit(comm, &options->backward, &(*dist)->backward));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllDestroy(TrsSequenceAllToAll *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCodedExchangeFree(&(*dist)->forward));
  PetscCall(TrsCodedExchangeFree(&(*dist)->backward));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->recv));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->grad_send));
  PetscCall(TrsDeviceBufferFree((*dist)->comm->device, &(*dist)->grad));
  PetscCall(PetscFree((*dist)->owner_counts));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllStart(TrsSequenceAllToAll dist, TrsStream stream, const float *rows,
                                        const int64_t *received_ids, const int64_t *sent_ids)
{
  PetscFunctionBegin;
  dist->n_owner = 0;
  dist->n_sample = 0;
  for (int q = 0; q < dist->comm->size; q++) {
    dist->owner_counts[q] = received_ids[q] * dist->dim;
    dist->owner_displs[q] = dist->n_owner;
    dist->n_owner += dist->owner_counts[q];
    dist->sample_counts[q] = sent_ids[q] * dist->dim;
    dist->sample_displs[q] = dist->n_sample;
    dist->n_sample += dist->sample_counts[q];
  }
  PetscCall(TrsDeviceBufferReserve(dist->comm->device, &dist->recv, dist->n_sample * (int64_t)sizeof(float)));
  PetscCall(TrsCodedAlltoallvStart(&dist->forward, stream, rows, dist->owner_counts, dist->owner_displs,
                                   (float *)dist->recv.data, dist->sample_counts, dist->sample_displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllWait(TrsSequenceAllToAll dist, TrsStream stream, const float **rows)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&dist->forward, stream));
  *rows = (const float *)dist->recv.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllGradBuffer(TrsSequenceAllToAll dist, float **send)
{
  PetscFunctionBegin;
  PetscCall(
      TrsDeviceBufferReserve(dist->comm->device, &dist->grad_send, dist->n_sample * (int64_t)sizeof(float)));
  *send = (float *)dist->grad_send.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllGradStart(TrsSequenceAllToAll dist, TrsStream stream)
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

PetscErrorCode TrsSequenceAllToAllGradWait(TrsSequenceAllToAll dist, TrsStream stream, const float **grad)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&dist->backward, stream));
  *grad = (const float *)dist->grad.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}
