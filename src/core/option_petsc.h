/* SPDX-License-Identifier: BSD-3-Clause */
/* Which words are options, and which options are PETSc's own. */
#pragma once

#include <petscsys.h>

typedef enum {
  TRS_OPTION_NOT_PETSC,
  TRS_OPTION_PETSC,        /* may stand anywhere */
  TRS_OPTION_PETSC_EARLY,  /* PETSc reads it while it starts: command line only */
  TRS_OPTION_PETSC_REFUSED /* debuggers and the like have no place in a batch job */
} TrsOptionPetscKind;

/* '-' and then neither a digit nor a dot: -batch_size is an option, -1 and -.5 are values. Not collective. */
PetscBool TrsIsOptionWord(const char *word);

/* Whose option `name` ("-log_view", any case) is. Not collective. */
TrsOptionPetscKind TrsOptionPetscKindOf(const char *name);

/* The names of PETSc's options that are accepted, one after the other; NULL after the last. Not collective. */
const char *TrsOptionPetscName(int i);
