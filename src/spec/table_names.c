/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/table_names.h"

#include "core/names.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

PetscErrorCode TrsNamesFindTwice(int n, const char *const *names, const char **twice)
{
  const char **sorted;

  PetscFunctionBegin;
  *twice = NULL;
  PetscCall(PetscMalloc1(n, &sorted));
  memcpy(sorted, names, (size_t)n * sizeof(*names));
  qsort(sorted, (size_t)n, sizeof(*sorted), compare_names);
  for (int i = 1; i < n && !*twice; i++) {
    if (!strcmp(sorted[i - 1], sorted[i])) *twice = sorted[i];
  }
  PetscCall(PetscFree(sorted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether a path of HDF5 has a part that is empty or ".", which HDF5 leaves out. */
static PetscBool has_no_part(const char *name)
{
  for (const char *part = name;; part++) {
    const size_t length = strcspn(part, "/");

    if (length == 0 || (length == 1 && part[0] == '.')) return PETSC_TRUE;
    part += length;
    if (!*part) return PETSC_FALSE;
  }
}

PetscErrorCode TrsTableNamesCheck(TrsOptions options, int n, const char *const *names)
{
  const char *twice;

  PetscFunctionBegin;
  PetscCall(TrsNamesFindTwice(n, names, &twice));
  if (twice) PetscCall(TrsOptionError(options, "-tables", "table \"%s\" is listed twice", twice));
  for (int t = 0; t < n; t++)
    if (!TrsNameIsUtf8(names[t]) || has_no_part(names[t]))
      PetscCall(TrsOptionError(options, "-tables",
                               "\"%.100s\" is no name of a table: expected UTF-8, and no part between / that "
                               "is empty or a single dot",
                               names[t]));
  PetscFunctionReturn(PETSC_SUCCESS);
}
