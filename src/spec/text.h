/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A text that grows. Plans, search spaces and reports are first written into such a text. Then it
  goes to a file or to other ranks.
*/
#pragma once

#include "core/error.h"

#include <stddef.h>

typedef struct {
  char *data; /* ends with a 0 byte after the first addition; free with PetscFree() */
  size_t n, capacity;
} TrsText;

/*
  Append formatted text. The text for each %s is escaped (core/print.h), because it may come from a
  file. Not collective. Errors: MEMORY.
*/
PetscErrorCode TrsTextPrintf(TrsText *text, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(2, 3);

/* Append n bytes. Not collective. Errors: MEMORY. */
PetscErrorCode TrsTextAppend(TrsText *text, const char *bytes, size_t n);

/*
  Append a string as JSON, with quotes. Characters that control a terminal become \u escapes. Not
  collective. Errors: MEMORY.
*/
PetscErrorCode TrsTextJsonString(TrsText *text, const char *string);

PetscErrorCode TrsTextFree(TrsText *text);

/* Write a number of bytes, such as "1.5 GiB", into text [size]. Returns text. */
const char *TrsBytesText(double bytes, char *text, size_t size);
