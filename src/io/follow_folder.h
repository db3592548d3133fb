/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A folder into which other programs rename files, one after the other. The files are taken in the
  order of their names, compared byte by byte. Only one rank uses these functions, and they are not
  collective.

  A file counts as soon as it has its final name. Names that begin with "." or end in ".tmp" are
  temporary and do not count. Folders do not count either. The file STOP says that no more files
  will come.
*/
#pragma once

#include "core/error.h"

#include <limits.h>

/* name of the file that says that no more files will come */
#define TRS_FOLLOW_STOP "STOP"

enum { TRS_FOLLOW_NAME = NAME_MAX + 1 };

typedef struct {
  char *path;
  char last[TRS_FOLLOW_NAME]; /* the name that was taken last; "" if none was taken */
  int n_known;
  char **known; /* [n_known] sorted: names up to `last` that were taken or reported */
} TrsFollowFolder;

/* The result of a look into the folder. */
typedef struct {
  char next[TRS_FOLLOW_NAME]; /* the first name after those that were taken; "" if there is none */
  PetscBool has_stop;         /* true: the file STOP was there, and `next` is "" */
  int n_late;                 /* number of new names that sort before the name taken last */
  char late[TRS_FOLLOW_NAME]; /* the first of these names */
} TrsFollowLook;

/*
  TrsFollowFolderOpen - Begin with the first name after `after`, which may be "".

  Out:    folder    free with TrsFollowFolderFree()
          n_before  number of files in the folder with names up to `after`. They are not taken
  Errors: NO_INPUT if the folder cannot be read
*/
PetscErrorCode TrsFollowFolderOpen(const char *path, const char *after, TrsFollowFolder *folder,
                                   int *n_before);

/*
  TrsFollowFolderLook - List the folder.

  If a file got its name before STOP was created, the file is found before STOP.

  Out:    look  a name that comes too late is counted only once
  Errors: NO_INPUT if the folder cannot be read
*/
PetscErrorCode TrsFollowFolderLook(TrsFollowFolder *folder, TrsFollowLook *look);

/* Take the file of this name, which must be the `next` of the last look. */
PetscErrorCode TrsFollowFolderTake(TrsFollowFolder *folder, const char *name);

PetscErrorCode TrsFollowFolderFree(TrsFollowFolder *folder);
