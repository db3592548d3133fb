/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests the mpi backend with device memory that the host cannot read. The device is a fake. Its
  memory holds inverted bytes, so the host gets garbage if it reads without a copy. Copies are made
  when the stream is synchronised, so the test detects a missing synchronisation.
*/
#include "comm/comm.h"
#include "trs_test.h"

#include <string.h>

enum { MAX_RANKS = 8, MAX_QUEUE = 256, MAX_BLOCKS = 256, N = 37 };

static struct {
  unsigned char *begin;
  int64_t bytes;
} blocks[MAX_BLOCKS]; /* blocks of device memory */
static int n_blocks;

static struct {
  void *to;
  const void *from;
  int64_t bytes;
} queue[MAX_QUEUE]; /* copies that have not been made yet */
static int n_queued;

static int on_device(const void *pointer)
{
  const unsigned char *p = (const unsigned char *)pointer;

  for (int i = 0; i < n_blocks; i++)
    if (p >= blocks[i].begin && p < blocks[i].begin + blocks[i].bytes) return 1;
  return 0;
}

static PetscErrorCode alloc_fake(int64_t bytes, void **pointer)
{
  PetscFunctionBegin;
  PetscCheck(n_blocks < MAX_BLOCKS, PETSC_COMM_SELF, TRS_ERR_MEMORY, "too many blocks");
  *pointer = malloc((size_t)bytes + 1);
  memset(*pointer, 0xFF, (size_t)bytes); /* zeros, as inverted bytes */
  blocks[n_blocks].begin = *pointer;
  blocks[n_blocks++].bytes = bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_fake(void **pointer)
{
  PetscFunctionBegin;
  for (int i = 0; i < n_blocks; i++)
    if (blocks[i].begin == *pointer) blocks[i] = blocks[--n_blocks];
  free(*pointer);
  *pointer = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alloc_host_fake(int64_t bytes, void **pointer)
{
  PetscFunctionBegin;
  *pointer = malloc((size_t)bytes + 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_host_fake(void **pointer)
{
  PetscFunctionBegin;
  free(*pointer);
  *pointer = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_fake(void *to, const void *from, int64_t bytes, TrsStream stream)
{
  PetscFunctionBegin;
  (void)stream;
  PetscCheck(n_queued < MAX_QUEUE, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "too many copies");
  queue[n_queued].to = to;
  queue[n_queued].from = from;
  queue[n_queued++].bytes = bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode stream_synchronize_fake(TrsStream stream)
{
  PetscFunctionBegin;
  (void)stream;
  for (int i = 0; i < n_queued; i++) {
    const unsigned char invert = on_device(queue[i].to) != on_device(queue[i].from) ? 0xFF : 0;
    for (int64_t k = 0; k < queue[i].bytes; k++)
      ((unsigned char *)queue[i].to)[k] = ((const unsigned char *)queue[i].from)[k] ^ invert;
  }
  n_queued = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The kernel runs on device memory, after the copies that precede it on the stream. */
static PetscErrorCode sum_matrices_fake(TrsStream stream, int n_parts, const float *const *from,
                                        int64_t from_stride, int64_t rows, int64_t cols, float *to,
                                        int64_t to_stride)
{
  PetscFunctionBegin;
  PetscCall(stream_synchronize_fake(stream));
  for (int64_t i = 0; i < rows * cols; i++) {
    const int64_t row = i / cols, col = i % cols;
    float sum = 0.0F;
    uint32_t bits;
    for (int p = 0; p < n_parts; p++) {
      float part;
      PetscCheck(on_device(&from[p][row * from_stride + col]), PETSC_COMM_SELF, TRS_ERR_INTERNAL,
                 "part %d is on the host", p);
      memcpy(&bits, &from[p][row * from_stride + col], sizeof(bits));
      bits = ~bits;
      memcpy(&part, &bits, sizeof(bits));
      sum += part;
    }
    memcpy(&bits, &sum, sizeof(bits));
    bits = ~bits;
    memcpy(&to[row * to_stride + col], &bits, sizeof(bits));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const TrsDeviceOps fake_device = {
    .name = "fake",
    .host_memory = PETSC_FALSE,
    .alloc = alloc_fake,
    .release = release_fake,
    .alloc_host = alloc_host_fake,
    .release_host = release_host_fake,
    .copy = copy_fake,
    .stream_synchronize = stream_synchronize_fake,
};
static const TrsComputeOps fake_compute = {.name = "fake", .sum_matrices = sum_matrices_fake};

static TrsComm comm;

static int set_up(void **state)
{
  (void)state;
  return TrsCommCreate(MPI_COMM_WORLD, "mpi", &fake_device, &fake_compute, &comm) ? 1 : 0;
}

static int tear_down(void **state)
{
  (void)state;
  return TrsCommDestroy(&comm) || n_blocks > 0 ? 1 : 0;
}

static float *to_device(const float *host, int64_t n)
{
  void *data = NULL;

  assert_petsc_ok(alloc_fake(n * (int64_t)sizeof(*host), &data));
  assert_petsc_ok(copy_fake(data, host, n * (int64_t)sizeof(*host), NULL));
  return (float *)data; /* the copy is still pending; operations start on the same stream */
}

static void from_device(float *device, float *host, int64_t n)
{
  void *data = device;

  assert_petsc_ok(copy_fake(host, device, n * (int64_t)sizeof(*host), NULL));
  assert_petsc_ok(stream_synchronize_fake(NULL));
  assert_petsc_ok(release_fake(&data));
}

static float value(int from, int to, int64_t i)
{
  return (float)(1000 * from + 100 * to) + (float)i;
}

static void test_alltoallv(void **state)
{
  int64_t counts[MAX_RANKS], displs[MAX_RANKS];
  float host[MAX_RANKS * N], back[MAX_RANKS * N], *send, *recv;
  TrsRequest request = NULL;

  (void)state;
  for (int round = 0; round < 2; round++) { /* the second round reuses the staging memory */
    for (int q = 0; q < comm->size; q++) {
      counts[q] = (comm->rank + q + round) % 3 == 0 ? 0
                                                    /* equal counts in both directions, with gaps */
                                                    : N - 1;
      displs[q] = q * N;
      for (int i = 0; i < N; i++) host[q * N + i] = value(comm->rank, q, i);
    }
    send = to_device(host, comm->size * N);
    for (int i = 0; i < comm->size * N; i++) back[i] = -1.0F;
    recv = to_device(back, comm->size * N);
    assert_petsc_ok(TrsCommAlltoallv(comm, NULL, (TrsSentBlocks){send, counts, displs},
                                     (TrsReceivedBlocks){recv, counts, displs}, sizeof(float), &request));
    assert_petsc_ok(TrsRequestWait(&request, NULL));
    from_device(send, host, comm->size * N);
    from_device(recv, back, comm->size * N);
    for (int q = 0; q < comm->size; q++)
      for (int i = 0; i < N; i++)
        assert_true(back[q * N + i] == (i < counts[q] ? value(q, comm->rank, i) : -1.0F));
  }
}

static void test_sums(void **state)
{
  int64_t counts[MAX_RANKS] = {0}, at = 0;
  float host[MAX_RANKS * N], back[MAX_RANKS * N], *send, *recv;
  TrsRequest request = NULL;
  const int n_all = comm->size * (comm->size - 1) / 2; /* sum of the ranks' numbers */

  (void)state;
  for (int q = 0; q < comm->size; q++) counts[q] = q == 1 ? 0 : N;
  for (int q = 0; q < comm->rank; q++) at += counts[q];
  for (int i = 0; i < comm->size * N; i++) host[i] = value(comm->rank, 0, i);
  send = to_device(host, comm->size * N);
  recv = to_device(host, N);
  assert_petsc_ok(TrsCommReduceScatterv(comm, NULL, send, counts, recv, &request));
  assert_petsc_ok(TrsRequestWait(&request, NULL));
  from_device(recv, back, N);
  for (int64_t i = 0; i < counts[comm->rank]; i++)
    assert_true(back[i] == (float)(1000 * n_all + comm->size * (at + i)));
  assert_petsc_ok(TrsCommAllreduce(comm, NULL, NULL, send, N, &request));
  assert_petsc_ok(TrsRequestWait(&request, NULL));
  from_device(send, back, comm->size * N);
  for (int64_t i = 0; i < N; i++) assert_true(back[i] == (float)(1000 * n_all + comm->size * i));
}

static void test_gather(void **state)
{
  int64_t counts[MAX_RANKS], displs[MAX_RANKS];
  float host[MAX_RANKS * N], back[MAX_RANKS * N], *send, *recv;
  TrsRequest request = NULL;

  (void)state;
  for (int q = 0; q < comm->size; q++) {
    counts[q] = N - q;
    displs[q] = q * N;
  }
  for (int i = 0; i < comm->size * N; i++) host[i] = value(comm->rank, 0, i);
  send = to_device(host, N);
  recv = to_device(host, comm->size * N);
  assert_petsc_ok(TrsCommAllgatherv(comm, NULL, send, recv, counts, displs, sizeof(float), &request));
  assert_petsc_ok(TrsRequestWait(&request, NULL));
  from_device(recv, back, comm->size * N);
  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < counts[q]; i++) assert_true(back[displs[q] + i] == value(q, 0, i));
  from_device(send, back, N);
}

TRS_TEST_MAIN(cmocka_unit_test_setup_teardown(test_alltoallv, set_up, tear_down),
              cmocka_unit_test_setup_teardown(test_sums, set_up, tear_down),
              cmocka_unit_test_setup_teardown(test_gather, set_up, tear_down))
