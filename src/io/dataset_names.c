/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/dataset_names.h"

#include "io/dataset.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names stored one after the other, each with its final 0. */
typedef struct {
  int n, bytes, room; /* int, like the counts in MPI */
  char *text;
} TrsNames;

static PetscErrorCode add_name(TrsNames *names, const char *name)
{
  const size_t bytes = strlen(name) + 1;

  PetscFunctionBegin;
  PetscCheck(bytes < (size_t)(INT32_MAX / 2 - names->bytes), PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "%.100s...: too many files", name);
  if (names->bytes + (int)bytes > names->room) {
    names->room = 2 * (names->bytes + (int)bytes);
    PetscCall(PetscRealloc((size_t)names->room, &names->text));
  }
  memcpy(names->text + names->bytes, name, bytes);
  names->bytes += (int)bytes;
  names->n++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int by_bytes(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static PetscErrorCode add_matches(TrsNames *names, const char *pattern)
{
  glob_t found;
  int status;

  PetscFunctionBegin;
  errno = 0;
  status = glob(pattern, GLOB_NOSORT, NULL, &found);
  PetscCheck(status != GLOB_NOMATCH, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s: no file matches this pattern",
             pattern);
  PetscCheck(status == 0, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "%s: the pattern cannot be looked up: %s",
             pattern, errno ? strerror(errno) : "no memory");
  /* This order does not depend on the locale. */
  qsort(found.gl_pathv, found.gl_pathc, sizeof(*found.gl_pathv), by_bytes);
  for (size_t i = 0; i < found.gl_pathc; i++) PetscCall(add_name(names, found.gl_pathv[i]));
  globfree(&found);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool is_pattern(const char *name)
{
  return (PetscBool)(strpbrk(name, "*?[") && access(name, F_OK) != 0);
}

static PetscErrorCode find_names(int n, const char *const *given, TrsNames *names)
{
  PetscFunctionBegin;
  for (int i = 0; i < n; i++) {
    if (is_pattern(given[i]))
      PetscCall(add_matches(names, given[i]));
    else
      PetscCall(add_name(names, given[i]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetFindFiles(MPI_Comm comm, int n, const char *const *given, int *n_files,
                                   char ***paths)
{
  TrsNames names = {0};
  char *text;
  int rank, sizes[2];

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(TrsAgree(comm, rank == 0 ? find_names(n, given, &names) : PETSC_SUCCESS));
  sizes[0] = names.n;
  sizes[1] = names.bytes;
  PetscCallMPI(MPI_Bcast(sizes, 2, MPI_INT, 0, comm));
  PetscCall(PetscMalloc((size_t)sizes[0] * sizeof(**paths) + (size_t)sizes[1], paths));
  text = (char *)(*paths + sizes[0]);
  if (names.text) memcpy(text, names.text, (size_t)sizes[1]);
  PetscCallMPI(MPI_Bcast(text, sizes[1], MPI_CHAR, 0, comm));
  for (int i = 0; i < sizes[0]; i++, text += strlen(text) + 1) (*paths)[i] = text;
  *n_files = sizes[0];
  PetscCall(PetscFree(names.text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsDatasetIsThere(int n, const char *const *names)
{
  PetscBool there = PETSC_FALSE;

  for (int i = 0; i < n && !there; i++) {
    glob_t found;

    if (is_pattern(names[i])) {
      there = (PetscBool)(glob(names[i], GLOB_NOSORT, NULL, &found) == 0);
      globfree(&found);
    } else {
      there = (PetscBool)(access(names[i], F_OK) == 0);
    }
  }
  return there;
}
