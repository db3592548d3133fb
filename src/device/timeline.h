/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The timeline: a record of the work on a device's streams, for core/trace.h. A span is the time
  between two events of a stream. Spans are recorded in steps that are traced, and read later, when
  they are complete. The host waits for spans only at the end of the run.

  The device must have timed events. A CPU has none. Every function here then returns immediately,
  and the trace shows the host's stages and exchanges instead. A process has one device, so there is
  one timeline. Only the main thread calls these functions.

  Memory: TRS_TIMELINE_SPANS pairs of events, created once. If all pairs are in use, further spans
  are dropped and counted.
*/
#pragma once

#include "core/trace.h"
#include "device/device.h"

enum { TRS_TIMELINE_SPANS = 1024 }; /* enough for several steps */

typedef struct TrsTimelineSpanImpl *TrsTimelineSpan; /* NULL if the span is not recorded */

/*
  True if the device has timed events. The trace then has rows for its streams.
*/
PetscBool TrsTimelineHas(const TrsDeviceOps *device);

/* Create the events. The trace must be open. Not collective. Errors: MEMORY. */
PetscErrorCode TrsTimelineOpen(const TrsDeviceOps *device);
/*
  Drop the spans that were not read, and free the events. Does nothing if the timeline is not open.
*/
PetscErrorCode TrsTimelineClose(void);

/*
  TrsTimelineBegin, TrsTimelineEnd - Record the stream's work between the two calls.

  The span is written to the trace's `row` as `what` (core/trace.h), in the step that is being
  recorded. If no step is being recorded or the timeline is not open, TrsTimelineBegin() sets *span
  to NULL. TrsTimelineEnd() accepts NULL, and sets *span to NULL. TrsTimelineBytes() sets the bytes
  of a span; -1 if they are not known.

  Not collective.
*/
PetscErrorCode TrsTimelineBegin(TrsTraceRow row, TrsStream stream, int what, TrsTimelineSpan *span);
PetscErrorCode TrsTimelineEnd(TrsTimelineSpan *span, TrsStream stream);
void TrsTimelineBytes(TrsTimelineSpan span, int64_t bytes);

/*
  End the current span of the row's stream, and begin a span of `what`. If `what` is TRS_STAGE_NONE,
  no span begins.
*/
PetscErrorCode TrsTimelineMark(TrsTraceRow row, TrsStream stream, int what);

/*
  Wait for all spans that have begun and ended, and write them to the trace. n_lost is the number of
  spans that were dropped because all events were in use. Not collective.
*/
PetscErrorCode TrsTimelineFinish(int64_t *n_lost);
