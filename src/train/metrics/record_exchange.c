/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/record_exchange.h"

#include <limits.h>

PetscErrorCode TrsRecordExchange(MPI_Comm comm, size_t bytes, const void *sorted, const int64_t *displs,
                                 int64_t *n_mine, TrsBuffer *mine)
{
  int64_t *counts, *all;
  MPI_Datatype type;
  MPI_Request *request;
  int size, rank, n_requests = 0;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(
      PetscMalloc3((size_t)size, &counts, (size_t)size * (size_t)size, &all, 2 * (size_t)size, &request));
  for (int r = 0; r < size; r++) counts[r] = displs[r + 1] - displs[r];
  PetscCallMPI(MPI_Allgather(counts, size, MPI_INT64_T, all, size, MPI_INT64_T, comm));
  *n_mine = 0;
  for (int r = 0; r < size; r++) *n_mine += all[r * size + rank];
  PetscCall(TrsBufferReserve(mine, PetscMax(*n_mine, 1) * (int64_t)bytes, PETSC_FALSE));
  PetscCallMPI(MPI_Type_contiguous((int)bytes, MPI_BYTE, &type));
  PetscCallMPI(MPI_Type_commit(&type));
  for (int64_t r = 0, at = 0; r < size; at += all[r * size + rank], r++) {
    const int64_t n = all[r * size + rank];

    PetscCheck(n <= INT_MAX && counts[r] <= INT_MAX, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "too many predictions for one message");
    if (n)
      PetscCallMPI(MPI_Irecv((char *)mine->data + at * (int64_t)bytes, (int)n, type, (int)r, 0, comm,
                             &request[n_requests++]));
  }
  for (int r = 0; r < size; r++) {
    if (counts[r])
      PetscCallMPI(MPI_Isend((const char *)sorted + displs[r] * (int64_t)bytes, (int)counts[r], type, r, 0,
                             comm, &request[n_requests++]));
  }
  PetscCallMPI(MPI_Waitall(n_requests, request, MPI_STATUSES_IGNORE));
  PetscCallMPI(MPI_Type_free(&type));
  PetscCall(PetscFree3(counts, all, request));
  PetscFunctionReturn(PETSC_SUCCESS);
}
