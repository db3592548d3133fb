/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/overlap.h"

#include <stdlib.h>

/* The time from start_s to end_s. The intervals of a list are disjoint and sorted. */
typedef struct {
  double start_s, end_s;
} TrsInterval;

static int by_start(const void *a, const void *b)
{
  const TrsInterval *x = (const TrsInterval *)a, *y = (const TrsInterval *)b;

  return (x->start_s > y->start_s) - (x->start_s < y->start_s);
}

/* Merge n intervals, given in any order, into a list. Returns the length of the list. */
static int64_t merge(int64_t n, TrsInterval *interval)
{
  int64_t m = 0;

  qsort(interval, (size_t)n, sizeof(*interval), by_start);
  for (int64_t i = 0; i < n; i++) {
    if (interval[i].end_s <= interval[i].start_s) continue;
    if (m > 0 && interval[i].start_s <= interval[m - 1].end_s)
      interval[m - 1].end_s = PetscMax(interval[m - 1].end_s, interval[i].end_s);
    else
      interval[m++] = interval[i];
  }
  return m;
}

/*
  Write the intersection of two lists to `both`, which has space for n_a + n_b intervals. Returns
  the length of `both`.
*/
static int64_t intersect(int64_t n_a, const TrsInterval *a, int64_t n_b, const TrsInterval *b,
                         TrsInterval *both)
{
  int64_t n = 0;

  for (int64_t i = 0, j = 0; i < n_a && j < n_b;) {
    const TrsInterval shared = {PetscMax(a[i].start_s, b[j].start_s), PetscMin(a[i].end_s, b[j].end_s)};

    if (shared.end_s > shared.start_s) both[n++] = shared;
    if (a[i].end_s < b[j].end_s)
      i++;
    else
      j++;
  }
  return n;
}

/*
  Write the part of list a that is not in list b to `rest`, which has space for n_a + n_b intervals.
  Returns the length of `rest`.
*/
static int64_t subtract(int64_t n_a, const TrsInterval *a, int64_t n_b, const TrsInterval *b,
                        TrsInterval *rest)
{
  int64_t n = 0, j = 0;

  for (int64_t i = 0; i < n_a; i++) {
    double start_s = a[i].start_s;

    while (j < n_b && b[j].end_s <= start_s) j++;
    for (int64_t k = j; k < n_b && b[k].start_s < a[i].end_s; k++) {
      if (b[k].start_s > start_s) rest[n++] = (TrsInterval){start_s, b[k].start_s};
      start_s = b[k].end_s;
    }
    if (start_s < a[i].end_s) rest[n++] = (TrsInterval){start_s, a[i].end_s};
  }
  return n;
}

static double length_of(int64_t n, const TrsInterval *interval)
{
  double sum_s = 0;

  for (int64_t i = 0; i < n; i++) sum_s += interval[i].end_s - interval[i].start_s;
  return sum_s;
}

static PetscBool is_compute(int what)
{
  return (PetscBool)(what == TRS_STAGE_LOOKUP || what == TRS_STAGE_DENSE_FORWARD ||
                     what == TRS_STAGE_DENSE_BACKWARD || what == TRS_STAGE_EMBEDDING_BACKWARD ||
                     what == TRS_STAGE_OPTIMIZER);
}

static PetscBool is_beside(const TrsTraceSpan *span, unsigned kinds)
{
  return (PetscBool)((span->row >= TRS_TRACE_EXCHANGE || span->row == TRS_TRACE_DATA_DIST ||
                      span->row == TRS_TRACE_MEMCPY) &&
                     (kinds >> span->what & 1U));
}

