/* SPDX-License-Identifier: BSD-3-Clause */
/* Decides which words are options, and which options belong to PETSc. */
#pragma once

#include <petscsys.h>

typedef enum {
  TRS_OPTION_NOT_PETSC,
  TRS_OPTION_PETSC,        /* allowed anywhere */
  TRS_OPTION_PETSC_EARLY,  /* only on the command line, because PETSc reads it at its start */
  TRS_OPTION_PETSC_REFUSED /* debuggers, and other options that make no sense in a batch job */
} TrsOptionPetscKind;

/*
  True if a word is '-' followed by neither a digit nor a dot. -batch_size is an option; -1 and -.5
  are values. Not collective.
*/
PetscBool TrsIsOptionWord(const char *word);

/* Return the kind of the option `name` ("-log_view"). Case is ignored. Not collective. */
TrsOptionPetscKind TrsOptionPetscKindOf(const char *name);

/*
  Return the name of the i-th option of PETSc that is accepted, or NULL after the last. Not
  collective.
*/
const char *TrsOptionPetscName(int i);

/*
  True if PETSc will accept this value of -log_view, [ascii][:FILE[:FORMAT]], at the end of a run.
  Not collective.

  Out:    file, length  FILE within `value`; length 0 means standard output
*/
PetscBool TrsOptionLogView(const char *value, const char **file, int *length);

/*
  Write the value of -log_view in PETSc's options to `text`, or "" if there is none. Not collective.
*/
PetscErrorCode TrsOptionLogViewText(char *text, size_t size);
