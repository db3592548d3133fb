/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stop requests and the watchdog.

  SIGTERM, SIGUSR1, SIGINT and SIGHUP set a flag. At the next step or batch, the ranks agree to
  stop. Signals within TRS_SAME_REQUEST_S of the first belong to the same request. A later signal
  prints a line and ends this process at once with 130. SIGHUP (nohup) and SIGINT (a background job)
  stay ignored if they were ignored when the program started. SIGPIPE and SIGXFSZ are ignored: a
  closed stdout must not end a run, and if a file grows too large, its write reports an error.

  The watchdog is a thread without MPI calls. If the process neither gives a heartbeat nor begins a
  new stage for the given time, the watchdog prints the stage and ends the process with 76. If
  nobody reads standard output, writes to it block. The watchdog then waits, and prints one message
  about it.
*/
#pragma once

#include "core/error.h"
#include "core/start.h" /* declares trs_stop_requested */

#include <stdint.h>

enum { TRS_SAME_REQUEST_S = 2 };

/*
  Install the signal handlers. Must be called before TrsStart(). MPI takes seconds to start in a
  large job, and a request during this time would otherwise end the process without a message. Not
  collective. Returns 0, or another value if the system refused.
*/
int TrsSignalsInstall(void);

/*
  For tasks that have nothing to save: from now on the first signal ends this process with 130. If a
  signal has already come, the process ends at once. No effect if the handlers are not trshard's.
  Not collective.
*/
void TrsSignalsEndAtOnce(void);

/*
  Ignore requests to stop from now on. Called when the exit status is final. A launcher that ends
  all ranks after one rank has failed must not change the status of the others. Not collective.
  Errors: INTERNAL.
*/
PetscErrorCode TrsSignalsIgnore(void);

typedef struct TrsWatchdogImpl *TrsWatchdog;

/* Start the watchdog. If `seconds` is 0, *watchdog is NULL. Not collective. */
PetscErrorCode TrsWatchdogStart(double seconds, int rank, TrsWatchdog *watchdog);
/*
  Report to the watchdog that this rank is alive at this step. The call is cheap. `watchdog` may be
  NULL.
*/
void TrsWatchdogBeat(TrsWatchdog watchdog, int64_t step);
PetscErrorCode TrsWatchdogStop(TrsWatchdog *watchdog);
