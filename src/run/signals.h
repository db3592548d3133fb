/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stop requests and the watchdog.

  SIGTERM and SIGUSR1 set a flag that the ranks agree on at the next step boundary; a second one ends this process with 130 at once. SIGPIPE and SIGXFSZ
  are ignored: a closed stdout must not end a run, and a file that gets too large is an error of its write. The watchdog is a thread without MPI calls that ends the process with 76 when neither a
  heartbeat nor another stage came for the given time, naming the stage.
*/
#pragma once

#include "core/error.h"
#include "core/start.h" /* trs_stop_requested */

#include <stdint.h>

/* Install the handlers. After TrsStart(). Not collective. */
PetscErrorCode TrsSignalsInstall(void);

/* From now on neither SIGTERM nor SIGUSR1 does anything: the exit status is settled, and a launcher that ends all ranks once one has failed must
   not change the others'. Not collective. */
PetscErrorCode TrsSignalsIgnore(void);

typedef struct TrsWatchdogImpl *TrsWatchdog;

/* seconds 0: no watchdog (NULL). Not collective. */
PetscErrorCode TrsWatchdogStart(double seconds, int rank, TrsWatchdog *watchdog);
/* Still alive, at this step. Cheap; NULL is fine. */
void TrsWatchdogBeat(TrsWatchdog watchdog, int64_t step);
PetscErrorCode TrsWatchdogStop(TrsWatchdog *watchdog);
