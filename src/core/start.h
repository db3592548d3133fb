/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Start and end of MPI and PETSc, without the hidden inputs that both would read.

  PETSc starts without our arguments: no .petscrc, no PETSC_OPTIONS and no signal handler. From the
  command line PETSc gets only its own options that must work from the beginning (-log_view, -info,
  -malloc_...). TrsOptionsCreate() reads all other options.
*/
#pragma once

#include "core/error.h"

#include <stddef.h>

/* The largest message that TrsStart() lets Open MPI's TCP send without a question before it. */
enum { TRS_EAGER_BYTES = 1 << 20 };

/*
  TrsStart - Start MPI (MPI_THREAD_FUNNELED) and PETSc, register the log events, and install the
    error handler.

  Collective on MPI_COMM_WORLD. main() must call this function first, outside of PetscCall: an error
  is fatal here, and PETSc reports it.

  In:     argc, argv  main's arguments; not changed
*/
PetscErrorCode TrsStart(int argc, char **argv);

/*
  TrsStartLibrary - Start PETSc inside another program, unless it has started, and register the log
    events.

  Not collective, because ranks may start at different times. MPI must be initialised. PETSc then
  runs until the process ends, and its PETSC_COMM_WORLD has only this rank. A program that uses
  PETSc itself must start PETSc before it calls this function. No error handler is installed.
*/
PetscErrorCode TrsStartLibrary(void);

/*
  True if TrsStart() started MPI and PETSc in this process. If not, PETSc may belong to another
  program.
*/
PetscBool TrsStartIsProgram(void);

/*
  TrsStartOnOneHost - Find out from the environment whether all ranks run on this host.

  Not collective. Must be called before MPI_Init(). If the result is true, TrsStart() keeps Open MPI
  from searching for fabrics. The function recognises Open MPI's mpirun and srun. If the environment
  has no variable of Open MPI, PMIx or PMI, the process is the only rank.
*/
PetscBool TrsStartOnOneHost(void);

/*
  The number of the first signal that asked this rank to stop, or 0. Signal handlers
  (session/signals.h) and TrshardRequestStop() write it.
*/
extern volatile int trs_stop_requested;

/*
  True if signal handlers run on a stack of their own in this thread. It is false in threads of
  other programs, where this is unknown.
*/
extern _Thread_local int trs_signals_have_stack;

/*
  If the main thread's stack limit is small, raise it as far as the system allows. Not collective.
  Errors: MEMORY if the raised limit is still too small.
*/
PetscErrorCode TrsStartCheckStack(void);

/*
  TrsStop - End PETSc (which prints -log_view) and MPI.

  Collective on MPI_COMM_WORLD.

  In:      has_failed  true if the run has failed and printed its message, so that no second message
                       is printed Returns: IO, on all ranks, and a message on rank 0, if standard
                       output is a file whose disk did not take all of the output. If a reader has
                       closed the pipe, as with `| head` or a closed terminal, this is no error,
                       because the run's files are complete
*/
PetscErrorCode TrsStop(PetscBool has_failed);

/*
  TrsStartWarning - Write a warning if the launch is surely a mistake: several Slurm tasks were
    started, but each is the only rank of its MPI world.

  Not collective.

  Out:    text  at most n bytes including the final 0; "" if there is no mistake
*/
void TrsStartWarning(char *text, size_t n);
