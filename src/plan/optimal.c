/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/optimal.h"

#include "plan/optimal_impl.h"

#include <math.h>
#include <string.h>

enum { TRS_MIN_TRIALS = 2000, TRS_TRIALS_PER_TABLE = 1000, TRS_MAX_RUIN = 12, TRS_CRITICAL_EVERY = 2 };
#define GAP_DONE 1e-4 /* of the bound */
#define HEAT     0.01 /* how much longer a path may get for a while, at the start */
#define ROUNDING 1e-9

int TrsSearchDraw(TrsSearch *s, int n)
{
  s->random ^= s->random >> 12;
  s->random ^= s->random << 25;
  s->random ^= s->random >> 27;
  return (int)(((s->random * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % (uint64_t)n);
}

PetscErrorCode TrsSearchInsert(TrsSearch *s, int t, PetscBool *placed)
{
  const TrsTableOptions *mine = &s->space->table[t];

  PetscFunctionBegin;
  PetscCall(TrsPlanStateInsert(&s->state, t, mine->n, &s->space->option[mine->first], placed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSearchKeep(TrsSearch *s)
{
  TrsBestPlan *best = s->best;
  int n = s->space->n_tables, n_ranks = 0;

  PetscFunctionBegin;
  for (int t = 0; t < n; t++) n_ranks += s->state.option[t]->n_shards;
  if (!best->proposal.option) PetscCall(PetscMalloc1(n, &best->proposal.option));
  if (!best->placement.first) PetscCall(PetscMalloc1(n, &best->placement.first));
  if (best->placement.capacity < n_ranks) {
    PetscCall(PetscFree(best->placement.rank));
    PetscCall(PetscMalloc1(n_ranks, &best->placement.rank));
    best->placement.capacity = n_ranks;
  }
  best->proposal.n = n;
  best->placement.n_ranks = 0;
  for (int t = 0; t < n; t++) {
    const TrsPlanOption *option = s->state.option[t];

    best->proposal.option[t] = option;
    best->placement.first[t] = -1;
    if (option->partition_by == TRS_PARTITION_UNIFORM) continue;
    best->placement.first[t] = best->placement.n_ranks;
    memcpy(best->placement.rank + best->placement.n_ranks, s->state.rank[t],
           (size_t)option->n_shards * sizeof(int));
    best->placement.n_ranks += option->n_shards;
  }
  best->found = PETSC_TRUE;
  best->proposer = TRS_PROPOSER_OPTIMAL;
  s->best_ms = TrsPlanStatePath(&s->state);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode save(TrsSearch *s, int k, int t)
{
  const TrsPlanOption *option = s->state.option[t];

  PetscFunctionBegin;
  s->ruined[k] = t;
  s->old_option[k] = option;
  if (option->partition_by == TRS_PARTITION_UNIFORM) PetscFunctionReturn(PETSC_SUCCESS);
  if (s->old_capacity[k] < option->n_shards) {
    PetscCall(PetscFree(s->old_rank[k]));
    PetscCall(PetscMalloc1(option->n_shards, &s->old_rank[k]));
    s->old_capacity[k] = option->n_shards;
  }
  memcpy(s->old_rank[k], s->state.rank[t], (size_t)option->n_shards * sizeof(int));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Tables that have a shard on the rank that is slowest in some part of the path. */
static void find_critical(TrsSearch *s)
{
  const TrsPlanState *state = &s->state;
  double most = 0;
  int slowest = 0;

  for (int r = 0; r < state->world_size; r++) {
    if (state->total[r] > most) {
      most = state->total[r];
      slowest = r;
    }
  }
  s->n_critical = 0;
  for (int t = 0; t < state->n_tables; t++) {
    if (state->option[t]->partition_by == TRS_PARTITION_UNIFORM) continue;
    for (int k = 0; k < state->option[t]->n_shards; k++) {
      if (state->rank[t][k] != slowest) continue;
      s->critical[s->n_critical++] = t;
      break;
    }
  }
}

/* Put back what was saved: the new places out, the old ones in. */
static PetscErrorCode restore(TrsSearch *s, int n)
{
  PetscFunctionBegin;
  for (int k = 0; k < n; k++) {
    if (s->state.option[s->ruined[k]]) TrsPlanStateRemove(&s->state, s->ruined[k]);
  }
  for (int k = 0; k < n; k++)
    PetscCall(TrsPlanStateAdd(&s->state, s->ruined[k], s->old_option[k], s->old_rank[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Tables that cost much go in first, as long as there is a choice of ranks. */
static void sort_by_weight(TrsSearch *s, int n)
{
  for (int i = 1; i < n; i++) {
    int mine = s->order[i], j = i;

    for (; j > 0 && s->weight[s->order[j - 1]] < s->weight[mine]; j--) s->order[j] = s->order[j - 1];
    s->order[j] = mine;
  }
}

static PetscErrorCode recreate(TrsSearch *s, int n, PetscBool *complete)
{
  PetscFunctionBegin;
  memcpy(s->order, s->ruined, (size_t)n * sizeof(int));
  if (TrsSearchDraw(s, 4)) sort_by_weight(s, n);
  *complete = PETSC_TRUE;
  for (int k = 0; k < n && *complete; k++) PetscCall(TrsSearchInsert(s, s->order[k], complete));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Choose k tables, a critical one among them every other time; take them out. */
static PetscErrorCode ruin(TrsSearch *s, int n, PetscBool critical)
{
  PetscFunctionBegin;
  if (critical) find_critical(s);
  for (int k = 0; k < n; k++) {
    int t = TrsSearchDraw(s, s->state.n_tables);

    if (critical && s->n_critical && k < 2) t = s->critical[TrsSearchDraw(s, s->n_critical)];
    while (!s->state.option[t]) t = (t + 1) % s->state.n_tables; /* is out already */
    PetscCall(save(s, k, t));
    TrsPlanStateRemove(&s->state, t);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Everything out and in again, largest first: another start than TorchRec's. */
static PetscErrorCode rebuild(TrsSearch *s, double *now)
{
  PetscBool complete;
  int n = s->state.n_tables;

  PetscFunctionBegin;
  for (int t = 0; t < n; t++) {
    PetscCall(save(s, t, t));
    TrsPlanStateRemove(&s->state, t);
  }
  memcpy(s->order, s->ruined, (size_t)n * sizeof(int));
  sort_by_weight(s, n);
  complete = PETSC_TRUE;
  for (int k = 0; k < n && complete; k++) PetscCall(TrsSearchInsert(s, s->order[k], &complete));
  if (!complete || TrsPlanStatePath(&s->state) >= *now) PetscCall(restore(s, n));
  *now = TrsPlanStatePath(&s->state);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode improve(TrsSearch *s, double end_s, double bound_ms)
{
  int n = s->state.n_tables, n_trials = PetscMax(TRS_MIN_TRIALS, TRS_TRIALS_PER_TABLE * n);
  double now = TrsPlanStatePath(&s->state);

  PetscFunctionBegin;
  PetscCall(rebuild(s, &now));
  if (now < s->best_ms * (1 - ROUNDING)) PetscCall(TrsSearchKeep(s));
  for (int trial = 0; trial < n_trials; trial++) {
    int k = 1 + TrsSearchDraw(s, PetscMin(TRS_MAX_RUIN, n));
    double heat = HEAT * (1 - (double)trial / n_trials), path;
    PetscBool complete;

    if (s->best_ms <= bound_ms * (1 + GAP_DONE) || TrsPlanClock() > end_s) break;
    PetscCall(ruin(s, k, (PetscBool)(trial % TRS_CRITICAL_EVERY == 0)));
    PetscCall(recreate(s, k, &complete));
    path = TrsPlanStatePath(&s->state);
    if (!complete || path > now * (1 + heat * TrsSearchDraw(s, 1000) / 1000.0)) {
      PetscCall(restore(s, k));
      continue;
    }
    now = path;
    if (now < s->best_ms * (1 - ROUNDING)) PetscCall(TrsSearchKeep(s));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The state of TorchRec's plan, or of one that is built here; *found tells whether there is one. */
static PetscErrorCode start(TrsSearch *s, double end_s, PetscBool *found, int *attempts)
{
  TrsBestPlan *best = s->best;

  PetscFunctionBegin;
  *found = PETSC_TRUE;
  *attempts = 0;
  if (best->found) {
    for (int i = 0; i < best->proposal.n; i++) {
      const TrsPlanOption *option = best->proposal.option[i];
      int first = best->placement.first[i];

      PetscCall(TrsPlanStateAdd(&s->state, s->slot_of[option->table], option,
                                first < 0 ? NULL : best->placement.rank + first));
    }
    s->state.rating_limit = best->rating * (1 + ROUNDING);
    s->best_ms = TrsPlanStatePath(&s->state);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsSearchConstruct(s, end_s, found, attempts));
  if (*found) PetscCall(TrsSearchKeep(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create(const TrsCostModel *model, const TrsSearchSpace *space,
                             const TrsReservation *reservation, TrsBestPlan *best, TrsSearch *s)
{
  int n = space->n_tables;

  PetscFunctionBegin;
  *s = (TrsSearch){.space = space, .best = best, .best_ms = HUGE_VAL, .random = UINT64_C(0x853c49e6748fea9b)};
  PetscCall(TrsPlanStateCreate(model->topology, space, reservation, &s->state));
  PetscCall(PetscMalloc1(n, &s->ruined));
  PetscCall(PetscMalloc1(n, &s->order));
  PetscCall(PetscMalloc1(n, &s->critical));
  PetscCall(PetscMalloc1(n, &s->old_option));
  PetscCall(PetscCalloc1(n, &s->old_rank));
  PetscCall(PetscCalloc1(n, &s->old_capacity));
  PetscCall(PetscMalloc1(n, &s->weight));
  PetscCall(PetscMalloc1(model->tables->n, &s->slot_of));
  for (int t = 0; t < n; t++) {
    double least = HUGE_VAL;

    s->slot_of[space->table[t].table] = t;
    for (int i = 0; i < space->table[t].n; i++)
      least = PetscMin(least, space->option[space->table[t].first + i].total_perf);
    s->weight[t] = least;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(TrsSearch *s)
{
  PetscFunctionBegin;
  for (int k = 0; k < s->state.n_tables; k++) PetscCall(PetscFree(s->old_rank[k]));
  PetscCall(PetscFree(s->ruined));
  PetscCall(PetscFree(s->order));
  PetscCall(PetscFree(s->critical));
  PetscCall(PetscFree(s->old_option));
  PetscCall(PetscFree(s->old_rank));
  PetscCall(PetscFree(s->old_capacity));
  PetscCall(PetscFree(s->weight));
  PetscCall(PetscFree(s->slot_of));
  PetscCall(TrsPlanStateFree(&s->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsOptimise(const TrsCostModel *model, const TrsSearchSpace *space,
                           const TrsReservation *reservation, double time_s, double bound_ms,
                           TrsBestPlan *best, int *attempts)
{
  double end_s = TrsPlanClock() + time_s;
  PetscBool found;
  TrsSearch s;

  PetscFunctionBegin;
  *attempts = 0;
  if (space->n_tables == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(create(model, space, reservation, best, &s));
  PetscCall(start(&s, end_s, &found, attempts));
  if (found) PetscCall(improve(&s, end_s, bound_ms));
  PetscCall(destroy(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}
