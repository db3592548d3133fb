/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A fault is an error on a thread that must not raise errors, because PETSc's error chain belongs to
  the main thread. A function that takes a TrsFault describes the error in it and returns its code.
  The main thread raises the error later.
*/
#pragma once

#include "core/error.h"

typedef struct {
  PetscErrorCode code; /* PETSC_SUCCESS if there is no error */
  char text[1024];
} TrsFault;

/*
  Record a fault unless an earlier one is recorded. Returns the fault's code. Not collective, any
  thread.
*/
PetscErrorCode TrsFaultSet(TrsFault *fault, PetscErrorCode code, const char *format, ...)
    PETSC_ATTRIBUTE_FORMAT(3, 4);

/* Raise the recorded fault, if there is one. Not collective, main thread. */
PetscErrorCode TrsFaultRaise(const TrsFault *fault);
