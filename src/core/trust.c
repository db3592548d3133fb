/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/trust.h"

#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static PetscBool trusts_others; /* the value of -trust_other_users */

void TrsFileTrustOthers(PetscBool trust)
{
  trusts_others = trust;
}

static PetscBool is_ours(uid_t owner)
{
  const char *caller = geteuid() == 0 ? getenv("SUDO_UID") : NULL;

  return (PetscBool)(owner == geteuid() || owner == 0 || (caller && strtoul(caller, NULL, 10) == owner));
}

/*
  Find a folder on the path of a file in which other users may create files. The search goes
  upwards, and ends at a folder in which only this user may. Returns NULL if there is no such
  folder. path [PATH_MAX] must be resolved; it is truncated.
*/
static const char *open_folder(char *path)
{
  PetscBool first = PETSC_TRUE;
  struct stat status;
  char *slash;

  while ((slash = strrchr(path, '/')) != NULL) {
    slash[slash == path] = '\0'; /* the root folder stays "/" */
    if (stat(path, &status) != 0) return NULL;
    if (status.st_mode & S_IWOTH && (first || geteuid() == 0 || !(status.st_mode & S_ISVTX))) return path;
    if (status.st_uid == geteuid() && !(status.st_mode & (S_IWGRP | S_IWOTH))) return NULL;
    if (slash == path) return NULL;
    first = PETSC_FALSE;
  }
  return NULL;
}

PetscErrorCode TrsFileTrust(const char *path)
{
  char resolved[PATH_MAX], number[32];
  const char *where = NULL;
  const struct passwd *user;
  struct stat status;

  PetscFunctionBegin;
  if (trusts_others || stat(path, &status) != 0 || is_ours(status.st_uid)) PetscFunctionReturn(PETSC_SUCCESS);
  if (status.st_mode & S_IWOTH)
    where = path;
  else if (realpath(path, resolved))
    where = open_folder(resolved);
  if (!where) PetscFunctionReturn(PETSC_SUCCESS);
  user = getpwuid(status.st_uid);
  snprintf(number, sizeof(number), "%lu", (unsigned long)status.st_uid);
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_OPTION,
          "%s belongs to user %s, and all users may write to %s: another user may have put it there. If "
          "you trust it, copy it, or give -trust_other_users on the command line",
          path, user ? user->pw_name : number, where == path ? "it" : where);
}
