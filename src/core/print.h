/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Everything that the program prints goes through these functions. They show texts that come from
  files, options and the environment safely: such a text cannot clear a terminal, set its title, or
  pose as a line of ours.
*/
#pragma once

#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>

/* Take n bytes of a formatted text. */
typedef PetscErrorCode (*TrsPrintTake)(void *context, const char *bytes, size_t n);

/*
  TrsPrintFormat - Format as vprintf() does, and escape the text of each %s (TrsNameEscape()).

  A format that is only "%s" is for text that has been formatted before, so its line feeds stay. Not
  collective.

  In:     take   gets the text piece by piece
          petsc  format numbers as PETSc does, which writes %g of 3 as "3."
  Errors: those of take; MEMORY; INTERNAL for a format that is not known here
*/
PetscErrorCode TrsPrintFormat(TrsPrintTake take, void *context, PetscBool petsc, const char *format,
                              va_list arguments);

/* Tell whether a format has a %s. */
PetscBool TrsPrintHasText(const char *format);

/* Print to a stream, and ignore errors of the stream. Not collective. */
void TrsPrint(FILE *file, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(2, 3);

/*
  From Install to Remove PETSc's functions print in this way, too, also its own texts, as that of
  -options_view. Versions of PETSc after 3.18 would end the run if a write fails; this way, they do
  not. Install does nothing if it has been called before.
*/
void TrsPrintInstall(void);
void TrsPrintRemove(void);
