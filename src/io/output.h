/* SPDX-License-Identifier: BSD-3-Clause */
/*
  An output's place is the path where the run puts its file. This module decides what happens to
  another file at this path.

  A file is the run's own if this process put it there, or if its root attribute run_id is the
  run's. Any other file may be valuable to somebody, so it is kept as <path>.~<n>~, with n counting
  from 1 (the numbered backups of GNU cp and mv; neither "*.h5" nor "day_*.h5" matches them). The
  backup is made when the run's own file is put in place, so a run that fails earlier changes
  nothing. The steps are link(2) to the backup's name, flush the folder, then rename(2) over the
  path. After a crash between these steps both names hold the old file. A symbolic link at the path
  stays: its target is replaced, and the backup lies beside the target.

  Backups that this program wrote are removed if there are too many, the oldest first. A file counts
  as such if it is one at the start: an HDF5 file with the root attribute format "trshard-...", or a
  text with "trshard", or a plan report's title, in its first 256 bytes. Any other file of such a
  name stays.

  One rank at a time, not collective.
*/
#pragma once

#include "io/atomic_file.h"

#include <stdint.h>

typedef enum { TRS_EXISTING_BACKUP, TRS_EXISTING_REFUSE, TRS_EXISTING_REPLACE } TrsExisting;

/*
  The identity of a file at a path. Two results that differ in any field are different files.
*/
typedef struct {
  PetscBool is_there;
  uint64_t device, inode;
  int64_t bytes, modified_s, modified_ns;
} TrsFileIdentity;

/* A backup that this program wrote earlier. */
typedef struct {
  int number; /* n of <path>.~<n>~ */
  TrsFileIdentity file;
} TrsBackup;

typedef struct {
  char *path; /* NULL if there is no such output */
  /*
    The treatment of another run's file. With TRS_EXISTING_REFUSE, a file that appears after the
    start is kept.
  */
  TrsExisting existing;
  char *run_id;               /* id of this run, or NULL if no file can belong to the run */
  TrsFileIdentity found, own; /* the file at the start, and the file that this process put there */
  char *found_run_id;         /* "" if the file at the start names no run */
  char *backup;               /* new name of another run's file, or NULL if there was none */
  int most;                   /* number of backups that stay, or 0 for all */
  int n_backups;              /* backups of this program at the start that are still there */
  TrsBackup *backups;         /* [n_backups] oldest first */
  char *removed;              /* name of the backup that was removed last, or NULL */
} TrsOutput;

/*
  TrsOutputOpen - Look at the existing file at the path.

  Call this before other threads use HDF5. A child process opens the file first, because it may be
  any file.

  Out: output  free with TrsOutputClose(); path NULL leaves it empty
*/
PetscErrorCode TrsOutputOpen(const char *path, TrsExisting existing, TrsOutput *output);

/* TrsOutputOpenText - The same for a text, which names no run. */
PetscErrorCode TrsOutputOpenText(const char *path, TrsExisting existing, TrsOutput *output);

/*
  TrsOutputLimitBackups - Let at most this many backups of the output stay, the run's own included.

  Call this after TrsOutputOpen(), before other threads use HDF5. A child process opens the files
  first.
*/
PetscErrorCode TrsOutputLimitBackups(TrsOutput *output, int most);

/*
  TrsOutputClaim - Set the run that the output belongs to, before its first file.

  In:     run_id  NULL or "" for a run that cannot be resumed
  Errors: CANT_CREATE if another run's file is at the path and must not be replaced (refuse), or
          if its backup cannot get a name
*/
PetscErrorCode TrsOutputClaim(TrsOutput *output, const char *run_id);

/*
  Ignore that the existing file claims to be of this run, because it cannot be read. It is then kept
  like another run's file, but even TRS_EXISTING_REPLACE makes a backup. Call this after
  TrsOutputClaim(). It has the same errors.
*/
PetscErrorCode TrsOutputDisown(TrsOutput *output);

/* Does the file that was here at the start belong to this run? Call this after TrsOutputClaim(). */
PetscBool TrsOutputIsOwn(const TrsOutput *output);

/*
  TrsOutputPublish - Put the finished file in place and keep another run's file as a backup.

  In:     output  NULL replaces any existing file
  InOut:  file    made by TrsAtomicCreate() for the output's path
  Errors: IO; the previous file is intact, under its name or the backup's
*/
PetscErrorCode TrsOutputPublish(TrsOutput *output, TrsAtomicFile *file);

/*
  TrsOutputSave - Write a whole file from memory into place. If the existing file has the same
    contents, no backup is made.

  Errors: CANT_CREATE; IO, and then the previous file is intact, under its name or the backup's
*/
PetscErrorCode TrsOutputSave(TrsOutput *output, const void *data, int64_t n_bytes);

PetscErrorCode TrsOutputClose(TrsOutput *output);
