/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Compares every backend, on every device that it supports, with the definition of each operation.
  Every element encodes its origin. Sums are compared bit for bit with the sum in rank order. On the
  CPU, exchanges use messages, shared memory, or both, as if each host had two ranks. Each test runs
  with small and large messages of any size, and with messages of at most 7 bytes (pieces). NCCL
  needs one GPU for each rank.
*/
#include "comm/chunks.h"
#include "comm/relay.h"
#include "compute/half.h"
#include "core/buffer.h"
#include "core/random/random.h"
#include "core/shared_memory.h"
#include "core/start.h"
#include "trs_test.h"

#include <string.h>

enum { MAX_RANKS = 8, ROUNDS = 12, SCALE = 400 /* from small messages to large ones */ };

static const TrsDeviceOps *device;
static const TrsComputeOps *compute;
static const char *backend = "mpi";
static int n_sharing; /* number of ranks that exchange by shared memory, including this rank */

static const struct {
  const char *device, *backend;
  int share;     /* largest number of ranks that share memory; 0 if no ranks do */
  int64_t relay; /* largest size in bytes of a block that is relayed between hosts */
} combinations[] = {{"cpu", "mpi", 8, 0},     {"cpu", "mpi", 2, 0},   {"cpu", "mpi", 0, 0},
                    {"cpu", "mpi", 2, 50},    {"cpu", "mpi", 3, 200}, {"cpu", "mpi", 2, 1 << 20},
                    {"cuda", "mpi", 8, 2048}, {"cuda", "nccl", 8, 0}};
enum { N_COMBINATIONS = sizeof(combinations) / sizeof(combinations[0]) };

/* True if the program and the machine have such a device. */
static PetscBool choose(int c)
{
  const int share = combinations[c].share, first = share ? trs_rank() / share * share : 0;
  char why_not[256];
  int n_devices = 0;

  backend = combinations[c].backend;
  TrsSharedRanks(share);
  TrsRelayAllow(combinations[c].relay, PETSC_TRUE);
  TrsSharedAllow((PetscBool)(share > 0));
  n_sharing = share ? PetscMin(share, trs_size() - first) : 1;
  if (TrsDeviceFind(combinations[c].device, &device)) {
    TrsErrorClear();
    return PETSC_FALSE;
  }
  assert_petsc_ok(device->available(&n_devices, why_not, sizeof(why_not)));
  if (n_devices == 0 || (strcmp(backend, "nccl") == 0 && n_devices < trs_size())) return PETSC_FALSE;
  assert_petsc_ok(device->setup(trs_rank(), trs_size()));
  assert_petsc_ok(TrsComputeFind(combinations[c].device, &compute));
  return PETSC_TRUE;
}

/*
  Copy to the device's memory. Alternate between memory that ranks can share and memory that they
  cannot share.
*/
static void *to_device(const void *host, int64_t bytes)
{
  static int n_calls = 0;
  void *there = NULL;

  if (n_calls++ % 2)
    assert_petsc_ok(device->alloc(bytes + 1, &there));
  else
    assert_petsc_ok(TrsDeviceAllocShared(device, bytes + 1, &there));
  assert_petsc_ok(device->copy(there, host, bytes, NULL));
  return there;
}

/* The last rounds have large messages, unless messages are sent in pieces. */
static int64_t scale_of(int round, const char *max_count)
{
  return round >= ROUNDS / 2 && !max_count ? SCALE : 1;
}

