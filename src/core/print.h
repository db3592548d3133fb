/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Functions with which the program prints all its output. They print texts from files, options and
  the environment safely: such a text cannot clear a terminal, set its title, or look like a line of
  the program.
*/
#pragma once

#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>

/* A function that receives n bytes of a formatted text. */
typedef PetscErrorCode (*TrsPrintTake)(void *context, const char *bytes, size_t n);

/*
  TrsPrintFormat - Format like vprintf(), and escape the text of each %s (TrsNameEscape()).

  If the whole format is "%s", the text is already formatted, so its line feeds are kept. Not
  collective.

  In:     take   receives the text in pieces
          petsc  true: format numbers like PETSc, which prints 3 with %g as "3."
  Errors: errors of `take`; MEMORY; INTERNAL for an unknown format
*/
PetscErrorCode TrsPrintFormat(TrsPrintTake take, void *context, PetscBool petsc, const char *format,
                              va_list arguments);

/* True if a format has a %s. */
PetscBool TrsPrintHasText(const char *format);

/* Print to a stream, and ignore errors of the stream. Not collective. */
void TrsPrint(FILE *file, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(2, 3);

/*
  Between TrsPrintInstall() and TrsPrintRemove(), PETSc's functions also print in this way. This
  includes PETSc's own texts, such as -options_view. If a write fails, it is ignored; PETSc after
  3.18 would end the run. A second TrsPrintInstall() does nothing.
*/
void TrsPrintInstall(void);
void TrsPrintRemove(void);
