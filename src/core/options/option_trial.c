/* SPDX-License-Identifier: BSD-3-Clause */
/* Trials, which set options temporarily to other values to find out their effect. */
#include "core/options/impl.h"

/* An option in a trial: its entry before the trial, and its value in the trial. */
struct TrsOptionTrial_ {
  TrsOptionEntry *entry, before;
  TrsGivenOption given; /* if the name is NULL, the option is treated as not given */
  TrsOptionTrial *older;
};

PetscErrorCode TrsOptionsTry(TrsOptions options, const char *name, const char *value)
{
  TrsOptionTrial *trial;
  char source[] = "trial", folder[] = ".";

  PetscFunctionBegin;
  PetscCall(PetscNew(&trial));
  trial->older = options->trial;
  options->trial = trial;
  PetscCall(TrsOptionsGetEntry(options, name, NULL, &trial->entry));
  trial->before = *trial->entry;
  trial->entry->given = NULL;
  trial->entry->parsed = PETSC_FALSE;
  trial->entry->value = (TrsOptionValue){0};
  if (!value) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrallocpy(name, &trial->given.name));
  PetscCall(PetscStrallocpy(value, &trial->given.value));
  PetscCall(PetscStrallocpy(source, &trial->given.source));
  PetscCall(PetscStrallocpy(folder, &trial->given.folder));
  trial->given.origin = options->given.n_files;
  trial->entry->given = &trial->given;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptionsEndTry(TrsOptions options)
{
  PetscFunctionBegin;
  while (options->trial) {
    TrsOptionTrial *trial = options->trial;

    options->trial = trial->older;
    PetscCall(TrsOptionValueFree(&trial->entry->value));
    trial->entry->given = trial->before.given;
    trial->entry->parsed = trial->before.parsed;
    trial->entry->value = trial->before.value;
    PetscCall(PetscFree(trial->given.name));
    PetscCall(PetscFree(trial->given.value));
    PetscCall(PetscFree(trial->given.source));
    PetscCall(PetscFree(trial->given.folder));
    PetscCall(PetscFree(trial));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
