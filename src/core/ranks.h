/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Operations on a communicator that may be MPI_COMM_SELF in a process without MPI.

  MPI_COMM_SELF contains only this process, so none of these functions calls MPI for it. Therefore
  checkpoints can be read and models can predict before MPI is initialised, after it is finalised,
  and without it. TrsAgree() of core/error.h does the same.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* This process's rank and the number of ranks; either pointer may be NULL. Not collective. */
PetscErrorCode TrsRankOf(MPI_Comm comm, int *rank, int *size);

/* Send rank 0's bytes to all ranks. Collective. */
PetscErrorCode TrsBroadcast(MPI_Comm comm, void *data, int64_t bytes);
