/* SPDX-License-Identifier: BSD-3-Clause */
/* One option's value: from text to numbers, with the range and the words that an error message needs. */
#pragma once

#include "core/options.h"

typedef struct {
  int n;          /* entries; 1 unless the type is a list */
  int64_t *ints;  /* [n] BOOL, INT, BYTES and their lists */
  double *reals;  /* [n] */
  int *indices;   /* [n] into choices */
  char **strings; /* [n] STRING, FILE, STRINGS */
} TrsOptionValue;

enum { TRS_OPTION_DETAIL = 160 };

/*
  TrsOptionValueParse - Read and check a value.

  Not collective. The text is read as in the C locale, whatever the user's is.

  In:     spec    type, range, choices
          text    not NULL
          folder  where a relative FILE begins
  Out:    value   free with TrsOptionValueFree()
          valid   whether text is a value of that type and range; if not, value is empty
          detail  what is wrong in particular: "; write 1M", or ""; for the end of the message
*/
PetscErrorCode TrsOptionValueParse(const TrsOptionSpec *spec, const char *text, const char *folder,
                                   TrsOptionValue *value, PetscBool *valid, char detail[TRS_OPTION_DETAIL]);
PetscErrorCode TrsOptionValueFree(TrsOptionValue *value);

/* "an integer in [1, 9223372036854775807]", "one of cpu, cuda", ...: what a value must be. Not collective. */
void TrsOptionExpected(const TrsOptionSpec *spec, char *text, size_t n);

PetscBool TrsOptionIsList(TrsOptionType type);
