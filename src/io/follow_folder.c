/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/follow_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
  int n, room;
  char **name; /* [n] */
} TrsNames;

static PetscErrorCode add_name(TrsNames *names, const char *name)
{
  PetscFunctionBegin;
  if (names->n == names->room) {
    names->room *= 2;
    PetscCall(PetscRealloc((size_t)names->room * sizeof(*names->name), &names->name));
  }
  PetscCall(PetscStrallocpy(name, &names->name[names->n++]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_names(int n, char ***name)
{
  PetscFunctionBegin;
  for (int i = 0; i < n; i++) PetscCall(PetscFree((*name)[i]));
  PetscCall(PetscFree(*name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if a file with this name may be taken. */
static PetscBool is_complete(const char *name)
{
  const size_t n = strlen(name);

  return (PetscBool)(name[0] != '.' && strcmp(name, TRS_FOLLOW_STOP) != 0 &&
                     (n < 4 || strcmp(name + n - 4, ".tmp") != 0));
}

static PetscBool is_folder(DIR *folder, const struct dirent *entry)
{
  struct stat info;

  if (entry->d_type == DT_REG) return PETSC_FALSE;
  return (PetscBool)(fstatat(dirfd(folder), entry->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode));
}

static int by_bytes(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* List the complete files of the folder, sorted by the bytes of their names. */
static PetscErrorCode list(const char *path, TrsNames *names)
{
  DIR *folder = opendir(path);

  PetscFunctionBegin;
  *names = (TrsNames){.room = 16};
  PetscCheck(folder, PETSC_COMM_SELF, TRS_ERR_NO_INPUT, "-data_follow %s: the folder cannot be read: %s",
             path, strerror(errno));
  PetscCall(PetscMalloc1((size_t)names->room, &names->name));
  for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
    if (is_complete(entry->d_name) && !is_folder(folder, entry)) PetscCall(add_name(names, entry->d_name));
  (void)closedir(folder);
  qsort(names->name, (size_t)names->n, sizeof(*names->name), by_bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return the number of sorted names that are at most `last`. */
static int count_up_to(const TrsNames *names, const char *last)
{
  int n = 0;

  while (n < names->n && strcmp(names->name[n], last) <= 0) n++;
  return n;
}

/*
  Keep the first n names as the known ones, and free the other names. Names of files that were
  removed from the folder are forgotten, so the list does not grow without end.
*/
static PetscErrorCode keep(TrsFollowFolder *folder, TrsNames *names, int n)
{
  PetscFunctionBegin;
  for (int i = n; i < names->n; i++) PetscCall(PetscFree(names->name[i]));
  PetscCall(free_names(folder->n_known, &folder->known));
  folder->known = names->name;
  folder->n_known = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFollowFolderOpen(const char *path, const char *after, TrsFollowFolder *folder,
                                   int *n_before)
{
  TrsNames names;

  PetscFunctionBegin;
  *folder = (TrsFollowFolder){.path = NULL};
  PetscCall(PetscStrallocpy(path, &folder->path));
  PetscCall(PetscStrncpy(folder->last, after, sizeof(folder->last)));
  PetscCall(list(path, &names));
  *n_before = count_up_to(&names, after);
  PetscCall(keep(folder, &names, *n_before));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFollowFolderLook(TrsFollowFolder *folder, TrsFollowLook *look)
{
  char stop[PATH_MAX];
  struct stat info;
  TrsNames names;
  int n;

  PetscFunctionBegin;
  *look = (TrsFollowLook){.n_late = 0};
  snprintf(stop, sizeof(stop), "%s/" TRS_FOLLOW_STOP, folder->path);
  /*
    Look for STOP before the listing, so that the list has all files that were there before STOP.
  */
  look->has_stop = (PetscBool)(stat(stop, &info) == 0);
  PetscCall(list(folder->path, &names));
  n = count_up_to(&names, folder->last);
  for (int i = 0; i < n; i++) {
    if (folder->n_known &&
        bsearch(&names.name[i], folder->known, (size_t)folder->n_known, sizeof(*folder->known), by_bytes))
      continue;
    if (look->n_late++ == 0) PetscCall(PetscStrncpy(look->late, names.name[i], sizeof(look->late)));
  }
  if (n < names.n) PetscCall(PetscStrncpy(look->next, names.name[n], sizeof(look->next)));
  if (look->next[0]) look->has_stop = PETSC_FALSE;
  PetscCall(keep(folder, &names, n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFollowFolderTake(TrsFollowFolder *folder, const char *name)
{
  PetscFunctionBegin;
  PetscCall(PetscStrncpy(folder->last, name, sizeof(folder->last)));
  PetscCall(PetscRealloc((size_t)(folder->n_known + 1) * sizeof(*folder->known), &folder->known));
  PetscCall(PetscStrallocpy(name, &folder->known[folder->n_known++]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFollowFolderFree(TrsFollowFolder *folder)
{
  PetscFunctionBegin;
  PetscCall(free_names(folder->n_known, &folder->known));
  PetscCall(PetscFree(folder->path));
  PetscFunctionReturn(PETSC_SUCCESS);
}
