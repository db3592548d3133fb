/* SPDX-License-Identifier: BSD-3-Clause */
/*
  An output is a path where the run puts a file. This module decides what happens to another file at
  this path.

  A file belongs to the run if this process put it there, or if its root attribute run_id is the
  run's id. Any other file may be valuable to somebody. So it is kept as a backup <path>.~<n>~,
  where n counts from 1. GNU cp and mv name numbered backups in the same way. Patterns such as
  "*.h5" and "day_*.h5" do not match these names. The backup is made when the run's own file is put
  in place, so a run that fails earlier changes nothing. The steps are: link(2) the old file to the
  backup's name, flush the folder, and rename(2) the new file over the path. After a crash between
  these steps both names hold the old file. A symbolic link at the path stays. Its target is
  replaced, and the backup is in the target's folder.

  If there are too many backups of files that this program wrote, the oldest ones are removed. The
  program checks at its start which backups these are: HDF5 files with the root attribute format
  "trshard-...", and texts with "trshard" or a plan report's title in their first 256 bytes. Other
  files with a backup's name stay.

  Called on one rank at a time, not collective.
*/
#pragma once

#include "io/atomic_file.h"

#include <stdint.h>

typedef enum { TRS_EXISTING_BACKUP, TRS_EXISTING_REFUSE, TRS_EXISTING_REPLACE } TrsExisting;

/*
  The identity of a file at a path. If two identities differ in any field, the files are different.
*/
typedef struct {
  PetscBool is_there;
  uint64_t device, inode;
  int64_t bytes, modified_s, modified_ns;
} TrsFileIdentity;

/* A backup of a file that this program wrote earlier. */
typedef struct {
  int number; /* n of <path>.~<n>~ */
  TrsFileIdentity file;
} TrsBackup;

typedef struct {
  char *path; /* the output's path; NULL if there is no output */
  /*
    The treatment of another run's file. With TRS_EXISTING_REFUSE, a file that appears after the
    start is kept as a backup.
  */
  TrsExisting existing;
  char *run_id; /* id of this run; NULL if no existing file can belong to the run */
  /* the file that existed at the start, and the file that this process put there */
  TrsFileIdentity found, own;
  /* run of the file that existed at the start; "" if that file names no run */
  char *found_run_id;
  /* backup name of another run's file; NULL if there was no such file */
  char *backup;
  int most; /* number of backups that may stay; 0 means all */
  /* number of this program's backups that existed at the start and still exist */
  int n_backups;
  TrsBackup *backups; /* [n_backups] oldest first */
  /* name of the backup that was removed last, or NULL if none was removed */
  char *removed;
} TrsOutput;

/*
  TrsOutputOpen - Find out about an existing file at the path.

  Call this before other threads use HDF5. A child process opens the file first, because it may be
  any file.

  Out: output  free with TrsOutputClose(); empty if path is NULL
*/
PetscErrorCode TrsOutputOpen(const char *path, TrsExisting existing, TrsOutput *output);

/* TrsOutputOpenText - Like TrsOutputOpen(), for a text file, which names no run. */
PetscErrorCode TrsOutputOpenText(const char *path, TrsExisting existing, TrsOutput *output);

/*
  TrsOutputLimitBackups - Set how many backups of the output may stay, including the backup that
  this run makes. Call this after TrsOutputOpen(), before other threads use HDF5. A child process
  opens the files first.
*/
PetscErrorCode TrsOutputLimitBackups(TrsOutput *output, int most);

/*
  TrsOutputClaim - Set the run to which the output belongs. Call this before the run's first file is
  published.

  In:     run_id  NULL or "" for a run that cannot be resumed
  Errors: CANT_CREATE if another run's file is at the path and must not be replaced
          (TRS_EXISTING_REFUSE), or if there is no free name for its backup
*/
PetscErrorCode TrsOutputClaim(TrsOutput *output, const char *run_id);

/*
  Treat the existing file as another run's file although it has this run's id, because it cannot be
  read. Even with TRS_EXISTING_REPLACE a backup is made. Call this after TrsOutputClaim(). The
  errors are the same as there.
*/
PetscErrorCode TrsOutputDisown(TrsOutput *output);

/*
  True if the file that existed at the start belongs to this run. Call this after TrsOutputClaim().
*/
PetscBool TrsOutputIsOwn(const TrsOutput *output);

/*
  TrsOutputPublish - Put the finished file in place and keep another run's file as a backup.

  In:     output  NULL replaces any existing file
  InOut:  file    made by TrsAtomicCreate() for the output's path
  Errors: IO; the previous file is intact, under its own name or the backup's name
*/
PetscErrorCode TrsOutputPublish(TrsOutput *output, TrsAtomicFile *file);

/*
  TrsOutputSave - Write a whole file from memory and put it in place. If the existing file has the
    same contents, no backup is made.

  Errors: CANT_CREATE; IO; the previous file is intact, under its own name or the backup's name
*/
PetscErrorCode TrsOutputSave(TrsOutput *output, const void *data, int64_t n_bytes);

PetscErrorCode TrsOutputClose(TrsOutput *output);
