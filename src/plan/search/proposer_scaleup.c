/* SPDX-License-Identifier: BSD-3-Clause */
/*
  This proposer starts with small caches and then gives the remaining device memory to larger
  caches. A search finds the best amount of additional memory.

  Source: TorchRec EmbeddingOffloadScaleupProposer
*/
#include "plan/search/proposer_scaleup.h"

#include "plan/search/luus_jaakola.h"
#include "plan/search/proposer.h"

#include <math.h>
#include <string.h>

enum { TRS_MAX_PROBES = 16, TRS_SEED = 42, TRS_MAX_PASSES = 128 };
#define NO_RATING   1e99
#define LOW_FACTOR  0.1
#define HIGH_FACTOR 0.9
#define ALL_CACHED  0.9999

typedef struct {
  /* kept for all proposals, because plans point to their options */
  PetscSegBuffer options, classes;
  const TrsPlanOption **start; /* [n] options of the first proposal */
  PetscBool searching, finished;
  TrsLuusJaakola search;
} TrsScaleup;

/*
  The size of a table at load factor x. The multiplication and the addition each round to float32.
*/
static double size_at(const TrsScaleupTable *table, float x)
{
  float product = table->slope * x, sum = product + table->base;

  return (double)sum;
}

typedef struct {
  double least, cache, max_cache;
  PetscBool open;
} TrsBudget;

static PetscBool hand_out(int n, const TrsScaleupTable *table, TrsBudget *b, double *budget)
{
  double sum = 0, spent = 0, returned = 0, given = *budget;
  PetscBool any = PETSC_FALSE;

  for (int i = 0; i < n; i++) {
    b[i].open = (PetscBool)(b[i].least + b[i].cache < b[i].least + b[i].max_cache);
    any = (PetscBool)(any || b[i].open);
    if (b[i].open) sum += (double)table[i].priority;
  }
  if (!any) return PETSC_FALSE;
  for (int i = 0; i < n; i++) {
    double share = (b[i].open ? (double)table[i].priority : 0.0) / sum;
    double now = PetscMin(b[i].cache + given * share, b[i].max_cache);

    spent += now - b[i].cache;
    b[i].cache = now;
  }
  *budget -= spent;
  /* in the first proposal, replace a cache that is larger than the table */
  for (int i = 0; i < n; i++) {
    if (!b[i].open || b[i].least + b[i].cache <= (double)table[i].fused_bytes) continue;
    returned += b[i].least + b[i].cache - (double)table[i].fused_bytes;
    b[i].cache = b[i].max_cache;
  }
  *budget += returned;
  return PETSC_TRUE;
}

