/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/log_view.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Can a file be made in the folder of a path, or be written where it is? */
static PetscErrorCode check_writable(const char *path)
{
  const char *slash = strrchr(path, '/');
  char folder[PETSC_MAX_PATH_LEN] = ".";
  int failed = access(path, W_OK) != 0;

  PetscFunctionBegin;
  if (slash) PetscCall(PetscStrncpy(folder, path, (size_t)(slash - path) + 2));
  if (failed && errno == ENOENT) failed = access(folder, W_OK | X_OK) != 0;
  PetscCheck(!failed, PETSC_COMM_SELF, TRS_ERR_CANT_CREATE, "%s cannot be created: %s (-log_view)", path,
             strerror(errno));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLogViewPath(TrsOptions options, const char **path)
{
  static const char *const formats[] = {"",          "ascii_info",       "ascii_info_detail",
                                        "ascii_xml", "ascii_flamegraph", "ascii_csv"};
  static char text[PETSC_MAX_PATH_LEN];
  char *file, *format;
  PetscBool set, known = PETSC_TRUE;

  PetscFunctionBegin;
  *path = NULL;
  PetscCall(PetscOptionsGetString(NULL, NULL, "-log_view", text, sizeof(text), &set));
  if (!set) PetscFunctionReturn(PETSC_SUCCESS);
  file = strchr(text, ':');
  if (file) *file++ = '\0';
  format = file ? strchr(file, ':') : NULL;
  if (format) {
    *format++ = '\0';
    known = PETSC_FALSE;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
      known = (PetscBool)(known || strcmp(format, formats[i]) == 0);
  }
  if ((text[0] && strcmp(text, "ascii") != 0) || !known)
    PetscCall(TrsOptionError(options, "-log_view",
                             "expected nothing, or :FILE, or :FILE:FORMAT with FORMAT one of ascii_info, "
                             "ascii_info_detail, ascii_xml, ascii_flamegraph, ascii_csv"));
  if (!file || !file[0]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(check_writable(file));
  *path = file;
  PetscFunctionReturn(PETSC_SUCCESS);
}
