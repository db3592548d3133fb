/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/search/plan_search.h"

#include "core/clock.h"
#include "plan/search/proposal_bounds.h"
#include "plan/search/proposal_cache.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum {
  TRS_MANY = 4096,  /* the smallest number of proposals for which scouting saves time */
  TRS_SCOUTED = 32, /* number of proposals that are scouted per proposer */
};

typedef struct {
  const TrsCostModel *model;
  TrsPlanSearch *search;
  TrsPartitioner partitioner;
  TrsProposalCache cache;
  TrsProposalBounds bounds;
  PetscBool exact; /* true: a proposer needs exact ratings */
  /* An upper bound on the best rating: the rating of a proposal that will be evaluated later. */
  double limit;
  double start_s;
} TrsLoop;

double TrsPlanCpuClock(void)
{
  return TrsClockOf(CLOCK_THREAD_CPUTIME_ID);
}

int TrsPlanProposers(const TrsPlanSettings *settings, TrsProposerKind *kind)
{
  static const TrsProposerKind standard[] = {TRS_PROPOSER_GRID_SEARCH, TRS_PROPOSER_GREEDY,
                                             TRS_PROPOSER_GREEDY_NO_DEPTH, TRS_PROPOSER_UNIFORM};
  int n = 0;

  for (int i = 0; i < settings->n_proposers; i++) {
    if (settings->proposer[i] != TRS_PROPOSER_OPTIMAL && settings->proposer[i] != TRS_PROPOSER_AUTO) {
      kind[n++] = settings->proposer[i];
    } else if (n <= TRS_PLAN_MAX_PROPOSERS) {
      memcpy(&kind[n], standard, sizeof(standard));
      n += 4;
    }
    n = PetscMin(n, TRS_PLAN_MAX_PROPOSERS);
  }
  return n;
}

