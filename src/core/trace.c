/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/trace.h"

#include "core/clock.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  TrsTraceSpan *span; /* [room] spans; NULL if the trace is not open */
  int64_t room;
  /* number of spans recorded since the start; the newest is at index (n - 1) % room */
  _Atomic int64_t n;
} TrsTraceRing;

static TrsTraceRing ring[TRS_TRACE_N_ROWS];
static int64_t first_step, end_step, current_step;
static double step_start_s;
PetscBool trs_tracing;

PetscErrorCode TrsTraceOpen(int64_t room, int64_t first, int64_t end, PetscBool device_rows)
{
  PetscFunctionBegin;
  PetscCall(TrsTraceClose());
  for (int r = 0; r < TRS_TRACE_N_ROWS; r++) {
    if (TrsTraceIsDeviceRow(r) && !device_rows) continue;
    PetscCall(PetscMalloc1((size_t)room, &ring[r].span));
    /* touch the pages now instead of in a step */
    memset(ring[r].span, -1, (size_t)room * sizeof(*ring[r].span));
    ring[r].room = room;
    atomic_store(&ring[r].n, 0);
  }
  first_step = first;
  end_step = end;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTraceClose(void)
{
  PetscFunctionBegin;
  trs_tracing = PETSC_FALSE;
  TrsStageRecord(NULL);
  first_step = end_step = 0;
  for (int r = 0; r < TRS_TRACE_N_ROWS; r++) PetscCall(PetscFree(ring[r].span));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsTraceWants(int64_t step)
{
  return (PetscBool)(step >= first_step && step < end_step);
}

static void record_stage(TrsStage stage, double start_s, double end_s)
{
  TrsTraceRecord(TRS_TRACE_MAIN, (int)stage, current_step, start_s, end_s, -1);
}

void TrsTraceStepBegin(int64_t step)
{
  if (!TrsTraceWants(step)) return;
  current_step = step;
  step_start_s = TrsClock();
  trs_tracing = PETSC_TRUE;
  TrsStageRecord(record_stage);
}

void TrsTraceStepEnd(void)
{
  if (!trs_tracing) return;
  trs_tracing = PETSC_FALSE;
  TrsStageRecord(NULL);
  TrsTraceRecord(TRS_TRACE_MAIN, TRS_TRACE_STEP, current_step, step_start_s, TrsClock(), -1);
}

int64_t TrsTraceStep(void)
{
  return current_step;
}

static void append(TrsTraceSpan span)
{
  TrsTraceRing *to = &ring[span.row];
  const int64_t n = atomic_load_explicit(&to->n, memory_order_relaxed);

  if (!to->span) return;
  to->span[n % to->room] = span;
  atomic_store_explicit(&to->n, n + 1, memory_order_release);
}

void TrsTraceRecord(TrsTraceRow row, int what, int64_t step, double start_s, double end_s, int64_t bytes)
{
  if (row == TRS_TRACE_MAIN && start_s < step_start_s) start_s = step_start_s;
  append((TrsTraceSpan){.start_s = start_s,
                        .end_s = end_s,
                        .needed_s = (double)NAN,
                        .step = step,
                        .bytes = bytes,
                        .message_bytes = -1,
                        .what = what,
                        .row = (int32_t)row});
}

void TrsTraceRecordExchange(int what, int64_t step, double start_s, double end_s, double needed_s,
                            int64_t bytes, int64_t message_bytes)
{
  append((TrsTraceSpan){.start_s = start_s,
                        .end_s = end_s,
                        .needed_s = needed_s,
                        .step = step,
                        .bytes = bytes,
                        .message_bytes = message_bytes,
                        .what = what,
                        .row = TRS_TRACE_EXCHANGE});
}

static int by_place(const void *a, const void *b)
{
  const TrsTraceSpan *x = (const TrsTraceSpan *)a, *y = (const TrsTraceSpan *)b;

  if (x->row != y->row) return x->row < y->row ? -1 : 1;
  if (x->start_s != y->start_s) return x->start_s < y->start_s ? -1 : 1;
  if (x->end_s != y->end_s) return x->end_s > y->end_s ? -1 : 1;
  /* a step is sorted before a stage that takes the whole step */
  return (x->what < y->what) - (x->what > y->what);
}

PetscErrorCode TrsTraceSpans(int64_t *n, TrsTraceSpan **span, int64_t *n_lost)
{
  int64_t total[TRS_TRACE_N_ROWS], kept[TRS_TRACE_N_ROWS];

  PetscFunctionBegin;
  *n = *n_lost = 0;
  for (int r = 0; r < TRS_TRACE_N_ROWS; r++) {
    total[r] = ring[r].span ? atomic_load_explicit(&ring[r].n, memory_order_acquire) : 0;
    /* the reader's thread may be overwriting the oldest span */
    kept[r] = total[r] == 0 || total[r] < ring[r].room ? total[r] : ring[r].room - 1;
    *n_lost += total[r] - kept[r];
    *n += kept[r];
  }
  PetscCall(PetscMalloc1((size_t)*n + 1, span));
  *n = 0;
  for (int r = 0; r < TRS_TRACE_N_ROWS; r++)
    for (int64_t i = total[r] - kept[r]; i < total[r]; i++) (*span)[(*n)++] = ring[r].span[i % ring[r].room];
  qsort(*span, (size_t)*n, sizeof(**span), by_place);
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsTraceName(int what)
{
  static const char *const names[] = {"ids",        "rows", "dense gradients", "rows ahead", "copy batch",
                                      "read batch", "step", "waiting for data"};

  return what < TRS_N_STAGES ? TrsStageName((TrsStage)what) : names[what - TRS_N_STAGES];
}
