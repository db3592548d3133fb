/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/left_over.h"

static struct {
  PetscErrorCode (*destroy)(void *state);
  void *state;
} left;

PetscErrorCode TrsRunAndFree(void *state, TrsWatchdog *watchdog,
                             PetscErrorCode (*run)(void *state, MPI_Comm comm, TrsOptions options),
                             PetscErrorCode (*destroy)(void *state), MPI_Comm comm, TrsOptions options)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  left.destroy = destroy;
  left.state = state;
  ierr = run(state, comm, options);
  PetscCall(TrsWatchdogStop(watchdog));
  PetscCall(ierr);
  PetscCall(TrsRunClear());
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsRunForget(void)
{
  left.destroy = NULL;
}

PetscErrorCode TrsRunClear(void)
{
  PetscErrorCode (*const destroy)(void *state) = left.destroy;

  PetscFunctionBegin;
  left.destroy = NULL;
  if (destroy) PetscCall(destroy(left.state));
  PetscFunctionReturn(PETSC_SUCCESS);
}
