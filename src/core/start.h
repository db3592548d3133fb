/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Start and end of MPI and PETSc, closed against everything they read behind the user's back.

  PETSc starts without our arguments: no .petscrc, no PETSC_OPTIONS and no signal handler. From the
  command line PETSc gets only its own options that must work from the beginning (-log_view, -info,
  -malloc_...). TrsOptionsCreate() reads all other options.
*/
#pragma once

#include "core/error.h"

#include <stddef.h>

/*
  TrsStart - Start MPI (MPI_THREAD_FUNNELED) and PETSc, register the log events, install the error
    handler.

  Collective on MPI_COMM_WORLD. Call this first in main(), outside of PetscCall: an error here is
  fatal and reported by PETSc.

  In:     argc, argv  those of main; not changed
*/
PetscErrorCode TrsStart(int argc, char **argv);

/*
  TrsStartLibrary - Start PETSc inside somebody else's program, unless it is started, and register
    the log events.

  Not collective, as ranks may start at different times. MPI must be initialised. PETSc stays until
  the process ends, and its PETSC_COMM_WORLD is this rank. A program that uses PETSc itself must
  start it before. No error handler is installed.
*/
PetscErrorCode TrsStartLibrary(void);

/* Tell whether TrsStart() began this process. Otherwise its PETSc may be somebody else's. */
PetscBool TrsStartIsProgram(void);

/*
  TrsStartOnOneHost - Tell whether all ranks run on this host, as far as the environment says.

  Not collective. Call this before MPI_Init(). If it is true, TrsStart() keeps Open MPI from
  searching for fabrics. The function knows Open MPI's mpirun and srun. A process without any
  variable of Open MPI, PMIx or PMI counts as alone.
*/
PetscBool TrsStartOnOneHost(void);

/*
  The number of the first signal that asked this rank to stop, or 0. Signal handlers write it
  (session/signals.h), or TrshardRequestStop().
*/
extern volatile int trs_stop_requested;

/*
  Do the handlers of the signals that come to this thread run on a stack of their own? In threads of
  other programs nobody knows.
*/
extern _Thread_local int trs_signals_have_stack;

/*
  Raise a small limit of the main thread's stack as far as allowed. Not collective. Errors: MEMORY
  if the raised limit is still too small.
*/
PetscErrorCode TrsStartCheckStack(void);

/*
  TrsStop - End PETSc (which prints -log_view) and MPI.

  Collective on MPI_COMM_WORLD.

  In:      has_failed  the run has given its message; a second one is not printed
  Returns: IO, on all ranks, and a message on rank 0, if standard output is a file whose disk did
           not take all of the output. A reader that went away, as with `| head` or a closed
           terminal, is no error, because the run's files are what counts
*/
PetscErrorCode TrsStop(PetscBool has_failed);

/*
  TrsStartWarning - Warn about a launch that cannot be meant: several Slurm tasks, each alone in its
    MPI world.

  Not collective.

  Out:    text  at most n bytes with the final 0; "" if all is well
*/
void TrsStartWarning(char *text, size_t n);
