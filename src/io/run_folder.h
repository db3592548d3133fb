/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A run, and the folder that belongs to it.

  A run is a training from its first step to its last, over all its resumes. A random id, made once,
  names the run in its checkpoints and its results (root attribute run_id). While a job of the run
  works, its rank 0 holds a lock on the folder: a record lock (fcntl) on the file .trshard-lock,
  whose text says who the owner is. The lock ends with the process, however that ends, so a dead job
  never blocks one that follows. On NFS and Lustre the lock reaches as far as fcntl locks there do:
  to all hosts, unless a mount option keeps locks local or switches them off.
*/
#pragma once

#include "core/error.h"

/*
  16 hex digits and the final 0. An empty text stands for a run
  without an id, as in a file of an older program.
*/
enum { TRS_RUN_ID_SIZE = 17 };

/* A new random id, the same on all ranks. Collective. */
PetscErrorCode TrsRunIdMake(MPI_Comm comm, char id[TRS_RUN_ID_SIZE]);

/* Tell whether the text is an id as TrsRunIdMake() makes it. Not collective. */
PetscBool TrsRunIdIsValid(const char *text);

/* The time that a job waits for the previous one to leave the folder. */
typedef struct {
  double seconds;
  volatile const int *stop; /* a non-zero value ends the wait; NULL: nothing ends it */
} TrsRunWait;

typedef struct TrsRunLockImpl *TrsRunLock;

/*
  TrsRunFolderLock - Make the folder and own it until the lock is given back or rank 0's process
    ends.

  Collective on comm. Rank 0 says whom it waits for. If the file system has no locks, a warning says
  so and the job continues without the lock.

  Out:    lock  give back with TrsRunFolderUnlock()
  Errors (agreed): CANT_CREATE if the folder cannot be made, or if another job is the owner, with
    that job's host, process and batch job; STOPPED if a stop request ended the wait
*/
PetscErrorCode TrsRunFolderLock(MPI_Comm comm, const char *folder, const TrsRunWait *wait, TrsRunLock *lock);

/*
  The id of the run whose job was killed while it owned the folder, or "". The string is borrowed.
  Not collective.
*/
const char *TrsRunFolderInterrupted(TrsRunLock lock);

/*
  Tell whether the folder at the path still has the lock's file, on the rank that holds the lock. A
  folder that was removed has not, even if another one has its name. Not collective.
*/
PetscBool TrsRunFolderIsLocked(TrsRunLock lock, const char *folder);

/* Write down whose folder it is, in case that this job is killed. Not collective. */
void TrsRunFolderName(TrsRunLock lock, const char *run_id);

/* Give the folder back. The lock's file stays. Accepts NULL. Not collective. */
PetscErrorCode TrsRunFolderUnlock(TrsRunLock *lock);
