/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/optimal/impl.h"
#include "plan/optimal/lower_bound.h"

#include <math.h>
#include <string.h>

enum { TRS_ATTEMPTS = 400, TRS_FIT_EVERY = 3 };
#define BUMP 0.3 /* share of the largest urgency */

typedef struct {
  TrsSearch *search;
  double *urgency; /* [n_tables] */
  int *order;      /* [n_tables] */
} TrsWheel;

/*
  A measure of the difficulty to place a table: the memory of its smallest option, in devices, times
  the number of devices that the option needs at once.
*/
static double urgency_of(const TrsSearch *s, int t)
{
  const TrsTableOptions *mine = &s->space->table[t];
  double hbm = (double)PetscMax(1, s->state.room.hbm), ddr = (double)PetscMax(1, s->state.room.ddr);
  double least = HUGE_VAL;

  for (int i = mine->first; i < mine->first + mine->n; i++) {
    const TrsPlanOption *option = &s->space->option[i];
    double need = (double)option->max_hbm / hbm + (double)option->max_ddr / ddr;

    if (option->max_hbm > s->state.room.hbm || option->max_ddr > s->state.room.ddr) continue;
    if (!TrsOptionIsValid(option)) continue;
    if (option->partition_by != TRS_PARTITION_DEVICE) need *= s->state.group;
    least = PetscMin(least, need);
  }
  return least < HUGE_VAL ? least : 0;
}

static void sort_by_urgency(TrsWheel *w, int n)
{
  for (int i = 1; i < n; i++) {
    int mine = w->order[i], j = i;

    for (; j > 0 && w->urgency[w->order[j - 1]] < w->urgency[mine]; j--) w->order[j] = w->order[j - 1];
    w->order[j] = mine;
  }
}

/* Make one attempt. *failed is the first table that does not fit, or -1. */
static PetscErrorCode attempt(TrsWheel *w, int *failed)
{
  TrsSearch *s = w->search;
  int n = s->state.n_tables;
  PetscBool placed;

  PetscFunctionBegin;
  *failed = -1;
  TrsPlanStateClear(&s->state);
  sort_by_urgency(w, n);
  for (int k = 0; k < n; k++) {
    placed = PETSC_FALSE;
    if (!TrsSearchIsLate(s, k)) PetscCall(TrsSearchInsert(s, w->order[k], &placed));
    if (placed) continue;
    *failed = w->order[k];
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the goal of attempt i's insertions: the path, the memory, or the path plus priced memory. */
static void set_view(TrsSearch *s, int i, double path_ms)
{
  int kind = i % TRS_FIT_EVERY;

  s->state.path_weight = kind == 1 ? 0 : 1;
  s->state.memory_price = kind == 0 ? 0 : (kind == 1 ? 1 : path_ms / s->state.n_tables);
}

PetscErrorCode TrsSearchConstruct(TrsSearch *s, PetscBool *found, int *attempts)
{
  TrsWheel w = {.search = s};
  int n = s->state.n_tables, failed = 0;
  double most = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(n, &w.urgency, n, &w.order));
  for (int t = 0; t < n; t++) {
    w.urgency[t] = urgency_of(s, t);
    most = PetscMax(most, w.urgency[t]);
  }
  PetscCall(TrsSearchOrder(n, w.urgency, w.order));
  for (*attempts = 0; failed >= 0 && *attempts < TRS_ATTEMPTS && !TrsSearchIsOver(s); (*attempts)++) {
    set_view(s, *attempts, TrsPlanStatePath(&s->state));
    PetscCall(attempt(&w, &failed));
    if (failed >= 0) w.urgency[failed] += BUMP * most * (1 + TrsSearchDraw(s, 1000) / 1000.0);
  }
  s->state.path_weight = 1;
  s->state.memory_price = 0;
  *found = (PetscBool)(failed < 0);
  PetscCall(PetscFree2(w.urgency, w.order));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSearchRestart(TrsSearch *s, unsigned forbidden, double price_ms,
                                const TrsPlanOption *const *wanted, PetscBool *found)
{
  int n = s->state.n_tables;

  PetscFunctionBegin;
  TrsPlanStateClear(&s->state);
  memcpy(s->order, s->by_weight, (size_t)n * sizeof(int));
  s->state.memory_price = price_ms;
  *found = PETSC_TRUE;
  for (int k = 0; k < n && *found; k++) {
    int t = s->order[k];

    *found = PETSC_FALSE;
    if (TrsSearchIsLate(s, k)) break;
    s->state.forbidden = forbidden;
    if (wanted) PetscCall(TrsPlanStateInsert(&s->state, t, 1, wanted[t], found));
    if (!*found) PetscCall(TrsSearchInsert(s, t, found));
    s->state.forbidden = 0;
    if (!*found) PetscCall(TrsSearchInsert(s, t, found));
  }
  s->state.memory_price = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
