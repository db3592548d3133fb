/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Bind this process's threads to processors, and set the number of compute threads (-cpu_bind).

  The launcher's choice is kept: a rank with its own processors stays on them. Ranks that share
  processors divide them among themselves (device/cpu_share.h), and a rank's threads then stay on
  its part. If a rank has as many threads as cores, each thread stays on its own core. A page of
  memory is allocated on the NUMA node of the thread that first writes it, and a bound thread stays
  near its pages.

  A process has only one affinity. Therefore this module holds the only state that the threads of a
  process share.
*/
#pragma once

#include "core/options/options.h"

extern const TrsOptionGroup trs_cpu_options; /* -cpu_bind */

enum { TRS_CPU_TEXT = 192 };

/*
  TrsCpuBind - Choose the number of compute threads, and bind them.

  The number of threads is OMP_NUM_THREADS if it is set, else the number of cores in the rank's
  part. By default OpenMP would give every rank all cores, and ranks that spin on each other's cores
  run ten times slower. Places from OMP_PLACES, GOMP_CPU_AFFINITY or OMP_PROC_BIND are kept.

  Collective on host, the ranks that share processors. The main thread must call it before it
  computes, and before other threads are started.

  Out:    text     TRS_CPU_TEXT bytes: what was done, for the report; the same on all ranks of the
                   host
  Errors: MEMORY
*/
PetscErrorCode TrsCpuBind(MPI_Comm host, TrsOptions options, char *text);

/*
  Mark the calling thread as a helper, which reads or watches. It moves to processors without a
  bound compute thread, if there are any. Not collective.
*/
void TrsCpuHelps(void);

/*
  Set the number of compute threads for the calling thread; 0 leaves it unchanged. Returns the
  previous number.
*/
int TrsCpuTeam(int threads);
