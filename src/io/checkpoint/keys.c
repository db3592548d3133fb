/* SPDX-License-Identifier: BSD-3-Clause */
/* The ids of tables whose rows are given to ids: rows without them, or with others, are useless. */
#include "io/checkpoint/impl.h"

#include <stdio.h>
#include <string.h>

/* By the words of id_map: the folder of a table's ids, and the tensor that no such table lacks. */
static const struct {
  const char *id_map, *tensor;
} kinds[] = {{"zch", "raw"}, {"dynamic", "ids"}};
enum { TRS_KEYS_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

const char *TrsCheckpointKeysFolder(const char *path)
{
  for (int i = 0; i < TRS_KEYS_KINDS; i++) {
    const size_t n = strlen(kinds[i].id_map);

    if (path[0] == '/' && strncmp(path + 1, kinds[i].id_map, n) == 0 && path[1 + n] == '/')
      return path + 1 + n;
  }
  return path;
}

/* Does the file have the dataset? */
static PetscErrorCode has_dataset(const TrsHDF5File *file, const char *name, PetscBool *has)
{
  hid_t id;

  PetscFunctionBegin;
  PetscCall(TrsHDF5Open(file, name, H5I_DATASET, &id));
  *has = (PetscBool)(id >= 0);
  if (id >= 0) (void)H5Dclose(id);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointCheckKeys(const TrsHDF5File *file, const char *table, const char *id_map,
                                      PetscBool may_leave_out)
{
  const char *hint = may_leave_out ? ", or name only the other tables in -init_from_tables" : "";
  char name[TRS_KEYS_KINDS][TRS_CHECKPOINT_MAX_NAME];
  int wanted = -1, found = -1;

  PetscFunctionBegin;
  for (int i = 0; i < TRS_KEYS_KINDS; i++) {
    PetscBool has = PETSC_FALSE;

    if (snprintf(name[i], sizeof(name[i]), "embedding/%s/%s/%s", table, kinds[i].id_map, kinds[i].tensor) <
        TRS_CHECKPOINT_MAX_NAME)
      PetscCall(has_dataset(file, name[i], &has));
    if (has) found = i;
    if (strcmp(id_map, kinds[i].id_map) == 0) wanted = i;
  }
  TRS_CHECK_DATA(found < 0 || found == wanted,
                 "%s has /%s, the ids that have the rows of table \"%s\", but the table has id_map %s here: "
                 "give -table_%s_id_map %s%s",
                 file->path, name[found], table, id_map, table, kinds[found].id_map, hint);
  TRS_CHECK_DATA(found == wanted,
                 "%s has no /%s, the ids that have the rows of table \"%s\", which has id_map %s here: give "
                 "the -table_%s_id_map of the file's model: none, modulo or hash%s",
                 file->path, name[wanted], table, id_map, table, hint);
  PetscFunctionReturn(PETSC_SUCCESS);
}
