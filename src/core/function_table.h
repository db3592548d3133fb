/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tables of functions (devices, exchanges, interactions) are checked when a run is set up. An empty
  entry, as in a kind that is not yet complete, ends the run.
*/
#pragma once

#include "core/error.h"

typedef struct {
  const char *name;
  PetscBool filled;
} TrsTableEntry;

#define TRS_TABLE_ENTRY(table, entry) \
  { \
    #entry, (PetscBool)((table)->entry != NULL) \
  }

/*
  TrsFunctionTableCheck - Check that the entries a table must have are filled.

  Not collective.

  In:     what, name  name the table in the message, such as "-device" and "cpu"
          entries     entries[0 .. n)
  Errors: INTERNAL, which names the first empty entry
*/
PetscErrorCode TrsFunctionTableCheck(const char *what, const char *name, const TrsTableEntry *entries, int n);
