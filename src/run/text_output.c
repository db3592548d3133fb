/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/text_output.h"

#include "io/output.h"

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

/* Save the text, or without one try the path. */
static PetscErrorCode save(TrsOutput *output, const TrsText *text)
{
  PetscFunctionBegin;
  if (text)
    PetscCall(TrsOutputSave(output, text->data, (int64_t)text->n));
  else
    PetscCall(TrsAtomicTry(output->path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode to_file(TrsOptions options, const char *option, const char *path, const TrsText *text)
{
  TrsOutput output;
  PetscErrorCode ierr;
  PetscBool resume;
  int existing;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-existing_outputs", &existing, NULL));
  PetscCall(TrsOptionsGetBool(options, "-resume", &resume, NULL));
  /* A text names no run. If it were refused, it would keep a run from its own resume. */
  if (resume && existing == TRS_EXISTING_REFUSE) existing = TRS_EXISTING_BACKUP;
  PetscCall(TrsOutputOpenText(path, (TrsExisting)existing, &output));
  if (!text) PetscCall(TrsOutputClaim(&output, NULL));
  ierr = save(&output, text);
  if (ierr) PetscCall(name_option(option, path, ierr));
  if (output.backup)
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s what was %s before: %s\n", "kept", path, output.backup));
  PetscCall(TrsOutputClose(&output));
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
