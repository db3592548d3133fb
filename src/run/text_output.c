/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/text_output.h"

#include "io/atomic_file.h"

#include <stdio.h>
#include <string.h>

/* Put the option in front of an error with the file. */
static PetscErrorCode name_option(const char *option, const char *path, PetscErrorCode ierr)
{
  char message[2048];
  const char *reason;

  PetscFunctionBegin;
  snprintf(message, sizeof(message), "%s", TrsErrorMessage());
  reason = strncmp(message, path, strlen(path)) == 0 ? strstr(message + strlen(path), ": ") : NULL;
  TrsErrorClear();
  SETERRQ(PETSC_COMM_SELF, ierr, "%s %s %s%s", option, path,
          ierr == TRS_ERR_CANT_CREATE ? "can't be created" : "can't be written", reason ? reason : "");
}

PetscErrorCode TrsTextOutput(const char *option, const char *path, const TrsText *text)
{
  const PetscBool is_stdout = (PetscBool)(!strcmp(path, "stdout") || !strcmp(path, "/dev/stdout"));
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  if (is_stdout && text) {
    (void)fwrite(text->data, 1, text->n, stdout);
    (void)fflush(stdout);
  } else if (!is_stdout) {
    ierr = text ? TrsAtomicSave(path, text->data, (int64_t)text->n) : TrsAtomicTry(path);
  }
  if (ierr) PetscCall(name_option(option, path, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}
