/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/search/proposer.h"

static const TrsProposerOps *const proposers[TRS_N_PROPOSERS] = {
    [TRS_PROPOSER_GRID_SEARCH] = &trs_proposer_grid_search,
    [TRS_PROPOSER_GREEDY] = &trs_proposer_greedy,
    [TRS_PROPOSER_GREEDY_NO_DEPTH] = &trs_proposer_greedy,
    [TRS_PROPOSER_UNIFORM] = &trs_proposer_uniform,
    [TRS_PROPOSER_UNIFORM_NO_DEPTH] = &trs_proposer_uniform,
    [TRS_PROPOSER_DYNAMIC_PROGRAMMING] = &trs_proposer_dynamic_programming,
    [TRS_PROPOSER_SCALEUP] = &trs_proposer_scaleup,
};

PetscErrorCode TrsProposerCreate(TrsProposerKind kind, const TrsCostModel *model, const TrsSearchSpace *space,
                                 const TrsReservation *reservation, TrsProposer *proposer)
{
  PetscFunctionBegin;
  *proposer = (TrsProposer){.kind = kind,
                            .ops = proposers[kind],
                            .model = model,
                            .space = space,
                            .reservation = reservation,
                            .n_changes = -1};
  proposer->proposal.n = space->n_tables;
  PetscCall(PetscMalloc1(space->n_tables, &proposer->proposal.option));
  PetscCall(proposer->ops->load(proposer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProposerDestroy(TrsProposer *proposer)
{
  PetscFunctionBegin;
  /* data is NULL if load was never called */
  if (proposer->data) PetscCall(proposer->ops->destroy(proposer));
  PetscCall(PetscFree(proposer->data));
  PetscCall(PetscFree(proposer->proposal.option));
  *proposer = (TrsProposer){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSortOptions(const TrsSearchSpace *space, PetscBool depth, int **sorted)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc1(space->n_options, sorted));
  for (int t = 0; t < space->n_tables; t++) {
    int first = space->table[t].first, *mine = *sorted + first;

    /* an insertion sort, because there are at most 19 options */
    for (int i = 0; i < space->table[t].n; i++) {
      const TrsPlanOption *option = &space->option[first + i];
      double score = depth ? option->max_perf : option->total_perf;
      int j = i;

      for (; j > 0; j--) {
        const TrsPlanOption *before = &space->option[mine[j - 1]];

        if ((depth ? before->max_perf : before->total_perf) <= score) break;
        mine[j] = mine[j - 1];
      }
      mine[j] = first + i;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
