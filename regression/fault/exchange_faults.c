/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests a rank that dies during exchanges by shared memory.

    mpirun -n RANKS exchange_faults POINT VICTIM FILE

  Ranks exchange forever. After 10 rounds rank 0 makes the file, and after 20 rounds the victim is
  killed. POINT is "before" (before the start of an operation), "between" (between the start of a
  large operation and its wait), or "flight" (while many operations run). The other ranks spin while
  they wait for the victim, so the launcher must end them.
*/
#include "comm/comm.h"
#include "core/start.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 50000, N_FLIGHT = 8, MAX_RANKS = 64, ROUNDS = 20 };

static PetscErrorCode exchange(TrsComm comm, float *send, float *recv, const char *point, int dies)
{
  int64_t counts[MAX_RANKS], displs[MAX_RANKS];
  TrsRequest request[N_FLIGHT] = {NULL};
  const int n = strcmp(point, "flight") == 0 ? N_FLIGHT : 1;

  PetscFunctionBegin;
  for (int q = 0; q < comm->size; q++) {
    counts[q] = N;
    displs[q] = q * N;
  }
  if (dies && strcmp(point, "before") == 0) raise(SIGKILL);
  for (int k = 0; k < n; k++) {
    float *into = recv + (int64_t)k * N * comm->size;

    if (k % 2 == 0)
      PetscCall(TrsCommAlltoallv(comm, NULL, (TrsSentBlocks){send, counts, displs},
                                 (TrsReceivedBlocks){into, counts, displs}, sizeof(float), &request[k]));
    else
      PetscCall(TrsCommReduceScatterv(comm, NULL, send, counts, into, &request[k]));
    if (dies && k == n / 2) raise(SIGKILL);
  }
  for (int k = 0; k < n; k++) PetscCall(TrsRequestWait(&request[k], NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(const char *point, int victim, const char *path)
{
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsComm comm = NULL;
  void *send, *recv;

  PetscFunctionBegin;
  PetscCall(TrsDeviceFind("cpu", &device));
  PetscCall(TrsComputeFind("cpu", &compute));
  PetscCall(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm));
  PetscCheck(comm->n_shared == comm->size && comm->size <= MAX_RANKS, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "the ranks do not share memory");
  PetscCall(TrsDeviceAllocShared(device, comm->size * (int64_t)N * (int64_t)sizeof(float), &send));
  PetscCall(device->alloc(N_FLIGHT * comm->size * (int64_t)N * (int64_t)sizeof(float), &recv));
  for (int round = 0;; round++) {
    PetscCall(exchange(comm, (float *)send, (float *)recv, point, round == ROUNDS && comm->rank == victim));
    /* this happens before any victim can reach its last round */
    if (round == ROUNDS / 2 && comm->rank == 0) {
      FILE *note = fopen(path, "w");

      PetscCheck(note && fclose(note) == 0, PETSC_COMM_SELF, TRS_ERR_IO, "cannot make %s", path);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  if (argc != 4 || TrsStart(1, argv) != PETSC_SUCCESS) return 70;
  if (run(argv[1], atoi(argv[2]), argv[3]) != PETSC_SUCCESS) {
    fprintf(stderr, "exchange_faults: %s\n", TrsErrorMessage());
    MPI_Abort(MPI_COMM_WORLD, 69);
  }
  return TrsStop(PETSC_FALSE) ? 70 : 0;
}
