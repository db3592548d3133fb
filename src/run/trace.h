/* SPDX-License-Identifier: BSD-3-Clause */
/*
  -trace FILE: a picture of some steps of a training, of all ranks on rank 0's clock, for chrome://tracing and ui.perfetto.dev (input/FORMAT.md).

  Recording takes 8 MiB a rank; afterwards rank 0 takes the spans of one rank after the other, some thousands at a time, so its memory does not grow with ranks.
*/
#pragma once

#include "core/clock_offset.h"
#include "core/options.h"

typedef struct {
  MPI_Comm comm;    /* borrowed */
  const char *path; /* NULL: no trace; borrowed from the options */
  int64_t first_step, end_step;
  PetscBool host_exchanges; /* their ends are seen on the host */
  TrsClockOffset start;
} TrsTrace;

extern const TrsOptionGroup trs_trace_options;

/*
  TrsTraceStart - Read the options; with -trace see that the file can be made, compare clocks, make room for the spans.

  Collective on comm. Before readers start.

  In:     run_step  the run's first step: -trace_first_step counts from there
          host_exchanges  exchanges are carried by MPI, so the host sees them end
  Errors: CANT_CREATE
*/
PetscErrorCode TrsTraceStart(MPI_Comm comm, TrsOptions options, int64_t run_step, PetscBool host_exchanges,
                             TrsTrace *trace);

/* Compare clocks again, write the file, print where it is and the measured overlap. Collective. Errors: IO, CANT_CREATE */
PetscErrorCode TrsTraceFinish(TrsTrace *trace);
