/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed/placement.h"

const TrsPlacementOps trs_placement_none = {.name = "none"};

const TrsPlacementOps *const trs_placements[] = {&trs_placement_ids, &trs_placement_row_cache, NULL};

PetscErrorCode TrsPlacementCreate(const TrsPlacementTables *tables, TrsPlacement *placement)
{
  TrsPlacement *top = placement, level;

  PetscFunctionBegin;
  *placement = NULL;
  for (const TrsPlacementOps *const *kind = tables->shards->placements; *kind; kind++) {
    PetscCall(PetscNew(&level));
    level->ops = *kind;
    PetscCall(level->ops->create(level, tables));
    if (!level->data) {
      PetscCall(PetscFree(level));
      continue;
    }
    *top = level;
    top = &level->above;
  }
  if (*placement) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(placement));
  (*placement)->ops = &trs_placement_none;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlacementDestroy(TrsPlacement *placement)
{
  PetscFunctionBegin;
  while (*placement) {
    TrsPlacement level = *placement;

    *placement = level->above;
    if (level->ops->destroy) PetscCall(level->ops->destroy(level));
    PetscCall(PetscFree(level));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsPlacementIsNone(TrsPlacement placement)
{
  return (PetscBool)(!placement || placement->ops == &trs_placement_none);
}

PetscBool TrsPlacementTreats(const TrsEmbeddingShards *shards, int table, PetscBool by_key)
{
  for (const TrsPlacementOps *const *kind = shards->placements; *kind; kind++)
    if ((!by_key || (*kind)->take) && (*kind)->treats(shards, table)) return PETSC_TRUE;
  return PETSC_FALSE;
}

TrsPlacement TrsPlacementFind(TrsPlacement placement, const TrsPlacementOps *ops)
{
  while (placement && placement->ops != ops) placement = placement->above;
  return placement;
}

PetscErrorCode TrsPlacementTake(TrsPlacement placement, TrsStream stream, const TrsPlacementBatch *batch)
{
  PetscFunctionBegin;
  for (; placement; placement = placement->above)
    if (placement->ops->take) PetscCall(placement->ops->take(placement, stream, batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The functions for a batch with ids. */
#define FOR_A_BATCH(Name, member) \
  PetscErrorCode TrsPlacement##Name(TrsPlacement placement, TrsStream stream, const TrsTbe *tbe, \
                                    TrsTbeInput *input) \
  { \
    PetscFunctionBegin; \
    for (; placement && input->n_values > 0; placement = placement->above) \
      if (placement->ops->member) PetscCall(placement->ops->member(placement, stream, tbe, input)); \
    PetscFunctionReturn(PETSC_SUCCESS); \
  }
FOR_A_BATCH(Ahead, ahead)
FOR_A_BATCH(Forward, forward)
FOR_A_BATCH(Backward, backward)
FOR_A_BATCH(Done, done)

PetscErrorCode TrsPlacementSettle(TrsPlacement placement, TrsStream stream, const TrsTbe *tbe, PetscBool drop)
{
  PetscFunctionBegin;
  if (!placement) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPlacementSettle(placement->above, stream, tbe, drop));
  if (placement->ops->settle) PetscCall(placement->ops->settle(placement, stream, tbe, drop));
  PetscFunctionReturn(PETSC_SUCCESS);
}
