/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stop requests and the watchdog.

  SIGTERM, SIGUSR1, SIGINT and SIGHUP set a flag that the ranks agree on at the next step or batch.
  Signals within TRS_SAME_REQUEST_S of the first belong to the same request. A later one ends this
  process at once with 130, after a line that says so. SIGHUP (nohup) and SIGINT (a background job)
  that were ignored when the program started stay ignored. SIGPIPE and SIGXFSZ are ignored: a closed
  stdout must not end a run, and a file that gets too large is an error of its write.

  The watchdog is a thread without MPI calls. It ends the process with 76 if neither a heartbeat nor
  another stage came for the given time, and names the stage. It waits where nobody reads standard
  output, whose writer then stands still, and says so once.
*/
#pragma once

#include "core/error.h"
#include "core/start.h" /* trs_stop_requested */

#include <stdint.h>

enum { TRS_SAME_REQUEST_S = 2 };

/*
  Install the handlers. Call this before TrsStart(): a request that comes while MPI starts, which
  takes seconds in a large job, would end the process without a word. Not collective. Returns 0, or
  another value if the system refused.
*/
int TrsSignalsInstall(void);

/*
  From now on the first signal ends this process with 130. A signal that has already come ends it
  now. For tasks that have nothing to save. Nothing happens where the handlers are not ours. Not
  collective.
*/
void TrsSignalsEndAtOnce(void);

/*
  Ignore requests to stop from now on. The exit status is settled, and a launcher that ends all
  ranks once one has failed must not change the others'. Not collective. Errors: INTERNAL.
*/
PetscErrorCode TrsSignalsIgnore(void);

typedef struct TrsWatchdogImpl *TrsWatchdog;

/* Start the watchdog. With 0 seconds there is none (NULL). Not collective. */
PetscErrorCode TrsWatchdogStart(double seconds, int rank, TrsWatchdog *watchdog);
/* Tell the watchdog that this rank is alive at this step. Cheap. Accepts NULL. */
void TrsWatchdogBeat(TrsWatchdog watchdog, int64_t step);
PetscErrorCode TrsWatchdogStop(TrsWatchdog *watchdog);
