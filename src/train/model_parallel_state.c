/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/model_parallel_impl.h"

PetscErrorCode TrsModelParallelAddState(TrsModelParallel m, TrsState *state)
{
  PetscFunctionBegin;
  PetscCall(TrsShardedEbcAddState(m->ebc, m->stream, m->cached ? m->prefetched : NULL, state));
  PetscCall(TrsDlrmAddState(m->dlrm, state));
  if (m->dense_optimizer) PetscCall(TrsDlrmAddOptimizerState(m->dlrm, m->dense_optimizer, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}
