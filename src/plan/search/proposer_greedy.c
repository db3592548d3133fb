/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The greedy proposer starts with every table's fastest option. In each step it moves the table that
  needs the most memory to that table's next option.

  Source: TorchRec GreedyProposer
*/
#include "plan/search/proposer.h"

#include <math.h>

typedef struct {
  int *sorted;       /* each table's options, fastest first */
  int *current;      /* [n_tables] position of the current option in the table's sorted options */
  int n_heap, *heap; /* tables that have a next option; the one with the most memory first */
  PetscBool finished;
  double best; /* best rating so far, which sets the threshold */
  int64_t n_since_best;
} TrsGreedy;

static const TrsPlanOption *option_of(const TrsProposer *proposer, int t)
{
  return proposer->proposal.option[t];
}

/* True if table a needs more memory than table b. If both need the same, the first table wins. */
static PetscBool needs_more(const TrsProposer *proposer, int a, int b)
{
  const TrsPlanOption *x = option_of(proposer, a), *y = option_of(proposer, b);

  if (x->max_hbm != y->max_hbm) return (PetscBool)(x->max_hbm > y->max_hbm);
  if (x->total_storage.hbm != y->total_storage.hbm)
    return (PetscBool)(x->total_storage.hbm > y->total_storage.hbm);
  if (x->max_ddr != y->max_ddr) return (PetscBool)(x->max_ddr > y->max_ddr);
  if (x->total_storage.ddr != y->total_storage.ddr)
    return (PetscBool)(x->total_storage.ddr > y->total_storage.ddr);
  return (PetscBool)(a < b);
}

static void sift_down(const TrsProposer *proposer, TrsGreedy *greedy, int i)
{
  int mine = greedy->heap[i];

  for (;;) {
    int child = 2 * i + 1;

    if (child + 1 < greedy->n_heap && needs_more(proposer, greedy->heap[child + 1], greedy->heap[child]))
      child++;
    if (child >= greedy->n_heap || needs_more(proposer, mine, greedy->heap[child])) break;
    greedy->heap[i] = greedy->heap[child];
    i = child;
  }
  greedy->heap[i] = mine;
}

static PetscErrorCode load_greedy(TrsProposer *proposer)
{
  const TrsSearchSpace *space = proposer->space;
  TrsGreedy *greedy;

  PetscFunctionBegin;
  PetscCall(PetscNew(&greedy));
  proposer->data = greedy;
  PetscCall(TrsSortOptions(space, (PetscBool)(proposer->kind == TRS_PROPOSER_GREEDY), &greedy->sorted));
  PetscCall(PetscCalloc1(space->n_tables, &greedy->current));
  PetscCall(PetscMalloc1(space->n_tables, &greedy->heap));
  for (int t = 0; t < space->n_tables; t++) {
    proposer->proposal.option[t] = &space->option[greedy->sorted[space->table[t].first]];
    if (space->table[t].n > 1) greedy->heap[greedy->n_heap++] = t;
  }
  if (proposer->model->settings->greedy_threshold <= 0)
    proposer->n_proposals = 1 + space->n_options - space->n_tables;
  for (int i = greedy->n_heap / 2 - 1; i >= 0; i--) sift_down(proposer, greedy, i);
  greedy->best = HUGE_VAL;
  greedy->finished = (PetscBool)(space->n_tables == 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode propose_greedy(TrsProposer *proposer, PetscBool *more)
{
  TrsGreedy *greedy = proposer->data;

  PetscFunctionBegin;
  *more = (PetscBool)!greedy->finished;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode feedback_greedy(TrsProposer *proposer, const TrsOutcome *outcome)
{
  const TrsSearchSpace *space = proposer->space;
  TrsGreedy *greedy = proposer->data;
  int64_t threshold = proposer->model->settings->greedy_threshold;
  int t;

  PetscFunctionBegin;
  if (threshold > 0 && outcome->placed && outcome->rating != 0) {
    greedy->n_since_best++;
    if (outcome->rating < greedy->best) {
      greedy->best = outcome->rating;
      greedy->n_since_best = 0;
    }
    if (greedy->n_since_best > threshold) {
      greedy->finished = PETSC_TRUE;
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  t = greedy->n_heap ? greedy->heap[0] : -1;
  if (t < 0 || (option_of(proposer, t)->max_hbm == 0 && option_of(proposer, t)->total_storage.hbm == 0 &&
                option_of(proposer, t)->max_ddr == 0 && option_of(proposer, t)->total_storage.ddr == 0)) {
    greedy->finished = PETSC_TRUE; /* a table that needs no memory never moves */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  greedy->current[t]++;
  proposer->proposal.option[t] = &space->option[greedy->sorted[space->table[t].first + greedy->current[t]]];
  proposer->n_changes = 1;
  proposer->changed = t;
  if (greedy->current[t] + 1 == space->table[t].n) greedy->heap[0] = greedy->heap[--greedy->n_heap];
  if (greedy->n_heap) sift_down(proposer, greedy, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_greedy(TrsProposer *proposer)
{
  TrsGreedy *greedy = proposer->data;

  PetscFunctionBegin;
  PetscCall(PetscFree(greedy->sorted));
  PetscCall(PetscFree(greedy->current));
  PetscCall(PetscFree(greedy->heap));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsProposerOps trs_proposer_greedy = {
    .load = load_greedy, .propose = propose_greedy, .feedback = feedback_greedy, .destroy = destroy_greedy};
