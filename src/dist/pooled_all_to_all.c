/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/pooled_all_to_all.h"

#include "dist/round_trip.h"

struct TrsPooledAllToAllImpl {
  TrsRoundTrip trip;
  int64_t *dims; /* [size] columns of each rank's pooled rows */
};

PetscErrorCode TrsPooledAllToAllCreate(TrsComm comm, const int64_t *dims, const TrsPooledDistOptions *options,
                                       TrsPooledAllToAll *dist)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(dist));
  PetscCall(TrsRoundTripInit(comm, options, PETSC_FALSE, &(*dist)->trip));
  PetscCall(PetscMalloc1((size_t)comm->size, &(*dist)->dims));
  PetscCall(PetscArraycpy((*dist)->dims, dims, (size_t)comm->size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllDestroy(TrsPooledAllToAll *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRoundTripFree(&(*dist)->trip));
  PetscCall(PetscFree((*dist)->dims));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsPooledAllToAllSetInPlace(TrsPooledAllToAll dist)
{
  dist->trip.in_place = PETSC_TRUE;
}

void TrsPooledAllToAllSkip(TrsPooledAllToAll dist, const PetscBool *skipped)
{
  TrsRoundTripSkip(&dist->trip, skipped);
}

PetscErrorCode TrsPooledAllToAllStart(TrsPooledAllToAll dist, TrsStream stream, float *pooled,
                                      const int64_t *source_batch)
{
  const int rank = dist->trip.comm->rank;

  PetscFunctionBegin;
  for (int q = 0; q < dist->trip.comm->size; q++) {
    dist->trip.owner_counts[q] = source_batch[q] * dist->dims[rank];
    dist->trip.sample_counts[q] = source_batch[rank] * dist->dims[q];
  }
  PetscCall(TrsRoundTripStart(&dist->trip, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllWait(TrsPooledAllToAll dist, TrsStream stream, const float **recv,
                                     const int64_t **block_displs)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripWait(&dist->trip, stream, recv));
  *block_displs = dist->trip.sample_displs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllArrive(TrsPooledAllToAll dist, TrsStream stream, const float **block)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripArrive(&dist->trip, stream, block));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllRelease(TrsPooledAllToAll dist, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripRelease(&dist->trip, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllReturn(TrsPooledAllToAll dist, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripReturn(&dist->trip, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllGradBuffer(TrsPooledAllToAll dist, float **send, const int64_t **block_displs)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripGradBuffer(&dist->trip, send));
  *block_displs = dist->trip.sample_displs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

float *TrsPooledAllToAllOwnGrad(TrsPooledAllToAll dist)
{
  return TrsRoundTripOwnGrad(&dist->trip);
}

PetscErrorCode TrsPooledAllToAllGradStart(TrsPooledAllToAll dist, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripGradStart(&dist->trip, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPooledAllToAllGradWait(TrsPooledAllToAll dist, TrsStream stream, const float **grad)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripGradWait(&dist->trip, stream, grad));
  PetscFunctionReturn(PETSC_SUCCESS);
}
