/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A run, and the folder that belongs to it.

  A run is a training from its first step to its last, over all its resumes. A random id, made once,
  names the run in its checkpoints and its results (root attribute run_id). While a job of the run
  works, its rank 0 holds a lock on the folder: a record lock (fcntl) on the file .trshard-lock,
  whose text names the owner. The lock ends with the process, even if the process is killed, so a
  dead job never blocks the next one. On NFS and Lustre the lock reaches as far as fcntl locks do
  there: to all hosts, unless a mount option keeps locks local or switches them off.
*/
#pragma once

#include "core/error.h"

/*
  16 hex digits and the final 0. An empty text stands for a run without an id, as in a file of an
  older program.
*/
enum { TRS_RUN_ID_SIZE = 17 };

/* Make a new random id, the same on all ranks. Collective. */
PetscErrorCode TrsRunIdMake(MPI_Comm comm, char id[TRS_RUN_ID_SIZE]);

/* Does the text have the form of an id made by TrsRunIdMake()? Not collective. */
PetscBool TrsRunIdIsValid(const char *text);

/* The time that a job waits for the previous one to leave the folder. */
typedef struct {
  double seconds;
  volatile const int *stop; /* a non-zero value ends the wait; NULL: nothing ends it */
} TrsRunWait;

typedef struct TrsRunLockImpl *TrsRunLock;

/*
  TrsRunFolderLock - Make the folder and own it until the lock is released or rank 0's process ends.

  Collective on comm. Rank 0 prints the owner that it waits for. If the file system has no locks,
  rank 0 warns and the job continues without the lock.

  Out:    lock  give back with TrsRunFolderUnlock()
  Errors (agreed): CANT_CREATE if the folder cannot be made, or if another job is the owner, with
    that job's process. Its host and batch job are added if the lock's file has a line that fits to
    the process and has the form that this module writes; STOPPED if a stop request ended the wait
*/
PetscErrorCode TrsRunFolderLock(MPI_Comm comm, const char *folder, const TrsRunWait *wait, TrsRunLock *lock);

/*
  Return the id of the run whose job was killed while it owned the folder, or "". The string is
  borrowed. Not collective.
*/
const char *TrsRunFolderInterrupted(TrsRunLock lock);

/*
  Does the folder at the path still contain the lock's file? Call this on the rank that holds the
  lock. False if the folder was removed, even if another folder has its name. Not collective.
*/
PetscBool TrsRunFolderIsLocked(TrsRunLock lock, const char *folder);

/* Record the run that owns the folder, in case this job is killed. Not collective. */
void TrsRunFolderName(TrsRunLock lock, const char *run_id);

/* Release the folder. The lock's file stays. Accepts NULL. Not collective. */
PetscErrorCode TrsRunFolderUnlock(TrsRunLock *lock);
