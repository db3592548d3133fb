/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/relax.h"

#include <sched.h>

enum {
  TRS_SPINS = 300, /* about 20 us */
  TRS_CROWDED_SPINS = 20,
  TRS_NAP_US = 200 /* at most; a bell ends it */
};

TrsAwaited TrsCommAwait(TrsComm comm, int i)
{
  const PetscBool may_nap = (PetscBool)(i >= 0 && TrsLanesCrowded(comm->lanes));

  return (TrsAwaited){.peer = may_nap ? i : -1, .bell = may_nap ? TrsLanesBell(comm->lanes, i) : 0};
}

PetscErrorCode TrsCommRelax(TrsComm comm, TrsAwaited awaited, int n_vain)
{
  const PetscBool crowded = TrsLanesCrowded(comm->lanes);
  int found;

  PetscFunctionBegin;
  if (n_vain < (crowded ? TRS_CROWDED_SPINS : TRS_SPINS)) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (awaited.peer >= 0) {
    TrsLanesNap(comm->lanes, awaited.peer, awaited.bell, TRS_NAP_US);
  } else {
    sched_yield();
  }
  PetscCallMPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm->mpi, &found, MPI_STATUS_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}
