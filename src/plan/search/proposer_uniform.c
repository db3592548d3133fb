/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Proposes plans that split all tables with the same sharding type. Each table uses its best kernel.

  Source: TorchRec UniformProposer
*/
#include "plan/search/proposer.h"

typedef struct {
  int n, next;
  const TrsPlanOption **option; /* [n * n_tables] the options of n proposals */
} TrsUniform;

static double score(const TrsProposer *proposer, const TrsPlanOption *option)
{
  return proposer->kind == TRS_PROPOSER_UNIFORM ? option->max_perf : option->total_perf;
}

static PetscErrorCode load_uniform(TrsProposer *proposer)
{
  const TrsSearchSpace *space = proposer->space;
  int n_seen = 0, n_tables[TRS_N_SHARDINGS] = {0};
  TrsShardingType seen[TRS_N_SHARDINGS]; /* sharding types in order of first appearance */
  const TrsPlanOption **best;
  TrsUniform *uniform;
  size_t n = (size_t)space->n_tables;

  PetscFunctionBegin;
  PetscCall(PetscNew(&uniform));
  proposer->data = uniform;
  PetscCall(PetscCalloc1(TRS_N_SHARDINGS * n, &best));
  for (int t = 0; t < space->n_tables; t++) {
    for (int i = 0; i < space->table[t].n; i++) {
      const TrsPlanOption *option = &space->option[space->table[t].first + i];
      const TrsPlanOption **mine = &best[(size_t)option->type * n + (size_t)t];

      if (!*mine) {
        int k = 0;

        while (k < n_seen && seen[k] != option->type) k++;
        if (k == n_seen) seen[n_seen++] = option->type;
        n_tables[option->type]++;
      }
      if (!*mine || score(proposer, option) < score(proposer, *mine)) *mine = option;
    }
  }
  PetscCall(PetscMalloc1((size_t)n_seen * n, &uniform->option));
  for (int k = 0; k < n_seen; k++) {
    if (n_tables[seen[k]] < space->n_tables) continue;
    for (size_t t = 0; t < n; t++)
      uniform->option[(size_t)uniform->n * n + t] = best[(size_t)seen[k] * n + t];
    uniform->n++;
  }
  proposer->n_proposals = uniform->n;
  PetscCall(PetscFree(best));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode propose_uniform(TrsProposer *proposer, PetscBool *more)
{
  TrsUniform *uniform = proposer->data;
  int n = proposer->space->n_tables;

  PetscFunctionBegin;
  *more = (PetscBool)(uniform->next < uniform->n);
  if (!*more) PetscFunctionReturn(PETSC_SUCCESS);
  for (int t = 0; t < n; t++)
    proposer->proposal.option[t] = uniform->option[(size_t)uniform->next * (size_t)n + (size_t)t];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode feedback_uniform(TrsProposer *proposer, const TrsOutcome *outcome)
{
  TrsUniform *uniform = proposer->data;

  PetscFunctionBegin;
  (void)outcome;
  uniform->next++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_uniform(TrsProposer *proposer)
{
  TrsUniform *uniform = proposer->data;

  PetscFunctionBegin;
  PetscCall(PetscFree(uniform->option));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsProposerOps trs_proposer_uniform = {.load = load_uniform,
                                             .propose = propose_uniform,
                                             .feedback = feedback_uniform,
                                             .destroy = destroy_uniform};
