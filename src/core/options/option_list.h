/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lists in option values: "a,b,c". Blanks around an entry are ignored. An entry may be in quotes,
  for example "a,""b, c""" in a file or 'a,"b, c"' in a shell. A quoted entry may contain commas,
  and may begin or end with blanks; two quotes in it represent one quote. A quote inside an entry
  that is not quoted is an ordinary character.
*/
#pragma once

#include "core/error.h"

typedef struct {
  int n;
  char **entry; /* [n] into text */
  char *text;
} TrsOptionList;

/*
  Split a text into its entries. An empty text has one empty entry. Not collective. Out: list, free
  with TrsOptionListFree(); valid, PETSC_FALSE if a quote is not closed or if text follows a closing
  quote.
*/
PetscErrorCode TrsOptionListSplit(const char *text, TrsOptionList *list, PetscBool *valid);
PetscErrorCode TrsOptionListFree(TrsOptionList *list);

/*
  Write an entry of a list to text [2 * length of entry + 3], in quotes if necessary. Returns the
  length of the text. Not collective.
*/
size_t TrsOptionListEntry(const char *entry, char *text);

/* Join n entries to a list. Not collective. Out: text, free with PetscFree(). */
PetscErrorCode TrsOptionListJoin(int n, const char *const *entries, char **text);
