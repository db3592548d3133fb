/* SPDX-License-Identifier: BSD-3-Clause */
/*
  -trace FILE writes some steps of a training for chrome://tracing and ui.perfetto.dev
  (input/FORMAT.md). The times of all ranks are on rank 0's clock.

  -log_view also prints the overlap of exchanges and compute in these steps. The overlap is always
  printed if a device works independently of the host, because then the host's stages do not show it
  (device/timeline.h). Recording takes 8 MiB for each rank, or 16 MiB with a device. Rank 0 receives
  the spans rank by rank, some thousands at a time, so its memory does not grow with the number of
  ranks.
*/
#pragma once

#include "core/clock_offset.h"
#include "core/options/options.h"
#include "device/device.h"
#include "io/output.h"

typedef struct {
  MPI_Comm comm; /* borrowed */
  const TrsDeviceOps *device;
  PetscBool wanted;  /* true: steps are recorded */
  const char *path;  /* path of the file, borrowed from the options; NULL without a file */
  TrsOutput *output; /* the output file; borrowed, used only on rank 0 */
  int64_t first_step, end_step;
  TrsClockOffset start;
} TrsTrace;

extern const TrsOptionGroup trs_trace_options;

/*
  TrsTraceStart - Read the options, and prepare the recording if steps will be recorded.

  Collective on comm. Must be called before readers start. The preparation checks that the file can
  be created, compares clocks and allocates memory for the spans.

  In:     run_step  the run's first step, from which -trace_first_step counts
          device    borrowed until TrsTraceFinish()
          output    the output file of -trace, borrowed until TrsTraceFinish()
  Errors: CANT_CREATE
*/
PetscErrorCode TrsTraceStart(MPI_Comm comm, TrsOptions options, int64_t run_step, const TrsDeviceOps *device,
                             TrsOutput *output, TrsTrace *trace);

/*
  Finish the trace: wait for the device's work in recorded steps, compare clocks again, write the
  file, print its name and the measured overlap. Collective. Errors: IO, CANT_CREATE.
*/
PetscErrorCode TrsTraceFinish(TrsTrace *trace);
