/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests special cases of exchanges by shared memory: sizes around the limit of small messages, more
  operations under way than cells, memory that is reused at once, and ranks that cannot share
  memory. The tests run with all ranks on one host, and as if each host had two ranks. Each expected
  value encodes its sender.
*/
#include "comm/comm.h"
#include "comm/relay.h"
#include "comm/shared_lanes.h"
#include "core/shared_memory.h"
#include "trs_test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_RANKS = 8, FLIGHT = 3 * TRS_LANE_CELLS };

static const TrsDeviceOps *device;
static const TrsComputeOps *compute;

static TrsComm new_comm(int share)
{
  TrsComm comm = NULL;

  TrsSharedRanks(share);
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm));
  return comm;
}

/*
  Allocate n floats. Alternate between memory that ranks can share and memory that they cannot
  share.
*/
static float *take(int64_t n)
{
  static int n_calls = 0;
  void *memory = NULL;

  assert_petsc_ok((n_calls++ % 2 ? device->alloc : device->alloc_shared)(n * 4 + 1, &memory));
  return memory;
}

static void give_back(float *memory)
{
  void *block = memory;

  assert_petsc_ok(device->release(&block));
}

static float value_of(int from, int to, int64_t i)
{
  return (float)(from * 100 + to * 10) + (float)(i % 9973);
}

/* Lay out n floats for each rank, one block after the other. */
static void lay_out(TrsComm comm, int64_t n, int64_t *counts, int64_t *displs, float *send)
{
  for (int q = 0; q < comm->size; q++) {
    counts[q] = n;
    displs[q] = q * n;
    for (int64_t i = 0; i < n; i++) send[displs[q] + i] = value_of(comm->rank, q, i);
  }
}

/*
  Each rank sends n floats to each rank. If late is set, ranks wait late, in another order in each
  round.
*/
static void exchange(TrsComm comm, int64_t n, int round, int late)
{
  int64_t counts[MAX_RANKS], displs[MAX_RANKS];
  float *send = take(n * comm->size), *recv = take(n * comm->size);
  TrsRequest request = NULL;

  lay_out(comm, n, counts, displs, send);
  assert_petsc_ok(TrsCommAlltoallv(comm, NULL, (TrsSentBlocks){send, counts, displs},
                                   (TrsReceivedBlocks){recv, counts, displs}, sizeof(float), &request));
  if (late) usleep((useconds_t)(3000 * ((comm->rank + round) % comm->size)));
  assert_petsc_ok(TrsRequestWait(&request, NULL));
  for (int64_t i = 0; i < n * comm->size; i++) send[i] = -1.0F; /* the memory may be reused */
  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < n; i++)
      if (recv[displs[q] + i] != value_of(q, comm->rank, i)) fail_msg("float %d from rank %d", (int)i, q);
  give_back(send);
  give_back(recv);
}

/*
  Like exchange(), but ranks read blocks in place. The rank's own block stays in `send`. Other
  blocks that need no copy stay in their sender's memory, and the remaining blocks are in `recv`.
  After the wait the senders may reuse their blocks.
*/
static void look(TrsComm comm, int64_t n, int late)
{
  int64_t counts[MAX_RANKS], displs[MAX_RANKS];
  float *send = take(n * comm->size), *recv = take(n * comm->size);
  const float *block[MAX_RANKS];
  TrsRequest request = NULL;

  lay_out(comm, n, counts, displs, send);
  for (int64_t i = 0; i < n * comm->size; i++) recv[i] = -2.0F;
  assert_petsc_ok(TrsCommAlltoallvBlocks(comm, NULL, (TrsSentBlocks){send, counts, displs},
                                         (TrsReceivedBlocks){recv, counts, displs},
                                         (TrsBlockView){.block = block}, &request));
  if (late) usleep((useconds_t)(2000 * comm->rank));
  assert_petsc_ok(TrsRequestArrive(&request, NULL));
  for (int q = 0; q < comm->size; q++) {
    for (int64_t i = 0; i < n; i++)
      if (block[q][i] != value_of(q, comm->rank, i)) fail_msg("float %d from rank %d", (int)i, q);
    if (n > 0 && (q == comm->rank || (TrsLanesTo(comm->lanes, q) && recv[displs[q]] < 0)))
      assert_true(recv[displs[q] + n - 1] == -2.0F);
  }
  assert_ptr_equal(block[comm->rank], send + displs[comm->rank]);
  assert_petsc_ok(TrsRequestWait(&request, NULL));
  for (int64_t i = 0; i < n * comm->size; i++) send[i] = -1.0F; /* the memory may be reused */
  give_back(send);
  give_back(recv);
}

