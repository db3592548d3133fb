/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Check of function tables (devices, exchanges, interactions) when a run is set up. If an entry is
  empty, for example because a new kind is not yet complete, the run ends.
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
  TrsFunctionTableCheck - Check that all necessary entries of a table are set.

  Not collective.

  In:     what, name  name the table in the message, such as "-device" and "cpu"
          entries     entries[0 .. n)
  Errors: INTERNAL, which names the first empty entry
*/
PetscErrorCode TrsFunctionTableCheck(const char *what, const char *name, const TrsTableEntry *entries, int n);
