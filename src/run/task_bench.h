/* SPDX-License-Identifier: BSD-3-Clause */
/* -task bench: measure this machine with the program's own kernels and exchanges. */
#pragma once

#include "core/options.h"

extern const TrsOptionGroup trs_bench_options;

/*
  TrsRunBench - With -bench_topology FILE: memory and collective bandwidths, as an option file that the planner takes.

  Collective on comm. Memory: the rate at which tbe_forward reads random rows of a table much larger than the caches, all ranks at once; of the memory
  that the device has for tables, -topology_hbm_mem_bw where that is its own, else -topology_ddr_mem_bw.
  Collectives: all-to-all of -bench_bytes a rank inside the hosts, and across them where there are several; bytes sent to others a ms and rank.
  With -bench_qcomm: run/bench_qcomm.h.
  Errors: OPTION without either; CANT_CREATE, IO
*/
PetscErrorCode TrsRunBench(MPI_Comm comm, TrsOptions options);
