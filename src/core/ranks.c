/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/ranks.h"

/* largest number of bytes in a message, because MPI's count is an int */
enum { TRS_BROADCAST_BYTES = 1 << 30 };

PetscErrorCode TrsRankOf(MPI_Comm comm, int *rank, int *size)
{
  PetscFunctionBegin;
  *rank = 0;
  if (size) *size = 1;
  if (comm == MPI_COMM_SELF) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_rank(comm, rank));
  if (size) PetscCallMPI(MPI_Comm_size(comm, size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBroadcast(MPI_Comm comm, void *data, int64_t bytes)
{
  PetscFunctionBegin;
  if (comm == MPI_COMM_SELF) PetscFunctionReturn(PETSC_SUCCESS);
  for (int64_t done = 0; done < bytes; done += TRS_BROADCAST_BYTES)
    PetscCallMPI(
        MPI_Bcast((char *)data + done, (int)PetscMin(TRS_BROADCAST_BYTES, bytes - done), MPI_BYTE, 0, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}
