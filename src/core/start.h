/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Start and end of MPI and PETSc, closed against what they read behind the user's back.

  PETSc is initialised without our arguments: no .petscrc, no PETSC_OPTIONS, no signal handler, and of the command line only those
  PETSc options that work from the beginning on (-log_view, -info, -malloc_...). All others come from TrsOptionsCreate().
*/
#pragma once

#include "core/error.h"

#include <stddef.h>

/*
  TrsStart - Initialise MPI (MPI_THREAD_FUNNELED) and PETSc, register the log events, install the error handler.

  Collective on MPI_COMM_WORLD. Call first in main(), outside of PetscCall: an error here is fatal and PETSc's.

  In:     argc, argv  of main; not changed
*/
PetscErrorCode TrsStart(int argc, char **argv);

/*
  TrsStartOnOneHost - Do all ranks run on this host, as far as the launcher says in the environment? TrsStart() then spares Open MPI the fabrics.

  Not collective; before MPI_Init(). Known are mpirun of Open MPI, and srun; who sets none of Open MPI's, PMIx's or PMI's variables is taken for alone.
*/
PetscBool TrsStartOnOneHost(void);

/* The number of the first signal that asked this rank to stop, 0: none did. Written by signal handlers (run/signals.h). */
extern volatile int trs_stop_requested;

/* Raise a small limit of the main thread's stack as far as allowed. Not collective. Errors: MEMORY where that is too little */
PetscErrorCode TrsStartCheckStack(void);

/*
  TrsStop - End PETSc (prints -log_view) and MPI.

  Collective on MPI_COMM_WORLD.

  Returns: IO, on all ranks, where standard output is a file whose disk did not take all of it. A reader that went away, as with `| head` or a
           terminal that was closed, is no error: the run's files are what counts
*/
PetscErrorCode TrsStop(void);

/*
  TrsStartWarning - Advice about a launch that cannot be meant: several Slurm tasks, each alone in its MPI world.

  Not collective.

  Out:    text  at most n bytes with the ending 0; "" when all is well
*/
void TrsStartWarning(char *text, size_t n);
