/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/round_trip.h"

PetscErrorCode TrsRoundTripInit(TrsComm comm, const TrsPooledDistOptions *options, TrsRoundTrip *trip)
{
  const size_t size = (size_t)comm->size;

  PetscFunctionBegin;
  *trip = (TrsRoundTrip){.comm = comm, .gradient_division = options->gradient_division};
  PetscCall(PetscCalloc1(4 * size, &trip->owner_counts));
  trip->owner_displs = trip->owner_counts + size;
  trip->sample_counts = trip->owner_counts + 2 * size;
  trip->sample_displs = trip->owner_counts + 3 * size;
  PetscCall(TrsCodedExchangeInit(comm, &options->forward, &trip->forward));
  PetscCall(TrsCodedExchangeInit(comm, &options->backward, &trip->backward));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripFree(TrsRoundTrip *trip)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeFree(&trip->forward));
  PetscCall(TrsCodedExchangeFree(&trip->backward));
  PetscCall(TrsDeviceBufferFree(trip->comm->device, &trip->recv));
  PetscCall(TrsDeviceBufferFree(trip->comm->device, &trip->grad_send));
  PetscCall(TrsDeviceBufferFree(trip->comm->device, &trip->grad));
  PetscCall(PetscFree(trip->owner_counts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripStart(TrsRoundTrip *trip, TrsStream stream, const float *rows)
{
  PetscFunctionBegin;
  trip->n_owner = 0;
  trip->n_sample = 0;
  for (int q = 0; q < trip->comm->size; q++) {
    trip->owner_displs[q] = trip->n_owner;
    trip->n_owner += trip->owner_counts[q];
    trip->sample_displs[q] = trip->n_sample;
    trip->n_sample += trip->sample_counts[q];
  }
  PetscCall(TrsDeviceBufferReserve(trip->comm->device, &trip->recv, trip->n_sample * (int64_t)sizeof(float)));
  PetscCall(TrsCodedAlltoallvStart(&trip->forward, stream, rows, trip->owner_counts, trip->owner_displs,
                                   (float *)trip->recv.data, trip->sample_counts, trip->sample_displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripWait(TrsRoundTrip *trip, TrsStream stream, const float **recv)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&trip->forward, stream));
  *recv = (const float *)trip->recv.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripGradBuffer(TrsRoundTrip *trip, float **send)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(trip->comm->device, &trip->grad_send,
                                         trip->n_sample * (int64_t)sizeof(float)));
  *send = (float *)trip->grad_send.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripGradStart(TrsRoundTrip *trip, TrsStream stream)
{
  PetscFunctionBegin;
  if (trip->gradient_division)
    PetscCall(TrsCodedExchangeDivide(&trip->backward, stream, trip->n_sample, (float *)trip->grad_send.data));
  PetscCall(TrsDeviceBufferReserve(trip->comm->device, &trip->grad, trip->n_owner * (int64_t)sizeof(float)));
  PetscCall(TrsCodedAlltoallvStart(&trip->backward, stream, (const float *)trip->grad_send.data,
                                   trip->sample_counts, trip->sample_displs, (float *)trip->grad.data,
                                   trip->owner_counts, trip->owner_displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripGradWait(TrsRoundTrip *trip, TrsStream stream, const float **grad)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&trip->backward, stream));
  *grad = (const float *)trip->grad.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}
