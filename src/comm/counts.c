/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts: posted where all ranks share memory, else by MPI. */
#include "comm/relax.h"
#include "core/events.h"

#include <string.h>

PetscErrorCode TrsCommCountsStart(TrsComm comm, int n, const int64_t *send, int64_t *recv, TrsCounts *counts)
{
  const int *peers;
  const int n_peers = TrsLanesPeers(comm->lanes, &peers);

  PetscFunctionBegin;
  *counts = (TrsCounts){.comm = comm, .n = n, .recv = recv, .mpi = MPI_REQUEST_NULL};
  if (n_peers + 1 < comm->size || n > TRS_LANE_COUNTS || comm->size == 1) {
    PetscCallMPI(MPI_Ialltoall(send, n, MPI_INT64_T, recv, n, MPI_INT64_T, comm->mpi, &counts->mpi));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  counts->number = ++comm->n_counts;
  PetscCheck(!comm->counts_open[counts->number % TRS_LANE_FLIGHT], PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "more than %d exchanges of counts under way", TRS_LANE_FLIGHT);
  comm->counts_open[counts->number % TRS_LANE_FLIGHT] = PETSC_TRUE;
  for (int i = 0; i < n_peers; i++)
    TrsLanesPost(comm->lanes, counts->number, i, n, send + (int64_t)peers[i] * n);
  TrsLanesRing(comm->lanes);
  memcpy(recv + (int64_t)comm->rank * n, send + (int64_t)comm->rank * n, (size_t)n * sizeof(*recv));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Take what is there, peer by peer from n_taken on. */
static void take_posts(TrsCounts *counts)
{
  const int *peers;
  const int n_peers = TrsLanesPeers(counts->comm->lanes, &peers);

  while (counts->n_taken < n_peers) {
    const int64_t *post = TrsLanesPosted(counts->comm->lanes, counts->number, counts->n_taken);

    if (!post) return;
    memcpy(counts->recv + (int64_t)peers[counts->n_taken++] * counts->n, post,
           (size_t)counts->n * sizeof(*post));
  }
}

static PetscErrorCode wait_for_posts(TrsCounts *counts)
{
  const TrsComm comm = counts->comm;
  const int *peers;
  const int n_peers = TrsLanesPeers(comm->lanes, &peers);
  TrsStage before;

  PetscFunctionBegin;
  take_posts(counts);
  if (counts->n_taken < n_peers) {
    PetscCall(TrsStageSwitch(TRS_STAGE_WAIT, &before));
    for (TrsPatience patience = {0};;) {
      TrsPatienceLook(comm, counts->n_taken, &patience);
      take_posts(counts);
      if (counts->n_taken == n_peers) break;
      PetscCall(TrsPatienceRelax(comm, &patience));
      PetscCall(TrsCommProgress(comm));
    }
    PetscCall(TrsStageSwitch(before, NULL));
  }
  comm->counts_open[counts->number % TRS_LANE_FLIGHT] = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCommCountsWait(TrsCounts *counts)
{
  TrsStage before;
  int done;

  PetscFunctionBegin;
  if (counts->number) {
    PetscCall(wait_for_posts(counts));
  } else if (counts->mpi != MPI_REQUEST_NULL) {
    PetscCallMPI(MPI_Test(&counts->mpi, &done, MPI_STATUS_IGNORE));
    if (!done) {
      PetscCall(TrsStageSwitch(TRS_STAGE_WAIT, &before));
      PetscCallMPI(MPI_Wait(&counts->mpi, MPI_STATUS_IGNORE));
      PetscCall(TrsStageSwitch(before, NULL));
    }
  }
  *counts = (TrsCounts){.mpi = MPI_REQUEST_NULL};
  PetscFunctionReturn(PETSC_SUCCESS);
}
