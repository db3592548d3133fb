/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/optimal/impl.h"

#include <math.h>
#include <string.h>

enum { TRS_MAX_RUIN = 12, TRS_KINDS = 8 };
/* At the start of a walk, a move may lengthen the path by this share; the share falls to 0. */
#define HEAT 0.01

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

/* Undo a move: remove the tables from their new places and restore their saved options. */
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

/*
  Draw a part of the path with probability proportional to its length on the slowest rank. Returns
  -1 if all loads are uniform.
*/
static int draw_part(TrsSearch *s, int *slowest)
{
  const TrsPlanState *state = &s->state;
  double sum = 0, at;
  int part = -1;

  for (int p = 0; p < TRS_N_PATHS; p++) sum += state->most[p];
  at = sum * TrsSearchDraw(s, 1 << 20) / (1 << 20);
  for (int p = 0; p < TRS_N_PATHS && at >= 0; p++) {
    if (state->most[p] <= 0) continue;
    part = p;
    at -= state->most[p];
  }
  *slowest = 0;
  for (int r = 1; r < state->world_size && part >= 0; r++) {
    if (state->load[part][r] > state->load[part][*slowest]) *slowest = r;
  }
  return part;
}

/* The sharding types that contribute to a part. All types contribute to compute. */
static unsigned types_of(int part)
{
  return part < TRS_PATH_COMMS ? ~0U : 1U << ((part - TRS_PATH_COMMS) / 2 % TRS_N_SHARDINGS);
}

/* Find tables of these types that have a shard on the rank, or on any rank if `rank` is -1. */
static void find_critical(TrsSearch *s, unsigned types, int rank)
{
  const TrsPlanState *state = &s->state;

  s->n_critical = 0;
  for (int t = 0; t < state->n_tables; t++) {
    const TrsPlanOption *option = state->option[t];
    PetscBool is_there = (PetscBool)(rank < 0);

    if (option->partition_by == TRS_PARTITION_UNIFORM || !(types >> option->type & 1)) continue;
    for (int k = 0; k < option->n_shards && !is_there; k++) is_there = (PetscBool)(state->rank[t][k] == rank);
    if (is_there) s->critical[s->n_critical++] = t;
  }
}

/* Keep the k critical tables with the longest shards, longest first, and drop the others. */
static void keep_longest(TrsSearch *s, int k)
{
  int n = 0;

  for (int i = 0; i < s->n_critical; i++) {
    int mine = s->critical[i], j;
    double ms = s->state.option[mine]->shard_class[0].total;

    if (n == k && s->state.option[s->critical[n - 1]]->shard_class[0].total >= ms) continue;
    if (n < k) n++;
    for (j = n - 1; j > 0 && s->state.option[s->critical[j - 1]]->shard_class[0].total < ms; j--)
      s->critical[j] = s->critical[j - 1];
    s->critical[j] = mine;
  }
  s->n_critical = n;
}

/*
  Choose up to k tables and take them out. Some moves also forbid the tables' sharding type. *n is
  the number of tables.
*/
static PetscErrorCode ruin(TrsSearch *s, int k, int *n)
{
  int kind = TrsSearchDraw(s, TRS_KINDS), rank, part = kind < TRS_KINDS / 2 ? draw_part(s, &rank) : -1;
  PetscBool retype = (PetscBool)(part >= TRS_PATH_COMMS && kind == 0);

  PetscFunctionBegin;
  s->n_critical = *n = 0;
  if (part >= 0) find_critical(s, types_of(part), retype ? -1 : rank);
  if (retype) {
    keep_longest(s, k);
    s->state.forbidden = types_of(part);
  }
  for (int i = 0; i < k; i++) {
    int t = TrsSearchDraw(s, s->state.n_tables);

    if (retype && i >= s->n_critical) break;
    if (retype) {
      t = s->critical[i];
    } else if (s->n_critical && i < 2) {
      t = s->critical[TrsSearchDraw(s, s->n_critical)];
    }
    /* Skip tables that are already out. */
    while (!s->state.option[t]) t = (t + 1) % s->state.n_tables;
    PetscCall(save(s, i, t));
    TrsPlanStateRemove(&s->state, t);
    ++*n;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode recreate(TrsSearch *s, int n, PetscBool *complete)
{
  PetscFunctionBegin;
  memcpy(s->order, s->ruined, (size_t)n * sizeof(int));
  if (TrsSearchDraw(s, 4)) TrsSearchSort(s, n, s->order);
  *complete = PETSC_TRUE;
  for (int k = 0; k < n && *complete; k++) PetscCall(TrsSearchInsert(s, s->order[k], complete));
  s->state.forbidden = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSearchWalk(TrsSearch *s, int64_t work)
{
  int64_t from = s->state.work;
  double now = TrsPlanStatePath(&s->state);

  PetscFunctionBegin;
  while (s->state.work - from < work && !TrsSearchIsOver(s)) {
    int k = 1 + TrsSearchDraw(s, PetscMin(TRS_MAX_RUIN, s->state.n_tables)), n;
    double heat = HEAT * (1 - (double)(s->state.work - from) / (double)work), path;
    PetscBool complete;

    PetscCall(ruin(s, k, &n));
    PetscCall(recreate(s, n, &complete));
    s->state.work += 100;
    path = TrsPlanStatePath(&s->state);
    if (!complete || path > now * (1 + heat * TrsSearchDraw(s, 1000) / 1000.0)) {
      PetscCall(restore(s, n));
      continue;
    }
    now = path;
    PetscCall(TrsSearchKeep(s));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