/*
  Like look(), but ranks also change blocks in place. A block in its sender's memory then shows the
  changes of the other ranks, and both sides know which blocks these are. Meanwhile another exchange
  begins and ends.
*/
static void change(TrsComm comm, int64_t n, int late)
{
  int64_t counts[MAX_RANKS], displs[MAX_RANKS];
  float *send = take(n * comm->size), *recv = take(n * comm->size), *at[MAX_RANKS];
  const PetscBool shared = (PetscBool)(TrsSharedOffset(send, n * comm->size * 4) >= 0);
  PetscBool comes_back[MAX_RANKS];
  const float *block[MAX_RANKS];
  TrsRequest request = NULL;

  lay_out(comm, n, counts, displs, send);
  assert_petsc_ok(TrsCommAlltoallvBlocks(comm, NULL, (TrsSentBlocks){send, counts, displs},
                                         (TrsReceivedBlocks){recv, counts, displs},
                                         (TrsBlockView){block, comes_back}, &request));
  assert_petsc_ok(TrsRequestArrive(&request, NULL));
  memcpy(at, block, sizeof(at));
  exchange(comm, n / 2, 1, 0);
  for (int q = 0; q < comm->size; q++) {
    assert_int_equal(comes_back[q], q == comm->rank || (shared && TrsLanesTo(comm->lanes, q)));
    for (int64_t i = 0; i < n; i++) {
      if (at[q][i] != value_of(q, comm->rank, i)) fail_msg("float %d from rank %d", (int)i, q);
      at[q][i] = 7.0F + value_of(comm->rank, q, i);
    }
  }
  if (late) usleep((useconds_t)(2000 * comm->rank));
  if (n % 3) assert_petsc_ok(TrsRequestReturn(request));
  assert_petsc_ok(TrsRequestWait(&request, NULL));
  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < n; i++) {
      const float sent = value_of(comm->rank, q, i), changed = 7.0F + value_of(q, comm->rank, i);

      if (send[displs[q] + i] != (comes_back[q] ? changed : sent))
        fail_msg("float %d for rank %d", (int)i, q);
    }
  give_back(send);
  give_back(recv);
}

