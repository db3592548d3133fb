/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/log_view.h"

#include "core/options/option_petsc.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Check that the file `path` can be written or created. `path` must contain a slash. */
static PetscErrorCode check_writable(const char *path)
{
  char folder[PETSC_MAX_PATH_LEN];
  struct stat there;
  int failed = access(path, W_OK) != 0;

  PetscFunctionBegin;
  if (!failed && stat(path, &there) == 0 && S_ISDIR(there.st_mode)) {
    failed = 1;
    errno = EISDIR;
  }
  PetscCall(PetscStrncpy(folder, path, (size_t)(strrchr(path, '/') - path) + 2));
  if (failed && errno == ENOENT) failed = access(folder, W_OK | X_OK) != 0;
  PetscCheck(!failed, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE, "%s cannot be created: %s (-log_view)", path,
             strerror(errno));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLogViewPath(TrsOptions options, const char **path)
{
  static char text[PETSC_MAX_PATH_LEN], place[PETSC_MAX_PATH_LEN];
  const char *file;
  int n;

  PetscFunctionBegin;
  *path = NULL;
  if (!TrsOptionsIsGiven(options, "-log_view")) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionLogViewText(text, sizeof(text)));
  /* The check of the options has already refused values that PETSc would reject. */
  (void)TrsOptionLogView(text, &file, &n);
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscSNPrintf(place, sizeof(place), "%s%.*s", memchr(file, '/', (size_t)n) ? "" : "./", n, file));
  PetscCall(check_writable(place));
  *path = place;
  PetscFunctionReturn(PETSC_SUCCESS);
}
