/* SPDX-License-Identifier: BSD-3-Clause */
/*
  This module keeps the state of a failed run. Freeing the state is collective, so a task cannot
  free it if only some ranks failed. The program then simply ends, but a caller of TrshardRun()
  continues.
*/
#pragma once

#include "core/options/options.h"
#include "session/signals.h"

/*
  TrsRunAndFree - Run a task that has a state, and free the state. After an error the state remains
    for TrsRunClear(). Collective.

  In:     state     allocated with PetscNew(). destroy() must free it, also after run() failed
          watchdog  of the state. It is always stopped, because callers of TrshardRun() continue
  Errors: those of run()
*/
PetscErrorCode TrsRunAndFree(void *state, TrsWatchdog *watchdog,
                             PetscErrorCode (*run)(void *state, MPI_Comm comm, TrsOptions options),
                             PetscErrorCode (*destroy)(void *state), MPI_Comm comm, TrsOptions options);

/*
  Free the state of a failed run, after all ranks have left the run. Collective, as its destroy()
  is.
*/
PetscErrorCode TrsRunClear(void);

/* Leak the state of a failed run, because not all ranks reached the end. Not collective. */
void TrsRunForget(void);
