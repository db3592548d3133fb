/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Errors: PETSc's chain, with codes that become the documented exit status of every rank.

  Raise with SETERRQ / PetscCheck and one of TRS_ERR_*; the message is what the user reads, so it names the option, or the
  file, dataset and row, says what was found and what was expected. Nothing is printed when an error is raised: main() prints it once,
  after the ranks have found out whether all of them failed (TrsErrorFinish).
*/
#pragma once

#include <mpi.h>
#include <petscsys.h>

#if !defined(PETSC_SUCCESS) /* PETSc 3.18 has no name for it */
  #define PETSC_SUCCESS 0
#endif

/* The exit status of README.md + 1000, clear of PETSc's own codes. */
enum {
  TRS_ERR_OPTION = 1064,      /* bad option or option file */
  TRS_ERR_DATA = 1065,        /* content of a dataset, checkpoint or plan file */
  TRS_ERR_NO_INPUT = 1066,    /* an input is missing or unreadable */
  TRS_ERR_UNAVAILABLE = 1069, /* device, NCCL or an MPI feature */
  TRS_ERR_INTERNAL = 1070,    /* a bug */
  TRS_ERR_MEMORY = 1071,
  TRS_ERR_NO_PLAN = 1072, /* the planner found no feasible plan */
  TRS_ERR_CANT_CREATE = 1073,
  TRS_ERR_IO = 1074,
  TRS_ERR_STOPPED = 1075,   /* stopped on request after a checkpoint: requeue me */
  TRS_ERR_LOST = 1076,      /* a rank is lost or hangs */
  TRS_ERR_NOT_FINITE = 1078 /* loss or weights */
};

/*
  A check in Debug builds, nothing in Release. PetscAssert must not be used: with an optimised PETSc 3.18 it is an optimiser assumption.
*/
#if defined(NDEBUG)
  #define TrsAssert(cond, ...) ((void)0)
#else
  #define TrsAssert(cond, ...) PetscCheck(cond, PETSC_COMM_SELF, TRS_ERR_INTERNAL, __VA_ARGS__)
#endif

/*
  TrsErrorInstall - Make raised errors silent until main() reports them, and keep the first message.

  Not collective. Call once, right after PetscInitialize().
*/
PetscErrorCode TrsErrorInstall(void);

/* The first message raised on this rank since the start (or the last TrsErrorClear); "" when there is none. Borrowed. */
const char *TrsErrorMessage(void);

/* The functions that it came through, "\nfunction() at file:line" for each; "" when there is none. Borrowed. */
const char *TrsErrorTrace(void);

/* Forget a raised error that was handled. Not collective. */
void TrsErrorClear(void);

/* Exit status for an error code: TRS_ERR_x - 1000, 71 for PETSC_ERR_MEM, 0 for success, 70 for anything else. */
int TrsExitStatus(PetscErrorCode ierr);

/*
  TrsAgree - All ranks learn whether any of them failed, and then all fail with the same code.

  Collective on comm. Call before a rank might leave a collective early: after work that can fail on one rank alone.

  In:     comm   the ranks that did the work
          ierr   this rank's result (PETSC_SUCCESS or an error that has been raised and caught, not yet returned)
  Returns: PETSC_SUCCESS when all succeeded; else, on every rank, the code of the lowest failing rank, raised with that rank's message
*/
PetscErrorCode TrsAgree(MPI_Comm comm, PetscErrorCode ierr);

/*
  TrsErrorFinish - End of a run: find out whether all ranks came here, print one message if any of them failed, end.

  Collective on comm, called by every rank with its own result. A failed rank waits a few seconds for the others: when some do not come
  (they may wait in a collective), the job is aborted with this rank's status. Never returns an error; does not return after an abort.

  In:  comm    a communicator nothing else uses (dup of the world)
       ierr    this rank's result; PETSC_SUCCESS waits for the others without limit
  Returns: the exit status, the same on all ranks that return: the lowest failing rank's; 0 when all succeeded
*/
int TrsErrorFinish(MPI_Comm comm, PetscErrorCode ierr);
