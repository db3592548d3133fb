/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/function_table.h"

PetscErrorCode TrsFunctionTableCheck(const char *what, const char *name, const TrsTableEntry *entries, int n)
{
  PetscFunctionBegin;
  for (int i = 0; i < n; i++)
    PetscCheck(entries[i].filled, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "%s %s: its table of functions has no %s", what, name ? name : "without a name",
               entries[i].name);
  PetscFunctionReturn(PETSC_SUCCESS);
}