PetscErrorCode TrsAllocateBudget(int n, TrsScaleupTable *table, double budget_bytes)
{
  TrsBudget *b;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, &b));
  for (int i = 0; i < n; i++) {
    b[i].least = size_at(&table[i], 0);
    b[i].cache = size_at(&table[i], table[i].load_factor) - b[i].least;
    b[i].max_cache = size_at(&table[i], 1) - b[i].least;
  }
  for (int pass = 0; pass < TRS_MAX_PASSES && budget_bytes > 1; pass++) {
    if (!hand_out(n, table, b, &budget_bytes)) break;
  }
  for (int i = 0; i < n; i++) table[i].load_factor = (float)(b[i].cache / b[i].max_cache);
  PetscCall(PetscFree(b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Copy an option, change its kernel and load factor, and compute its cost. The proposer owns the
  copy.
*/
static PetscErrorCode recost(const TrsProposer *proposer, const TrsPlanOption *option,
                             TrsComputeKernel kernel, PetscBool has_load_factor, double load_factor,
                             const TrsPlanOption **other)
{
  TrsScaleup *scaleup = proposer->data;
  TrsPlanOption *copy;
  TrsShardClass *classes;

  PetscFunctionBegin;
  PetscCall(PetscSegBufferGet(scaleup->options, 1, &copy));
  PetscCall(PetscSegBufferGet(scaleup->classes, (size_t)option->n_classes, &classes));
  *copy = *option;
  memcpy(classes, option->shard_class, (size_t)option->n_classes * sizeof(*classes));
  copy->shard_class = classes;
  copy->kernel = kernel;
  copy->has_load_factor = has_load_factor;
  copy->load_factor = has_load_factor ? load_factor : 0;
  PetscCall(TrsCostOption(proposer->model, copy));
  *other = copy;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double priority_of(const TrsProposer *proposer, const TrsPlanOption *option)
{
  const TrsTableConstraints *constraints = &proposer->model->tables->table[option->table].constraints;

  return constraints->cache_stats_cacheability * constraints->cache_stats_expected_lookups;
}

static PetscBool is_scalable(const TrsProposer *proposer, const TrsPlanOption *option)
{
  return (PetscBool)(TrsKernelKeepsLines(option->kernel) && option->has_load_factor &&
                     priority_of(proposer, option) * option->load_factor > 0);
}

static TrsInt128 total_hbm(int n, const TrsPlanOption *const *option)
{
  TrsInt128 sum = 0;

  for (int t = 0; t < n; t++) sum += option[t]->total_storage.hbm;
  return sum;
}

static PetscErrorCode load_scaleup(TrsProposer *proposer)
{
  const TrsSearchSpace *space = proposer->space;
  TrsScaleup *scaleup;
  int *sorted;

  PetscFunctionBegin;
  PetscCall(PetscNew(&scaleup));
  proposer->data = scaleup;
  PetscCall(PetscSegBufferCreate(sizeof(TrsPlanOption), 256, &scaleup->options));
  PetscCall(PetscSegBufferCreate(sizeof(TrsShardClass), 256, &scaleup->classes));
  PetscCall(PetscMalloc1(space->n_tables, &scaleup->start));
  PetscCall(TrsSortOptions(space, PETSC_TRUE, &sorted));
  for (int t = 0; t < space->n_tables; t++) {
    const int *mine = sorted + space->table[t].first;
    const TrsPlanOption *option = &space->option[mine[0]], *fused;

    for (int i = 0; i < space->table[t].n; i++) {
      if (!TrsKernelKeepsLines(space->option[mine[i]].kernel)) continue;
      option = &space->option[mine[i]];
      break;
    }
    /* Replace a cache that is larger than the table. */
    if (TrsKernelKeepsLines(option->kernel)) {
      PetscCall(recost(proposer, option, TRS_KERNEL_FUSED, PETSC_FALSE, 0, &fused));
      if (fused->total_storage.hbm < option->total_storage.hbm) option = fused;
    }
    scaleup->start[t] = proposer->proposal.option[t] = option;
  }
  scaleup->finished = (PetscBool)(space->n_tables == 0);
  PetscCall(PetscFree(sorted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode propose_scaleup(TrsProposer *proposer, PetscBool *more)
{
  PetscFunctionBegin;
  *more = (PetscBool) !((TrsScaleup *)proposer->data)->finished;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Propose the first proposal, with `budget` more bytes for caches. *scaled is false if no table can
  be scaled.
*/
static PetscErrorCode scale(TrsProposer *proposer, double budget, PetscBool *scaled)
{
  TrsScaleup *scaleup = proposer->data;
  int n = proposer->proposal.n, n_scalable = 0, *index;
  TrsScaleupTable *table;
  const TrsPlanOption *low, *high, *fused;

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(n, &table, n, &index));
  for (int t = 0; t < n; t++) {
    const TrsPlanOption *option = scaleup->start[t];
    float slope, base;

    if (!is_scalable(proposer, option)) continue;
    PetscCall(recost(proposer, option, option->kernel, PETSC_TRUE, LOW_FACTOR, &low));
    PetscCall(recost(proposer, option, option->kernel, PETSC_TRUE, HIGH_FACTOR, &high));
    PetscCall(recost(proposer, option, TRS_KERNEL_FUSED, PETSC_FALSE, 0, &fused));
    slope = (float)(high->total_storage.hbm - low->total_storage.hbm) / (float)(HIGH_FACTOR - LOW_FACTOR);
    base = slope * (float)LOW_FACTOR;
    base = (float)low->total_storage.hbm - base;
    index[n_scalable] = t;
    table[n_scalable++] = (TrsScaleupTable){slope, base, fused->total_storage.hbm, (float)option->load_factor,
                                            (float)priority_of(proposer, option)};
  }
  *scaled = (PetscBool)(n_scalable > 0);
  PetscCall(TrsAllocateBudget(n_scalable, table, budget));
  memcpy(proposer->proposal.option, scaleup->start, (size_t)n * sizeof(const TrsPlanOption *));
  for (int i = 0; i < n_scalable; i++) {
    const TrsPlanOption *option = scaleup->start[index[i]];
    double factor = (double)table[i].load_factor;
    PetscBool all = (PetscBool)(factor > ALL_CACHED);

    PetscCall(recost(proposer, option, all ? TRS_KERNEL_FUSED : option->kernel, (PetscBool)!all, factor,
                     &proposer->proposal.option[index[i]]));
  }
  PetscCall(PetscFree2(table, index));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute how much additional memory is available and can be used by caches. */
static PetscErrorCode start_search(TrsProposer *proposer, const TrsOutcome *outcome)
{
  TrsScaleup *scaleup = proposer->data;
  TrsInt128 available = -outcome->used_hbm, ceiling = 0;
  const TrsPlanOption *fused;

  PetscFunctionBegin;
  for (int r = 0; r < proposer->model->topology->world_size; r++)
    available += proposer->reservation->left[r].hbm;
  for (int t = 0; t < proposer->proposal.n; t++) {
    fused = scaleup->start[t];
    if (is_scalable(proposer, fused))
      PetscCall(recost(proposer, scaleup->start[t], TRS_KERNEL_FUSED, PETSC_FALSE, 0, &fused));
    ceiling += fused->total_storage.hbm;
  }
  TrsLuusJaakolaStart(&scaleup->search, 0, (double)PetscMin(available, ceiling - outcome->used_hbm),
                      TRS_MAX_PROBES, TRS_SEED, PETSC_TRUE);
  scaleup->searching = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode feedback_scaleup(TrsProposer *proposer, const TrsOutcome *outcome)
{
  TrsScaleup *scaleup = proposer->data;
  PetscBool scaled = PETSC_FALSE;
  double budget;

  PetscFunctionBegin;
  if (!scaleup->searching && outcome->placed) {
    PetscCall(start_search(proposer, outcome));
  } else if (!scaleup->searching) {
    scaleup->finished = PETSC_TRUE;
    PetscFunctionReturn(PETSC_SUCCESS);
  } else if (!outcome->placed) {
    TrsLuusJaakolaShrinkRight(&scaleup->search,
                              (double)(outcome->used_hbm - total_hbm(proposer->proposal.n, scaleup->start)));
  }
  if (TrsLuusJaakolaNext(&scaleup->search, outcome->placed ? outcome->rating : NO_RATING, &budget))
    PetscCall(scale(proposer, trunc(budget), &scaled));
  scaleup->finished = (PetscBool)!scaled;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_scaleup(TrsProposer *proposer)
{
  TrsScaleup *scaleup = proposer->data;

  PetscFunctionBegin;
  PetscCall(PetscSegBufferDestroy(&scaleup->options));
  PetscCall(PetscSegBufferDestroy(&scaleup->classes));
  PetscCall(PetscFree(scaleup->start));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsProposerOps trs_proposer_scaleup = {.load = load_scaleup,
                                             .propose = propose_scaleup,
                                             .feedback = feedback_scaleup,
                                             .destroy = destroy_scaleup,
                                             .uses_rating = PETSC_TRUE};
