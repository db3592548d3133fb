/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/whole_batch.h"

struct TrsWholeBatchImpl {
  TrsComm comm;
  int64_t *counts, *displs; /* [W] samples of each rank */
  TrsBuffer own, dense, labels;
};

PetscErrorCode TrsWholeBatchCreate(TrsComm comm, TrsWholeBatch *whole)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(whole));
  (*whole)->comm = comm;
  PetscCall(PetscMalloc2((size_t)comm->size, &(*whole)->counts, (size_t)comm->size, &(*whole)->displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsWholeBatchDestroy(TrsWholeBatch *whole)
{
  TrsWholeBatch w = *whole;

  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscFree2(w->counts, w->displs));
  PetscCall(TrsBufferFree(&w->own));
  PetscCall(TrsBufferFree(&w->dense));
  PetscCall(TrsBufferFree(&w->labels));
  PetscCall(PetscFree(*whole));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsWholeBatchOwnRows(TrsWholeBatch whole, int64_t n, int64_t stride, float **rows)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&whole->own, n * stride * (int64_t)sizeof(float), PETSC_FALSE));
  *rows = (float *)whole->own.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All ranks' floats, `width` a sample. */
static PetscErrorCode gather(TrsWholeBatch whole, TrsStream stream, int64_t width, const float *own,
                             float *all)
{
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsCommAllgatherv(whole->comm, stream, own, all, whole->counts, whole->displs,
                              width * (int64_t)sizeof(float), &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsWholeBatchGather(TrsWholeBatch whole, TrsStream stream, int64_t n, int num_dense,
                                   const float *dense, const float *labels, int64_t stride, float *rows,
                                   TrsWholeSamples *samples)
{
  const TrsComm comm = whole->comm;
  int64_t G = 0;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allgather(&n, 1, MPI_INT64_T, whole->counts, 1, MPI_INT64_T, comm->mpi));
  for (int q = 0; q < comm->size; q++) {
    whole->displs[q] = G;
    G += whole->counts[q];
  }
  *samples = (TrsWholeSamples){.n = G, .first = whole->displs[comm->rank]};
  PetscCall(gather(whole, stream, stride, (const float *)whole->own.data, rows));
  if (num_dense) {
    PetscCall(TrsBufferReserve(&whole->dense, G * num_dense * (int64_t)sizeof(float), PETSC_FALSE));
    PetscCall(gather(whole, stream, num_dense, dense, (float *)whole->dense.data));
    samples->dense = (const float *)whole->dense.data;
  }
  if (labels) {
    PetscCall(TrsBufferReserve(&whole->labels, G * (int64_t)sizeof(float), PETSC_FALSE));
    PetscCall(gather(whole, stream, 1, labels, (float *)whole->labels.data));
    samples->labels = (const float *)whole->labels.data;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