/* Copy the result back to the host, and free the device's copy. */
static void from_device(void *host, void *there, int64_t bytes)
{
  assert_petsc_ok(device->copy(host, there, bytes, NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  assert_petsc_ok(device->release(&there));
}

static TrsComm new_comm(const char *max_count)
{
  TrsComm comm = NULL;

  if (max_count) {
    setenv("TRSHARD_MAX_COUNT", max_count, 1);
  } else {
    unsetenv("TRSHARD_MAX_COUNT");
  }
  assert_petsc_ok(TrsCommCreate(MPI_COMM_WORLD, backend, device, compute, &comm));
  if (device->host_memory) assert_int_equal(comm->n_shared, n_sharing);
  return comm;
}

/* A number from 0 to limit - 1 that is the same on all ranks. */
static int64_t draw(uint64_t round, uint64_t a, uint64_t b, int64_t limit)
{
  uint32_t bits[4];

  TrsRandom(round, TRS_RANDOM_TEST, a, b, bits);
  return (int64_t)(bits[0] % (uint64_t)limit);
}

static float value_of(int rank, int64_t i)
{
  return (float)draw((uint64_t)rank, 1000, (uint64_t)i, 2000001) * 1e-3F - 1000.0F;
}

/*
  counts[q] is the number of elements that rank p sends to rank q. It is 0 for every fourth pair.
*/
static void draw_counts(int round, int p, int size, int64_t scale, int64_t *to)
{
  for (int q = 0; q < size; q++)
    to[q] = draw((uint64_t)round, 1, (uint64_t)(p * MAX_RANKS + q), 4) == 0
                ? 0
                : draw((uint64_t)round, 2, (uint64_t)(p * MAX_RANKS + q), 40 * scale);
}

/* Lay out blocks with gaps between them. Returns the total number of elements. */
static int64_t place(int size, const int64_t *counts, int64_t gap, int64_t *displs)
{
  int64_t n = gap;

  for (int q = 0; q < size; q++) {
    displs[q] = n;
    n += counts[q] + gap;
  }
  return n;
}

static unsigned char byte_of(int from, int to, int64_t i)
{
  return (unsigned char)(from * 89 + to * 37 + i * 11 + 1);
}

static void exchange_once(TrsComm comm, int round, int64_t elem_bytes, int64_t scale)
{
  int64_t send_counts[MAX_RANKS], send_displs[MAX_RANKS], recv_counts[MAX_RANKS], recv_displs[MAX_RANKS];
  int64_t row[MAX_RANKS], n_send, n_recv;
  unsigned char *send, *recv, *send_there, *recv_there;
  TrsRequest request = NULL;

  draw_counts(round, comm->rank, comm->size, scale, send_counts);
  for (int q = 0; q < comm->size; q++) {
    draw_counts(round, q, comm->size, scale, row);
    recv_counts[q] = row[comm->rank];
  }
  n_send = place(comm->size, send_counts, 3, send_displs) * elem_bytes;
  n_recv = place(comm->size, recv_counts, 2, recv_displs) * elem_bytes;
  send = calloc(1, (size_t)n_send);
  recv = calloc(1, (size_t)n_recv);
  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < send_counts[q] * elem_bytes; i++)
      send[send_displs[q] * elem_bytes + i] = byte_of(comm->rank, q, i);
  send_there = to_device(send, n_send);
  recv_there = to_device(recv, n_recv);
  assert_petsc_ok(TrsCommAlltoallv(comm, NULL, (TrsSentBlocks){send_there, send_counts, send_displs},
                                   (TrsReceivedBlocks){recv_there, recv_counts, recv_displs}, elem_bytes,
                                   &request));
  assert_petsc_ok(TrsCommProgress(comm));
  assert_petsc_ok(TrsRequestWait(&request, NULL));
  assert_null(request);
  from_device(send, send_there, n_send);
  from_device(recv, recv_there, n_recv);
  for (int64_t i = 0; i < n_recv; i++) {
    unsigned char expected = 0; /* the gaps must not change */
    for (int q = 0; q < comm->size; q++)
      if (i >= recv_displs[q] * elem_bytes && i < (recv_displs[q] + recv_counts[q]) * elem_bytes)
        expected = byte_of(q, comm->rank, i - recv_displs[q] * elem_bytes);
    /* cmocka's assertion is slow, so it is called only if the values differ */
    if (recv[i] != expected) assert_int_equal(recv[i], expected);
  }
  free(send);
  free(recv);
}

static void check_alltoallv(const char *max_count)
{
  const int64_t elem_bytes[] = {1, 4, 8, 12};
  TrsComm comm = new_comm(max_count);

  for (int round = 0; round < ROUNDS; round++)
    exchange_once(comm, round, elem_bytes[round % 4], scale_of(round, max_count));
  assert_petsc_ok(TrsCommDestroy(&comm));
}

static void check_reduce_scatterv(const char *max_count)
{
  TrsComm comm = new_comm(max_count);

  for (int round = 0; round < ROUNDS; round++) {
    int64_t counts[MAX_RANKS], displs[MAX_RANKS], n = 0;
    float *send, *recv, *send_there, *recv_there;
    TrsRequest request = NULL;
    for (int q = 0; q < comm->size; q++) {
      counts[q] = draw((uint64_t)round, 3, (uint64_t)q, 30 * scale_of(round, max_count)) *
                  (draw((uint64_t)round, 4, (uint64_t)q, 3) > 0);
      displs[q] = n;
      n += counts[q];
    }
    send = malloc((size_t)(n + 1) * sizeof(*send));
    recv = malloc((size_t)(counts[comm->rank] + 1) * sizeof(*recv));
    for (int64_t i = 0; i < n; i++) send[i] = value_of(comm->rank, i);
    send_there = to_device(send, n * (int64_t)sizeof(*send));
    recv_there = to_device(recv, counts[comm->rank] * (int64_t)sizeof(*recv));
    assert_petsc_ok(TrsCommReduceScatterv(comm, NULL, send_there, counts, recv_there, &request));
    assert_petsc_ok(TrsRequestWait(&request, NULL));
    from_device(send, send_there, n * (int64_t)sizeof(*send));
    from_device(recv, recv_there, counts[comm->rank] * (int64_t)sizeof(*recv));
    for (int64_t i = 0; i < counts[comm->rank]; i++) {
      float sum = value_of(0, displs[comm->rank] + i);
      for (int q = 1; q < comm->size; q++) sum += value_of(q, displs[comm->rank] + i);
      assert_memory_equal(&recv[i], &sum, sizeof(sum));
    }
    free(send);
    free(recv);
  }
  assert_petsc_ok(TrsCommDestroy(&comm));
}

static void check_allgatherv(const char *max_count)
{
  TrsComm comm = new_comm(max_count);

  for (int round = 0; round < ROUNDS; round++) {
    int64_t counts[MAX_RANKS], displs[MAX_RANKS], n;
    float *send, *recv, *send_there, *recv_there;
    TrsRequest request = NULL;
    for (int q = 0; q < comm->size; q++)
      counts[q] = draw((uint64_t)round, 5, (uint64_t)q, 30 * scale_of(round, max_count));
    n = place(comm->size, counts, 1, displs);
    if (round % 3 == 0) { /* the blocks have equal size, without gaps */
      for (int q = 0; q < comm->size; q++) {
        counts[q] = 7 * round;
        displs[q] = q * counts[q];
      }
      n = comm->size * counts[0] + 1;
    }
    send = malloc((size_t)(counts[comm->rank] + 1) * sizeof(*send));
    recv = malloc((size_t)n * sizeof(*recv));
    for (int64_t i = 0; i < counts[comm->rank]; i++) send[i] = value_of(comm->rank, i);
    send_there = to_device(send, counts[comm->rank] * (int64_t)sizeof(*send));
    recv_there = to_device(recv, n * (int64_t)sizeof(*recv));
    assert_petsc_ok(
        TrsCommAllgatherv(comm, NULL, send_there, recv_there, counts, displs, sizeof(float), &request));
    assert_petsc_ok(TrsRequestWait(&request, NULL));
    from_device(send, send_there, counts[comm->rank] * (int64_t)sizeof(*send));
    from_device(recv, recv_there, n * (int64_t)sizeof(*recv));
    for (int q = 0; q < comm->size; q++)
      for (int64_t i = 0; i < counts[q]; i++) /* the values are only copied, so they are exact */
        assert_true(recv[displs[q] + i] == value_of(q, i));
    free(send);
    free(recv);
  }
  assert_petsc_ok(TrsCommDestroy(&comm));
}

/* The value of a number after encoding and decoding. */
static float on_wire(const TrsCodec *codec, float x)
{
  if (!codec) return x;
  if (codec->kind == TRS_CODEC_BF16) return TrsBf16ToFloat(TrsFloatToBf16(x));
  return TrsHalfToFloat(TrsFloatToHalf(x > 65504.0F ? 65504.0F : x < -65504.0F ? -65504.0F : x));
}

/*
  The sum with encoded values: each rank's number is rounded, the numbers are added in rank order,
  and the sum is rounded. With one rank the result is the number itself.
*/
static float sum_on_wire(const TrsCodec *codec, int size, float scale, int64_t i)
{
  float sum = on_wire(codec, value_of(0, i) * scale);

  if (size == 1) return value_of(0, i) * scale;
  for (int q = 1; q < size; q++) sum += on_wire(codec, value_of(q, i) * scale);
  return on_wire(codec, sum);
}

/*
  Run three operations at once, with sizes around all limits, and wait in an order that differs
  between ranks. With codecs the numbers are larger, so that some numbers, and more sums, exceed
  fp16.
*/
static void check_allreduce_as(const TrsCodec *codec, const char *max_count)
{
  const int64_t sizes[] = {0, 1, 2, 3, 5, max_count ? 1000 : 20011};
  const float scale = codec ? 100.0F : 1.0F;
  TrsComm comm = new_comm(max_count);

  for (int round = 0; round < 6; round++) {
    float *data[3], *there[3];
    TrsRequest request[3] = {NULL, NULL, NULL};
    for (int k = 0; k < 3; k++) {
      const int64_t n = sizes[(round + k) % 6];
      data[k] = malloc((size_t)(n + 1) * sizeof(float));
      for (int64_t i = 0; i < n; i++) data[k][i] = value_of(comm->rank, i + k) * scale;
      there[k] = to_device(data[k], n * (int64_t)sizeof(float));
      assert_petsc_ok(TrsCommAllreduce(comm, NULL, codec, there[k], n, &request[k]));
      assert_petsc_ok(TrsCommProgress(comm));
    }
    for (int k = 0; k < 3; k++) assert_petsc_ok(TrsRequestWait(&request[(k + comm->rank) % 3], NULL));
    for (int k = 0; k < 3; k++) {
      from_device(data[k], there[k], sizes[(round + k) % 6] * (int64_t)sizeof(float));
      for (int64_t i = 0; i < sizes[(round + k) % 6]; i++) {
        const float sum = sum_on_wire(codec, comm->size, scale, i + k);
        assert_memory_equal(&data[k][i], &sum, sizeof(sum));
      }
      free(data[k]);
    }
  }
  assert_petsc_ok(TrsCommDestroy(&comm));
}

static void check_allreduce(const char *max_count)
{
  const TrsCodec fp16 = {.kind = TRS_CODEC_FP16, .loss_scale = 1.0F},
                 bf16 = {.kind = TRS_CODEC_BF16, .loss_scale = 1.0F};

  check_allreduce_as(NULL, max_count);
  check_allreduce_as(&fp16, max_count);
  check_allreduce_as(&bf16, max_count);
}

/* Run each check on each device and backend: with whole messages, and over MPI also in pieces. */
#define BOTH(name) \
  static void test_##name(void **state) \
  { \
    (void)state; \
    for (int c = 0; c < N_COMBINATIONS; c++) { \
      if (!choose(c)) continue; \
      check_##name(NULL); \
      if (strcmp(backend, "mpi") == 0) check_##name("7"); \
      unsetenv("TRSHARD_MAX_COUNT"); \
    } \
    assert_true(choose(0)); \
  }
BOTH(alltoallv)
BOTH(reduce_scatterv)
BOTH(allgatherv)
BOTH(allreduce)

/*
  The number of messages that all ranks together send for small blocks. There is one for each pair
  of ranks on different hosts. With a relay there is one for each pair of hosts. The relay needs the
  same number of ranks on all hosts.
*/
static int64_t messages_of_all(int c)
{
  const int W = trs_size(), share = combinations[c].share, L = share ? PetscMin(share, W) : 1;
  int64_t n = (int64_t)W * W;

  if (combinations[c].relay && L > 1 && W % L == 0) return (int64_t)(W / L) * (W / L - 1);
  for (int first = 0; first < W; first += L) n -= (int64_t)PetscMin(L, W - first) * PetscMin(L, W - first);
  return n;
}

static void check_counts(int c)
{
  TrsComm comm = new_comm(NULL);
  int64_t send[3 * MAX_RANKS], recv[3 * MAX_RANKS], n_messages;
  TrsCounts request;

  for (int q = 0; q < comm->size; q++)
    for (int i = 0; i < 3; i++) send[3 * q + i] = 10000000000 * comm->rank + 10 * q + i;
  assert_petsc_ok(TrsCommCountsStart(comm, 3, send, recv, &request));
  assert_petsc_ok(TrsCommCountsWait(&request));
  for (int q = 0; q < comm->size; q++)
    for (int i = 0; i < 3; i++) assert_true(recv[3 * q + i] == 10000000000 * q + 10 * comm->rank + i);
  MPI_Allreduce(&comm->n_messages, &n_messages, 1, MPI_INT64_T, MPI_SUM, comm->mpi);
  if (device->host_memory) assert_int_equal(n_messages, messages_of_all(c));
  assert_petsc_ok(TrsCommDestroy(&comm));
}

static void test_counts(void **state)
{
  (void)state;
  for (int c = 0; c < N_COMBINATIONS; c++)
    if (choose(c)) check_counts(c);
  assert_true(choose(0));
}

/*
  Chunks are consecutive and include all elements. The sizes of even chunks differ by at most one,
  and the larger chunks come first.
*/
static void test_chunks(void **state)
{
  TrsComm comm = new_comm(NULL);
  TrsChunks chunks;

  (void)state;
  assert_petsc_ok(TrsChunksAlloc(comm->size, &chunks));
  for (int64_t n = 0; n < 3 * comm->size + 2; n++) {
    int64_t at = 0;

    TrsChunksSetEven(comm, n, &chunks);
    for (int q = 0; q < comm->size; q++) {
      assert_true(chunks.displs[q] == at);
      assert_true(chunks.counts[q] <= chunks.counts[0] && chunks.counts[q] >= chunks.counts[0] - 1);
      assert_true(q == 0 || chunks.counts[q] <= chunks.counts[q - 1]);
      assert_true(chunks.own_counts[q] == chunks.counts[comm->rank]);
      assert_true(chunks.own_displs[q] == chunks.displs[comm->rank]);
      assert_true(chunks.part_displs[q] == q * chunks.counts[comm->rank]);
      at += chunks.counts[q];
    }
    assert_true(at == n);
    TrsChunksSet(comm, chunks.counts, PETSC_FALSE, &chunks);
    assert_true(chunks.own_displs[comm->size - 1] == 0);
  }
  assert_petsc_ok(TrsChunksFree(&chunks));
  assert_petsc_ok(TrsCommDestroy(&comm));
}

/*
  Concurrent operations of one communicator do not mix. If they are repeated, they need no more
  memory.
*/
static void check_overlap(void)
{
  TrsComm comm = new_comm(NULL);
  const int64_t n = 5000;
  int64_t counts[MAX_RANKS], displs[MAX_RANKS], allocations = 0, now = 0;
  const TrsCodec bf16 = {.kind = TRS_CODEC_BF16, .loss_scale = 1.0F};
  float *data, *coded, *send, *recv;

  assert_petsc_ok(TrsAlloc(n, sizeof(*data), &data));
  assert_petsc_ok(TrsAlloc(n, sizeof(*coded), &coded));
  assert_petsc_ok(TrsAlloc(n * comm->size, sizeof(*send), &send));
  assert_petsc_ok(TrsAlloc(n * comm->size, sizeof(*recv), &recv));
  for (int q = 0; q < comm->size; q++) {
    counts[q] = n;
    displs[q] = q * n;
  }
  for (int round = 0; round < 5; round++) {
    TrsRequest reduce = NULL, coded_reduce = NULL, exchange = NULL;
    for (int64_t i = 0; i < n; i++) data[i] = coded[i] = 1.0F;
    for (int64_t i = 0; i < n * comm->size; i++) send[i] = (float)(comm->rank * 10 + i / n);
    assert_petsc_ok(TrsCommAllreduce(comm, NULL, NULL, data, n, &reduce));
    assert_petsc_ok(TrsCommAllreduce(comm, NULL, &bf16, coded, n, &coded_reduce));
    assert_petsc_ok(TrsCommAlltoallv(comm, NULL, (TrsSentBlocks){send, counts, displs},
                                     (TrsReceivedBlocks){recv, counts, displs}, sizeof(float), &exchange));
    assert_petsc_ok(TrsRequestWait(&exchange, NULL));
    assert_petsc_ok(TrsRequestWait(&reduce, NULL));
    assert_petsc_ok(TrsRequestWait(&coded_reduce, NULL));
    for (int64_t i = 0; i < n; i++) assert_true(data[i] == (float)comm->size && coded[i] == data[i]);
    for (int64_t i = 0; i < n * comm->size; i++) assert_true(recv[i] == (float)(i / n * 10 + comm->rank));
    TrsMemoryUse(&now, NULL);
    if (round == 1) allocations = now;
    if (round > 1) assert_true(now == allocations);
  }
  assert_petsc_ok(TrsFree(&data));
  assert_petsc_ok(TrsFree(&coded));
  assert_petsc_ok(TrsFree(&send));
  assert_petsc_ok(TrsFree(&recv));
  assert_petsc_ok(TrsCommDestroy(&comm));
}

static void test_overlap_allocates_once(void **state)
{
  (void)state;
  for (int c = 0; c < N_COMBINATIONS; c++)
    if (choose(c) && device->host_memory) check_overlap();
  assert_true(choose(0));
}

/* Count the messages that this rank sends in an exchange of 4 bytes between all ranks. */
static int64_t count_messages(TrsComm comm)
{
  int64_t counts[MAX_RANKS], displs[MAX_RANKS];
  int32_t send[MAX_RANKS], recv[MAX_RANKS];
  const int64_t before = comm->n_messages;
  TrsRequest request = NULL;

  for (int q = 0; q < comm->size; q++) {
    counts[q] = 1;
    displs[q] = q;
    send[q] = 100 * comm->rank + q;
  }
  assert_petsc_ok(TrsCommAlltoallv(comm, NULL, (TrsSentBlocks){send, counts, displs},
                                   (TrsReceivedBlocks){recv, counts, displs}, sizeof(*send), &request));
  assert_petsc_ok(TrsRequestWait(&request, NULL));
  for (int q = 0; q < comm->size; q++) assert_int_equal(recv[q], 100 * q + comm->rank);
  return comm->n_messages - before;
}

/*
  With a relay, small blocks need one message for each pair of hosts, sent by the ranks that carry
  data between these hosts.
*/
static void test_relayed_messages(void **state)
{
  (void)state;
  for (int c = 0; c < N_COMBINATIONS; c++) {
    const int L = combinations[c].share;
    int64_t hosts = 0, mine, all;
    TrsComm comm;

    if (!choose(c) || !device->host_memory) continue;
    comm = new_comm(NULL);
    mine = count_messages(comm);
    if (combinations[c].relay == 0 || comm->size <= L || comm->size % L) {
      assert_int_equal(mine, comm->size - n_sharing);
    } else {
      for (int host = 0; host < comm->size / L; host++)
        hosts += host != comm->rank / L && (host + comm->rank / L) % L == comm->rank % L;
      assert_int_equal(mine, hosts);
      MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
      assert_int_equal(all, comm->size / L * (comm->size / L - 1));
    }
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
  assert_true(choose(0));
}

/*
  A block that is larger than TRS_EAGER_BYTES is sent in pieces of this size. A block may have at
  most 64 pieces, so the pieces of larger blocks are larger.
*/
static void test_pieces(void **state)
{
  const struct {
    int64_t bytes, pieces;
  } cases[] = {{TRS_EAGER_BYTES, 1}, {3 * TRS_EAGER_BYTES + 5, 4}, {80 * TRS_EAGER_BYTES, 64}};
  int64_t counts[MAX_RANKS] = {0}, displs[MAX_RANKS] = {0};
  const int64_t most = cases[2].bytes;
  const int other = trs_rank() ^ 1;
  char *send, *recv;

  (void)state;
  assert_petsc_ok(PetscMalloc2((size_t)most, &send, (size_t)most, &recv));
  for (int64_t i = 0; i < most; i++) send[i] = (char)(i / 4096 + 7 * i + trs_rank());
  for (int c = 0; c < N_COMBINATIONS; c++) {
    TrsComm comm;

    if (!choose(c) || combinations[c].share > 0) continue;
    comm = new_comm(NULL);
    for (int k = 0; k < 3 && other < comm->size; k++) {
      const int64_t before = comm->n_messages;
      TrsRequest request = NULL;

      counts[other] = cases[k].bytes;
      memset(recv, 0, (size_t)most);
      assert_petsc_ok(TrsCommAlltoallv(comm, NULL, (TrsSentBlocks){send, counts, displs},
                                       (TrsReceivedBlocks){recv, counts, displs}, 1, &request));
      assert_petsc_ok(TrsRequestWait(&request, NULL));
      assert_int_equal(comm->n_messages - before, cases[k].pieces);
      for (int64_t i = 0; i < cases[k].bytes; i += 4093)
        assert_int_equal(recv[i], (char)(i / 4096 + 7 * i + other));
    }
    assert_petsc_ok(TrsCommDestroy(&comm));
  }
  assert_petsc_ok(PetscFree2(send, recv));
  assert_true(choose(0));
}

static void test_groups(void **state)
{
  TrsCommGroups groups = {0};

  (void)state;
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsCommGroupsCreate(MPI_COMM_WORLD, 0, "auto", device, compute, &groups));
  assert_int_equal(groups.local_world_size, trs_size()); /* the tests run on one host */
  assert_int_equal(groups.n_hosts, 1);
  assert_petsc_ok(TrsCommGroupsDestroy(&groups));
  assert_null(groups.world);

  assert_petsc_error(TrsCommGroupsCreate(MPI_COMM_WORLD, trs_size() + 1, "mpi", device, compute, &groups),
                     TRS_ERR_OPTION);
  assert_petsc_error(TrsCommGroupsCreate(MPI_COMM_WORLD, 1, "pigeon", device, compute, &groups),
                     TRS_ERR_UNAVAILABLE);
  for (int local = 1; local <= trs_size(); local++) {
    if (trs_size() % local) continue;
    assert_petsc_ok(TrsCommGroupsCreate(MPI_COMM_WORLD, local, "mpi", device, compute, &groups));
    assert_int_equal(groups.n_hosts, trs_size() / local);
    assert_int_equal(groups.world->size, trs_size());
    assert_int_equal(groups.host->size, local);
    assert_int_equal(groups.host->rank, trs_rank() % local);
    assert_int_equal(groups.cross->size, trs_size() / local);
    assert_int_equal(groups.cross->rank, trs_rank() / local);
    assert_petsc_ok(TrsCommGroupsDestroy(&groups));
  }
}

static void test_bad_environment(void **state)
{
  TrsComm comm = NULL;

  (void)state;
  setenv("TRSHARD_MAX_COUNT", "0", 1);
  assert_petsc_error(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm), TRS_ERR_OPTION);
  unsetenv("TRSHARD_MAX_COUNT");
}

TRS_TEST_MAIN(cmocka_unit_test(test_alltoallv), cmocka_unit_test(test_reduce_scatterv),
              cmocka_unit_test(test_allgatherv), cmocka_unit_test(test_allreduce),
              cmocka_unit_test(test_counts), cmocka_unit_test(test_chunks),
              cmocka_unit_test(test_overlap_allocates_once), cmocka_unit_test(test_relayed_messages),
              cmocka_unit_test(test_pieces), cmocka_unit_test(test_groups),
              cmocka_unit_test(test_bad_environment))
