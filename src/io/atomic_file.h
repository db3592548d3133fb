/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Files that appear under their name complete and on disk, or not at all. For io/ and run/. One rank at a time, not collective.

  The temporary file stands in the same folder, ".<name>.<16 hex digits>.tmp", made anew (never through a link) and locked (flock) while its
  writer lives; unlocked ones are left-overs of a killed run, which the next Create of the same name removes.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  char *path, *folder, *temporary;
  int fd;         /* the temporary file, read and write, locked */
  PetscBool made; /* the temporary file exists */
} TrsAtomicFile;

/* Make the empty temporary file. Errors: CANT_CREATE. Free with Publish or Discard. */
PetscErrorCode TrsAtomicCreate(const char *path, TrsAtomicFile *file);

/* Copy what was written to another file (its holes stay holes) and take over its size. Errors: IO */
PetscErrorCode TrsAtomicFill(TrsAtomicFile *file, int from);

/* Could a file be made at path? Leaves nothing. Errors: CANT_CREATE. */
PetscErrorCode TrsAtomicTry(const char *path);

/*
  TrsAtomicSave - A whole file from memory: Create, write, Publish.

  Not collective. Errors: CANT_CREATE; IO, then what was there before is intact.
*/
PetscErrorCode TrsAtomicSave(const char *path, const void *data, int64_t n_bytes);

/* fsync, rename, fsync of the folder. Errors: IO; before the rename what was there is intact, after it the new file is complete. */
PetscErrorCode TrsAtomicPublish(TrsAtomicFile *file);

/* Flush the folder: its names as they are now survive a crash. Errors: IO */
PetscErrorCode TrsAtomicSyncFolder(const TrsAtomicFile *file);

/* Remove the temporary file, if there is one, and free. Also after Publish, and for a zeroed file. */
PetscErrorCode TrsAtomicDiscard(TrsAtomicFile *file);

/* Remove left-over temporary files whose names start with ".<prefix>". Nothing that goes wrong here matters. */
void TrsAtomicClean(const char *folder, const char *prefix);
