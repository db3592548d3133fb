/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A thread that watches the main thread's calls to NCCL.

  The communicators are blocking: a call may wait for other ranks, and returns when its work is on
  the stream. A nonblocking communicator would cost more, because NCCL starts a thread for each
  group of its calls. If a call takes too long, or a communicator fails during the call, the
  watching thread aborts all communicators, which ends the call. If the call still does not return,
  the thread ends the process with exit code 69. It also does so, without an abort, if a set-up
  takes too long: a communicator that is not set up yet cannot be aborted.
*/
#pragma once

#include "core/error.h"

typedef enum {
  TRS_NCCL_IN_TIME,
  TRS_NCCL_LATE,  /* all communicators were aborted, because the call took too long */
  TRS_NCCL_FAILED /* all communicators were aborted, because one had failed */
} TrsNcclEnd;

/*
  Start the thread. Does nothing if the thread already runs. While the main thread is in a call to
  NCCL, the thread calls has_failed at regular intervals. has_failed must return true if any
  communicator has failed. The thread calls abort_all if a communicator has failed or the call takes
  too long. abort_all must abort all communicators. Not collective. Errors: UNAVAILABLE if the
  system cannot create a thread.
*/
PETSC_EXTERN PetscErrorCode TrsNcclWatchStart(PetscBool (*has_failed)(void), void (*abort_all)(void));

/* End the thread. Does nothing if the thread does not run. Not collective. */
PETSC_EXTERN void TrsNcclWatchStop(void);

/*
  Begin a call to NCCL that may take limit_s seconds. `what` names the call in messages, and must
  stay valid until TrsNcclLeave(). The main thread must not change the list of communicators during
  such a call. If can_abort is false, the call is to a communicator that abort_all does not know
  yet, and only the end of the process ends it.
*/
PETSC_EXTERN void TrsNcclEnter(const char *what, double limit_s, PetscBool can_abort);
PETSC_EXTERN TrsNcclEnd TrsNcclLeave(void);
