/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/sequence_all_to_all.h"

#include "dist/round_trip.h"

struct TrsSequenceAllToAllImpl {
  TrsRoundTrip trip;
  int64_t dim;
};

PetscErrorCode TrsSequenceAllToAllCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                         TrsSequenceAllToAll *dist)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(dist));
  PetscCall(TrsRoundTripInit(comm, options, PETSC_TRUE, &(*dist)->trip));
  (*dist)->dim = dim;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllDestroy(TrsSequenceAllToAll *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRoundTripFree(&(*dist)->trip));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllStart(TrsSequenceAllToAll dist, TrsStream stream, float *rows,
                                        const int64_t *received_ids, const int64_t *sent_ids)
{
  PetscFunctionBegin;
  for (int q = 0; q < dist->trip.comm->size; q++) {
    dist->trip.owner_counts[q] = received_ids[q] * dist->dim;
    dist->trip.sample_counts[q] = sent_ids[q] * dist->dim;
  }
  PetscCall(TrsRoundTripStart(&dist->trip, stream, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllWait(TrsSequenceAllToAll dist, TrsStream stream, const float **rows)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripWait(&dist->trip, stream, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllArrive(TrsSequenceAllToAll dist, TrsStream stream, const float **block)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripArrive(&dist->trip, stream, block));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllRelease(TrsSequenceAllToAll dist, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripRelease(&dist->trip, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllGradBuffer(TrsSequenceAllToAll dist, float **send)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripGradBuffer(&dist->trip, send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllGradStart(TrsSequenceAllToAll dist, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripGradStart(&dist->trip, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceAllToAllGradWait(TrsSequenceAllToAll dist, TrsStream stream, const float **grad)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripGradWait(&dist->trip, stream, grad));
  PetscFunctionReturn(PETSC_SUCCESS);
}
