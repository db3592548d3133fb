/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Files that appear under their name complete and on disk, or not at all. For io/ and session/. One
  rank at a time, not collective.

  A symbolic link at the path stays, and the file appears at the link's target, even if the target
  does not exist yet. The temporary file lies in the same folder as that file and is called
  ".<name>.<16 hex digits>.tmp". It is always made anew (never through a link) and stays locked
  (flock) while its writer lives. An unlocked temporary file is a left-over of a killed run, and the
  next TrsAtomicCreate() of the same name removes it.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  char *path; /* the file that the links lead to */
  char *folder, *temporary;
  int fd;         /* the temporary file: readable, writable and locked */
  PetscBool made; /* whether the temporary file exists */
} TrsAtomicFile;

/*
  Find the file that a path names, by following the symbolic links of the path's last part. The last
  link may be dangling. Free *target with PetscFree().
*/
PetscErrorCode TrsAtomicTarget(const char *path, char **target);

/*
  Make the empty temporary file. Free it with TrsAtomicPublish() or TrsAtomicDiscard().
  Errors: CANT_CREATE.
*/
PetscErrorCode TrsAtomicCreate(const char *path, TrsAtomicFile *file);

/*
  Open the temporary file of another rank for reading and writing. A network file system may show a
  new file later on other hosts: this waits for it up to 5 s. Returns a descriptor, or -1 and errno.
*/
int TrsAtomicJoin(const char *temporary);

/* Copy the contents and the size of another file. Holes stay holes. Errors: IO. */
PetscErrorCode TrsAtomicFill(TrsAtomicFile *file, int from);

/* Write the whole contents from memory. Errors: IO. */
PetscErrorCode TrsAtomicWrite(TrsAtomicFile *file, const void *data, int64_t n_bytes);

/* Check that a file could be made at path. Leaves nothing behind. Errors: CANT_CREATE. */
PetscErrorCode TrsAtomicTry(const char *path);

/*
  Flush the file, rename it and flush the folder. Errors: IO. Until the rename the previous file is
  intact; from then on the new file is complete.
*/
PetscErrorCode TrsAtomicPublish(TrsAtomicFile *file);

/* Flush the folder, so that its names survive a crash. Errors: IO. */
PetscErrorCode TrsAtomicSyncFolder(const TrsAtomicFile *file);

/*
  Remove the temporary file, if there is one, and free the struct. Also works after
  TrsAtomicPublish() and for a zeroed struct.
*/
PetscErrorCode TrsAtomicDiscard(TrsAtomicFile *file);

/* Remove left-over temporary files whose names start with ".<prefix>". Failures are ignored. */
void TrsAtomicClean(const char *folder, const char *prefix);

/* Read or write all bytes, in as many calls as needed. Return 0, an errno, or ENODATA. */
int TrsReadFully(int fd, void *data, int64_t bytes, int64_t offset);
int TrsWriteFully(int fd, const void *data, int64_t bytes, int64_t offset);