static void test_change(void **state)
{
  (void)state;
  for (int share = 2; share <= 8; share += 6) {
    TrsComm comm = new_comm(share);

    for (int round = 0; round < 12; round++)
      change(comm, (const int64_t[]){0, 100, 30011, 5000, 3}[round % 5], round % 3 == 2);
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
}

static void test_look(void **state)
{
  (void)state;
  for (int share = 2; share <= 8; share += 6) {
    TrsComm comm = new_comm(share);

    for (int round = 0; round < 12; round++)
      look(comm, (const int64_t[]){0, 100, 30011, 5000}[round % 4], round % 3 == 2);
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
}

static void test_limits(void **state)
{
  const int64_t small = TRS_LANE_SMALL / 4;
  const int64_t sizes[] = {
      0, 1, 2, small - 1, small, small + 1, small / 2, small / 2 + 1, small / 3, small / 3 + 1, 100003};

  (void)state;
  for (int share = 2; share <= 8; share += 6) {
    TrsComm comm = new_comm(share);

    for (int i = 0; i < 11; i++)
      for (int again = 0; again < 2; again++) exchange(comm, sizes[i], i, 0);
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
}

static void test_used_again_at_once(void **state)
{
  (void)state;
  for (int share = 2; share <= 8; share += 6) {
    TrsComm comm = new_comm(share);

    for (int round = 0; round < 16; round++) exchange(comm, round % 2 ? 700 : 30011, round, 1);
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
}

/* The size of operation k. Some operations are empty, and some are large. */
static int64_t n_of(int k)
{
  return k % 7 == 6 ? 5000 : k % 3;
}

static void start(TrsComm comm, int k, const int64_t *counts, float *send, float *recv, TrsRequest *request)
{
  const int64_t n = n_of(k);

  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < n; i++) send[q * n + i] = (float)(comm->rank + 10 * q + k);
  if (k % 3 == 0)
    assert_petsc_ok(TrsCommAllreduce(comm, NULL, NULL, send, n * comm->size, request));
  else if (k % 3 == 1)
    assert_petsc_ok(TrsCommReduceScatterv(comm, NULL, send, counts, recv, request));
  else
    assert_petsc_ok(
        /* chunks with 0 and 1 elements */
        TrsCommAllreduce(comm, NULL, NULL, send, PetscMin(n, 1), request));
}

static void check_result(TrsComm comm, int k, const float *send, const float *recv)
{
  const int size = comm->size;
  const float ranks = (float)(size * (size - 1) / 2 + size * k);

  if (k % 3 == 0) {
    for (int64_t i = 0; i < size * n_of(k); i++)
      if (send[i] != ranks + (float)(10 * size * (int)(i / n_of(k))))
        fail_msg("operation %d, sum %d", k, (int)i);
  } else if (k % 3 == 1) {
    for (int64_t i = 0; i < n_of(k); i++)
      if (recv[i] != ranks + (float)(10 * size * comm->rank)) fail_msg("operation %d, part %d", k, (int)i);
  } else if (n_of(k) > 0) {
    assert_true(send[0] == ranks);
  }
}

/* Start as many operations as three rings hold, and wait in an order that differs between ranks. */
static void test_flight(void **state)
{
  (void)state;
  for (int share = 2; share <= 8; share += 6) {
    TrsComm comm = new_comm(share);
    int64_t counts[FLIGHT][MAX_RANKS];
    float *send[FLIGHT], *recv[FLIGHT];
    TrsRequest request[FLIGHT] = {NULL};

    for (int k = 0; k < FLIGHT; k++) {
      send[k] = take(n_of(k) * comm->size);
      recv[k] = take(n_of(k));
      for (int q = 0; q < comm->size; q++) counts[k][q] = n_of(k);
      start(comm, k, counts[k], send[k], recv[k], &request[k]);
    }
    for (int k = 0; k < FLIGHT; k++)
      assert_petsc_ok(TrsRequestWait(&request[comm->rank % 2 ? FLIGHT - 1 - k : k], NULL));
    for (int k = 0; k < FLIGHT; k++) {
      check_result(comm, k, send[k], recv[k]);
      give_back(send[k]);
      give_back(recv[k]);
    }
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
}

static int64_t count_of(int from, int to, int k, int i)
{
  return 10000000000 * from + 1000000 * to + 1000 * k + i;
}

/*
  Run the largest allowed number of count exchanges at once, and wait in different orders. They have
  as many numbers as fit into a post, and one more.
*/
static void check_counts(TrsComm comm, int n, int round)
{
  enum { MOST = TRS_LANE_COUNTS + 1 };
  static int64_t send[TRS_LANE_FLIGHT][MOST * MAX_RANKS], recv[TRS_LANE_FLIGHT][MOST * MAX_RANKS];
  TrsCounts counts[TRS_LANE_FLIGHT];

  for (int k = 0; k < TRS_LANE_FLIGHT; k++) {
    for (int q = 0; q < comm->size; q++)
      for (int i = 0; i < n; i++) send[k][q * n + i] = count_of(comm->rank, q, k + round, i);
    assert_petsc_ok(TrsCommCountsStart(comm, n, send[k], recv[k], &counts[k]));
    if (round % 3 == 2) usleep((useconds_t)(300 * ((comm->rank + k) % comm->size)));
  }
  for (int k = 0; k < TRS_LANE_FLIGHT; k++)
    assert_petsc_ok(TrsCommCountsWait(&counts[(comm->rank + round) % 2 ? TRS_LANE_FLIGHT - 1 - k : k]));
  for (int k = 0; k < TRS_LANE_FLIGHT; k++)
    for (int q = 0; q < comm->size; q++)
      for (int i = 0; i < n; i++)
        if (recv[k][q * n + i] != count_of(q, comm->rank, k + round, i))
          fail_msg("number %d of exchange %d from rank %d", i, k + round, q);
}

static void test_counts(void **state)
{
  (void)state;
  for (int share = 2; share <= 8; share += 6) {
    TrsComm comm = new_comm(share);

    for (int round = 0; round < 40; round++)
      check_counts(comm, (const int[]){1, 7, TRS_LANE_COUNTS, TRS_LANE_COUNTS + 1, 0}[round % 5], round);
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
}

/*
  Sums alternate with count exchanges. The largest allowed number of them is under way, and ranks
  wait in different orders. Posts are added in rank order.
*/
static void test_sums(void **state)
{
  enum { MOST = TRS_LANE_COUNTS + 1 };
  static double mine[TRS_LANE_FLIGHT][MOST], sum[TRS_LANE_FLIGHT][MOST];

  (void)state;
  for (int share = 2; share <= 8; share += 6) {
    TrsComm comm = new_comm(share);

    for (int round = 0; round < 20; round++) {
      const int n = (const int[]){1, 5, TRS_LANE_COUNTS, TRS_LANE_COUNTS + 1, 0}[round % 5];
      TrsSum request[TRS_LANE_FLIGHT];

      for (int k = 0; k < TRS_LANE_FLIGHT; k++) {
        for (int i = 0; i < n; i++) mine[k][i] = 1.0 / (3 + comm->rank + 10 * i + 100 * (k + round));
        assert_petsc_ok(TrsCommSumStart(comm, n, mine[k], sum[k], &request[k]));
        if (round % 3 == 2) usleep((useconds_t)(300 * ((comm->rank + k) % comm->size)));
      }
      for (int k = 0; k < TRS_LANE_FLIGHT; k++)
        assert_petsc_ok(TrsCommSumWait(&request[(comm->rank + round) % 2 ? TRS_LANE_FLIGHT - 1 - k : k]));
      for (int k = 0; k < TRS_LANE_FLIGHT; k++) {
        for (int i = 0; i < n; i++) {
          const PetscBool posted = (PetscBool)(comm->n_shared == comm->size && n <= TRS_LANE_COUNTS);
          double expected = 0;

          for (int q = 0; q < comm->size; q++) expected += 1.0 / (3 + q + 10 * i + 100 * (k + round));
          assert_close(sum[k][i], expected, 0, posted ? 0 : 1e-15);
        }
      }
      check_counts(comm, 7, round);
    }
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
}

/* Start more count exchanges and sums than there are posts. */
static void test_counts_in_flight(void **state)
{
  enum { N_COUNTS = 2 * TRS_LANE_FLIGHT + 3 };
  TrsComm comm = new_comm(8);
  int64_t send[N_COUNTS][MAX_RANKS], recv[N_COUNTS][MAX_RANKS];
  double mine[N_COUNTS], sum[N_COUNTS];
  TrsCounts counts[N_COUNTS];
  TrsSum sums[N_COUNTS];

  (void)state;
  for (int round = 0; round < 3; round++) {
    for (int k = 0; k < N_COUNTS; k++) {
      for (int q = 0; q < comm->size; q++) send[k][q] = 1000 * round + 100 * k + 10 * comm->rank + q;
      mine[k] = k + comm->rank;
      assert_petsc_ok(TrsCommCountsStart(comm, 1, send[k], recv[k], &counts[k]));
      if (k % 4 == round) assert_petsc_ok(TrsCommSumStart(comm, 1, &mine[k], &sum[k], &sums[k]));
    }
    for (int k = 0; k < N_COUNTS; k++) {
      assert_petsc_ok(TrsCommCountsWait(&counts[k]));
      for (int q = 0; q < comm->size; q++)
        assert_int_equal(recv[k][q], 1000 * round + 100 * k + 10 * q + comm->rank);
      if (k % 4 != round) continue;
      assert_petsc_ok(TrsCommSumWait(&sums[k]));
      assert_true(sum[k] == comm->size * k + comm->size * (comm->size - 1) / 2);
    }
  }
  assert_petsc_ok(TrsCommDestroy(&comm));
}

/* Ranks that spin and ranks that sleep get the same results, no matter which rank is late. */
static void test_waiting(void **state)
{
  (void)state;
  for (int crowded = 0; crowded < 2; crowded++) {
    setenv("TRSHARD_CROWDED", crowded ? "1" : "0", 1);
    for (int share = 2; share <= 8; share += 6) {
      TrsComm comm = new_comm(share);

      assert_int_equal(TrsLanesCrowded(comm->lanes), crowded && comm->lanes);
      for (int round = 0; round < 6; round++) {
        exchange(comm, round % 2 ? 700 : 30011, round, 1);
        check_counts(comm, 7, round);
      }
      assert_petsc_ok(TrsCommDestroy(&comm));
    }
  }
  unsetenv("TRSHARD_CROWDED");
}

/*
  A rank that waits in shared memory lets MPI make progress. To test this, another rank takes part
  only after it has received a message from this rank.
*/
static void test_messages_get_on(void **state)
{
  enum { N = 1 << 18 };
  TrsComm comm = new_comm(8);
  float *big = take(N);
  MPI_Request sent = MPI_REQUEST_NULL;

  (void)state;
  /* a rendezvous message, which needs this rank's help to complete */
  if (comm->size > 1 && comm->rank == 0) MPI_Isend(big, N, MPI_FLOAT, 1, 7, MPI_COMM_WORLD, &sent);
  if (comm->rank == 1) MPI_Recv(big, N, MPI_FLOAT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  exchange(comm, 5000, 0, 0);
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
  give_back(big);
  assert_petsc_ok(TrsCommDestroy(&comm));
}

/* If a rank lacks address space for its peers' memory, all ranks exchange by messages. */
static void test_fall_back(void **state)
{
  const int is_poor = trs_rank() == trs_size() - 1 && trs_size() > 1;
  struct rlimit before, less;
  TrsComm comm;
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");

  (void)state;
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%ld", &pages), 1);
  fclose(file);
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  less = before;
  less.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE)) + ((rlim_t)256 << 20);
  if (is_poor) assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
  comm = new_comm(8);
  if (is_poor) assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
  assert_int_equal(comm->n_shared, 1);
  exchange(comm, 30011, 0, 0);
  assert_petsc_ok(TrsCommDestroy(&comm));
  comm = new_comm(8); /* now there is enough address space */
  assert_int_equal(comm->n_shared, trs_size());
  exchange(comm, 30011, 0, 0);
  assert_petsc_ok(TrsCommDestroy(&comm));
}

/*
  The same happens if a rank may not create a file of this size. This test runs before any memory is
  shared.
*/
static void test_no_memory_to_share(void **state)
{
  const int is_poor = trs_rank() == trs_size() - 1 && trs_size() > 1;
  struct rlimit before, less;
  TrsComm comm;

  (void)state;
  (void)signal(SIGXFSZ, SIG_IGN); /* the program also ignores this signal */
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  less = before;
  less.rlim_cur = 1 << 20;
  if (is_poor) assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
  comm = new_comm(8);
  if (is_poor) assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(comm->n_shared, 1);
  exchange(comm, 30011, 0, 0);
  assert_petsc_ok(TrsCommDestroy(&comm));
}

/* Make a large sum, in which every rank adds 1 to 3 times the element's number. */
static void sum(TrsComm comm, int64_t n)
{
  float *values = take(n);
  TrsRequest request = NULL;

  for (int64_t i = 0; i < n; i++) values[i] = (float)((comm->rank % 3 + 1) * (i % 1009));
  assert_petsc_ok(TrsCommAllreduce(comm, NULL, NULL, values, n, &request));
  assert_petsc_ok(TrsRequestWait(&request, NULL));
  for (int64_t i = 0; i < n; i++)
    if (values[i] != (float)((const int[]){1, 3, 6, 7}[comm->size - 1] * (i % 1009)))
      fail_msg("sum %d", (int)i);
  give_back(values);
}

/* Sums in one piece, in several pieces, and with a remainder. */
static void test_pieces(void **state)
{
  (void)state;
  for (int share = 2; share <= 8; share += 6) {
    TrsComm comm = new_comm(share);

    for (int64_t n = 1 << 15; n <= 1 << 20; n *= 2) {
      sum(comm, n);
      sum(comm, n + n / 2 + 1);
      sum(comm, n + n / 2 - 1);
    }
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
}

/*
  The blocks of odd ranks arrive as messages. While one block is read in place, a full ring of
  operations overtakes this operation, and then two more.
*/
static void overtake(TrsComm comm)
{
  enum { N = 30011, RING = TRS_LANE_CELLS / 2 /* an allreduce has two phases */ };
  int64_t send_counts[MAX_RANKS], recv_counts[MAX_RANKS], displs[MAX_RANKS];
  float *send = take(N), *recv = take((int64_t)N * comm->size), value = 1;
  const float *block[MAX_RANKS];
  TrsRequest request = NULL, other = NULL;

  for (int q = 0; q < comm->size; q++) {
    displs[q] = q * (int64_t)N;
    send_counts[q] = q != comm->rank && comm->rank % 2 ? N : 0;
    recv_counts[q] = q != comm->rank && q % 2 ? N : 0;
  }
  for (int64_t i = 0; i < N; i++) send[i] = value_of(comm->rank, 0, i);
  assert_petsc_ok(TrsCommAlltoallvBlocks(
      comm, NULL, (TrsSentBlocks){send, send_counts, (const int64_t[MAX_RANKS]){0}},
      (TrsReceivedBlocks){recv, recv_counts, displs}, (TrsBlockView){.block = block}, &request));
  assert_petsc_ok(TrsRequestArrive(&request, NULL));
  for (int k = 1; k < RING; k++) {
    assert_petsc_ok(TrsCommAllreduce(comm, NULL, NULL, &value, 1, &other));
    assert_petsc_ok(TrsRequestWait(&other, NULL));
  }
  value = 1;
  MPI_Barrier(MPI_COMM_WORLD);
  assert_petsc_ok(
      /* this operation uses the cell of the operation that is still being read */
      TrsCommAllreduce(comm, NULL, NULL, &value, 1, &other));
  MPI_Barrier(MPI_COMM_WORLD);
  assert_petsc_ok(TrsCommProgress(comm));
  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < recv_counts[q]; i++)
      if (block[q][i] != value_of(q, 0, i)) fail_msg("float %d from rank %d", (int)i, q);
  assert_petsc_ok(TrsRequestWait(&request, NULL));
  for (int k = 0; k <= RING; k++) {
    assert_petsc_ok(TrsRequestWait(&other, NULL));
    assert_true(value == (float)comm->size);
    value = 1;
    assert_petsc_ok(TrsCommAllreduce(comm, NULL, NULL, &value, 1, &other));
  }
  assert_petsc_ok(TrsRequestWait(&other, NULL));
  give_back(send);
  give_back(recv);
}

enum { MOST_TAKEN = 4096 };

/* Allocate all shared memory, which takes only address space. Returns the number of blocks. */
static int take_all(void **taken)
{
  int n = 0;

  for (int64_t bytes = (int64_t)1 << 40; bytes >= 4096; bytes /= 2) {
    while (n < MOST_TAKEN) {
      void *block = NULL;

      if (device->alloc_shared(bytes, &block) != PETSC_SUCCESS) TrsErrorClear();
      if (!block) break;
      if (TrsSharedOffset(block, 1) < 0) {
        give_back((float *)block);
        break;
      }
      taken[n++] = block;
    }
  }
  assert_true(n < MOST_TAKEN);
  return n;
}

/*
  Ranks that run out of shared memory send data from other memory as messages. The other ranks still
  use shared memory.
*/
static void test_full(void **state)
{
  TrsComm comm = new_comm(8);
  static void *taken[MOST_TAKEN];
  int n = trs_rank() % 2 == 1 ? take_all(taken) : 0;

  (void)state;
  for (int round = 0; round < 3; round++) {
    exchange(comm, 30011, round, round == 2);
    exchange(comm, 100, round, 0);
    look(comm, 30011, round == 1);
    sum(comm, 100003);
    sum(comm, 1 << 18);
  }
  overtake(comm);
  while (n > 0) give_back((float *)taken[--n]);
  exchange(comm, 30011, 0, 0);
  assert_petsc_ok(TrsCommDestroy(&comm));
}

/*
  A relay needs no messages inside a host. If shared memory runs out, the relay reports this, and a
  new communicator has no relay.
*/
static void test_full_relay(void **state)
{
  enum { N = 3 };
  int64_t counts[MAX_RANKS], displs[MAX_RANKS];
  float send[N * MAX_RANKS], recv[N * MAX_RANKS];
  static void *taken[MOST_TAKEN];
  TrsRequest request = NULL;
  TrsComm comm, other;
  int n;

  (void)state;
  if (trs_size() != 4) return;
  TrsRelayAllow(1024, PETSC_TRUE);
  comm = new_comm(2);
  n = take_all(taken);
  lay_out(comm, N, counts, displs, send);
  assert_petsc_error(TrsCommAlltoallv(comm, NULL, (TrsSentBlocks){send, counts, displs},
                                      (TrsReceivedBlocks){recv, counts, displs}, sizeof(float), &request),
                     TRS_ERR_MEMORY);
  assert_non_null(strstr(TrsErrorMessage(), "-comm_relay_bytes 0"));
  other = new_comm(2);
  exchange(other, N, 0, 0);
  assert_petsc_ok(TrsCommDestroy(&other));
  while (n > 0) give_back((float *)taken[--n]);
  /* comm exists until the process ends, because its operation never began */
  TrsRelayAllow(0, PETSC_FALSE);
}

static void test_bad_environment(void **state)
{
  TrsComm comm = NULL;

  (void)state;
  TrsSharedRanks(0);
  if (trs_size() == 1) return;
  setenv("TRSHARD_CROWDED", "very", 1);
  assert_petsc_error(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm), TRS_ERR_OPTION);
  assert_non_null(strstr(TrsErrorMessage(), "TRSHARD_CROWDED=very"));
  unsetenv("TRSHARD_CROWDED");
}

TRS_TEST_MAIN(cmocka_unit_test(test_no_memory_to_share), cmocka_unit_test(test_pieces),
              cmocka_unit_test(test_full), cmocka_unit_test(test_full_relay), cmocka_unit_test(test_limits),
              cmocka_unit_test(test_look), cmocka_unit_test(test_change),
              cmocka_unit_test(test_used_again_at_once), cmocka_unit_test(test_flight),
              cmocka_unit_test(test_counts), cmocka_unit_test(test_sums),
              cmocka_unit_test(test_counts_in_flight), cmocka_unit_test(test_waiting),
              cmocka_unit_test(test_messages_get_on), cmocka_unit_test(test_fall_back),
              cmocka_unit_test(test_bad_environment))
