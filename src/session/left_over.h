/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What a run that failed leaves behind. Freeing it is collective, so that a task cannot do it on a
  rank that failed alone. The program ends then. A caller of TrshardRun() lives on.
*/
#pragma once

#include "core/options/options.h"
#include "session/signals.h"

/*
  TrsRunAndFree - Run a task that has a state, and free it; or leave it to TrsRunClear() after an
    error. Collective.

  In:     state     PetscNew() made it. destroy() frees it, also where run() failed
          watchdog  of the state. It is stopped in any case: callers of TrshardRun() live on
  Errors: those of run()
*/
PetscErrorCode TrsRunAndFree(void *state, TrsWatchdog *watchdog,
                             PetscErrorCode (*run)(void *state, MPI_Comm comm, TrsOptions options),
                             PetscErrorCode (*destroy)(void *state), MPI_Comm comm, TrsOptions options);

/* Free what a run left, once all ranks are out of it. Collective, as its destroy() is. */
PetscErrorCode TrsRunClear(void);

/* What a run left stays: its ranks did not all come to its end. Not collective. */
void TrsRunForget(void);
