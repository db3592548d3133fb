/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What a device's streams did when, for core/trace.h: spans between two events of a stream, put there in steps that are recorded and read later,
  when they have happened. The host never waits for one but at the end.

  The device is asked for events that tell their time; where its streams run inline there are none, and every call returns at once: the host's
  stages and exchanges are the spans then. One device a process, so there is one timeline. All of it is the main thread's.

  Memory: TRS_TIMELINE_SPANS pairs of events, made once. A span more than that which has not ended yet is left out and counted.
*/
#pragma once

#include "core/trace.h"
#include "device/device.h"

enum { TRS_TIMELINE_SPANS = 1024 }; /* some steps' worth */

typedef struct TrsTimelineSpanImpl *TrsTimelineSpan; /* NULL: not recorded */

/* Does the device tell when its streams did something? Then a trace has rows of theirs. */
PetscBool TrsTimelineHas(const TrsDeviceOps *device);

/* Make the events. The trace is open. Not collective. Errors: MEMORY */
PetscErrorCode TrsTimelineOpen(const TrsDeviceOps *device);
/* Forget what was not read, free the events. Fine when not open. */
PetscErrorCode TrsTimelineClose(void);

/*
  TrsTimelineBegin, TrsTimelineEnd - What the stream does between the two goes to the trace's row as `what` (core/trace.h), of the step being recorded.

  Not collective. Begin gives NULL outside of recorded steps, or when there is no timeline; End takes it and sets it NULL. bytes -1: not known.
*/
PetscErrorCode TrsTimelineBegin(TrsTraceRow row, TrsStream stream, int what, TrsTimelineSpan *span);
PetscErrorCode TrsTimelineEnd(TrsTimelineSpan *span, TrsStream stream);
void TrsTimelineBytes(TrsTimelineSpan span, int64_t bytes);

/* From here on the row's stream does `what`: what it did before has ended. TRS_STAGE_NONE: nothing that is recorded. */
PetscErrorCode TrsTimelineMark(TrsTraceRow row, TrsStream stream, int what);

/* Wait for all spans that were begun and ended, put them into the trace; n_lost: those there was no room for. Not collective. */
PetscErrorCode TrsTimelineFinish(int64_t *n_lost);
