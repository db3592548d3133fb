/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/timeline.h"

#include "core/clock.h"

/*
  Seconds after which the clocks of host and device are compared again, because the clocks drift,
  and CUDA returns time differences as float. The comparison waits until no span remains to be read.
  If a device is never idle, this does not happen, and a long trace loses microseconds of accuracy.
*/
#define ALIGN_EVERY_S 1.0

struct TrsTimelineSpanImpl {
  TrsEvent begin, end;
  TrsTraceRow row;
  int what;
  int64_t step, bytes;
  PetscBool ended; /* true if the end is recorded on its stream */
};

static const TrsDeviceOps *timed;        /* the device; NULL if the timeline is not open */
static struct TrsTimelineSpanImpl *pool; /* [TRS_TIMELINE_SPANS] spans, which are used in turn */
static int64_t n_begun, n_read,
    n_lost_spans; /* pool[i % TRS_TIMELINE_SPANS] must still be read, for n_read <= i < n_begun */
static TrsTimelineSpan marked[TRS_TRACE_N_ROWS];
static double aligned_s;

PetscBool TrsTimelineHas(const TrsDeviceOps *device)
{
  return (PetscBool)(device->timed_event_create != NULL);
}

PetscErrorCode TrsTimelineOpen(const TrsDeviceOps *device)
{
  PetscFunctionBegin;
  PetscCall(TrsTimelineClose());
  if (!TrsTimelineHas(device)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscCalloc1(TRS_TIMELINE_SPANS, &pool));
  for (int i = 0; i < TRS_TIMELINE_SPANS; i++) {
    PetscCall(device->timed_event_create(&pool[i].begin));
    PetscCall(device->timed_event_create(&pool[i].end));
  }
  n_begun = n_read = n_lost_spans = 0;
  aligned_s = -2 * ALIGN_EVERY_S;
  timed = device;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTimelineClose(void)
{
  PetscFunctionBegin;
  for (int i = 0; timed && i < TRS_TIMELINE_SPANS; i++) {
    PetscCall(timed->event_destroy(&pool[i].begin));
    PetscCall(timed->event_destroy(&pool[i].end));
  }
  for (int r = 0; r < TRS_TRACE_N_ROWS; r++) marked[r] = NULL;
  PetscCall(PetscFree(pool));
  timed = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Move spans that are complete into the trace, in the order in which they began. If `wait` is set,
  first wait for all spans whose end is recorded on their streams.
*/
static PetscErrorCode collect(PetscBool wait)
{
  PetscFunctionBegin;
  while (n_read < n_begun) {
    const TrsTimelineSpan span = &pool[n_read % TRS_TIMELINE_SPANS];
    double start_s, end_s;
    PetscBool known = PETSC_FALSE;

    if (span->ended) PetscCall(timed->timed_event_read(span->end, wait, &known, &end_s));
    if (!known && !(wait && !span->ended)) break;
    n_read++;
    if (!known) continue; /* the run ends in the middle of this span */
    PetscCall(timed->timed_event_read(span->begin, PETSC_TRUE, &known, &start_s));
    TrsTraceRecord(span->row, span->what, span->step, start_s, PetscMax(start_s, end_s), span->bytes);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compare the clocks again. An event's time must be computed with the comparison that was current
  when the event was recorded. Therefore the clocks are compared only when no event remains to be
  read.
*/
static PetscErrorCode align(void)
{
  PetscFunctionBegin;
  if (n_read == n_begun && TrsClock() - aligned_s > ALIGN_EVERY_S) {
    PetscCall(timed->clock_align());
    aligned_s = TrsClock();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTimelineBegin(TrsTraceRow row, TrsStream stream, int what, TrsTimelineSpan *span)
{
  PetscFunctionBegin;
  *span = NULL;
  if (PetscLikely(!trs_tracing) || !timed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(collect(PETSC_FALSE));
  PetscCall(align());
  if (n_begun - n_read == TRS_TIMELINE_SPANS) {
    n_lost_spans++;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  *span = &pool[n_begun++ % TRS_TIMELINE_SPANS];
  (*span)->row = row;
  (*span)->what = what;
  (*span)->step = TrsTraceStep();
  (*span)->bytes = -1;
  (*span)->ended = PETSC_FALSE;
  PetscCall(timed->event_record((*span)->begin, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTimelineEnd(TrsTimelineSpan *span, TrsStream stream)
{
  PetscFunctionBegin;
  if (PetscLikely(!*span)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(timed->event_record((*span)->end, stream));
  (*span)->ended = PETSC_TRUE;
  *span = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsTimelineBytes(TrsTimelineSpan span, int64_t bytes)
{
  if (span) span->bytes = bytes;
}

PetscErrorCode TrsTimelineMark(TrsTraceRow row, TrsStream stream, int what)
{
  PetscFunctionBegin;
  if (PetscLikely(!trs_tracing && !marked[row])) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsTimelineEnd(&marked[row], stream));
  if (what != TRS_STAGE_NONE) PetscCall(TrsTimelineBegin(row, stream, what, &marked[row]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTimelineFinish(int64_t *n_lost)
{
  PetscFunctionBegin;
  *n_lost = 0;
  if (!timed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(collect(PETSC_TRUE));
  *n_lost = n_lost_spans;
  n_lost_spans = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
