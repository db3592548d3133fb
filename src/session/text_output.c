/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/text_output.h"

#include "session/outputs.h"

#include <stdio.h>
#include <string.h>

/* Put the option's name before an error message about its file. */
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

static PetscErrorCode to_file(TrsOptions options, const char *option, const char *path, const TrsText *text)
{
  TrsOutput output;
  TrsExisting existing;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsOutputsExisting(options, PETSC_FALSE, &existing));
  PetscCall(TrsOutputOpenText(path, existing, &output));
  PetscCall(TrsOutputsLimitBackups(options, &output));
  if (!text) PetscCall(TrsOutputClaim(&output, NULL));
  ierr = text ? TrsOutputSave(&output, text->data, (int64_t)text->n) : TrsAtomicTry(path);
  if (output.backup)
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s what was %s before: %s\n", "kept", path, output.backup));
  PetscCall(TrsOutputClose(&output));
  if (ierr) PetscCall(name_option(option, path, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTextOutput(TrsOptions options, const char *option, const char *path, const TrsText *text)
{
  const PetscBool is_stdout = (PetscBool)(!strcmp(path, "stdout") || !strcmp(path, "/dev/stdout"));

  PetscFunctionBegin;
  if (is_stdout && text) {
    (void)fwrite(text->data, 1, text->n, stdout);
    (void)fflush(stdout);
  } else if (!is_stdout) {
    PetscCall(to_file(options, option, path, text));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
