/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/fault.h"

#include <stdarg.h>
#include <stdio.h>

PetscErrorCode TrsFaultSet(TrsFault *fault, PetscErrorCode code, const char *format, ...)
{
  va_list list;

  if (fault->code != PETSC_SUCCESS) return fault->code;
  fault->code = code;
  va_start(list, format);
  /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
  vsnprintf(fault->text, sizeof(fault->text), format, list);
  va_end(list);
  return code;
}

PetscErrorCode TrsFaultRaise(const TrsFault *fault)
{
  PetscFunctionBegin;
  PetscCheck(fault->code == PETSC_SUCCESS, PETSC_COMM_SELF, fault->code, "%s", fault->text);
  PetscFunctionReturn(PETSC_SUCCESS);
}
