/* SPDX-License-Identifier: BSD-3-Clause */
/*
  -trace FILE: a picture of some steps of a training, of all ranks on rank 0's clock, for chrome://tracing and ui.perfetto.dev (input/FORMAT.md).

  The overlap of exchanges and compute in these steps is printed with -log_view, too, and always where a device works behind the host's back: there the
  host's stages do not tell (device/timeline.h). Recording takes 8 MiB a rank, with a device 16; afterwards rank 0 takes the spans of one rank after the other, some thousands at a time, so its memory does not grow with ranks.
*/
#pragma once

#include "core/clock_offset.h"
#include "core/options.h"
#include "device/device.h"
#include "io/output.h"

typedef struct {
  MPI_Comm comm; /* borrowed */
  const TrsDeviceOps *device;
  PetscBool wanted;  /* are steps recorded? */
  const char *path;  /* NULL: without a file; borrowed from the options */
  TrsOutput *output; /* the file's place; borrowed, rank 0's counts */
  int64_t first_step, end_step;
  TrsClockOffset start;
} TrsTrace;

extern const TrsOptionGroup trs_trace_options;

/*
  TrsTraceStart - Read the options; where steps are to be recorded see that the file can be made, compare clocks, make room for the spans.

  Collective on comm. Before readers start.

  In:     run_step  the run's first step: -trace_first_step counts from there
          device    borrowed until TrsTraceFinish()
          output    the place of -trace, likewise
  Errors: CANT_CREATE
*/
PetscErrorCode TrsTraceStart(MPI_Comm comm, TrsOptions options, int64_t run_step, const TrsDeviceOps *device,
                             TrsOutput *output, TrsTrace *trace);

/* Wait for what the device was given in recorded steps, compare clocks again, write the file, print where it is and the measured overlap. Collective. Errors: IO, CANT_CREATE */
PetscErrorCode TrsTraceFinish(TrsTrace *trace);
