/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Keeps the state of a failed run. Freeing the state is collective, so a task cannot free it if only
  some ranks failed. The program itself simply ends, but a caller of TrshardRun() continues.
*/
#pragma once

#include "core/options/options.h"
#include "session/signals.h"

/*
  TrsRunAndFree - Run a task that has a state, and free the state. After an error the state remains
    for TrsRunClear(). Collective.

  In:     state     allocated with PetscNew(). destroy() must free it, also after run() failed
          watchdog  the state's watchdog. It is always stopped, because callers of TrshardRun()
                    continue
  Errors: those of run()
*/
PetscErrorCode TrsRunAndFree(void *state, TrsWatchdog *watchdog,
                             PetscErrorCode (*run)(void *state, MPI_Comm comm, TrsOptions options),
                             PetscErrorCode (*destroy)(void *state), MPI_Comm comm, TrsOptions options);

/*
  Free the state of a failed run. Must be called after all ranks have left the run. Collective,
  because the state's destroy() is collective.
*/
PetscErrorCode TrsRunClear(void);

/*
  Leave the state of a failed run allocated, because not all ranks reached the end. Not collective.
*/
void TrsRunForget(void);
