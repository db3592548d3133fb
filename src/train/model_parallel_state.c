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
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsModelParallelStatesFrom(TrsModelParallel m, const int64_t *states_from)
{
  for (int kind = 0; kind < TRS_STATES_KINDS; kind++) m->states_from[kind] = states_from[kind];
}

void TrsModelParallelStateWasRead(TrsModelParallel m, const TrsState *state)
{
  PetscBool all = PETSC_TRUE;

  for (int i = 0; i < state->n; i++)
    if (TrsDenseIsAverage(state->tensor[i].path) && !state->tensor[i].was_read) all = PETSC_FALSE;
  if (m->dense_optimizer && all) TrsDenseOptimizerContinueAverage(m->dense_optimizer);
}
