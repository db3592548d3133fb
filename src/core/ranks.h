/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What code asks of a communicator that may also be MPI_COMM_SELF in a process without MPI.

  MPI_COMM_SELF is this process alone: none of these functions calls MPI for it. So a checkpoint is
  read, and a model predicts, whether MPI was initialised, was finalised, or never will be.
  TrsAgree() of core/error.h does the same.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* This process' rank, and the number of ranks (NULL: not wanted). Not collective. */
PetscErrorCode TrsRankOf(MPI_Comm comm, int *rank, int *size);

/* Send rank 0's bytes to all ranks. Collective. */
PetscErrorCode TrsBroadcast(MPI_Comm comm, void *data, int64_t bytes);
