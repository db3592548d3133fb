/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/optimal/optimal.h"

#include "plan/optimal/impl.h"
#include "plan/optimal/lower_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  TRS_GOALS = 3,       /* a round's starts depend on its number modulo this */
  TRS_POOL = 4,        /* plans from which a round continues */
  TRS_STARTS_PART = 4, /* 1 / this of a round's work is spent on new starts */
  TRS_LOOK_EVERY = 32, /* insertions between reads of the clock */
};
#define GAP_DONE   1e-4 /* share of the bound */
#define ROUNDING   1e-9
#define WORK_RATE  6e7   /* state.work per second of the limit; takes 0.3 CPU seconds as measured */
#define BOUND_RATE 1.5e7 /* options that the bound looks at per second: at most 0.1 s of each */
/* The first round's seconds of the limit. Each further round gets GROWTH times as many. */
#define FIRST_S 0.05
#define GROWTH  1.5

/* The shortest plans at which this round's walks ended. */
typedef struct {
  int n;
  TrsBestPlan plan[TRS_POOL];
  double path[TRS_POOL];
} TrsPool;

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

/* Copy the state to a plan. The state must be complete. */
static PetscErrorCode save(TrsSearch *s, TrsBestPlan *plan)
{
  int n = s->space->n_tables, n_ranks = 0;

  PetscFunctionBegin;
  for (int t = 0; t < n; t++) n_ranks += s->state.option[t]->n_shards;
  if (!plan->proposal.option) PetscCall(PetscMalloc1(n, &plan->proposal.option));
  if (!plan->placement.first) PetscCall(PetscMalloc1(n, &plan->placement.first));
  if (plan->placement.capacity < n_ranks) {
    PetscCall(PetscFree(plan->placement.rank));
    PetscCall(PetscMalloc1(n_ranks, &plan->placement.rank));
    plan->placement.capacity = n_ranks;
  }
  plan->proposal.n = n;
  plan->placement.n_ranks = 0;
  for (int t = 0; t < n; t++) {
    const TrsPlanOption *option = s->state.option[t];

    plan->proposal.option[t] = option;
    plan->placement.first[t] = -1;
    if (option->partition_by == TRS_PARTITION_UNIFORM) continue;
    plan->placement.first[t] = plan->placement.n_ranks;
    memcpy(plan->placement.rank + plan->placement.n_ranks, s->state.rank[t],
           (size_t)option->n_shards * sizeof(int));
    plan->placement.n_ranks += option->n_shards;
  }
  plan->found = PETSC_TRUE;
  plan->rating = TrsPlanStateRating(&s->state);
  plan->proposer = TRS_PROPOSER_OPTIMAL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSearchKeep(TrsSearch *s)
{
  double path = TrsPlanStatePath(&s->state);

  PetscFunctionBegin;
  if (path >= s->best_ms * (1 - ROUNDING)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(save(s, s->best));
  s->best_ms = path;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the state to a plan. */
static PetscErrorCode load(TrsSearch *s, const TrsBestPlan *plan)
{
  PetscFunctionBegin;
  TrsPlanStateClear(&s->state);
  for (int i = 0; i < plan->proposal.n; i++) {
    const TrsPlanOption *option = plan->proposal.option[i];
    int first = plan->placement.first[i];

    PetscCall(TrsPlanStateAdd(&s->state, s->index_of[option->table], option,
                              first < 0 ? NULL : plan->placement.rank + first));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsSearchIsOver(const TrsSearch *s)
{
  return (PetscBool)(s->best_ms <= s->bound_ms * (1 + GAP_DONE) ||
                     s->state.work >= PetscMin(s->end_work, s->round_end) || TrsPlanCpuClock() >= s->end_s);
}

PetscBool TrsSearchIsLate(const TrsSearch *s, int k)
{
  return (PetscBool)(k % TRS_LOOK_EVERY == 0 && TrsPlanCpuClock() >= s->end_s);
}

typedef struct {
  double key;
  int table;
} TrsKeyed;

static int compare_keyed(const void *a, const void *b)
{
  const TrsKeyed *x = a, *y = b;

  if (x->key != y->key) return x->key > y->key ? -1 : 1;
  return x->table - y->table;
}

PetscErrorCode TrsSearchOrder(int n, const double *key, int *table)
{
  TrsKeyed *keyed;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, &keyed));
  for (int t = 0; t < n; t++) keyed[t] = (TrsKeyed){key[t], t};
  qsort(keyed, (size_t)n, sizeof(*keyed), compare_keyed);
  for (int i = 0; i < n; i++) table[i] = keyed[i].table;
  PetscCall(PetscFree(keyed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsSearchSort(const TrsSearch *s, int n, int *table)
{
  for (int i = 1; i < n; i++) {
    int mine = table[i], j = i;

    for (; j > 0 && s->weight[table[j - 1]] < s->weight[mine]; j--) table[j] = table[j - 1];
    table[j] = mine;
  }
}

static PetscErrorCode create(const TrsCostModel *model, const TrsSearchSpace *space,
                             const TrsReservation *reservation, TrsBestPlan *best, TrsSearch *s)
{
  int n = space->n_tables;

  PetscFunctionBegin;
  *s = (TrsSearch){.space = space,
                   .best = best,
                   .best_ms = HUGE_VAL,
                   .end_work = INT64_MAX,
                   .round_end = INT64_MAX,
                   .random = UINT64_C(0x853c49e6748fea9b)};
  PetscCall(TrsPlanStateCreate(model->topology, space, reservation, &s->state));
  PetscCall(PetscMalloc1(n, &s->ruined));
  PetscCall(PetscMalloc1(n, &s->order));
  PetscCall(PetscMalloc1(n, &s->critical));
  PetscCall(PetscMalloc1(n, &s->old_option));
  PetscCall(PetscCalloc1(n, &s->old_rank));
  PetscCall(PetscCalloc1(n, &s->old_capacity));
  PetscCall(PetscMalloc1(n, &s->weight));
  PetscCall(PetscMalloc1(n, &s->by_weight));
  PetscCall(PetscMalloc1(model->tables->n, &s->index_of));
  for (int t = 0; t < n; t++) {
    double least = HUGE_VAL;

    s->index_of[space->table[t].table] = t;
    for (int i = 0; i < space->table[t].n; i++)
      least = PetscMin(least, space->option[space->table[t].first + i].total_perf);
    s->weight[t] = least;
  }
  PetscCall(TrsSearchOrder(n, s->weight, s->by_weight));
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
  PetscCall(PetscFree(s->by_weight));
  PetscCall(PetscFree(s->index_of));
  PetscCall(TrsPlanStateFree(&s->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the state to the pool if its path is among the shortest. Paths of equal length count once. */
static PetscErrorCode pool_state(TrsSearch *s, TrsPool *pool)
{
  double path = TrsPlanStatePath(&s->state);
  int worst = 0;

  PetscFunctionBegin;
  for (int i = 0; i < pool->n; i++) {
    if (fabs(pool->path[i] - path) <= 1e-6 * path) PetscFunctionReturn(PETSC_SUCCESS);
    if (pool->path[i] > pool->path[worst]) worst = i;
  }
  if (pool->n < TRS_POOL)
    worst = pool->n++;
  else if (path >= pool->path[worst])
    PetscFunctionReturn(PETSC_SUCCESS);
  pool->path[worst] = path;
  PetscCall(save(s, &pool->plan[worst]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make a new start and a short walk from there. */
static PetscErrorCode try_start(TrsSearch *s, TrsPool *pool, unsigned forbidden, double price_ms,
                                const TrsPlanOption *const *wanted, int64_t work)
{
  PetscBool found;

  PetscFunctionBegin;
  if (TrsSearchIsOver(s)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsSearchRestart(s, forbidden, price_ms, wanted, &found));
  if (!found) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsSearchKeep(s));
  PetscCall(TrsSearchWalk(s, work));
  PetscCall(pool_state(s, pool));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Make one round's starts: starts from the options that the bound chose, then starts without some
  sharding types, which each round draws anew. The starts use different memory prices.
*/
static PetscErrorCode try_starts(TrsSearch *s, TrsPool *pool, int round, const TrsPlanOption *const *wanted,
                                 int64_t work)
{
  int n = TRS_N_SHARDINGS + 4;
  double price = s->best_ms / s->state.n_tables;

  PetscFunctionBegin;
  if (wanted[0]) PetscCall(try_start(s, pool, 0, 0, wanted, work / n));
  if (wanted[0]) PetscCall(try_start(s, pool, 0, price, wanted, work / n));
  PetscCall(try_start(s, pool, 0, round * price, NULL, work / n));
  for (int type = 0; type < TRS_N_SHARDINGS; type++) {
    unsigned forbidden = 1U << type;

    for (int i = 0; i < round; i++) forbidden |= 1U << TrsSearchDraw(s, TRS_N_SHARDINGS);
    PetscCall(try_start(s, pool, forbidden, 0, NULL, work / n));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Do one round: a walk from the best plan, new starts, then walks from the best of these and again
  from the best plan.
*/
static PetscErrorCode search_round(TrsSearch *s, int round, const TrsPlanOption *const *wanted, int64_t work)
{
  TrsPool pool = {0};

  PetscFunctionBegin;
  s->round_end = s->state.work + work;
  PetscCall(load(s, s->best));
  PetscCall(TrsSearchWalk(s, work / TRS_STARTS_PART));
  PetscCall(try_starts(s, &pool, round, wanted, work / TRS_STARTS_PART));
  for (int i = 0; i < pool.n && !TrsSearchIsOver(s); i++) {
    PetscCall(load(s, &pool.plan[i]));
    PetscCall(TrsSearchWalk(s, work / TRS_STARTS_PART / pool.n));
  }
  if (!TrsSearchIsOver(s)) {
    PetscCall(load(s, s->best));
    PetscCall(TrsSearchWalk(s, s->round_end - s->state.work));
  }
  for (int i = 0; i < TRS_POOL; i++) {
    PetscCall(PetscFree(pool.plan[i].proposal.option));
    PetscCall(TrsPlacementFree(&pool.plan[i].placement));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Begin with TorchRec's plan, else build a plan. *found is false if there is none. */
static PetscErrorCode start(TrsSearch *s, PetscBool *found, int *attempts)
{
  PetscFunctionBegin;
  *found = s->best->found;
  if (*found) {
    PetscCall(load(s, s->best));
    s->best_ms = TrsPlanStatePath(&s->state);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsSearchConstruct(s, found, attempts));
  if (*found) PetscCall(TrsSearchKeep(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if an option prefetches. A rank's total counts the prefetch time, but the critical path does
  not.
*/
static PetscBool prefetches(const TrsSearchSpace *space)
{
  for (int i = 0; i < space->n_options; i++) {
    if (space->option[i].shard_class[0].perf.prefetch_compute > 0) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

/*
  The limit on the slowest rank's total. The first round uses the initial total, which is a good
  guide. The other rounds use it only if there are costs that the path does not count.
*/
static double rating_limit(const TrsSearch *s, int round, double first_rating)
{
  return round == 0 || prefetches(s->space) ? first_rating : HUGE_VAL;
}

PetscErrorCode TrsOptimise(const TrsCostModel *model, const TrsSearchSpace *space,
                           const TrsReservation *reservation, double time_s, TrsBestPlan *best,
                           TrsOptimum *optimum)
{
  double start_s = TrsPlanCpuClock(), round_s = FIRST_S, raised;
  double first_rating = best->found ? best->rating * (1 + ROUNDING) : HUGE_VAL;
  const TrsPlanOption **wanted;
  PetscBool found, last = PETSC_FALSE;
  TrsSearch s;

  PetscFunctionBegin;
  *optimum = (TrsOptimum){.bound_ms = 0};
  if (space->n_tables == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(create(model, space, reservation, best, &s));
  PetscCall(PetscCalloc1(space->n_tables, &wanted));
  s.end_s = start_s + time_s;
  s.end_work = (int64_t)(WORK_RATE * time_s);
  PetscCall(start(&s, &found, &optimum->attempts));
  for (int round = 0; !last; round++) {
    last = (PetscBool)(!found || s.state.work >= s.end_work);
    PetscCall(TrsPlanLowerBound(model, space, reservation, s.best_ms,
                                (int64_t)(BOUND_RATE * (last ? time_s : round_s)), s.end_s, wanted, &raised));
    s.bound_ms = PetscMax(s.bound_ms, raised);
    if (last || s.best_ms <= s.bound_ms * (1 + GAP_DONE) || TrsPlanCpuClock() >= s.end_s) break;
    s.state.rating_limit = rating_limit(&s, round, first_rating);
    PetscCall(search_round(&s, round % TRS_GOALS, wanted, (int64_t)(WORK_RATE * round_s)));
    round_s *= GROWTH;
  }
  optimum->bound_ms = s.bound_ms;
  optimum->path_ms = s.best_ms;
  optimum->cpu_s = TrsPlanCpuClock() - start_s;
  optimum->by_time = (PetscBool)(TrsPlanCpuClock() >= s.end_s);
  PetscCall(PetscFree(wanted));
  PetscCall(destroy(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}
