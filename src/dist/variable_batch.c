/* SPDX-License-Identifier: BSD-3-Clause */
#include "dist/variable_batch.h"

#include "dist/round_trip.h"

struct TrsVariableAllToAllImpl {
  TrsRoundTrip trip;
  int *feature_begin;      /* [size + 1] first feature of each owner */
  int64_t *dims;           /* [n] columns of each feature */
  int64_t *feature_displs; /* [n + 1] position of each feature's block */
};

PetscErrorCode TrsVariableAllToAllCreate(TrsComm comm, const int *n_features, const int64_t *dims,
                                         const TrsPooledDistOptions *options, TrsVariableAllToAll *dist)
{
  int n = 0;

  PetscFunctionBegin;
  PetscCall(PetscNew(dist));
  PetscCall(TrsRoundTripInit(comm, options, PETSC_FALSE, &(*dist)->trip));
  PetscCall(PetscCalloc1((size_t)comm->size + 1, &(*dist)->feature_begin));
  for (int q = 0; q < comm->size; q++) {
    n += n_features[q];
    (*dist)->feature_begin[q + 1] = n;
  }
  PetscCall(PetscMalloc1((size_t)n, &(*dist)->dims));
  PetscCall(PetscArraycpy((*dist)->dims, dims, (size_t)n));
  PetscCall(PetscCalloc1((size_t)n + 1, &(*dist)->feature_displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVariableAllToAllDestroy(TrsVariableAllToAll *dist)
{
  PetscFunctionBegin;
  if (!*dist) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRoundTripFree(&(*dist)->trip));
  PetscCall(PetscFree((*dist)->feature_begin));
  PetscCall(PetscFree((*dist)->dims));
  PetscCall(PetscFree((*dist)->feature_displs));
  PetscCall(PetscFree(*dist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVariableAllToAllStart(TrsVariableAllToAll dist, TrsStream stream, float *pooled,
                                        const int64_t *source_strides, const int64_t *strides)
{
  const TrsComm comm = dist->trip.comm;
  const int first = dist->feature_begin[comm->rank], n_local = dist->feature_begin[comm->rank + 1] - first;

  PetscFunctionBegin;
  for (int q = 0; q < comm->size; q++) {
    dist->trip.owner_counts[q] = 0;
    for (int f = 0; f < n_local; f++)
      dist->trip.owner_counts[q] += source_strides[q * n_local + f] * dist->dims[first + f];
    for (int f = dist->feature_begin[q]; f < dist->feature_begin[q + 1]; f++)
      dist->feature_displs[f + 1] = dist->feature_displs[f] + strides[f] * dist->dims[f];
    dist->trip.sample_counts[q] = dist->feature_displs[dist->feature_begin[q + 1]] -
                                  dist->feature_displs[dist->feature_begin[q]];
  }
  PetscCall(TrsRoundTripStart(&dist->trip, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVariableAllToAllWait(TrsVariableAllToAll dist, TrsStream stream, const float **recv,
                                       const int64_t **feature_displs)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripWait(&dist->trip, stream, recv));
  *feature_displs = dist->feature_displs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVariableAllToAllGradBuffer(TrsVariableAllToAll dist, float **send,
                                             const int64_t **feature_displs)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripGradBuffer(&dist->trip, send));
  *feature_displs = dist->feature_displs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVariableAllToAllGradStart(TrsVariableAllToAll dist, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripGradStart(&dist->trip, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVariableAllToAllGradWait(TrsVariableAllToAll dist, TrsStream stream, const float **grad)
{
  PetscFunctionBegin;
  PetscCall(TrsRoundTripGradWait(&dist->trip, stream, grad));
  PetscFunctionReturn(PETSC_SUCCESS);
}
