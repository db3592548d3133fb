/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Text that grows. Plans, search spaces and reports are written into it before they go to a file or
  to other ranks.
*/
#pragma once

#include "core/error.h"

#include <stddef.h>

typedef struct {
  char *data; /* NUL-terminated after the first addition; free with PetscFree() */
  size_t n, capacity;
} TrsText;

/*
  Add formatted text. The text of each %s is escaped (core/print.h), because it may come from a
  file. Not collective. Errors: MEMORY.
*/
PetscErrorCode TrsTextPrintf(TrsText *text, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(2, 3);

/* Add n bytes. Not collective. Errors: MEMORY. */
PetscErrorCode TrsTextAppend(TrsText *text, const char *bytes, size_t n);

/*
  Add a JSON string with its quotes. Characters that a terminal would obey become \u escapes. Not
  collective. Errors: MEMORY.
*/
PetscErrorCode TrsTextJsonString(TrsText *text, const char *string);

PetscErrorCode TrsTextFree(TrsText *text);

/* Write "1.5 GiB" into text [size] and return text. */
const char *TrsBytesText(double bytes, char *text, size_t size);
