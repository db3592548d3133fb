/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/label.h"

#include <stdio.h>
#include <string.h>

void TrsLabelNames(const TrsDatasetInfo *info, char *text, size_t size)
{
  size_t used = 0;

  text[0] = '\0';
  for (int i = 0; info->label_names && i < info->n_labels && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%.100s", i > 0 ? ", " : "", info->label_names[i]);
  if (used >= size && size > 4) memcpy(text + size - 4, "...", 4);
}

PetscErrorCode TrsLabelFind(const TrsDatasetInfo *info, const char *name, const char *option, int *label)
{
  const PetscErrorCode code = option ? TRS_ERR_OPTION : TRS_ERR_DATA;
  const char *const colon = option ? ": " : "";
  char names[512];

  PetscFunctionBegin;
  *label = 0;
  if (!option) option = "";
  TrsLabelNames(info, names, sizeof(names));
  if (!info->has_labels) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(!name || info->label_names, PETSC_COMM_SELF, code,
             "%s%s%s has one label without a name, expected a label \"%.100s\"", option, colon, info->path,
             name);
  PetscCheck(name || info->n_labels == 1, PETSC_COMM_SELF, code,
             "%s has the labels %s, the training data one without a name: expected one label", info->path,
             names);
  if (!name) PetscFunctionReturn(PETSC_SUCCESS);
  while (*label < info->n_labels && strcmp(info->label_names[*label], name) != 0) ++*label;
  PetscCheck(*label < info->n_labels, PETSC_COMM_SELF, code,
             "%s%s%s has no label \"%.100s\", expected one of %s", option, colon, info->path, name, names);
  PetscFunctionReturn(PETSC_SUCCESS);
}
