/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/left_over.h"

static struct {
  PetscErrorCode (*destroy)(void *state);
  void *state;
} left;

void TrsRunLeaves(PetscErrorCode (*destroy)(void *state), void *state)
{
  left.destroy = destroy;
  left.state = state;
}

PetscErrorCode TrsRunClear(void)
{
  PetscErrorCode (*const destroy)(void *state) = left.destroy;

  PetscFunctionBegin;
  left.destroy = NULL;
  if (destroy) PetscCall(destroy(left.state));
  PetscFunctionReturn(PETSC_SUCCESS);
}
