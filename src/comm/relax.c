/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/relax.h"

#include "core/clock.h"

#include <sched.h>

enum {
  TRS_SPINS = 300,    /* takes about 20 us */
  TRS_YIELD_US = 200, /* for this time after the spin, a rank yields its core between checks */
  TRS_CROWDED_YIELD_US = 100,
  TRS_NAP_US = 200 /* a sleep lasts at most this long; a bell ends it earlier */
};

void TrsPatienceLook(TrsComm comm, int i, TrsPatience *patience)
{
  const uint32_t bell = i < 0 ? 0 : TrsLanesBell(comm->lanes, i);

  if (i != patience->peer || bell != patience->bell) *patience = (TrsPatience){.peer = i, .bell = bell};
}

PetscErrorCode TrsPatienceRelax(TrsComm comm, TrsPatience *patience)
{
  const PetscBool crowded = TrsLanesCrowded(comm->lanes);
  int found;

  PetscFunctionBegin;
  for (TrsComm other = comm->next; other && other != comm; other = other->next)
    PetscCall(TrsCommProgress(other));
  if (patience->n_vain++ < (crowded ? 0 : TRS_SPINS)) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (patience->since_s == 0) patience->since_s = TrsClock();
  if (patience->peer < 0 ||
      TrsClock() - patience->since_s < 1e-6 * (crowded ? TRS_CROWDED_YIELD_US : TRS_YIELD_US)) {
    sched_yield();
  } else {
    TrsLanesNap(comm->lanes, patience->peer, patience->bell, TRS_NAP_US);
  }
  PetscCallMPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm->mpi, &found, MPI_STATUS_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}
