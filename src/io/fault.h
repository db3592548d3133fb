/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Faults: errors of code that runs on a thread, where nothing may be raised (PETSc's error chain is the main thread's).

  Functions that take a TrsFault describe what went wrong in it and return its code; the main thread raises it later.
*/
#pragma once

#include "core/error.h"

typedef struct {
  PetscErrorCode code; /* PETSC_SUCCESS: nothing happened */
  char text[1024];
} TrsFault;

/* Keep the first fault; returns its code. Not collective, any thread. */
PetscErrorCode TrsFaultSet(TrsFault *fault, PetscErrorCode code, const char *format, ...)
    PETSC_ATTRIBUTE_FORMAT(3, 4);

/* Raise what the fault says, if anything. Not collective, main thread. */
PetscErrorCode TrsFaultRaise(const TrsFault *fault);
