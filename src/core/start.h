/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Start and end of MPI and PETSc, without the hidden inputs that both read by default.

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

  In:     argc, argv  main's arguments; not changed
*/
PetscErrorCode TrsStart(int argc, char **argv);

/*
  TrsStartLibrary - Start PETSc inside another program, unless it has started, and register the log
    events.

  Not collective, because ranks may start at different times. MPI must be initialised. PETSc stays
  until the process ends, and its PETSC_COMM_WORLD is this rank. A program that uses PETSc itself
  must start PETSc first. No error handler is installed.
*/
PetscErrorCode TrsStartLibrary(void);

/* True if TrsStart() started this process. Otherwise PETSc may belong to another program. */
PetscBool TrsStartIsProgram(void);

/*
  TrsStartOnOneHost - Find out from the environment whether all ranks run on this host.

  Not collective. Call this before MPI_Init(). If it is true, TrsStart() keeps Open MPI from
  searching for fabrics. The function recognises Open MPI's mpirun and srun. A process without any
  variable of Open MPI, PMIx or PMI counts as alone.
*/
PetscBool TrsStartOnOneHost(void);

/*
  The number of the first signal that asked this rank to stop, or 0. Signal handlers
  (session/signals.h) and TrshardRequestStop() write it.
*/
extern volatile int trs_stop_requested;

/*
  True if this thread's signal handlers run on a stack of their own. Unknown, hence false, in
  threads of other programs.
*/
extern _Thread_local int trs_signals_have_stack;

/*
  If the main thread's stack limit is small, raise it as far as allowed. Not collective. Errors:
  MEMORY if the raised limit is still too small.
*/
PetscErrorCode TrsStartCheckStack(void);

/*
  TrsStop - End PETSc (which prints -log_view) and MPI.

  Collective on MPI_COMM_WORLD.

  In:      has_failed  the run has printed its message; no second message is printed Returns: IO, on
                       all ranks, and a message on rank 0, if standard output is a file whose disk
                       did not take all of the output. A reader that has closed the pipe, as with `|
                       head` or a closed terminal, is no error, because the run's files are complete
*/
PetscErrorCode TrsStop(PetscBool has_failed);

/*
  TrsStartWarning - Warn about a launch that is surely a mistake: several Slurm tasks, each alone in
    its MPI world.

  Not collective.

  Out:    text  at most n bytes with the final 0; "" if all is well
*/
void TrsStartWarning(char *text, size_t n);
