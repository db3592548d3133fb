/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchanges of counts, and sums of a few numbers. If all ranks share memory, the numbers are posted
  in shared memory, for at most TRS_LANE_FLIGHT exchanges at a time. If numbers cannot be posted,
  counts travel as small blocks of bulk data, which the relay combines between hosts. Open MPI's
  nonblocking all-to-all would send a message to each rank instead. MPI itself makes the sums that
  cannot be posted. It also exchanges the counts if the host cannot read the device's memory.
*/
#include "comm/relax.h"
#include "core/events.h"

#include <string.h>

/*
  True if n numbers for each rank can be posted. The number of posted exchanges in flight is
  limited. All ranks get the same result, because they start and end exchanges in the same order.
*/
static PetscBool fits_posts(TrsComm comm, int n)
{
  return (PetscBool)(comm->size > 1 && comm->n_shared == comm->size && n <= TRS_LANE_COUNTS &&
                     !comm->counts_open[(comm->n_counts + 1) % TRS_LANE_FLIGHT]);
}

/* Give the next posted exchange its number, and mark it as in flight. */
static void open_posts(TrsCounts *counts)
{
  const TrsComm comm = counts->comm;

  counts->number = ++comm->n_counts;
  comm->counts_open[counts->number % TRS_LANE_FLIGHT] = PETSC_TRUE;
}

PetscErrorCode TrsCommCountsStart(TrsComm comm, int n, const int64_t *send, int64_t *recv, TrsCounts *counts)
{
  const int *peers;
  const int n_peers = TrsLanesPeers(comm->lanes, &peers);

  PetscFunctionBegin;
  *counts = (TrsCounts){.comm = comm, .n = n, .recv = recv, .mpi = MPI_REQUEST_NULL};
  if (!fits_posts(comm, n) && comm->device->host_memory && !comm->ops->by_device) {
    PetscCall(comm->ops->alltoallv(comm, NULL, (TrsSentBlocks){send, comm->one_each, comm->place_of},
                                   (TrsReceivedBlocks){recv, comm->one_each, comm->place_of},
                                   n * (int64_t)sizeof(*send), &counts->request));
    counts->request->start_s = 0; /* do not trace this exchange */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!fits_posts(comm, n)) {
    PetscCallMPI(MPI_Ialltoall(send, n, MPI_INT64_T, recv, n, MPI_INT64_T, comm->mpi, &counts->mpi));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  open_posts(counts);
  for (int i = 0; i < n_peers; i++)
    TrsLanesPost(comm->lanes, counts->number, i, n, send + (int64_t)peers[i] * n);
  TrsLanesRing(comm->lanes);
  memcpy(recv + (int64_t)comm->rank * n, send + (int64_t)comm->rank * n, (size_t)n * sizeof(*recv));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read the posts that have arrived, in the order of the peers, beginning with peer n_taken. For a
  sum, the posts are only counted.
*/
static void take_posts(TrsCounts *counts)
{
  const int *peers;
  const int n_peers = TrsLanesPeers(counts->comm->lanes, &peers);

  while (counts->n_taken < n_peers) {
    const int64_t *post = TrsLanesPosted(counts->comm->lanes, counts->number, counts->n_taken);

    if (!post) return;
    if (counts->recv)
      memcpy(counts->recv + (int64_t)peers[counts->n_taken] * counts->n, post,
             (size_t)counts->n * sizeof(*post));
    counts->n_taken++;
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
  } else if (counts->request) {
    PetscCall(counts->comm->ops->wait(counts->request, NULL));
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

PetscErrorCode TrsCommSumStart(TrsComm comm, int n, const double *mine, double *sum, TrsSum *request)
{
  int64_t bits[TRS_LANE_COUNTS];

  PetscFunctionBegin;
  *request = (TrsSum){{.comm = comm, .n = n, .mpi = MPI_REQUEST_NULL}, mine, sum};
  if (!fits_posts(comm, n)) {
    PetscCallMPI(MPI_Iallreduce(mine, sum, n, MPI_DOUBLE, MPI_SUM, comm->mpi, &request->posts.mpi));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  open_posts(&request->posts);
  memcpy(bits, mine, (size_t)n * sizeof(*mine));
  for (int i = 0; i < comm->size - 1; i++) TrsLanesPost(comm->lanes, request->posts.number, i, n, bits);
  TrsLanesRing(comm->lanes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the posts of all ranks in rank order. Peer i is i + 1 ranks after this rank. */
static void add_posts(TrsComm comm, uint64_t number, int n, const TrsSum *request)
{
  memset(request->sum, 0, (size_t)n * sizeof(*request->sum));
  for (int q = 0; q < comm->size; q++) {
    double values[TRS_LANE_COUNTS];

    memcpy(values,
           q == comm->rank
               ? (const void *)request->mine
               : TrsLanesPosted(comm->lanes, number, (q - comm->rank - 1 + comm->size) % comm->size),
           (size_t)n * sizeof(*values));
    for (int k = 0; k < n; k++) request->sum[k] += values[k];
  }
}

PetscErrorCode TrsCommSumWait(TrsSum *request)
{
  const TrsCounts posts = request->posts;

  PetscFunctionBegin;
  PetscCall(TrsCommCountsWait(&request->posts));
  if (posts.number) add_posts(posts.comm, posts.number, posts.n, request);
  PetscFunctionReturn(PETSC_SUCCESS);
}
