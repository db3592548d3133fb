/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/impl.h"

PetscErrorCode TrsModelParallelAddState(TrsModelParallel m, TrsState *state)
{
  PetscFunctionBegin;
  PetscCall(TrsShardedEbcAddState(m->ebc, m->stream, m->placed ? m->prefetched : NULL, state));
  /* Only the first copy of the tables is written. Every copy is read. */
  for (int i = 0; m->replicas.owners && m->replicas.owners->rank > 0 && i < state->n; i++)
    for (int k = 0; k < state->tensor[i].n_parts; k++) state->tensor[i].part[k].copy = PETSC_TRUE;
  PetscCall(TrsDlrmAddState(m->dlrm, m->averaged, state));
  if (m->dense_optimizer) PetscCall(TrsDlrmAddOptimizerState(m->dlrm, m->dense_optimizer, state));
  if (m->config.training) PetscCall(TrsPairLossAddState(m->pair_loss, state));
  if (TrsChangesAreFor(m->changes, TRS_CHANGES_OF_DELTAS)) PetscCall(TrsChangesAddState(m->changes, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the averages of the dense layers' weights, with which a model predicts (-ema_decay). */
static PetscErrorCode add_averages(TrsModelParallel m, TrsState *state)
{
  TrsState all = {.n = 0};

  PetscFunctionBegin;
  if (!m->dense_optimizer) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDlrmAddOptimizerState(m->dlrm, m->dense_optimizer, &all));
  for (int i = 0; i < all.n; i++) {
    const TrsStateTensor *from = &all.tensor[i];
    TrsStateTensor *tensor;

    if (TrsDenseIsAverage(from->path)) PetscCall(TrsStateCopy(from, state, &tensor));
  }
  PetscCall(TrsStateFree(&all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelAddDelta(TrsModelParallel m, TrsDType dtype, TrsState *state)
{
  PetscFunctionBegin;
  PetscCall(TrsChangesAddDelta(m->changes, dtype, state));
  PetscCall(TrsDlrmAddState(m->dlrm, PETSC_FALSE, state));
  PetscCall(add_averages(m, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelListChanges(TrsModelParallel m, unsigned uses)
{
  PetscFunctionBegin;
  if (!m->changes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsShardedEbcSettle(m->ebc, m->stream, PETSC_FALSE));
  PetscCall(TrsChangesList(m->changes, uses));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsChanges TrsModelParallelChanges(TrsModelParallel m)
{
  return m->changes;
}

TrsSnapshot TrsModelParallelSnapshot(TrsModelParallel m)
{
  return m->snapshot;
}

void TrsModelParallelStatesFrom(TrsModelParallel m, const int64_t *states_from)
{
  for (int kind = 0; kind < TRS_STATES_KINDS; kind++) m->states_from[kind] = states_from[kind];
}

void TrsModelParallelStateWasRead(TrsModelParallel m, const TrsState *state)
{
  PetscBool all = PETSC_TRUE;

  m->operands_written = PETSC_FALSE;
  for (int i = 0; i < state->n; i++)
    if (TrsDenseIsAverage(state->tensor[i].path) && !state->tensor[i].was_read) all = PETSC_FALSE;
  if (m->dense_optimizer && all) TrsDenseOptimizerContinueAverage(m->dense_optimizer);
}
