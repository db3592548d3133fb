/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A run, and the folder that belongs to it.

  A run is a training from its first step to its last, over all its resumes. A random id, made once, names the run
  in its checkpoints and its results (root attribute run_id).
*/
#pragma once

#include "core/error.h"

/* 16 hex digits and the zero behind them. An empty text stands for a run without an id: a file of an older program has none. */
enum { TRS_RUN_ID_SIZE = 17 };

/* A new random id, the same on all ranks. Collective. */
PetscErrorCode TrsRunIdMake(MPI_Comm comm, char id[TRS_RUN_ID_SIZE]);

/* Is the text an id as TrsRunIdMake() makes it? Not collective. */
PetscBool TrsRunIdIsValid(const char *text);
