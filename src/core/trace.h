/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What a rank did when, in some steps of a run: spans of time in rings that are allocated before. Off, it costs a branch where a span would begin.

  Rows belong to threads: the main one records stages, steps and exchanges, and what a device did meanwhile (device/timeline.h); the reader's thread its
  batches. So there are no locks; a full ring forgets its oldest spans and counts them. Memory: `room` spans of 40 bytes a row that is in use,
  whatever the run's length.
*/
#pragma once

#include "core/events.h"

#include <time.h>

typedef enum {
  TRS_TRACE_MAIN,      /* steps, and the stages in them */
  TRS_TRACE_READER,    /* batches read ahead */
  TRS_TRACE_COMPUTE,   /* of a device whose streams go their own way: what its compute stream does, */
  TRS_TRACE_DATA_DIST, /* the one that brings ids to the shards, */
  TRS_TRACE_MEMCPY,    /* the one that brings batches to the device, */
  TRS_TRACE_PREFETCH,  /* and the one that brings rows into caches */
  TRS_TRACE_EXCHANGE,  /* from their start until this rank knew that they were done */
  TRS_TRACE_N_ROWS
} TrsTraceRow;

/* Of what a device's stream did? */
static inline PetscBool TrsTraceIsDeviceRow(int row)
{
  return (PetscBool)(row >= TRS_TRACE_COMPUTE && row <= TRS_TRACE_PREFETCH);
}

/* What a span is: a TrsStage, or one of these. */
enum {
  TRS_TRACE_INPUT_DIST = TRS_N_STAGES, /* exchanges of ids, */
  TRS_TRACE_OUTPUT_DIST,               /* of rows and their gradients, */
  TRS_TRACE_DENSE,                     /* and of dense gradients */
  TRS_TRACE_COPY,                      /* a batch to the device */
  TRS_TRACE_READ,
  TRS_TRACE_STEP,
  TRS_TRACE_N_KINDS
};

enum { TRS_TRACE_ROOM = 1 << 16 };

typedef struct {
  double start_s, end_s; /* of this rank's clock */
  int64_t step, bytes;   /* bytes -1: not known */
  int32_t what, row;
} TrsTraceSpan;

/* Seconds of the clock that spans and stages are measured with (monotonic, one for the threads of a host). */
static inline double TrsTraceClock(void)
{
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Within a step that is recorded. Of the main thread; read it, set it by TrsTraceStepBegin() and ...End(). */
extern PetscBool trs_tracing;

/*
  Make rings of `room` spans; steps first_step <= step < end_step are recorded. device_rows: there will be spans of a device's streams. Before
  other threads start. Not collective.
*/
PetscErrorCode TrsTraceOpen(int64_t room, int64_t first_step, int64_t end_step, PetscBool device_rows);
/* After other threads have ended. Fine when not open. */
PetscErrorCode TrsTraceClose(void);

/* Is this step recorded? From any thread. */
PetscBool TrsTraceWants(int64_t step);

void TrsTraceStepBegin(int64_t step);
void TrsTraceStepEnd(void);

/* The step being recorded. Of the main thread. */
int64_t TrsTraceStep(void);

/* Record a span that ended; it goes to the row of the thread that calls. A stage's start is not before its step's. */
void TrsTraceRecord(TrsTraceRow row, int what, int64_t step, double start_s, double end_s, int64_t bytes);

/*
  TrsTraceSpans - What was recorded, sorted by row, start, and the longer first.

  Out:  n, span  free with PetscFree()
        n_lost   spans that a full ring forgot
*/
PetscErrorCode TrsTraceSpans(int64_t *n, TrsTraceSpan **span, int64_t *n_lost);

/* "input_dist", ...; of any kind. */
const char *TrsTraceName(int what);
