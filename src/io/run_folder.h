/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A run, and the folder that belongs to it.

  A run is a training from its first to its last step, including all resumes. A random id, made
  once, identifies the run in its checkpoints and results (root attribute run_id). While a job of
  the run works, its rank 0 holds a lock on the folder. This is a record lock (fcntl) on the file
  .trshard-lock, and the file's text names the owner. The lock ends with the process, even if the
  process is killed, so a dead job never blocks the next job. On NFS and Lustre the lock is valid on
  all hosts, unless a mount option keeps locks local or switches them off.
*/
#pragma once

#include "core/error.h"

/*
  16 hex digits and the final 0. An empty text means a run without an id, as in a file from an older
  program.
*/
enum { TRS_RUN_ID_SIZE = 17 };

/* Make a new random id, the same on all ranks. Collective. */
PetscErrorCode TrsRunIdMake(MPI_Comm comm, char id[TRS_RUN_ID_SIZE]);

/* True if the text has the form of an id made by TrsRunIdMake(). Not collective. */
PetscBool TrsRunIdIsValid(const char *text);

/* The time for which a job waits until the previous job leaves the folder. */
typedef struct {
  double seconds;
  volatile const int *stop; /* if not NULL, a non-zero value ends the wait */
} TrsRunWait;

typedef struct TrsRunLockImpl *TrsRunLock;

/*
  TrsRunFolderLock - Make the folder and lock it until the lock is released or rank 0's process
  ends.

  Collective on comm. Rank 0 prints the owner for which it waits. If the file system has no locks,
  rank 0 warns and the job continues without the lock.

  In:     option  the option that names the folder, for messages
  Out:    lock  release it with TrsRunFolderUnlock()
  Errors (agreed): CANT_CREATE if the folder cannot be made, or if another job owns it. The message
    then has the owner's process, and its host and batch job if the lock file has a line for this
    process in the form that this module writes; STOPPED if a stop request ended the wait
*/
PetscErrorCode TrsRunFolderLock(MPI_Comm comm, const char *folder, const char *option, const TrsRunWait *wait,
                                TrsRunLock *lock);

/*
  Return the id of the run whose job was killed while it owned the folder, or "" if there is none.
  The string is borrowed. Not collective.
*/
const char *TrsRunFolderInterrupted(TrsRunLock lock);

/*
  True if the folder at the path still contains the lock file. It must be called on the rank that
  holds the lock. False if the folder was removed, even if a new folder has its name. Not
  collective.
*/
PetscBool TrsRunFolderIsLocked(TrsRunLock lock, const char *folder);

/* Record which run owns the folder, in case this job is killed. Not collective. */
void TrsRunFolderName(TrsRunLock lock, const char *run_id);

/* Release the folder. The lock file stays. Accepts NULL. Not collective. */
PetscErrorCode TrsRunFolderUnlock(TrsRunLock *lock);
