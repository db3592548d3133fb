/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Places of the threads of this process, and the number of threads that compute (-cpu_bind).

  The launcher's choice is kept: a rank that it gave processors of its own stays there. Ranks that
  may all run on the same processors divide these among themselves (device/cpu_share.h). The threads
  of a rank then stay on its part. If a rank has as many threads as cores, each thread stays on a
  core of its own. A page of memory comes from the NUMA node of the thread that first writes it, and
  a bound thread stays near its pages.

  A process has only one affinity. So this file has the only state that the threads of a process
  share.
*/
#pragma once

#include "core/options/options.h"

extern const TrsOptionGroup trs_cpu_options; /* -cpu_bind */

enum { TRS_CPU_TEXT = 192 };

/*
  TrsCpuBind - Choose the number of compute threads, and bind them.

  The number of threads is OMP_NUM_THREADS if it is set, else the number of cores in the rank's
  part. By default OpenMP would give every rank all cores, and ranks that spin for each other's
  cores run ten times slower. Places that OMP_PLACES, GOMP_CPU_AFFINITY or OMP_PROC_BIND give are
  kept.

  Collective on host, the ranks that share processors. Call it on the main thread before this thread
  computes, and before other threads are started.

  Out:    text     TRS_CPU_TEXT bytes: what was done, for the report; the same on all ranks of the
                   host
  Errors: MEMORY
*/
PetscErrorCode TrsCpuBind(MPI_Comm host, TrsOptions options, char *text);

/*
  Tell that the calling thread only helps (reads, watches). It moves to processors without a bound
  compute thread, if there are any. Not collective.
*/
void TrsCpuHelps(void);

/*
  Set the number of threads that compute for the calling thread, or leave it (0). Returns the number
  from before.
*/
int TrsCpuTeam(int threads);
