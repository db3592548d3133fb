/* SPDX-License-Identifier: BSD-3-Clause */
/* -task bench: measure this machine with the program's own kernels and exchanges. */
#pragma once

#include "core/options/options.h"

extern const TrsOptionGroup trs_bench_options;

/*
  TrsRunBench - Measure bandwidths of memory and collectives (-bench_topology FILE) or quantised
    communication (-bench_qcomm).

  Collective on comm. -bench_topology writes an option file for the planner. The memory rate is
  measured with tbe_forward, which reads random rows of a table much larger than the caches, on all
  ranks at once. It is written as -topology_hbm_mem_bw if the device has its own memory for tables,
  and as -topology_ddr_mem_bw otherwise. The rates of collectives are measured with an all-to-all of
  -bench_bytes for each rank, inside the hosts, and across hosts if there are several. They are the
  bytes that a rank sends to others per ms. The rates of matrix multiplications and of passes over
  matrices serve to predict the dense layers' time (report/step_prediction.h). For -bench_qcomm see
  bench/qcomm.h.

  Errors: OPTION if neither option is given; CANT_CREATE, IO
*/
PetscErrorCode TrsRunBench(MPI_Comm comm, TrsOptions options);
