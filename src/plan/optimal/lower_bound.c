/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/optimal/lower_bound.h"

#include "plan/optimal/bound_dual.h"
#include "plan/search/plan_search.h"

#include <math.h>
#include <string.h>

enum { TRS_ROOT_STEPS = 300, TRS_STEPS = 30 };
/* Boxes closer to the upper bound than this share of it are not split. */
#define CLOSED 1e-4

/* The open boxes, as a heap with the lowest bound first. */
typedef struct {
  TrsBoundProblem problem;
  size_t n_words; /* words for a box's excluded choices */
  /* ratio[p][q]: on each rank, part q's load is at least this ratio times part p's load. */
  double ratio[TRS_BOUND_PARTS][TRS_BOUND_PARTS];
  int n, capacity;
  TrsBoundBox *box;
  double done_ms; /* least bound of the boxes that are not split further */
} TrsBoxes;

static void swap_boxes(TrsBoundBox *a, TrsBoundBox *b)
{
  TrsBoundBox c = *a;

  *a = *b;
  *b = c;
}

static PetscErrorCode push(TrsBoxes *h, const TrsBoundBox *box)
{
  int i = h->n;

  PetscFunctionBegin;
  if (h->n == h->capacity) {
    h->capacity = PetscMax(64, 2 * h->capacity);
    PetscCall(PetscRealloc((size_t)h->capacity * sizeof(*h->box), &h->box));
  }
  h->box[h->n++] = *box;
  for (; i > 0 && h->box[i].bound_ms < h->box[(i - 1) / 2].bound_ms; i = (i - 1) / 2)
    swap_boxes(&h->box[i], &h->box[(i - 1) / 2]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsBoundBox pop(TrsBoxes *h)
{
  TrsBoundBox top = h->box[0];
  int i = 0;

  h->box[0] = h->box[--h->n];
  for (int child = 1; child < h->n; child = 2 * i + 1) {
    if (child + 1 < h->n && h->box[child + 1].bound_ms < h->box[child].bound_ms) child++;
    if (h->box[i].bound_ms <= h->box[child].bound_ms) break;
    swap_boxes(&h->box[i], &h->box[child]);
    i = child;
  }
  return top;
}

/* Find the least ratios between the parts' loads, over the remaining choices. */
static void find_ratios(TrsBoxes *h, const TrsBoundBox *box)
{
  const TrsBoundProblem *p = &h->problem;
  double least[TRS_BOUND_PARTS][TRS_BOUND_PARTS];

  for (int q = 0; q < p->n_parts; q++) {
    for (int s = 0; s < p->n_parts; s++) least[q][s] = HUGE_VAL;
  }
  for (int i = 0; i < p->first[p->n_tables]; i++) {
    const TrsBoundChoice *c = &p->choice[i];
    double ms[TRS_BOUND_PARTS] = {0};

    if (box->excluded[i / 64] >> (i % 64) & 1) continue;
    for (int k = 0; k < c->n_parts; k++) ms[c->part[k]] = c->ms[k];
    for (int k = 0; k < c->n_parts; k++) {
      for (int s = 0; s < p->n_parts; s++)
        least[c->part[k]][s] = PetscMin(least[c->part[k]][s], ms[s] / c->ms[k]);
    }
  }
  for (int q = 0; q < p->n_parts; q++) {
    for (int s = 0; s < p->n_parts; s++)
      h->ratio[q][s] = q != s && least[q][s] < HUGE_VAL ? least[q][s] * (1 - 1e-12) : 0;
  }
}

/* Derive limits for the other parts from each part's limits. */
static void propagate(const TrsBoxes *h, TrsBoundBox *box)
{
  int n = h->problem.n_parts;
  double sum = 0;

  for (int q = 0; q < n; q++) {
    for (int s = 0; s < n; s++) {
      box->lo[s] = PetscMax(box->lo[s], h->ratio[q][s] * box->lo[q]);
      if (h->ratio[q][s] > 0) box->hi[q] = PetscMin(box->hi[q], box->hi[s] / h->ratio[q][s]);
    }
  }
  for (int q = 0; q < n; q++) sum += box->lo[q];
  for (int q = 0; q < n; q++) box->hi[q] = PetscMin(box->hi[q], h->problem.upper_ms - (sum - box->lo[q]));
}

/* Bound a box, then add it to the open boxes, close it, or drop it. */
static PetscErrorCode enter(TrsBoxes *h, TrsBoundBox *box, int n_steps, int64_t *work)
{
  double upper = h->problem.upper_ms, sum = 0;
  PetscBool empty = PETSC_FALSE;
  int64_t done = 0;

  PetscFunctionBegin;
  propagate(h, box);
  for (int q = 0; q < h->problem.n_parts; q++) {
    sum += box->lo[q];
    empty = (PetscBool)(empty || box->lo[q] > box->hi[q] * (1 + 1e-9));
  }
  if (!empty && sum < upper) PetscCall(TrsBoundRaise(&h->problem, n_steps, box, NULL, &done));
  *work -= done;
  if (empty || sum >= upper || box->bound_ms >= upper) {
    PetscCall(PetscFree(box->excluded)); /* the box has no plan below the upper bound */
  } else if (box->part < 0 || box->bound_ms >= upper * (1 - CLOSED)) {
    h->done_ms = PetscMin(h->done_ms, box->bound_ms);
    PetscCall(PetscFree(box->excluded));
  } else {
    PetscCall(push(h, box));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode split(TrsBoxes *h, int64_t *work)
{
  TrsBoundBox below = pop(h), above = below;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(h->n_words, &above.excluded));
  memcpy(above.excluded, below.excluded, h->n_words * sizeof(uint64_t));
  below.hi[below.part] = below.at;
  above.lo[above.part] = above.at;
  PetscCall(enter(h, &below, TRS_STEPS, work));
  PetscCall(enter(h, &above, TRS_STEPS, work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode enter_root(TrsBoxes *h, int64_t *work)
{
  const int n = PetscMax(1, h->problem.first[h->problem.n_tables]);
  TrsBoundBox root = {0};

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(h->n_words, &root.excluded));
  for (int q = 0; q < h->problem.n_parts; q++) {
    root.hi[q] = h->problem.upper_ms;
    root.weight[q] = h->problem.upper_ms;
  }
  PetscCall(enter(h, &root, (int)PetscMin(TRS_ROOT_STEPS, PetscMax(TRS_STEPS, *work / n)), work));
  if (h->n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  find_ratios(h, &h->box[0]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A path longer than any plan's: every table with its most costly option, all on one rank. */
static double longest_path(const TrsSearchSpace *space)
{
  double sum = 0;

  for (int t = 0; t < space->n_tables; t++) {
    double most = 0;

    for (int i = 0; i < space->table[t].n; i++)
      most = PetscMax(most, space->option[space->table[t].first + i].total_perf);
    sum += most;
  }
  return 2 * sum + 1;
}

PetscErrorCode TrsPlanLowerBound(const TrsCostModel *model, const TrsSearchSpace *space,
                                 const TrsReservation *reservation, double upper_ms, int64_t work,
                                 double end_s, const TrsPlanOption **wanted, double *bound_ms)
{
  double upper = upper_ms < HUGE_VAL ? upper_ms : longest_path(space);
  TrsBoxes h = {.done_ms = HUGE_VAL};

  PetscFunctionBegin;
  PetscCall(TrsBoundProblemCreate(model->topology, space, reservation, upper, end_s, &h.problem));
  h.n_words = (size_t)(h.problem.first[space->n_tables] + 63) / 64 + 1;
  PetscCall(enter_root(&h, &work));
  while (h.n > 0 && h.box[0].bound_ms < h.done_ms && work > 0 && TrsPlanCpuClock() < end_s)
    PetscCall(split(&h, &work));
  if (h.n > 0 && TrsPlanCpuClock() < end_s) {
    int64_t done;

    PetscCall(TrsBoundRaise(&h.problem, 1, &h.box[0], wanted, &done));
  }
  *bound_ms = PetscMin(h.done_ms, h.n > 0 ? h.box[0].bound_ms : HUGE_VAL);
  /* The factor allows for rounding in the sums. */
  *bound_ms = PetscMin(*bound_ms, upper_ms) * (1 - 1e-9);
  for (int i = 0; i < h.n; i++) PetscCall(PetscFree(h.box[i].excluded));
  PetscCall(PetscFree(h.box));
  PetscCall(TrsBoundProblemFree(&h.problem));
  PetscFunctionReturn(PETSC_SUCCESS);
}
