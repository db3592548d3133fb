/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stop requests and the watchdog.

  SIGTERM, SIGUSR1, SIGINT and SIGHUP set a flag that the ranks agree on at the next step or batch.
  Signals within TRS_SAME_REQUEST_S of the first belong to the same request. A later signal prints a
  line and ends this process at once with 130. SIGHUP (nohup) and SIGINT (a background job) stay
  ignored if they were ignored when the program started. SIGPIPE and SIGXFSZ are ignored: a closed
  stdout must not end a run, and a file that grows too large is an error of its write.

  The watchdog is a thread without MPI calls. It ends the process with 76 if neither a heartbeat nor
  a new stage came for the given time, and prints the stage. If nobody reads standard output, writes
  to it block: the watchdog then waits, and says so once.
*/
#pragma once

#include "core/error.h"
#include "core/start.h" /* trs_stop_requested */

#include <stdint.h>

enum { TRS_SAME_REQUEST_S = 2 };

/*
  Install the handlers. Call this before TrsStart(): MPI takes seconds to start in a large job, and
  a request at this time would otherwise end the process silently. Not collective. Returns 0, or
  another value if the system refused.
*/
int TrsSignalsInstall(void);

/*
  From now on the first signal ends this process with 130, and a signal that has already come ends
  it now. For tasks that have nothing to save. Has no effect if the handlers are not ours. Not
  collective.
*/
void TrsSignalsEndAtOnce(void);

/*
  Ignore requests to stop from now on. The exit status is settled, and a launcher that ends all
  ranks after one has failed must not change the others' status. Not collective. Errors: INTERNAL.
*/
PetscErrorCode TrsSignalsIgnore(void);

typedef struct TrsWatchdogImpl *TrsWatchdog;

/* Start the watchdog. With 0 seconds, *watchdog is NULL. Not collective. */
PetscErrorCode TrsWatchdogStart(double seconds, int rank, TrsWatchdog *watchdog);
/* Report to the watchdog that this rank is alive at this step. Cheap. Accepts NULL. */
void TrsWatchdogBeat(TrsWatchdog watchdog, int64_t step);
PetscErrorCode TrsWatchdogStop(TrsWatchdog *watchdog);
