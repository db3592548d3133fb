/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A file written with these functions appears under its name only when it is complete and on disk.
  Used by io/ and session/. Called on one rank at a time, not collective.

  If there is a symbolic link at the path, the link stays, and the file appears at the link's
  target, even if the target does not exist yet. The temporary file lies in the same folder as the
  final file. Its name is ".<name>.<16 hex digits>.tmp". It is always a new file (never reached
  through a link), and its writer keeps it locked (flock). An unlocked temporary file is a left-over
  of a killed run, and the next TrsAtomicCreate() of the same name removes it.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  char *path; /* the file that the links lead to */
  char *folder, *temporary;
  int fd;         /* the temporary file: readable, writable and locked */
  PetscBool made; /* true if the temporary file exists */
} TrsAtomicFile;

/*
  Find the file that a path names, by following the symbolic links of the path's last part. The last
  link may point to a file that does not exist. Free *target with PetscFree().
*/
PetscErrorCode TrsAtomicTarget(const char *path, char **target);

/*
  Make the empty temporary file. Free it with TrsAtomicPublish() or TrsAtomicDiscard().
  Errors: CANT_CREATE.
*/
PetscErrorCode TrsAtomicCreate(const char *path, TrsAtomicFile *file);

/*
  Open the temporary file of another rank for reading and writing. A network file system may show a
  new file to other hosts only later, so the function waits up to 5 s for the file. Returns a
  descriptor, or -1 with errno set.
*/
int TrsAtomicJoin(const char *temporary);

/* Copy the contents and the size of the file `from`. Holes stay holes. Errors: IO. */
PetscErrorCode TrsAtomicFill(TrsAtomicFile *file, int from);

/* Write the whole contents of the file from memory. Errors: IO. */
PetscErrorCode TrsAtomicWrite(TrsAtomicFile *file, const void *data, int64_t n_bytes);

/* Check that a file could be made at path. Leaves nothing behind. Errors: CANT_CREATE. */
PetscErrorCode TrsAtomicTry(const char *path);

/*
  Flush the file, rename it and flush the folder. Errors: IO. Before the rename the previous file is
  intact. After it the new file is complete.
*/
PetscErrorCode TrsAtomicPublish(TrsAtomicFile *file);

/* Flush the folder to disk, so that the names of its files survive a crash. Errors: IO. */
PetscErrorCode TrsAtomicSyncFolder(const TrsAtomicFile *file);

/*
  Remove the temporary file, if there is one, and free the struct. May also be called after
  TrsAtomicPublish(), and with a zeroed struct.
*/
PetscErrorCode TrsAtomicDiscard(TrsAtomicFile *file);

/* Remove left-over temporary files whose names start with ".<prefix>". Failures are ignored. */
void TrsAtomicClean(const char *folder, const char *prefix);

/*
  Read or write all bytes, with as many calls as needed. Returns 0, an errno, or ENODATA if the file
  ends early.
*/
int TrsReadFully(int fd, void *data, int64_t bytes, int64_t offset);
int TrsWriteFully(int fd, const void *data, int64_t bytes, int64_t offset);
