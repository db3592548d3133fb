/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lists in option values: "a,b,c". Blanks around an entry are ignored. An entry may be in quotes,
  "a,""b, c""" of a file or 'a,"b, c"' of a shell: it may then contain commas, and blanks at its
  ends, and two quotes stand for one quote. A quote inside an unquoted entry is an ordinary
  character.
*/
#pragma once

#include "core/error.h"

typedef struct {
  int n;
  char **entry; /* [n] into text */
  char *text;
} TrsOptionList;

/*
  Split a text into its entries; an empty text has one empty entry. Not collective. Out: list, free
  with TrsOptionListFree(); valid, PETSC_FALSE if a quote is not closed or text follows one.
*/
PetscErrorCode TrsOptionListSplit(const char *text, TrsOptionList *list, PetscBool *valid);
PetscErrorCode TrsOptionListFree(TrsOptionList *list);

/*
  Write an entry, in quotes if it needs them. text: [2 * length of entry + 3]. Returns the length of
  the text. Not collective.
*/
size_t TrsOptionListEntry(const char *entry, char *text);

/* Join n entries. Not collective. Out: text, free with PetscFree(). */
PetscErrorCode TrsOptionListJoin(int n, const char *const *entries, char **text);
