/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/predictor_names.h"

#include "spec/mapping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Make the names of the dense features that -data_dense chose, or of all dense features. */
static PetscErrorCode name_dense(TrsOptions options, const char *path, TrsPredictorNames *names)
{
  const TrsMapping mapping = {.path = path, .text = names->mapping};
  const char *const *words = NULL;
  int64_t num_dense;
  int n = 0, *chosen = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsMappingCheck(&mapping, -1));
  PetscCall(TrsOptionsGetInt(options, "-num_dense", &num_dense, NULL));
  PetscCall(TrsOptionsGetStrings(options, "-data_dense", &n, &words, NULL));
  if (n > 0 && n == num_dense) {
    PetscCall(PetscMalloc1((size_t)n, &chosen));
    for (int d = 0; d < n; d++) chosen[d] = (int)strtol(words[d], NULL, 10);
  }
  ierr = TrsMappingDenseNames(&mapping, (int)num_dense, chosen, &names->dense);
  PetscCall(PetscFree(chosen));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the bytes that the names of all outputs need: one name for each task, or for each class. */
static size_t bytes_of(const TrsTaskConfigs *tasks, const char *only)
{
  size_t bytes = strlen(only) + 1;

  for (int t = 0; tasks->named && t < tasks->n; t++)
    bytes += (size_t)tasks->task[t].classes * (strlen(tasks->task[t].name) + 16);
  return bytes;
}

static PetscErrorCode name_outputs(TrsOptions options, const TrsTaskConfigs *tasks, TrsPredictorNames *names)
{
  const char *only = NULL;
  size_t bytes, i = 0;
  char *to;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-data_label", &only, NULL));
  if (!only) only = "prediction";
  bytes = bytes_of(tasks, only);
  PetscCall(PetscMalloc((size_t)tasks->columns * sizeof(char *) + bytes, &names->output));
  to = (char *)(names->output + tasks->columns);
  for (int t = 0; t < tasks->n; t++) {
    const TrsTaskConfig *task = &tasks->task[t];

    for (int c = 0; c < task->classes; c++) {
      const char *name = tasks->named ? task->name : only;
      const size_t room = bytes - (size_t)(to - (char *)(names->output + tasks->columns));

      names->output[i++] = to;
      to += 1 + (task->classes > 1 ? snprintf(to, room, "%s_%d", name, c) : snprintf(to, room, "%s", name));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPredictorNamesTake(TrsOptions options, const TrsTaskConfigs *tasks, const char *path,
                                     TrsPredictorNames *names)
{
  PetscFunctionBegin;
  PetscCall(name_dense(options, path, names));
  PetscCall(name_outputs(options, tasks, names));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPredictorNamesFree(TrsPredictorNames *names)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(names->mapping));
  PetscCall(PetscFree(names->dense));
  PetscCall(PetscFree(names->output));
  PetscFunctionReturn(PETSC_SUCCESS);
}
