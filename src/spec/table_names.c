/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/table_names.h"

#include "core/names.h"
#include "spec/vocabulary.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int compare_names(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Compare names as the options do. */
static int compare_letters(const void *a, const void *b)
{
  return strcasecmp(*(const char *const *)a, *(const char *const *)b);
}

/* Find the first name that is equal to another name by `compare`. Returns NULL if there is none. */
static PetscErrorCode find_equal(int n, const char *const *names, int (*compare)(const void *, const void *),
                                 const char **equal)
{
  const char **sorted;

  PetscFunctionBegin;
  *equal = NULL;
  if (n < 2) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1(n, &sorted));
  memcpy(sorted, names, (size_t)n * sizeof(*names));
  qsort(sorted, (size_t)n, sizeof(*sorted), compare);
  for (int i = 1; i < n && !*equal; i++)
    if (compare(&sorted[i - 1], &sorted[i]) == 0) *equal = sorted[i];
  PetscCall(PetscFree(sorted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsNamesFindTwice(int n, const char *const *names, const char **twice)
{
  PetscFunctionBegin;
  PetscCall(find_equal(n, names, compare_names, twice));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if a part of an HDF5 path is empty or ".". HDF5 skips such parts. */
static PetscBool has_no_part(const char *name)
{
  for (const char *part = name;; part++) {
    const size_t length = strcspn(part, "/");

    if (length == 0 || (length == 1 && part[0] == '.')) return PETSC_TRUE;
    part += length;
    if (!*part) return PETSC_FALSE;
  }
}

/* True if the path's first part is a name that checkpoints use for a tensor of a table. */
static PetscBool is_tensor(const char *path)
{
#define STATE_NAMES(KIND, word, first, first_name, second, second_name, ...) first_name, second_name,
  static const char *const names[] = {"weight", "weight_quantised", "zch", "dynamic",
                                      TRS_EMBEDDING_OPTIMIZERS(STATE_NAMES) ""};
  const size_t length = strcspn(path, "/");

  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    const size_t n = strlen(names[i]);

    if (n == 0 || strncmp(path, names[i], n) != 0) continue;
    if (length == n || (length == n + 8 && strncmp(path + n, "_columns", 8) == 0)) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

/*
  The index of a table whose tensor has this path. For example, the name a/weight is a tensor of
  table a. Returns -1 if there is no such table.
*/
static int table_below(const char *name, int n, const char *const *names)
{
  for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/'))
    for (int t = 0; is_tensor(slash + 1) && t < n; t++)
      if (strncmp(names[t], name, (size_t)(slash - name)) == 0 && !names[t][slash - name]) return t;
  return -1;
}

PetscErrorCode TrsTableNamesCheck(TrsOptions options, int n, const char *const *names)
{
  const char *twice;

  PetscFunctionBegin;
  PetscCall(TrsNamesFindTwice(n, names, &twice));
  if (twice) PetscCall(TrsOptionError(options, "-tables", "table \"%s\" is listed twice", twice));
  PetscCall(find_equal(n, names, compare_letters, &twice));
  if (twice)
    PetscCall(TrsOptionError(options, "-tables",
                             "table \"%s\" is there twice for options, which take small and capital letters "
                             "for one: give the table another name",
                             twice));
  for (int t = 0; t < n; t++)
    if (!TrsNameIsUtf8(names[t]) || has_no_part(names[t]))
      PetscCall(TrsOptionError(options, "-tables",
                               "\"%.100s\" is no name of a table: expected UTF-8, and no part between / that "
                               "is empty or a single dot",
                               names[t]));
  for (int t = 0; t < n; t++) {
    const int below = table_below(names[t], n, names);

    if (below >= 0)
      PetscCall(
          TrsOptionError(options, "-tables",
                         "table \"%.100s\" would lie where a checkpoint has numbers of table \"%.100s\": "
                         "give one of them another name",
                         names[t], names[below]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
