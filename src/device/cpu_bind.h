/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Binding of this process's threads to processors, and the number of computing threads (-cpu_bind).

  If the launcher has given each rank its own processors, the rank's threads stay on them. If ranks
  share processors, they divide them among themselves (device/cpu_share.h), and a rank's threads
  stay on its part. If a rank has as many threads as cores, each thread stays on its own core. A
  page of memory is allocated on the NUMA node of the thread that first writes to it, and a bound
  thread stays near its pages.

  A process has only one affinity. Therefore this module has the only state that all threads of a
  process share.
*/
#pragma once

#include "core/options/options.h"

extern const TrsOptionGroup trs_cpu_options; /* -cpu_bind */

enum { TRS_CPU_TEXT = 256 };

/*
  TrsCpuBind - Choose the number of computing threads, and bind them.

  If OMP_NUM_THREADS is set, it is the number of threads. Otherwise this is the number of cores in
  the rank's part. OpenMP's default would give every rank all cores, and ranks that spin on each
  other's cores run ten times slower. If OMP_PLACES, GOMP_CPU_AFFINITY or OMP_PROC_BIND have bound
  the threads, the threads keep this binding.

  Collective on host, which has the ranks that share processors. The main thread must call this
  function before it computes or starts other threads.

  Out:    text     [TRS_CPU_TEXT] description of the binding and of the host's memory, for the
                   report; the same on all ranks of the host
  Errors: MEMORY
*/
PetscErrorCode TrsCpuBind(MPI_Comm host, TrsOptions options, char *text);

/*
  Mark the calling thread as a helping thread, which reads or watches. If there are processors
  without a bound computing thread, the calling thread moves to them. Not collective.
*/
void TrsCpuHelps(void);

/*
  Set the number of computing threads for the calling thread. 0 leaves it unchanged. Returns the
  previous number.
*/
int TrsCpuTeam(int threads);
