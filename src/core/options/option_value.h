/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing an option's value, and writing what was expected for error messages. */
#pragma once

#include "core/options/options.h"

typedef struct {
  int n;          /* number of entries; 1 if the type is no list */
  int64_t *ints;  /* [n] for BOOL, INT, BYTES and lists of INT or BYTES */
  double *reals;  /* [n] */
  int *indices;   /* [n] indices of entries in choices */
  char **strings; /* [n] for STRING, FILE, STRINGS */
} TrsOptionValue;

enum { TRS_OPTION_DETAIL = 160 };

/*
  TrsOptionValueParse - Read and check a value.

  Not collective. The text is read as in the C locale, regardless of the user's locale.

  In:     spec    type, range, choices
          text    not NULL
          folder  base of a relative FILE
  Out:    value   free with TrsOptionValueFree(); empty if the text is not valid
          valid   true if the text is a value of the type and range
          detail  a hint for the end of the message: "; write 1M", or ""
*/
PetscErrorCode TrsOptionValueParse(const TrsOptionSpec *spec, const char *text, const char *folder,
                                   TrsOptionValue *value, PetscBool *valid, char detail[TRS_OPTION_DETAIL]);
PetscErrorCode TrsOptionValueFree(TrsOptionValue *value);

/*
  Write what a value must be: "an integer in [1,
  9223372036854775807]" or "one of cpu, cuda". Not collective.
*/
void TrsOptionExpected(const TrsOptionSpec *spec, char *text, size_t n);

/* Return the index of text[0 .. length - 1] in choices, "a,b,c", or -1. Case is ignored. */
int TrsChoiceOf(const char *choices, const char *text, size_t length);

/* Write choices "a,b,c" as "a, b, c". */
void TrsChoicesSpread(const char *choices, char *text, size_t n);

PetscBool TrsOptionIsList(TrsOptionType type);
