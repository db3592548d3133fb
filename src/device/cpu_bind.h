/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Where the threads of this process run, and how many compute (-cpu_bind).

  What the launcher did is kept: ranks of a host that it gave processors of their own stay there. Ranks that may all run on the same processors
  divide them (device/cpu_share.h). A rank's threads then stay on its part; where they are as many as its cores, each on a core of its own. Memory is
  taken from the NUMA node of the thread that first writes it, which from then on stays there.

  The affinity of a process is one for the process: this file has the only state that its threads share.
*/
#pragma once

#include "core/options.h"

extern const TrsOptionGroup trs_cpu_options; /* -cpu_bind */

enum { TRS_CPU_TEXT = 192 };

/*
  TrsCpuBind - Choose the number of compute threads, and bind them.

  Threads: what OMP_NUM_THREADS says; else the cores of the rank's part. Left alone, every rank would take all cores, and ranks that spin for each
  other's cores run ten times slower. What OMP_PLACES, GOMP_CPU_AFFINITY or OMP_PROC_BIND say of places is kept.

  Collective on host, the ranks that share processors. Call on the main thread before it computes, and before other threads are started.

  Out:    text     TRS_CPU_TEXT bytes: what was done, for the report; the same on all ranks of the host
  Errors: MEMORY
*/
PetscErrorCode TrsCpuBind(MPI_Comm host, TrsOptions options, char *text);

/* The calling thread only helps (reads, watches): it runs where no compute thread is bound, if there is such a place. Not collective. */
void TrsCpuHelps(void);
