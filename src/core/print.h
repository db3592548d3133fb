/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Everything that the program prints goes through these functions. They show texts from files,
  options and the environment safely: such a text cannot clear a terminal, set its title, or pose as
  a line of the program.
*/
#pragma once

#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>

/* Take n bytes of a formatted text. */
typedef PetscErrorCode (*TrsPrintTake)(void *context, const char *bytes, size_t n);

/*
  TrsPrintFormat - Format as vprintf() does, and escape the text of each %s (TrsNameEscape()).

  The format "%s" by itself is for text that is already formatted, so its line feeds are kept. Not
  collective.

  In:     take   receives the text in pieces
          petsc  format numbers as PETSc does, which writes %g of 3 as "3."
  Errors: errors of `take`; MEMORY; INTERNAL for an unknown format
*/
PetscErrorCode TrsPrintFormat(TrsPrintTake take, void *context, PetscBool petsc, const char *format,
                              va_list arguments);

/* True if a format has a %s. */
PetscBool TrsPrintHasText(const char *format);

/* Print to a stream, and ignore errors of the stream. Not collective. */
void TrsPrint(FILE *file, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(2, 3);

/*
  From Install to Remove, PETSc's functions also print in this way, including PETSc's own texts,
  such as -options_view. PETSc after 3.18 would end the run if a write fails; here a failed write is
  ignored. Install does nothing if it has been called before.
*/
void TrsPrintInstall(void);
void TrsPrintRemove(void);
