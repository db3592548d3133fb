/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Errors are returned through PETSc's chain of calls. An error's code becomes the documented exit
  status of every rank.

  Raise an error with SETERRQ or PetscCheck and one of TRS_ERR_*. The user reads the message, so it
  must name the option, or the file, dataset and row, the value found, and the value expected.
  Raising an error prints nothing. main() prints the message once, after the ranks have found out
  whether all failed (TrsErrorFinish).
*/
#pragma once

#include <mpi.h>
#include <petscsys.h>

#include <stdint.h>

#if !defined(PETSC_SUCCESS) /* PETSc 3.18 does not define PETSC_SUCCESS */
  #define PETSC_SUCCESS 0
#endif

/* The exit statuses of README.md plus 1000. The sum keeps them apart from PETSc's own codes. */
enum {
  TRS_ERR_OPTION = 1064,      /* error in an option or an option file */
  TRS_ERR_DATA = 1065,        /* error in the content of a dataset, checkpoint or plan file */
  TRS_ERR_NO_INPUT = 1066,    /* an input is missing or unreadable */
  TRS_ERR_UNAVAILABLE = 1069, /* a device, NCCL or an MPI feature is missing */
  TRS_ERR_INTERNAL = 1070,    /* a bug */
  TRS_ERR_MEMORY = 1071,
  TRS_ERR_NO_PLAN = 1072, /* the planner found no feasible plan */
  TRS_ERR_CANT_CREATE = 1073,
  TRS_ERR_IO = 1074,
  /* the run stopped on request after a checkpoint, so the job can be queued again */
  TRS_ERR_STOPPED = 1075,
  TRS_ERR_LOST = 1076,      /* a rank is lost or hangs */
  TRS_ERR_NOT_FINITE = 1078 /* the loss or the weights are not finite */
};

/*
  The largest number of steps, samples or proposals that a file may have. It is nearly 2^53: the
  number is exact as a double, and sums of such numbers do not overflow.
*/
#define TRS_MOST_COUNT INT64_C(9000000000000000)

/*
  TrsAssert checks a condition in Debug builds, and does nothing in Release builds. PetscAssert must
  not be used: in an optimised PETSc 3.18 it makes the compiler assume that the condition is true.
*/
#if defined(NDEBUG)
  #define TrsAssert(cond, ...) ((void)0)
#else
  #define TrsAssert(cond, ...) PetscCheck(cond, PETSC_COMM_SELF, TRS_ERR_INTERNAL, __VA_ARGS__)
#endif

/*
  TrsErrorRaise - Keep the first message of this thread's errors, and the functions through which
    the error is returned.

  PETSc's macros call this function to raise our errors. PETSc's own function cannot be used: before
  PETSc has started, it keeps no message, and its handlers belong to the whole process, whereas
  predictors work on any thread.

  Returns: ierr, or PETSC_ERR_MEM if PETSc's allocator ran out of memory
*/
PETSC_EXTERN PetscErrorCode TrsErrorRaise(MPI_Comm comm, int line, const char *function, const char *file,
                                          PetscErrorCode ierr, PetscErrorType type, const char *format, ...)
    PETSC_ATTRIBUTE_FORMAT(7, 8);
#define PetscError TrsErrorRaise

/*
  TrsErrorInstall - From now on, do not let PETSc print errors that it finds itself, but keep them
    like our errors. TrsErrorRemove() ends this.

  Not collective. If PETSc has not started, this does nothing.
*/
PetscErrorCode TrsErrorInstall(void);
PetscErrorCode TrsErrorRemove(void);

/*
  Return the first message that was raised on this thread since the start or the last
  TrsErrorClear(), or "" if there is none. The string is borrowed.
*/
const char *TrsErrorMessage(void);

/*
  Return the functions through which the error was returned, each as "\nfunction() at file:line", or
  "" if there is none. The string is borrowed.
*/
const char *TrsErrorTrace(void);

/* Remove an error that was raised and then handled. Not collective. */
void TrsErrorClear(void);

/*
  Return the exit status for an error code: TRS_ERR_x - 1000, 71 for PETSC_ERR_MEM, 0 for success,
  and 70 for all other codes.
*/
int TrsExitStatus(PetscErrorCode ierr);

/*
  TrsAgree - Find out whether any rank failed. If so, all ranks fail with the same code.

  Collective on comm. Call this function after work that can fail on a single rank, before a rank
  that failed could miss a collective call.

  In:      comm   the ranks that did the work
           ierr   this rank's result: PETSC_SUCCESS, or an error that was raised and caught but not
                  yet returned
  Returns: PETSC_SUCCESS if all ranks succeeded. Otherwise, on every rank, the code of the lowest
           failing rank, raised with that rank's message
*/
PetscErrorCode TrsAgree(MPI_Comm comm, PetscErrorCode ierr);

/*
  TrsErrorSettle - Find out at the end of a run whether any rank failed.

  Collective on comm, which nothing else uses. Every rank passes its own result. A failed rank waits
  a few seconds for the other ranks. A successful rank waits without limit.

  InOut:   ierr  in: this rank's result; out: the result of the lowest failing rank, whose message
                 becomes TrsErrorMessage(), or PETSC_SUCCESS if all succeeded Returns: false if some
                 ranks did not arrive: they may wait in a collective forever
*/
PetscBool TrsErrorSettle(MPI_Comm comm, PetscErrorCode *ierr);

/*
  TrsErrorFinish - End a run: find out whether all ranks arrived, and print one message if any
    failed.

  Collective on comm, like TrsErrorSettle(). If some ranks do not arrive, this function aborts the
  job with this rank's status. It never returns an error, and it does not return after an abort.

  Returns: the exit status, which is the same on all ranks that return: the status of the lowest
           failing rank, or 0 if all succeeded
*/
int TrsErrorFinish(MPI_Comm comm, PetscErrorCode ierr);
