/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests that all ids arrive as they were sent: by shared memory, by messages as int32 or int64, and
  by both. Every id encodes its origin.
*/
#include "core/shared_memory.h"
#include "dist/id_exchange.h"
#include "trs_test.h"

enum { MAX_RANKS = 8, MOST = 6000 };

/*
  Id i from one rank to another. A wide rank sends ids that fit into int32 and ids that do not. A
  narrow rank's ids include the limits of int32.
*/
static int64_t id_of(int from, int to, int64_t i, int is_wide)
{
  static const int64_t limits[] = {-1, 0, INT32_MAX, INT32_MIN},
                       beyond[] = {(int64_t)INT32_MAX + 1, (int64_t)INT32_MIN - 1, INT64_MAX, INT64_MIN};

  if (i < 4) return limits[i];
  if (is_wide && i < 8) return beyond[i - 4];
  return from * 100000 + to * 10000 + i;
}

/*
  Rank `wide`, if there is such a rank, sends ids that exceed int32. Blocks have all sizes, some are
  empty, and there are gaps between them.
*/
static void exchange(TrsComm comm, TrsIdExchange *x, int round, int wide)
{
  static int64_t send[MAX_RANKS * (MOST + 1)], recv[MAX_RANKS * (MOST + 1)];
  int64_t send_counts[MAX_RANKS], recv_counts[MAX_RANKS], at[MAX_RANKS], words, peer_words[MAX_RANKS];

  for (int q = 0; q < comm->size; q++) {
    send_counts[q] = (comm->rank + q + round) % 3 == 0 ? 0
                                                       : (comm->rank + 2) * (q + 1) * (round % 2 ? 3 : 300);
    recv_counts[q] = (comm->rank + q + round) % 3 == 0 ? 0
                                                       : (q + 2) * (comm->rank + 1) * (round % 2 ? 3 : 300);
    at[q] = q * (MOST + 1) + 1;
    for (int64_t i = 0; i < MOST; i++) {
      send[at[q] + i] = i < send_counts[q] ? id_of(comm->rank, q, i, comm->rank == wide) : 0;
      recv[at[q] + i] = -77;
    }
  }
  words = TrsIdExchangeWords(x, MAX_RANKS * (MOST + 1), send);
  assert_petsc_ok(MPI_Allgather(&words, 1, MPI_INT64_T, peer_words, 1, MPI_INT64_T, comm->mpi));
  for (int q = 0; q < comm->size; q++) /* if the ids fit into int32, half of the bytes are sent */
    if (x->packs) assert_true(peer_words[q] == 1 || q == wide);
  assert_petsc_ok(TrsIdExchangeStart(x, NULL, (TrsSentBlocks){send, send_counts, at}, words,
                                     (TrsReceivedBlocks){recv, recv_counts, at}, peer_words));
  assert_petsc_ok(TrsIdExchangeWait(x, NULL));
  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < MOST; i++)
      if (recv[at[q] + i] != (i < recv_counts[q] ? id_of(q, comm->rank, i, q == wide) : -77))
        fail_msg("id %d from rank %d is %lld", (int)i, q, (long long)recv[at[q] + i]);
}

static void test_ids(void **state)
{
  static const int sharing[] = {1, 2, 8};
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;

  (void)state;
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  for (int s = 0; s < 3; s++) {
    TrsComm comm = NULL;
    TrsIdExchange x;

    TrsSharedRanks(sharing[s]);
    assert_petsc_ok(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm));
    assert_petsc_ok(TrsIdExchangeInit(comm, &x));
    assert_int_equal(x.packs, comm->size > sharing[s]);
    for (int round = 0; round < 6; round++) exchange(comm, &x, round, round - 2);
    assert_petsc_ok(TrsIdExchangeFree(&x));
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
  TrsSharedRanks(0);
}

TRS_TEST_MAIN(cmocka_unit_test(test_ids))
