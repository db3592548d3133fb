/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The trace records a rank's activities in some steps of a run. It keeps spans of time in rings that
  are allocated before the first step. If tracing is off, it costs one branch per span.

  Each row belongs to one thread, so there are no locks. The main thread records stages, steps and
  exchanges, and also the device's work (device/timeline.h). The reader's threads record their
  batches under the reader's lock, and spans of several threads may overlap. A full ring drops its
  oldest spans and counts them. A row that is in use takes memory for `room` spans of 40 bytes,
  regardless of the run's length.
*/
#pragma once

#include "core/events.h"

typedef enum {
  TRS_TRACE_MAIN,   /* steps and the stages in them */
  TRS_TRACE_READER, /* batches read ahead */
  /* The next four rows belong to a device whose streams run independently of the host. */
  TRS_TRACE_COMPUTE,
  TRS_TRACE_DATA_DIST, /* the stream that brings ids to the shards */
  TRS_TRACE_MEMCPY,    /* the stream that brings batches to the device */
  TRS_TRACE_PREFETCH,  /* the stream of sorts and of fills of caches */
  TRS_TRACE_EXCHANGE,  /* exchanges, from their start until this rank saw them complete */
  TRS_TRACE_N_ROWS
} TrsTraceRow;

/* True if a row shows a device's stream. */
static inline PetscBool TrsTraceIsDeviceRow(int row)
{
  return (PetscBool)(row >= TRS_TRACE_COMPUTE && row <= TRS_TRACE_PREFETCH);
}

/* The kind of a span is a TrsStage or one of these. */
enum {
  TRS_TRACE_INPUT_DIST = TRS_N_STAGES, /* exchanges of ids */
  TRS_TRACE_OUTPUT_DIST,               /* exchanges of rows and their gradients */
  TRS_TRACE_DENSE,                     /* exchanges of dense gradients */
  TRS_TRACE_COPY,                      /* copy of a batch to the device */
  TRS_TRACE_READ,
  TRS_TRACE_STEP,
  TRS_TRACE_N_KINDS
};

enum { TRS_TRACE_ROOM = 1 << 16 };

typedef struct {
  double start_s, end_s; /* on this rank's clock */
  int64_t step, bytes;   /* bytes is -1 if not known */
  int32_t what, row;
} TrsTraceSpan;

/*
  True if the current step is recorded. For the main thread only. TrsTraceStepBegin() and
  TrsTraceStepEnd() set this variable.
*/
extern PetscBool trs_tracing;

/*
  Make rings of `room` spans for steps first_step <= step < end_step. device_rows: true if a
  device's streams will have spans. Call this before other threads start. Not collective.
*/
PetscErrorCode TrsTraceOpen(int64_t room, int64_t first_step, int64_t end_step, PetscBool device_rows);
/* Call this after other threads have ended. Does nothing if the trace is not open. */
PetscErrorCode TrsTraceClose(void);

/* True if this step is recorded. Safe to call from any thread. */
PetscBool TrsTraceWants(int64_t step);

void TrsTraceStepBegin(int64_t step);
void TrsTraceStepEnd(void);

/* The step being recorded. For the main thread only. */
int64_t TrsTraceStep(void);

/*
  Record a span that has ended. `row` must belong to the calling thread. A span of the main row
  begins no earlier than its step.
*/
void TrsTraceRecord(TrsTraceRow row, int what, int64_t step, double start_s, double end_s, int64_t bytes);

/*
  TrsTraceSpans - The recorded spans, sorted by row and start, with longer spans first.

  Out:  n, span  free with PetscFree()
        n_lost   number of spans that full rings dropped
*/
PetscErrorCode TrsTraceSpans(int64_t *n, TrsTraceSpan **span, int64_t *n_lost);

/* The name of any kind of span, such as "input_dist". */
const char *TrsTraceName(int what);
