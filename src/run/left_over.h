/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What a run that failed leaves behind. Freeing it is collective, so that a task cannot do it on a
  rank that failed alone. The program ends then. A caller of TrshardRun() lives on.
*/
#pragma once

#include "core/error.h"

/*
  Name what is to be freed, and how, if the run fails from now on; destroy NULL: nothing any more.
  Not collective.
*/
void TrsRunLeaves(PetscErrorCode (*destroy)(void *state), void *state);

/* Free it once all ranks are out of the run. Collective, as `destroy` is. */
PetscErrorCode TrsRunClear(void);