PetscErrorCode TrsOverlapFind(int64_t n, const TrsTraceSpan *span, unsigned kinds, TrsTraceRow row,
                              TrsOverlap *overlap)
{
  TrsInterval *step, *compute, *beside, *within;
  int64_t n_steps = 0, n_compute = 0, n_beside = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc4((size_t)n + 1, &step, (size_t)n + 1, &compute, 2 * (size_t)n + 1, &beside,
                         2 * (size_t)n + 1, &within));
  for (int64_t i = 0; i < n; i++) {
    const TrsInterval interval = {span[i].start_s, span[i].end_s};

    if (span[i].row == TRS_TRACE_MAIN && span[i].what == TRS_TRACE_STEP) step[n_steps++] = interval;
    if (span[i].row == (int)row && is_compute(span[i].what)) compute[n_compute++] = interval;
    if (is_beside(&span[i], kinds)) beside[n_beside++] = interval;
  }
  overlap->n_steps = n_steps;
  n_steps = merge(n_steps, step);
  overlap->steps_s = length_of(n_steps, step);
  n_beside = intersect(merge(n_beside, beside), beside, n_steps, step, within);
  overlap->under_way_s = length_of(n_beside, within);
  n_compute = merge(n_compute, compute);
  overlap->compute_s = length_of(n_compute, compute);
  n_compute = intersect(n_beside, within, n_compute, compute, beside);
  overlap->hidden_s = length_of(n_compute, beside);
  PetscCall(PetscFree4(step, compute, beside, within));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write the merged spans of a row that have this kind, or any kind if `what` is negative. Returns
  their number.
*/
static int64_t spans_of(int64_t n, const TrsTraceSpan *span, int row, int what, TrsInterval *list)
{
  int64_t n_list = 0;

  for (int64_t i = 0; i < n; i++)
    if (span[i].row == row && (what < 0 || span[i].what == what))
      list[n_list++] = (TrsInterval){span[i].start_s, span[i].end_s};
  return merge(n_list, list);
}

/*
  Get the time from the beginning of the second step to the end of the last one. Returns the number
  of steps in it. `step` has space for n intervals.
*/
static int64_t window_of(int64_t n, const TrsTraceSpan *span, TrsInterval *step, TrsInterval *window)
{
  int64_t n_steps = 0;

  for (int64_t i = 0; i < n; i++)
    if (span[i].row == TRS_TRACE_MAIN && span[i].what == TRS_TRACE_STEP)
      step[n_steps++] = (TrsInterval){span[i].start_s, span[i].end_s};
  if (n_steps < 2) return 0;
  qsort(step, (size_t)n_steps, sizeof(*step), by_start);
  *window = (TrsInterval){step[1].start_s, step[n_steps - 1].end_s};
  return n_steps - 1;
}

PetscErrorCode TrsOverlapIdle(int64_t n, const TrsTraceSpan *span, TrsIdle *idle)
{
  TrsInterval *list, *at, *both, window = {0, 0};
  int64_t n_idle;
  double in_steps_s, in_stages_s = 0;

  PetscFunctionBegin;
  *idle = (TrsIdle){0};
  PetscCall(PetscMalloc3((size_t)n + 1, &list, (size_t)n + 2, &at, 2 * (size_t)n + 3, &both));
  idle->n_steps = window_of(n, span, list, &window);
  n_idle = subtract(1, &window, spans_of(n, span, TRS_TRACE_COMPUTE, -1, list), list, at);
  idle->idle_s = length_of(n_idle, at);
  for (int what = 0; what < TRS_STAGE_NONE; what++) {
    idle->stage_s[what] = length_of(
        intersect(n_idle, at, spans_of(n, span, TRS_TRACE_MAIN, what, list), list, both), both);
    in_stages_s += idle->stage_s[what];
  }
  in_steps_s = length_of(
      intersect(n_idle, at, spans_of(n, span, TRS_TRACE_MAIN, TRS_TRACE_STEP, list), list, both), both);
  idle->stage_s[TRS_STAGE_NONE] = in_steps_s - in_stages_s;
  idle->between_s = idle->idle_s - in_steps_s;
  PetscCall(PetscFree3(list, at, both));
  PetscFunctionReturn(PETSC_SUCCESS);
}
