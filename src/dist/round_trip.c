/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/round_trip.h"

PetscErrorCode TrsRoundTripInit(TrsComm comm, const TrsPooledDistOptions *options, PetscBool keeps_rows,
                                TrsRoundTrip *trip)
{
  const size_t size = (size_t)comm->size;

  PetscFunctionBegin;
  *trip = (TrsRoundTrip){.comm = comm, .keeps_rows = keeps_rows};
  PetscCall(PetscCalloc1(8 * size, &trip->owner_counts));
  trip->owner_displs = trip->owner_counts + size;
  trip->sample_counts = trip->owner_counts + 2 * size;
  trip->sample_displs = trip->owner_counts + 3 * size;
  trip->owner_messages = trip->owner_counts + 4 * size;
  trip->sample_messages = trip->owner_counts + 5 * size;
  trip->owner_sent = trip->owner_counts + 6 * size;
  trip->sample_sent = trip->owner_counts + 7 * size;
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
  PetscCall(PetscFree(trip->owner_counts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool stays(const TrsRoundTrip *trip, const TrsCodedExchange *exchange)
{
  return (PetscBool)(!trip->keeps_rows && TrsCodedExchangeStays(exchange));
}

void TrsRoundTripSkip(TrsRoundTrip *trip, const PetscBool *skipped)
{
  trip->skipped = skipped;
}

PetscErrorCode TrsRoundTripStart(TrsRoundTrip *trip, TrsStream stream, float *rows)
{
  const TrsDeviceOps *device = trip->comm->device;

  PetscFunctionBegin;
  trip->rows = trip->samples = rows;
  trip->n_owner = 0;
  trip->n_sample = 0;
  for (int q = 0; q < trip->comm->size; q++) {
    const PetscBool sends = (PetscBool) !((trip->in_place && q == trip->comm->rank) ||
                                          (trip->skipped && trip->skipped[q]));

    trip->owner_displs[q] = trip->n_owner;
    trip->n_owner += trip->owner_counts[q];
    trip->sample_displs[q] = trip->n_sample;
    trip->n_sample += trip->sample_counts[q];
    trip->owner_sent[q] = sends ? trip->owner_counts[q] : 0;
    trip->sample_sent[q] = sends ? trip->sample_counts[q] : 0;
  }
  trip->skipped = NULL;
  if (stays(trip, &trip->forward)) PetscFunctionReturn(PETSC_SUCCESS);
  if (trip->keeps_rows)
    PetscCall(TrsDeviceBufferReserve(device, &trip->recv, trip->n_sample * (int64_t)sizeof(float)));
  else /* gradients will be sent from this memory */
    PetscCall(TrsDeviceBufferReserveShared(device, &trip->recv, trip->n_sample * (int64_t)sizeof(float)));
  trip->samples = (float *)trip->recv.data;
  PetscCall(TrsCodedBlocksStart(
      &trip->forward, stream, (TrsSentBlocks){rows, trip->owner_sent, trip->owner_displs},
      (TrsReceivedBlocks){trip->samples, trip->sample_sent, trip->sample_displs}, trip->in_place));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripArrive(TrsRoundTrip *trip, TrsStream stream, const float **block)
{
  const PetscBool stayed = stays(trip, &trip->forward);

  PetscFunctionBegin;
  if (!stayed) PetscCall(TrsCodedBlocksArrive(&trip->forward, stream));
  for (int q = 0; q < trip->comm->size; q++) block[q] = stayed ? trip->samples : trip->forward.block[q];
  if (trip->in_place) block[trip->comm->rank] = trip->rows + trip->owner_displs[trip->comm->rank];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripRelease(TrsRoundTrip *trip, TrsStream stream)
{
  PetscFunctionBegin;
  /* does nothing if the rows were encoded */
  PetscCall(TrsRequestWait(&trip->forward.request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripReturn(TrsRoundTrip *trip, TrsStream stream)
{
  PetscFunctionBegin;
  if (stays(trip, &trip->forward)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRequestReturn(trip->forward.request));
  for (int q = 0; q < trip->comm->size; q++) {
    const PetscBool came = (PetscBool)(trip->forward.block[q] == trip->samples + trip->sample_displs[q]);

    const PetscBool own = (PetscBool)(q == trip->comm->rank);

    trip->sample_messages[q] = came && !own ? trip->sample_counts[q] : 0;
    trip->owner_messages[q] = trip->forward.comes_back[q] || own ? 0 : trip->owner_counts[q];
  }
  PetscCall(TrsCodedAlltoallvStart(
      &trip->backward, stream, (TrsSentBlocks){trip->samples, trip->sample_messages, trip->sample_displs},
      (TrsReceivedBlocks){trip->rows, trip->owner_messages, trip->owner_displs}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripWait(TrsRoundTrip *trip, TrsStream stream, const float **recv)
{
  PetscFunctionBegin;
  if (!stays(trip, &trip->forward)) {
    PetscCall(TrsCodedBlocksArrive(&trip->forward, stream));
    for (int q = 0; q < trip->comm->size; q++) {
      float *to = trip->samples + trip->sample_displs[q];

      if (trip->forward.block[q] != to)
        PetscCall(trip->comm->device->copy(to, trip->forward.block[q],
                                           trip->sample_counts[q] * (int64_t)sizeof(float), stream));
    }
    PetscCall(TrsRoundTripRelease(trip, stream));
  }
  *recv = trip->samples;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripGradBuffer(TrsRoundTrip *trip, float **send)
{
  PetscFunctionBegin;
  if (trip->keeps_rows) {
    PetscCall(TrsDeviceBufferReserveShared(trip->comm->device, &trip->grad_send,
                                           trip->n_sample * (int64_t)sizeof(float)));
    trip->samples = (float *)trip->grad_send.data;
  }
  *send = trip->samples;
  PetscFunctionReturn(PETSC_SUCCESS);
}

float *TrsRoundTripOwnGrad(TrsRoundTrip *trip)
{
  const int rank = trip->comm->rank;

  if (trip->keeps_rows || trip->backward.codec.kind != TRS_CODEC_FP32) return NULL;
  trip->owner_counts[rank] = trip->sample_counts[rank] = 0;
  return trip->rows + trip->owner_displs[rank];
}

PetscErrorCode TrsRoundTripGradStart(TrsRoundTrip *trip, TrsStream stream)
{
  PetscFunctionBegin;
  if (trip->samples == trip->rows && stays(trip, &trip->backward)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCodedAlltoallvStart(&trip->backward, stream,
                                   (TrsSentBlocks){trip->samples, trip->sample_counts, trip->sample_displs},
                                   (TrsReceivedBlocks){trip->rows, trip->owner_counts, trip->owner_displs}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundTripGradWait(TrsRoundTrip *trip, TrsStream stream, const float **grad)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&trip->backward, stream));
  /* in place, this waits until the other ranks have written their gradients */
  PetscCall(TrsRoundTripRelease(trip, stream));
  *grad = trip->rows;
  PetscFunctionReturn(PETSC_SUCCESS);
}
