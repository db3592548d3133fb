/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The grid search proposes every combination of options, if there are few combinations.

  Source: TorchRec GridSearchProposer
*/
#include "plan/search/proposer.h"

typedef struct {
  int *sorted;  /* each table's options, fastest first */
  int *current; /* [n_tables] current option of each table, counted like an odometer */
  PetscBool finished;
} TrsGrid;

static PetscErrorCode load_grid(TrsProposer *proposer)
{
  const TrsSearchSpace *space = proposer->space;
  TrsGrid *grid;
  int64_t limit = proposer->model->settings->grid_search_max_proposals, n = 1;

  PetscFunctionBegin;
  PetscCall(PetscNew(&grid));
  proposer->data = grid;
  for (int t = 0; t < space->n_tables && n <= limit; t++)
    n = n > limit / space->table[t].n ? limit + 1 : n * space->table[t].n;
  grid->finished = (PetscBool)(n > limit || space->n_tables == 0);
  proposer->n_proposals = grid->finished ? 0 : n;
  if (grid->finished) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsSortOptions(space, PETSC_TRUE, &grid->sorted));
  PetscCall(PetscCalloc1(space->n_tables, &grid->current));
  for (int t = 0; t < space->n_tables; t++)
    proposer->proposal.option[t] = &space->option[grid->sorted[space->table[t].first]];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode propose_grid(TrsProposer *proposer, PetscBool *more)
{
  PetscFunctionBegin;
  *more = (PetscBool) !((TrsGrid *)proposer->data)->finished;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Go to the next combination. The last table's option changes fastest. */
static PetscErrorCode feedback_grid(TrsProposer *proposer, const TrsOutcome *outcome)
{
  const TrsSearchSpace *space = proposer->space;
  TrsGrid *grid = proposer->data;
  int t = space->n_tables - 1;

  PetscFunctionBegin;
  (void)outcome;
  for (; t >= 0; t--) {
    grid->current[t]++;
    if (grid->current[t] == space->table[t].n) grid->current[t] = 0;
    proposer->proposal.option[t] = &space->option[grid->sorted[space->table[t].first + grid->current[t]]];
    if (grid->current[t]) break;
  }
  grid->finished = (PetscBool)(t < 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_grid(TrsProposer *proposer)
{
  TrsGrid *grid = proposer->data;

  PetscFunctionBegin;
  PetscCall(PetscFree(grid->sorted));
  PetscCall(PetscFree(grid->current));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsProposerOps trs_proposer_grid_search = {
    .load = load_grid, .propose = propose_grid, .feedback = feedback_grid, .destroy = destroy_grid};
