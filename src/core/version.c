/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/version.h"

#include "commit.h" /* the build writes this file: tools/cmake/commit.cmake */
#include "core/error.h"

#include <stdio.h>
#include <string.h>

const char *TrsVersionCommit(void)
{
  return TRS_COMMIT;
}

void TrsVersionLibraries(char *text, size_t n)
{
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length, major = 0, minor = 0, subminor = 0;

  MPI_Get_library_version(mpi, &length);
  mpi[strcspn(mpi, ",\n")] = '\0'; /* the rest of Open MPI's text is the name of its build host */
  for (char *v = strstr(mpi, " Version:\t"); v; v = NULL)
    memmove(v + 1, v + 10, strlen(v + 10) + 1); /* for MPICH */
  for (char *v = strstr(mpi, " v"); v; v = NULL) memmove(v + 1, v + 2, strlen(v + 2) + 1);
  (void)PetscGetVersionNumber(&major, &minor, &subminor, NULL);
  snprintf(text, n, "%s, PETSc %d.%d.%d", mpi, major, minor, subminor);
}
