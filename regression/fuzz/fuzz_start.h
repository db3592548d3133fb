/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Starts a fuzz target that needs no file. Checks that a call either succeeds or refuses its data.
*/
#pragma once

#include "core/start.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  (void)argc;
  return TrsStart(1, *argv) ? 1 : 0;
}

/* An error must be a DATA error with a message. Forgets it, and returns its code. */
static inline PetscErrorCode data_or_success(PetscErrorCode ierr)
{
  if (ierr && (ierr != TRS_ERR_DATA || !TrsErrorMessage()[0])) abort();
  TrsErrorClear();
  return ierr;
}
