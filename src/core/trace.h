/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The trace of a run: a record of a rank's activities in some steps. An activity is stored as a span
  of time in a ring, which is allocated before the first step. If tracing is off, a span costs only
  one branch.

  Only one thread writes to a row, so rows need no locks. The main thread records stages, steps and
  exchanges, and also the device's work (device/timeline.h). The reader's threads record their
  batches under the reader's lock, and spans of several threads may overlap. If a ring is full, its
  oldest spans are dropped and counted. Each row in use needs memory for `room` spans of 56 bytes,
  regardless of the run's length.
*/
#pragma once

#include "core/events.h"

typedef enum {
  TRS_TRACE_MAIN,   /* steps and the stages in them */
  TRS_TRACE_READER, /* batches that are read ahead */
  /* The next four rows belong to a device whose streams run independently of the host. */
  TRS_TRACE_COMPUTE,
  TRS_TRACE_DATA_DIST, /* the stream that sends ids to the shards */
  TRS_TRACE_MEMCPY,    /* the stream that copies batches to the device */
  TRS_TRACE_PREFETCH,  /* the stream that sorts ids and loads rows into caches */
  TRS_TRACE_EXCHANGE,  /* exchanges, from their start until this rank noticed their end */
  TRS_TRACE_N_ROWS
} TrsTraceRow;

/* True if a row shows a device's stream. */
static inline PetscBool TrsTraceIsDeviceRow(int row)
{
  return (PetscBool)(row >= TRS_TRACE_COMPUTE && row <= TRS_TRACE_PREFETCH);
}

/* Kinds of spans. A span is one of these or a TrsStage. */
enum {
  TRS_TRACE_INPUT_DIST = TRS_N_STAGES, /* exchanges of ids */
  TRS_TRACE_OUTPUT_DIST,               /* exchanges of rows and their gradients */
  TRS_TRACE_DENSE,                     /* exchanges of dense gradients */
  TRS_TRACE_AHEAD,                     /* exchanges of rows of the next batch (-ebc_look_ahead) */
  TRS_TRACE_COPY,                      /* copy of a batch to the device */
  TRS_TRACE_READ,
  TRS_TRACE_STEP,
  TRS_TRACE_DATA, /* the wait of all ranks for the next file of -data_follow */
  TRS_TRACE_N_KINDS
};

enum { TRS_TRACE_ROOM = 1 << 16 };

typedef struct {
  double start_s, end_s; /* times on this rank's clock */
  double needed_s;       /* time at which this rank first waited; NAN if it is not known */
  int64_t step, bytes;   /* bytes is -1 if the number is not known */
  int64_t message_bytes; /* bytes in this rank's MPI messages for the exchange; -1 if not known */
  int32_t what, row;
} TrsTraceSpan;

/*
  True if the current step is recorded. Only the main thread may use this variable, which
  TrsTraceStepBegin() and TrsTraceStepEnd() set.
*/
extern PetscBool trs_tracing;

/*
  Allocate rings of `room` spans, for the steps first_step <= step < end_step. device_rows must be
  true if a device's streams will record spans. Must be called before other threads start. Not
  collective.
*/
PetscErrorCode TrsTraceOpen(int64_t room, int64_t first_step, int64_t end_step, PetscBool device_rows);
/*
  Free the rings. Must be called after other threads have ended. Does nothing if the trace is not
  open.
*/
PetscErrorCode TrsTraceClose(void);

/* True if this step is recorded. Safe to call from any thread. */
PetscBool TrsTraceWants(int64_t step);

void TrsTraceStepBegin(int64_t step);
void TrsTraceStepEnd(void);

/* Return the step that is being recorded. For the main thread only. */
int64_t TrsTraceStep(void);

/*
  Record a span that has ended. `row` must be the calling thread's row. A span in the main row must
  not begin before its step.
*/
void TrsTraceRecord(TrsTraceRow row, int what, int64_t step, double start_s, double end_s, int64_t bytes);

/*
  Record an exchange that has ended, like TrsTraceRecord().

  In: needed_s       time at which the caller waited for the exchange, on the clock of start_s
      message_bytes  bytes that this rank sent in MPI messages for it
*/
void TrsTraceRecordExchange(int what, int64_t step, double start_s, double end_s, double needed_s,
                            int64_t bytes, int64_t message_bytes);

/*
  TrsTraceSpans - Return the recorded spans, sorted by row and start. Among spans with the same
    start, the longest is first.

  Out:  n, span  free with PetscFree()
        n_lost   number of spans that full rings dropped
*/
PetscErrorCode TrsTraceSpans(int64_t *n, TrsTraceSpan **span, int64_t *n_lost);

/* Return the name of a kind of span, such as "input_dist". */
const char *TrsTraceName(int what);
