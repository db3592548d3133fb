/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A thread that watches the main thread's calls to NCCL.

  The communicators block: a call returns when its work is on the stream, and may have to wait for
  other ranks until then. (A communicator that does not block costs more. NCCL starts a thread for
  each group of its calls.) The watching thread ends a call that takes too long, or whose
  communicator fails meanwhile, by aborting all communicators. It ends the process with 69 if the
  call does not return then, either.
*/
#pragma once

#include "core/error.h"

typedef enum {
  TRS_NCCL_IN_TIME,
  TRS_NCCL_LATE,  /* all communicators were aborted, because the call took too long */
  TRS_NCCL_FAILED /* all communicators were aborted, because one had failed */
} TrsNcclEnd;

/*
  Start the thread. Both functions are called by it while the main thread is in a call. has_failed
  tells whether any communicator has failed, abort_all ends all of them. Does nothing if the thread
  runs. Not collective. Errors: UNAVAILABLE if the system gives no thread.
*/
PetscErrorCode TrsNcclWatchStart(PetscBool (*has_failed)(void), void (*abort_all)(void));

/* End the thread. Does nothing if there is none. Not collective. */
void TrsNcclWatchStop(void);

/*
  Begin a call to NCCL, which may take limit_s seconds. `what` names it in messages, and must live
  until TrsNcclLeave(). The main thread may change the list of communicators outside of calls only.
*/
void TrsNcclEnter(const char *what, double limit_s);
TrsNcclEnd TrsNcclLeave(void);
