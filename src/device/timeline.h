/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A record of the work on a device's streams, for core/trace.h. A span lies between two events of a
  stream. Spans are recorded in the traced steps, and read later, when they are complete. The host
  waits for spans only at the end of the run.

  The device must have timed events. A device whose streams run inline has none, and every call
  returns at once; the trace then shows the host's stages and exchanges instead. A process has one
  device, so there is one timeline. Only the main thread calls these functions.

  Memory: TRS_TIMELINE_SPANS pairs of events, created once. While all pairs wait to be read, further
  spans are dropped and counted.
*/
#pragma once

#include "core/trace.h"
#include "device/device.h"

enum { TRS_TIMELINE_SPANS = 1024 }; /* enough for some steps */

typedef struct TrsTimelineSpanImpl *TrsTimelineSpan; /* NULL: the span is not recorded */

/*
  True if the device has timed events. The trace then has rows for its streams.
*/
PetscBool TrsTimelineHas(const TrsDeviceOps *device);

/* Create the events. The trace must be open. Not collective. Errors: MEMORY. */
PetscErrorCode TrsTimelineOpen(const TrsDeviceOps *device);
/* Drop the spans that were not read, and free the events. Accepts a timeline that is not open. */
PetscErrorCode TrsTimelineClose(void);

/*
  TrsTimelineBegin, TrsTimelineEnd - Record the stream's work between the two calls.

  The span goes to the trace's row as `what` (core/trace.h), in the step that is being recorded.
  Begin sets *span to NULL outside of recorded steps and without a timeline. End accepts a NULL span
  and sets *span to NULL. TrsTimelineBytes() gives a span its bytes; -1 means not known.

  Not collective.
*/
PetscErrorCode TrsTimelineBegin(TrsTraceRow row, TrsStream stream, int what, TrsTimelineSpan *span);
PetscErrorCode TrsTimelineEnd(TrsTimelineSpan *span, TrsStream stream);
void TrsTimelineBytes(TrsTimelineSpan span, int64_t bytes);

/*
  End the current span of the row's stream and begin a span of `what`. TRS_STAGE_NONE: the following
  work is not recorded.
*/
PetscErrorCode TrsTimelineMark(TrsTraceRow row, TrsStream stream, int what);

/*
  Wait for all spans that have begun and ended, and put them into the trace. n_lost counts the spans
  for which there was no room. Not collective.
*/
PetscErrorCode TrsTimelineFinish(int64_t *n_lost);
