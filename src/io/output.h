/* SPDX-License-Identifier: BSD-3-Clause */
/*
  An output's place: the file that stands at its path before the run's own is put there, and what
  becomes of that file.

  A file is the run's own when this process put it there, or when its root attribute run_id is the
  run's. Any other file is
  good work of somebody: it is kept as <path>.~<n>~ (the numbered backups of GNU cp and mv; neither
  "*.h5" nor "day_*.h5" matches them), n
  counting from 1. That happens at the moment when the run's own file is put in place, so a run that
  fails earlier changes nothing:
  link(2) to the backup's name, flush the folder, then rename(2) over the path. After a crash
  between them both names hold the old file.

  One rank at a time, not collective.
*/
#pragma once

#include "io/atomic_file.h"

#include <stdint.h>

typedef enum { TRS_EXISTING_BACKUP, TRS_EXISTING_REFUSE, TRS_EXISTING_REPLACE } TrsExisting;

/* Which file stood at a path. Two looks that differ in anything are two files. */
typedef struct {
  PetscBool is_there;
  uint64_t device, inode;
  int64_t bytes, modified_s, modified_ns;
} TrsFileIdentity;

typedef struct {
  char *path; /* NULL: no such output */
  TrsExisting
      existing; /* what another run's file gets; under refuse one that appears after the start is kept */
  char *run_id; /* of this run; NULL: no file in the world has it */
  TrsFileIdentity found, own; /* the file at the start, and the one that this process put there */
  char *found_run_id;         /* "" where that file names no run */
  char *backup;               /* where another run's file has gone; NULL: there was none */
} TrsOutput;

/*
  TrsOutputOpen - Look at what stands at the path.

  Call before other threads use HDF5: the file is opened in a child process first, since it may be
  anything.

  Out: output  free with TrsOutputClose(); path NULL leaves it empty
*/
PetscErrorCode TrsOutputOpen(const char *path, TrsExisting existing, TrsOutput *output);

/*
  TrsOutputClaim - Say which run the output is of, before its first file.

  In:     run_id  NULL or "": of no run that could be taken up again
  Errors: CANT_CREATE where another run's file is there that may not be touched (refuse), or whose
  backup could have no name
*/
PetscErrorCode TrsOutputClaim(TrsOutput *output, const char *run_id);

/*
  Forget that the file at the start says it is of this run, since it cannot be read: it is kept as
  another run's, as a backup also under replace. After TrsOutputClaim(), with its errors.
*/
PetscErrorCode TrsOutputDisown(TrsOutput *output);

/* Is the file that stood at the path at the start of this run? After TrsOutputClaim(). */
PetscBool TrsOutputIsOwn(const TrsOutput *output);

/*
  TrsOutputPublish - Put the finished file in place, another run's file out of the way.

  In:     output  NULL: whatever stands at the file's path is replaced
  InOut:  file    made by TrsAtomicCreate() for the output's path
  Errors: IO; the file that was there is intact, under its name or the backup's
*/
PetscErrorCode TrsOutputPublish(TrsOutput *output, TrsAtomicFile *file);

PetscErrorCode TrsOutputClose(TrsOutput *output);