static PetscErrorCode keep_best(TrsPlanSearch *search, const TrsProposer *proposer,
                                const TrsPlacement *placement, double rating)
{
  TrsBestPlan *best = &search->best;
  int n = proposer->proposal.n;

  PetscFunctionBegin;
  if (!best->proposal.option) PetscCall(PetscMalloc1(n, &best->proposal.option));
  best->proposal.n = n;
  memcpy(best->proposal.option, proposer->proposal.option, (size_t)n * sizeof(const TrsPlanOption *));
  PetscCall(TrsPlacementCopy(placement, n, &best->placement));
  best->rating = rating;
  best->proposer = proposer->kind;
  best->found = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void note_failure(TrsPlanSearch *search, const TrsProposalBounds *bounds)
{
  if (search->any_failed && (bounds->hbm > search->lowest_hbm ||
                             (bounds->hbm == search->lowest_hbm && bounds->ddr >= search->lowest_ddr)))
    return;
  search->any_failed = PETSC_TRUE;
  search->lowest_hbm = bounds->hbm;
  search->lowest_ddr = bounds->ddr;
}

/* Evaluate a new proposal: place it, unless the bounds already prove the outcome. */
static PetscErrorCode evaluate(TrsLoop *loop, const TrsProposer *proposer, TrsOutcome *outcome)
{
  TrsPlanSearch *search = loop->search;
  const TrsPlacement *placement = NULL;
  TrsPartitionHint hint = {.limit = HUGE_VAL, .pieces = &loop->bounds.own};

  PetscFunctionBegin;
  if (!loop->exact) {
    hint.limit = PetscMin(search->best.rating, loop->limit);
    hint.rating_is_moot = (PetscBool)(TrsProposalBoundsRating(&loop->bounds) > hint.limit ||
                                      TrsProposalBoundsSlowestShard(&loop->bounds) >= search->best.rating);
  }
  search->partitioned++;
  outcome->rating = HUGE_VAL;
  if (TrsProposalBoundsFails(&loop->bounds)) {
    outcome->placed = PETSC_FALSE;
  } else if (hint.rating_is_moot && TrsProposalBoundsPlaced(&loop->bounds)) {
    outcome->placed = PETSC_TRUE;
  } else {
    PetscCall(TrsPartition(loop->partitioner, &proposer->proposal, &hint, &placement, &outcome->placed,
                           &outcome->rating));
  }
  if (!outcome->placed) {
    note_failure(search, &loop->bounds);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  search->feasible++;
  if (outcome->rating < search->best.rating)
    PetscCall(keep_best(search, proposer, placement, outcome->rating));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_proposer(TrsLoop *loop, TrsProposer *proposer)
{
  double timeout_s = loop->model->settings->timeout_s;
  TrsCacheEntry *entry;
  TrsOutcome outcome;
  PetscBool more;

  PetscFunctionBegin;
  PetscCall(proposer->ops->propose(proposer, &more));
  while (more && !(loop->model->settings->any_plan && loop->search->best.found)) {
    if (timeout_s > 0 && TrsClock() - loop->start_s > timeout_s) {
      loop->search->timed_out = PETSC_TRUE;
      break;
    }
    loop->search->proposals++;
    TrsProposalBoundsUpdate(&loop->bounds, &proposer->proposal,
                            proposer->n_changes == 1 ? proposer->changed : -1);
    PetscCall(TrsProposalCacheFind(&loop->cache, loop->bounds.key, &entry));
    if (entry->used) {
      outcome.placed = (PetscBool)entry->placed;
      outcome.rating = entry->rating;
    } else {
      PetscCall(evaluate(loop, proposer, &outcome));
      entry->used = 1;
      entry->placed = (int8_t)outcome.placed;
      entry->rating = outcome.rating;
    }
    outcome.used_hbm = loop->bounds.hbm;
    PetscCall(proposer->ops->feedback(proposer, &outcome));
    PetscCall(proposer->ops->propose(proposer, &more));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Scout: place some of the later proposals now, so that the first proposals are compared with good
  ones. This is allowed only if no proposer uses the outcomes and there is no time limit. Then the
  best plan is the first proposal with the least rating, regardless of the order of placing.
*/
static PetscErrorCode scout(TrsLoop *loop, const TrsProposer *like)
{
  int64_t stride = PetscMax(1, like->n_proposals / TRS_SCOUTED), n = 0;
  const TrsOutcome unheard = {0};
  TrsProposer proposer;
  PetscBool more;

  PetscFunctionBegin;
  PetscCall(TrsProposerCreate(like->kind, like->model, like->space, like->reservation, &proposer));
  PetscCall(proposer.ops->propose(&proposer, &more));
  for (; more; n++) {
    if (n % stride == 0) {
      TrsPartitionHint hint = {.limit = loop->limit, .only_below = PETSC_TRUE};
      const TrsPlacement *placement;
      PetscBool placed = PETSC_FALSE;
      double rating;

      TrsProposalBoundsUpdate(&loop->bounds, &proposer.proposal, -1);
      if (TrsProposalBoundsRating(&loop->bounds) < loop->limit && !TrsProposalBoundsFails(&loop->bounds))
        PetscCall(TrsPartition(loop->partitioner, &proposer.proposal, &hint, &placement, &placed, &rating));
      if (placed) loop->limit = PetscMin(loop->limit, rating);
    }
    PetscCall(proposer.ops->feedback(&proposer, &unheard));
    PetscCall(proposer.ops->propose(&proposer, &more));
  }
  PetscCall(TrsProposerDestroy(&proposer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsPartitionerConfig TrsPlanPartitioner(const TrsCostModel *model, const TrsReservation *reservation)
{
  const TrsPlanSettings *settings = model->settings;

  return (TrsPartitionerConfig){.world_size = model->topology->world_size,
                                .local_world_size = model->topology->local_world_size,
                                .group = model->topology->group,
                                .left = reservation->left,
                                .memory_balanced = settings->memory_balanced,
                                .sort_by_perf = settings->greedy_sort_by_perf,
                                .balance_modules = settings->memory_balanced
                                                       ? settings->memory_balanced_balance_modules
                                                       : settings->greedy_balance_modules,
                                .max_search_count = settings->memory_balanced_max_search_count,
                                .tolerance = settings->memory_balanced_tolerance};
}

PetscErrorCode TrsPlanSearchRun(const TrsCostModel *model, const TrsSearchSpace *space,
                                const TrsReservation *reservation, TrsPlanSearch *search)
{
  TrsLoop loop = {.model = model, .search = search, .limit = HUGE_VAL};
  TrsPartitionerConfig config = TrsPlanPartitioner(model, reservation);
  TrsProposerKind kind[TRS_PLAN_MAX_PROPOSERS + 4] = {TRS_PROPOSER_GRID_SEARCH};
  int n = PetscMax(1, space->n_tables);

  PetscFunctionBegin;
  *search = (TrsPlanSearch){.best.rating = HUGE_VAL};
  loop.start_s = TrsClock();
  search->n_proposers = TrsPlanProposers(model->settings, kind);
  for (int i = 0; i < search->n_proposers; i++) {
    PetscCall(TrsProposerCreate(kind[i], model, space, reservation, &search->proposer[i]));
    if (search->proposer[i].ops->uses_rating ||
        (search->proposer[i].ops == &trs_proposer_greedy && model->settings->greedy_threshold > 0))
      loop.exact = PETSC_TRUE;
  }
  PetscCall(TrsPartitionerCreate(&config, n, &loop.partitioner));
  PetscCall(TrsProposalCacheCreate(&loop.cache));
  PetscCall(TrsProposalBoundsCreate(&config, n, &loop.bounds));
  for (int i = 0; i < search->n_proposers && !loop.exact && model->settings->timeout_s <= 0; i++) {
    if (search->proposer[i].n_proposals > TRS_MANY || loop.limit < HUGE_VAL)
      PetscCall(scout(&loop, &search->proposer[i]));
  }
  for (int i = 0; i < search->n_proposers; i++) PetscCall(run_proposer(&loop, &search->proposer[i]));
  PetscCall(TrsProposalBoundsFree(&loop.bounds));
  PetscCall(TrsProposalCacheFree(&loop.cache));
  PetscCall(TrsPartitionerDestroy(&loop.partitioner));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBestPlanCopy(const TrsBestPlan *from, TrsBestPlan *to)
{
  const int n = from->proposal.n;

  PetscFunctionBegin;
  *to = (TrsBestPlan){.found = from->found, .rating = from->rating, .proposer = from->proposer};
  if (!from->found) PetscFunctionReturn(PETSC_SUCCESS);
  to->proposal.n = n;
  PetscCall(PetscMalloc1(n, &to->proposal.option));
  memcpy(to->proposal.option, from->proposal.option, (size_t)n * sizeof(const TrsPlanOption *));
  PetscCall(TrsPlacementCopy(&from->placement, n, &to->placement));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBestPlanFree(TrsBestPlan *plan)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(plan->proposal.option));
  PetscCall(TrsPlacementFree(&plan->placement));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanSearchFree(TrsPlanSearch *search)
{
  PetscFunctionBegin;
  for (int i = 0; i < search->n_proposers; i++) PetscCall(TrsProposerDestroy(&search->proposer[i]));
  PetscCall(TrsBestPlanFree(&search->best));
  PetscFunctionReturn(PETSC_SUCCESS);
}
