/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/plan_search.h"

#include "plan/proposal_bounds.h"
#include "plan/proposal_cache.h"

#include <math.h>
#include <string.h>
#include <time.h>

typedef struct {
  const TrsCostModel *model;
  TrsPlanSearch *search;
  TrsPartitioner partitioner;
  TrsProposalCache cache;
  TrsProposalBounds bounds;
  PetscBool exact; /* some proposer wants every rating exactly */
  double start_s;
} TrsLoop;

double TrsPlanClock(void)
{
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The proposers to run: optimal stands for TorchRec's default list, its own search follows later. */
static int list_proposers(const TrsPlanSettings *settings, TrsProposerKind *kind)
{
  static const TrsProposerKind standard[] = {TRS_PROPOSER_GRID_SEARCH, TRS_PROPOSER_GREEDY,
                                             TRS_PROPOSER_GREEDY_NO_DEPTH, TRS_PROPOSER_UNIFORM};
  int n = 0;

  for (int i = 0; i < settings->n_proposers; i++) {
    if (settings->proposer[i] != TRS_PROPOSER_OPTIMAL) {
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

/* A proposal that was not seen before: place it, or know what would become of it. */
static PetscErrorCode evaluate(TrsLoop *loop, const TrsProposer *proposer, TrsOutcome *outcome)
{
  TrsPlanSearch *search = loop->search;
  const TrsPlacement *placement = NULL;
  double limit = search->best.found && !loop->exact ? search->best.rating : HUGE_VAL;
  TrsPartitionHint hint = TrsProposalBoundsHint(&loop->bounds, limit);

  PetscFunctionBegin;
  search->partitioned++;
  outcome->rating = HUGE_VAL;
  if (TrsProposalBoundsFails(&loop->bounds)) {
    outcome->placed = PETSC_FALSE;
  } else if (hint.certainly_above && TrsProposalBoundsPlaced(&loop->bounds)) {
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
  if (placement && (!search->best.found || outcome->rating < search->best.rating))
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
  while (more) {
    if (timeout_s > 0 && TrsPlanClock() - loop->start_s > timeout_s) break;
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

static PetscErrorCode create_partitioner(const TrsCostModel *model, const TrsReservation *reservation, int n,
                                         TrsPartitioner *partitioner)
{
  const TrsPlanSettings *settings = model->settings;
  TrsPartitionerConfig config = {.world_size = model->topology->world_size,
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

  PetscFunctionBegin;
  PetscCall(TrsPartitionerCreate(&config, n, partitioner));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanSearchRun(const TrsCostModel *model, const TrsSearchSpace *space,
                                const TrsReservation *reservation, TrsPlanSearch *search)
{
  TrsLoop loop = {.model = model, .search = search};
  TrsProposerKind kind[TRS_PLAN_MAX_PROPOSERS + 4] = {TRS_PROPOSER_GRID_SEARCH};
  int n = PetscMax(1, space->n_tables);

  PetscFunctionBegin;
  *search = (TrsPlanSearch){0};
  loop.start_s = TrsPlanClock();
  search->n_proposers = list_proposers(model->settings, kind);
  for (int i = 0; i < search->n_proposers; i++) {
    PetscCall(TrsProposerCreate(kind[i], model, space, reservation, &search->proposer[i]));
    if (search->proposer[i].ops->uses_rating ||
        (search->proposer[i].ops == &trs_proposer_greedy && model->settings->greedy_threshold > 0))
      loop.exact = PETSC_TRUE;
  }
  PetscCall(create_partitioner(model, reservation, n, &loop.partitioner));
  PetscCall(TrsProposalCacheCreate(&loop.cache));
  PetscCall(TrsProposalBoundsCreate(model->topology->world_size, model->topology->group, reservation->left, n,
                                    &loop.bounds));
  for (int i = 0; i < search->n_proposers; i++) PetscCall(run_proposer(&loop, &search->proposer[i]));
  PetscCall(TrsProposalBoundsFree(&loop.bounds));
  PetscCall(TrsProposalCacheFree(&loop.cache));
  PetscCall(TrsPartitionerDestroy(&loop.partitioner));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanSearchFree(TrsPlanSearch *search)
{
  PetscFunctionBegin;
  for (int i = 0; i < search->n_proposers; i++) PetscCall(TrsProposerDestroy(&search->proposer[i]));
  PetscCall(PetscFree(search->best.proposal.option));
  PetscCall(TrsPlacementFree(&search->best.placement));
  PetscFunctionReturn(PETSC_SUCCESS);
}
