/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Solves a knapsack problem over the devices' total memory, which is divided into bins. For each
  amount of used memory it finds the fastest options.

  Source: TorchRec DynamicProgrammingProposer
*/
#include "plan/search/proposer.h"

#include <math.h>
#include <stdlib.h>

/* The last step of the fastest way to a bin. */
typedef struct {
  double perf, hbm;
} TrsReach;
typedef struct {
  int bin;
  int16_t option; /* index among the table's options; -1: the bin was not reached */
} TrsStep;

typedef struct {
  /* All options, grouped by table and sorted by total hbm. The tables are in the order of their
     smallest option. */
  int *sorted;
  int *first, *n; /* [n_tables] range of a table's options in `sorted` */
  int n_proposals, next;
  TrsStep *step;      /* [n_tables * n_bins] */
  int n_bins, *start; /* the last table's bins that were reached, largest first */
} TrsDp;

typedef struct {
  int64_t hbm;
  int index;
} TrsByHbm;

static int compare_hbm(const void *a, const void *b)
{
  const TrsByHbm *x = a, *y = b;

  if (x->hbm != y->hbm) return x->hbm < y->hbm ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

static PetscErrorCode load_dp(TrsProposer *proposer)
{
  const TrsSearchSpace *space = proposer->space;
  int n = space->n_options, n_tables = 0, *table_of, *place, *fill;
  TrsByHbm *order;
  TrsDp *dp;

  PetscFunctionBegin;
  PetscCall(PetscNew(&dp));
  proposer->data = dp;
  PetscCall(PetscMalloc1(n, &order));
  PetscCall(PetscMalloc2(n, &table_of, space->n_tables, &place));
  PetscCall(PetscCalloc1(space->n_tables, &dp->first));
  PetscCall(PetscCalloc1(space->n_tables, &dp->n));
  PetscCall(PetscMalloc1(n, &dp->sorted));
  PetscCall(PetscCalloc1(space->n_tables, &fill));
  for (int t = 0; t < space->n_tables; t++) {
    place[t] = -1;
    for (int i = 0; i < space->table[t].n; i++) table_of[space->table[t].first + i] = t;
  }
  for (int i = 0; i < n; i++) order[i] = (TrsByHbm){space->option[i].total_storage.hbm, i};
  qsort(order, (size_t)n, sizeof(*order), compare_hbm);
  for (int i = 0, at = 0; i < n; i++) {
    int t = table_of[order[i].index];

    if (place[t] < 0) {
      place[t] = n_tables++;
      dp->first[place[t]] = at;
      dp->n[place[t]] = space->table[t].n;
      at += space->table[t].n;
    }
    dp->sorted[dp->first[place[t]] + fill[place[t]]++] = order[i].index;
  }
  /* The first proposal has each table's option with the least memory. */
  dp->n_proposals = space->n_tables > 0;
  PetscCall(PetscFree(fill));
  PetscCall(PetscFree2(table_of, place));
  PetscCall(PetscFree(order));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add one table: from the bins reached so far, find the bins that its options reach. */
static void advance(const TrsProposer *proposer, const TrsDp *dp, int t, double bin_bytes,
                    const TrsReach *from, TrsReach *to)
{
  const TrsSearchSpace *space = proposer->space;
  TrsStep *step = dp->step + (size_t)t * (size_t)dp->n_bins;
  int n_from = t == 0 ? 1 : dp->n_bins;

  for (int b = 0; b < dp->n_bins; b++) {
    to[b] = (TrsReach){HUGE_VAL, HUGE_VAL};
    step[b] = (TrsStep){-1, -1};
  }
  for (int o = 0; o < dp->n[t]; o++) {
    const TrsPlanOption *option = &space->option[dp->sorted[dp->first[t] + o]];
    double hbm = (double)option->total_storage.hbm / bin_bytes;

    for (int b = 0; b < n_from; b++) {
      double now_hbm = from[b].hbm + hbm, now_perf = from[b].perf + option->total_perf;

      /* This is false for bins that were not reached, because then now_hbm is infinite. */
      if (now_hbm < dp->n_bins && to[(int)now_hbm].perf > now_perf) {
        to[(int)now_hbm] = (TrsReach){now_perf, now_hbm};
        step[(int)now_hbm] = (TrsStep){b, (int16_t)o};
      }
    }
  }
}

static PetscErrorCode fill_table(TrsProposer *proposer)
{
  const TrsTopology *topology = proposer->model->topology;
  int64_t bins = proposer->model->settings->dp_hbm_bins * topology->world_size;
  TrsInt128 hbm = 0;
  TrsReach *from, *to;
  TrsDp *dp = proposer->data;
  int n = proposer->space->n_tables;

  PetscFunctionBegin;
  for (int r = 0; r < topology->world_size; r++) hbm += proposer->reservation->left[r].hbm;
  PetscCheck(
      hbm > 0, PETSC_COMM_SELF, TRS_ERR_OPTION,
      "-plan_proposers dynamic_programming needs device memory, but -topology_compute_device %s leaves none",
      topology->is_cuda ? "cuda" : "cpu");
  PetscCheck(bins <= INT32_MAX, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-plan_dp_hbm_bins: %d devices have too many bins", topology->world_size);
  dp->n_bins = (int)bins;
  PetscCall(PetscMalloc1((size_t)n * (size_t)bins, &dp->step));
  PetscCall(PetscMalloc1(bins, &from));
  PetscCall(PetscMalloc1(bins, &to));
  PetscCall(PetscMalloc1(bins, &dp->start));
  from[0] = (TrsReach){0, 0};
  for (int t = 0; t < n; t++) {
    TrsReach *swap = from;

    advance(proposer, dp, t, (double)hbm / (double)bins, from, to);
    from = to;
    to = swap;
  }
  dp->n_proposals = 1;
  for (int b = dp->n_bins - 1; b >= 0; b--) {
    if (from[b].perf < HUGE_VAL) dp->start[dp->n_proposals++ - 1] = b;
  }
  PetscCall(PetscFree(from));
  PetscCall(PetscFree(to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode propose_dp(TrsProposer *proposer, PetscBool *more)
{
  const TrsSearchSpace *space = proposer->space;
  TrsDp *dp = proposer->data;
  int bin;

  PetscFunctionBegin;
  *more = (PetscBool)(dp->next < dp->n_proposals);
  if (!*more) PetscFunctionReturn(PETSC_SUCCESS);
  bin = dp->next ? dp->start[dp->next - 1] : 0;
  for (int t = space->n_tables - 1; t >= 0; t--) {
    const TrsStep *step = dp->next ? &dp->step[(size_t)t * (size_t)dp->n_bins + (size_t)bin] : NULL;

    proposer->proposal.option[t] = &space->option[dp->sorted[dp->first[t] + (step ? step->option : 0)]];
    if (step) bin = step->bin;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode feedback_dp(TrsProposer *proposer, const TrsOutcome *outcome)
{
  TrsDp *dp = proposer->data;

  PetscFunctionBegin;
  (void)outcome;
  if (dp->next == 0) PetscCall(fill_table(proposer));
  dp->next++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_dp(TrsProposer *proposer)
{
  TrsDp *dp = proposer->data;

  PetscFunctionBegin;
  PetscCall(PetscFree(dp->sorted));
  PetscCall(PetscFree(dp->first));
  PetscCall(PetscFree(dp->n));
  PetscCall(PetscFree(dp->step));
  PetscCall(PetscFree(dp->start));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsProposerOps trs_proposer_dynamic_programming = {
    .load = load_dp, .propose = propose_dp, .feedback = feedback_dp, .destroy = destroy_dp};
