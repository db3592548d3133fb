/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Operations on a communicator, which may be MPI_COMM_SELF in a process without MPI.

  MPI_COMM_SELF has only this process, so these functions do not call MPI for it. Therefore
  checkpoints can be read and models can predict without MPI, before MPI_Init() and after
  MPI_Finalize(). TrsAgree() of core/error.h does the same.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/*
  Return this process's rank and the number of ranks; either pointer may be NULL. Not collective.
*/
PetscErrorCode TrsRankOf(MPI_Comm comm, int *rank, int *size);

/* Send rank 0's bytes to all ranks. Collective. */
PetscErrorCode TrsBroadcast(MPI_Comm comm, void *data, int64_t bytes);
