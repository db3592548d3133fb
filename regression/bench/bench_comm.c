/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares our exchanges with raw MPI collectives of the same size. They take turns in the same
  ranks.

    mpirun -n 2 bench_comm [-sizes 4KiB,16KiB,...] [-rounds 25]

  A size is the total number of bytes that a rank sends, including the part that it sends to itself.
  The exchange of counts has a fixed size. Prints one line for each exchange, size and contestant:
  exchange,contestant,ranks,bytes,microseconds (the slowest rank's time, as a median over rounds).

  The contestants are: ours (shared memory inside the host), messages (ours with -comm_shared_memory
  false), and three ways of MPI: blocking, nonblocking (start, then wait), and pairwise messages.
*/
#include "bench.h"
#include "comm/comm.h"
#include "core/options/options.h"
#include "core/shared_memory.h"

#include <string.h>

enum { MAX_ROUNDS = 1001, COUNTS = 8 /* number of int64 that each rank sends to each rank */ };

static const TrsOptionSpec specs[] = {
    {"-sizes", TRS_OPTION_BYTES_LIST, "4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB", "[1,]", NULL, "bytes",
     "that a rank sends"},
    {"-rounds", TRS_OPTION_INT, "25", "[1,1001]", NULL, NULL, "of which the median counts"},
};
static const TrsOptionGroup bench_options = TRS_OPTION_GROUP("Bench", specs);

typedef struct {
  TrsComm lanes, messages;
  int size, rank;
  int64_t n;           /* number of floats that a rank sends */
  float *send, *recv;  /* buffers for ours: in shared memory if available */
  float *send_private; /* buffer for MPI, in ordinary memory */
  int64_t *counts, *displs, *one, *zero;
  int *counts_int, *displs_int;
  int64_t *told;
  MPI_Request *pending;
} bench;

/* One round of a contestant: start, then wait. */
typedef PetscErrorCode (*exchange)(bench *b);

static PetscErrorCode alltoallv(bench *b, TrsComm comm)
{
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsCommAlltoallv(comm, NULL, (TrsSentBlocks){b->send, b->counts, b->displs},
                             (TrsReceivedBlocks){b->recv, b->counts, b->displs}, sizeof(float), &request));
  PetscCall(TrsRequestWait(&request, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reduce_scatterv(bench *b, TrsComm comm)
{
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsCommReduceScatterv(comm, NULL, b->send, b->counts, b->recv, &request));
  PetscCall(TrsRequestWait(&request, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allgatherv(bench *b, TrsComm comm)
{
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsCommAllgatherv(comm, NULL, b->send, b->recv, b->counts, b->displs, sizeof(float), &request));
  PetscCall(TrsRequestWait(&request, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allreduce(bench *b, TrsComm comm)
{
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsCommAllreduce(comm, NULL, NULL, b->send, b->n, &request));
  PetscCall(TrsRequestWait(&request, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Like the allreduce of floats, with half of the bytes. */
static PetscErrorCode allreduce_bf16(bench *b, TrsComm comm)
{
  const TrsCodec bf16 = {.kind = TRS_CODEC_BF16, .loss_scale = 1.0F};
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsCommAllreduce(comm, NULL, &bf16, b->send, b->n, &request));
  PetscCall(TrsRequestWait(&request, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define BY_COMM(name) \
  static PetscErrorCode name##_ours(bench *b) \
  { \
    return name(b, b->lanes); \
  } \
  static PetscErrorCode name##_messages(bench *b) \
  { \
    return name(b, b->messages); \
  }
BY_COMM(alltoallv)
BY_COMM(reduce_scatterv)
BY_COMM(allgatherv)
BY_COMM(allreduce)
BY_COMM(allreduce_bf16)

static PetscErrorCode counts_ours(bench *b)
{
  TrsCounts request;

  PetscFunctionBegin;
  PetscCall(TrsCommCountsStart(b->lanes, COUNTS, b->told, b->told + COUNTS * b->size, &request));
  PetscCall(TrsCommCountsWait(&request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- MPI's exchanges --- */

static PetscErrorCode alltoallv_blocking(bench *b)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Alltoallv(b->send_private, b->counts_int, b->displs_int, MPI_FLOAT, b->recv, b->counts_int,
                             b->displs_int, MPI_FLOAT, MPI_COMM_WORLD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alltoall_blocking(bench *b)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Alltoall(b->send_private, b->counts_int[0], MPI_FLOAT, b->recv, b->counts_int[0],
                            MPI_FLOAT, MPI_COMM_WORLD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alltoallv_nonblocking(bench *b)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Ialltoallv(b->send_private, b->counts_int, b->displs_int, MPI_FLOAT, b->recv,
                              b->counts_int, b->displs_int, MPI_FLOAT, MPI_COMM_WORLD, b->pending));
  PetscCallMPI(MPI_Wait(b->pending, MPI_STATUS_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alltoallv_pairwise(bench *b)
{
  int n = 0;

  PetscFunctionBegin;
  for (int q = 0; q < b->size; q++)
    if (q != b->rank)
      PetscCallMPI(MPI_Irecv(b->recv + b->displs[q], b->counts_int[q], MPI_FLOAT, q, 0, MPI_COMM_WORLD,
                             &b->pending[n++]));
  for (int q = 0; q < b->size; q++)
    if (q != b->rank)
      PetscCallMPI(MPI_Isend(b->send_private + b->displs[q], b->counts_int[q], MPI_FLOAT, q, 0,
                             MPI_COMM_WORLD, &b->pending[n++]));
  memcpy(b->recv + b->displs[b->rank], b->send_private + b->displs[b->rank],
         (size_t)b->counts[b->rank] * sizeof(float));
  PetscCallMPI(MPI_Waitall(n, b->pending, MPI_STATUSES_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reduce_scatterv_blocking(bench *b)
{
  PetscFunctionBegin;
  PetscCallMPI(
      MPI_Reduce_scatter(b->send_private, b->recv, b->counts_int, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reduce_scatterv_nonblocking(bench *b)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Ireduce_scatter(b->send_private, b->recv, b->counts_int, MPI_FLOAT, MPI_SUM,
                                   MPI_COMM_WORLD, b->pending));
  PetscCallMPI(MPI_Wait(b->pending, MPI_STATUS_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allgatherv_blocking(bench *b)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Allgatherv(b->send_private, b->counts_int[b->rank], MPI_FLOAT, b->recv, b->counts_int,
                              b->displs_int, MPI_FLOAT, MPI_COMM_WORLD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allgatherv_nonblocking(bench *b)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Iallgatherv(b->send_private, b->counts_int[b->rank], MPI_FLOAT, b->recv, b->counts_int,
                               b->displs_int, MPI_FLOAT, MPI_COMM_WORLD, b->pending));
  PetscCallMPI(MPI_Wait(b->pending, MPI_STATUS_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allreduce_blocking(bench *b)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, b->send_private, (int)b->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allreduce_nonblocking(bench *b)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Iallreduce(MPI_IN_PLACE, b->send_private, (int)b->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                              b->pending));
  PetscCallMPI(MPI_Wait(b->pending, MPI_STATUS_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode counts_blocking(bench *b)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Alltoall(b->told, COUNTS, MPI_INT64_T, b->told + COUNTS * b->size, COUNTS, MPI_INT64_T,
                            MPI_COMM_WORLD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The limit of the machine: each rank copies as many bytes as it would send. */
static PetscErrorCode memcpy_alone(bench *b)
{
  PetscFunctionBegin;
  memcpy(b->recv, b->send_private, (size_t)b->n * sizeof(float));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const struct {
  const char *name, *contestant;
  exchange run;
} contestants[] = {
    {"alltoallv", "ours", alltoallv_ours},
    {"alltoallv", "messages", alltoallv_messages},
    {"alltoallv", "MPI_Alltoallv", alltoallv_blocking},
    {"alltoallv", "MPI_Alltoall", alltoall_blocking},
    {"alltoallv", "MPI_Ialltoallv", alltoallv_nonblocking},
    {"alltoallv", "MPI_Isend", alltoallv_pairwise},
    {"reduce_scatterv", "ours", reduce_scatterv_ours},
    {"reduce_scatterv", "messages", reduce_scatterv_messages},
    {"reduce_scatterv", "MPI_Reduce_scatter", reduce_scatterv_blocking},
    {"reduce_scatterv", "MPI_Ireduce_scatter", reduce_scatterv_nonblocking},
    {"allgatherv", "ours", allgatherv_ours},
    {"allgatherv", "messages", allgatherv_messages},
    {"allgatherv", "MPI_Allgatherv", allgatherv_blocking},
    {"allgatherv", "MPI_Iallgatherv", allgatherv_nonblocking},
    {"allreduce", "ours", allreduce_ours},
    {"allreduce", "messages", allreduce_messages},
    {"allreduce", "bf16", allreduce_bf16_ours},
    {"allreduce", "bf16_messages", allreduce_bf16_messages},
    {"allreduce", "MPI_Allreduce", allreduce_blocking},
    {"allreduce", "MPI_Iallreduce", allreduce_nonblocking},
    {"counts", "ours", counts_ours},
    {"counts", "MPI_Alltoall", counts_blocking},
    {"memcpy", "memcpy", memcpy_alone},
};
enum { N_CONTESTANTS = sizeof(contestants) / sizeof(contestants[0]) };

/* Divide n floats into equal parts for all ranks. */
static void split(bench *b, int64_t n)
{
  for (int q = 0; q < b->size; q++) {
    b->counts[q] = n / b->size;
    b->displs[q] = q * (n / b->size);
    b->counts_int[q] = (int)b->counts[q];
    b->displs_int[q] = (int)b->displs[q];
  }
  b->n = n;
}

static PetscErrorCode time_once(bench *b, int c, double *seconds)
{
  double start_s, mine_s;

  PetscFunctionBegin;
  /* data is new each time, as after a lookup, and sums stay finite */
  for (int64_t i = 0; i < b->n; i++) {
    b->send[i] = 1.0F;
    b->send_private[i] = 1.0F;
  }
  PetscCallMPI(MPI_Barrier(MPI_COMM_WORLD));
  start_s = MPI_Wtime();
  PetscCall(contestants[c].run(b));
  mine_s = MPI_Wtime() - start_s;
  PetscCallMPI(MPI_Allreduce(&mine_s, seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode measure_size(bench *b, int64_t bytes, int rounds)
{
  static double seconds[N_CONTESTANTS][MAX_ROUNDS];
  const int64_t unit = b->size * (int64_t)sizeof(float);
  /* each call uses memory at another address */
  const int n_first = bytes <= TRS_LANE_SMALL ? TRS_LANE_CELLS : 2;

  PetscFunctionBegin;
  split(b, PetscMax(bytes / unit, 1) * b->size);
  for (int c = 0; c < N_CONTESTANTS; c++)
    for (int i = 0; i < n_first; i++) PetscCall(time_once(b, c, &seconds[c][0]));
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < N_CONTESTANTS; i++) {
      const int c = (i + round) % N_CONTESTANTS; /* in each round another contestant is the first */

      PetscCall(time_once(b, c, &seconds[c][round]));
    }
  }
  for (int c = 0; c < N_CONTESTANTS; c++) {
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s,%s,%d,%" PRId64 ",%.3f\n", contestants[c].name,
                          contestants[c].contestant, b->size, bytes, 1e6 * bench_median(rounds, seconds[c])));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(bench *b, int64_t most)
{
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const size_t size = (size_t)b->size;

  PetscFunctionBegin;
  PetscCall(TrsDeviceFind("cpu", &device));
  PetscCall(TrsComputeFind("cpu", &compute));
  PetscCall(device->setup(b->rank, b->size));
  PetscCall(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &b->lanes));
  PetscCall(TrsDeviceAllocShared(device, most + 4096, (void **)&b->send));
  PetscCall(device->alloc(b->size * (most + 4096), (void **)&b->recv));
  PetscCall(device->alloc(most + 4096, (void **)&b->send_private));
  TrsSharedAllow(PETSC_FALSE);
  PetscCall(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &b->messages));
  PetscCall(PetscCalloc2(size, &b->counts, size, &b->displs));
  PetscCall(PetscCalloc2(size, &b->counts_int, size, &b->displs_int));
  PetscCall(PetscCalloc2(2 * COUNTS * size, &b->told, 2 * size, &b->pending));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(int argc, char **argv)
{
  static const TrsOptionGroup *const groups[] = {&bench_options};
  TrsOptions options = NULL;
  bench b = {0};
  const int64_t *sizes = NULL;
  int64_t rounds, most = 0;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsCreate(PETSC_COMM_WORLD, argc, argv, groups, 1, &options));
  PetscCall(TrsOptionsGetInts(options, "-sizes", &n, &sizes, NULL));
  PetscCall(TrsOptionsGetInt(options, "-rounds", &rounds, NULL));
  for (int i = 0; i < n; i++) most = PetscMax(most, sizes[i]);
  PetscCallMPI(MPI_Comm_size(MPI_COMM_WORLD, &b.size));
  PetscCallMPI(MPI_Comm_rank(MPI_COMM_WORLD, &b.rank));
  PetscCall(set_up(&b, most));
  for (int i = 0; i < n; i++) PetscCall(measure_size(&b, sizes[i], (int)rounds));
  PetscCall(TrsCommDestroy(&b.messages));
  PetscCall(TrsCommDestroy(&b.lanes));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  return bench_main(argc, argv, run);
}
