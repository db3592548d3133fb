/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST isas: portable avx2 */
/* TEST ranks: 1 2 3 4 */
/*
  Compares exchanges of pooled embeddings with a serial reference. Every rank can compute the rows
  of any rank, so the expected result follows from the definition. The tests have uneven and empty
  batches, ranks without columns, all wire formats, and the two-step exchange of table_row_wise.
  They allow no allocation after the first rounds.
*/
#include "core/buffer.h"
#include "core/random/random.h"
#include "dist/pooled_all_to_all.h"
#include "dist/pooled_chunks.h"
#include "dist/variable_batch.h"
#include "trs_test.h"

enum { MAX_RANKS = 8, MAX_BATCH = 7, MAX_DIM = 40, ROUNDS = 12 };

static const TrsDeviceOps *device;
static const TrsComputeOps *compute;
static TrsComm comm;

/*
  A wire format, and the error that one encoding may cause for values of at most 1. It follows from
  the definition of the format.
*/
typedef struct {
  const char *name;
  TrsCodec codec;
  /* error for a value of at most 1; error for each part of a sum */
  double forward_error, sum_error;
} wire_format;

static const wire_format formats[] = {
    {"fp32", {.kind = TRS_CODEC_FP32}, 0.0, 0.0},
    {"fp16", {.kind = TRS_CODEC_FP16, .loss_scale = 1.0F}, 0x1p-11, 0x1p-11},
    {"fp16 scaled", {.kind = TRS_CODEC_FP16, .loss_scale = 8.0F}, 0x1p-11, 0x1p-11},
    {"bf16", {.kind = TRS_CODEC_BF16, .loss_scale = 1.0F}, 0x1p-8, 0x1p-8},
    {"int8",
     {.kind = TRS_CODEC_INT8, .row_dim = 32, .loss_scale = 1.0F},
     1.01 / 255.0,
     0x1p-8}, /* half a step of a range of 2 */
    {"fp8 rows",
     {.kind = TRS_CODEC_FP8, .row_dim = 8, .loss_scale = 1.0F},
     0x1p-4,
     0x1p-8}, /* 3 mantissa bits; sums are in fp16 */
};
enum { N_FORMATS = sizeof(formats) / sizeof(formats[0]) };

static int64_t draw(uint64_t seed, uint64_t a, uint64_t b, int64_t limit)
{
  uint32_t bits[4];

  TrsRandom(seed, TRS_RANDOM_TEST, a, b, bits);
  return (int64_t)(bits[0] % (uint64_t)limit);
}

/* The value, from -1 to 1, that rank `rank` has for sample b of rank `source` in column c. */
static float value_of(uint64_t seed, int rank, int source, int64_t b, int64_t c)
{
  const uint64_t key = (uint64_t)((rank * MAX_RANKS + source) * MAX_BATCH + b);

  return (float)draw(seed, key, (uint64_t)c, 2000001) * 1e-6F - 1.0F;
}

static int64_t batch_of(uint64_t seed, int rank)
{
  return draw(seed, 2000, (uint64_t)rank, 3) == 0 ? 0 : draw(seed, 2001, (uint64_t)rank, MAX_BATCH);
}

static TrsPooledDistOptions options_of(const wire_format *format)
{
  TrsPooledDistOptions options = {.forward = format->codec, .backward = format->codec};

  options.backward.backward = 1;
  return options;
}

/*
  If own_stays is set, gradients of the rank's own block are written directly to their destination,
  unless they are encoded.
*/
static void all_to_all_once(const wire_format *format, uint64_t seed, PetscBool own_stays)
{
  const TrsPooledDistOptions options = options_of(format);
  int64_t dims[MAX_RANKS], batch[MAX_RANKS];
  const int64_t *displs;
  static float pooled[MAX_RANKS * MAX_BATCH * MAX_DIM];
  float *send, *own;
  const float *got;
  int64_t n = 0, B;
  TrsPooledAllToAll dist = NULL;

  for (int q = 0; q < comm->size; q++) {
    dims[q] = draw(seed, 2002, (uint64_t)q, MAX_DIM);
    batch[q] = batch_of(seed, q);
  }
  B = batch[comm->rank];
  for (int q = 0; q < comm->size; q++)
    for (int64_t b = 0; b < batch[q]; b++)
      for (int64_t c = 0; c < dims[comm->rank]; c++) pooled[n++] = value_of(seed, comm->rank, q, b, c);
  assert_petsc_ok(TrsPooledAllToAllCreate(comm, dims, &options, &dist));
  assert_petsc_ok(TrsPooledAllToAllStart(dist, NULL, pooled, batch));
  assert_petsc_ok(TrsPooledAllToAllWait(dist, NULL, &got, &displs));
  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < B * dims[q]; i++)
      assert_close(got[displs[q] + i], value_of(seed, q, comm->rank, i / dims[q], i % dims[q]),
                   format->forward_error, 0.0);
  assert_petsc_ok(TrsPooledAllToAllGradBuffer(dist, &send, &displs));
  own = own_stays ? TrsPooledAllToAllOwnGrad(dist) : NULL;
  assert_true((own != NULL) == (own_stays && format->codec.kind == TRS_CODEC_FP32));
  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < B * dims[q]; i++)
      *(own && q == comm->rank ? &own[i] : &send[displs[q] + i]) = value_of(seed + 1, q, comm->rank,
                                                                            i / dims[q], i % dims[q]);
  assert_petsc_ok(TrsPooledAllToAllGradStart(dist, NULL));
  assert_petsc_ok(TrsPooledAllToAllGradWait(dist, NULL, &got));
  n = 0;
  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < batch[q] * dims[comm->rank]; i++, n++)
      assert_close(got[n],
                   (double)value_of(seed + 1, comm->rank, q, i / dims[comm->rank], i % dims[comm->rank]),
                   (format->codec.kind == TRS_CODEC_FP8 ? 2.0 : 1.0) * format->forward_error,
                   1e-7); /* the backward uses 1-5-2 */
  assert_petsc_ok(TrsPooledAllToAllDestroy(&dist));
}

/* The sum, in rank order, over all ranks' rows for a sample of rank `source`. */
static float sum_of(uint64_t seed, int source, int64_t b, int64_t c)
{
  float sum = value_of(seed, 0, source, b, c);

  for (int q = 1; q < comm->size; q++) sum += value_of(seed, q, source, b, c);
  return sum;
}

/* Fill this rank's partial sums for all samples, rank by rank. Returns the number of rows. */
static int64_t fill_partial(uint64_t seed, int64_t dim, const int64_t *batch, float *partial)
{
  int64_t n = 0;

  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < batch[q] * dim; i++)
      partial[n++] = value_of(seed, comm->rank, q, i / dim, i % dim);
  return n;
}

static void reduce_scatter_once(const wire_format *format, uint64_t seed)
{
  const TrsPooledDistOptions options = options_of(format);
  const int64_t dim = draw(seed, 2003, 0, MAX_DIM);
  static float partial[MAX_RANKS * MAX_BATCH * MAX_DIM];
  int64_t batch[MAX_RANKS], n = 0, own;
  TrsPooledChunks dist = NULL;
  const float *got;
  float *send;

  for (int q = 0; q < comm->size; q++) batch[q] = batch_of(seed, q);
  own = batch[comm->rank] * dim;
  (void)fill_partial(seed, dim, batch, partial);
  assert_petsc_ok(TrsPooledReduceScatterCreate(comm, dim, &options, &dist));
  assert_petsc_ok(TrsPooledChunksStart(dist, NULL, partial, batch));
  assert_petsc_ok(TrsPooledChunksWait(dist, NULL, &got));
  for (int64_t i = 0; i < own; i++) {
    const float sum = sum_of(seed, comm->rank, i / dim, i % dim);
    /* fp32 sums are exact bit for bit */
    if (format->codec.kind == TRS_CODEC_FP32) assert_true(got[i] == sum);
    assert_close(got[i], sum, comm->size * format->sum_error, 1e-6);
  }
  assert_petsc_ok(TrsPooledChunksGradBuffer(dist, &send));
  for (int64_t i = 0; i < own; i++) send[i] = value_of(seed + 1, 0, comm->rank, i / dim, i % dim);
  assert_petsc_ok(TrsPooledChunksGradStart(dist, NULL));
  assert_petsc_ok(TrsPooledChunksGradWait(dist, NULL, &got));
  for (int q = 0; q < comm->size; q++)
    for (int64_t i = 0; i < batch[q] * dim; i++, n++)
      assert_close(got[n], (double)value_of(seed + 1, 0, q, i / dim, i % dim),
                   0x1p-8 * (format->sum_error > 0.0), 1e-7);
  assert_petsc_ok(TrsPooledChunksDestroy(&dist));
}

static void test_exchanges(void **state)
{
  (void)state;
  for (int k = 0; k < N_FORMATS; k++) {
    for (uint64_t round = 0; round < ROUNDS; round++) {
      const uint64_t seed = 1000 * (uint64_t)k + 10 * round;
      for (int own_stays = 0; own_stays < 2; own_stays++)
        all_to_all_once(&formats[k], seed, (PetscBool)own_stays);
      reduce_scatter_once(&formats[k], seed);
    }
  }
}

/*
  table_row_wise: sums inside a host, followed by an all-to-all between ranks with the same local
  index. Samples are ordered by the local index of their source, then by host. Every host has
  different columns, so a rank gets the sums of all hosts for its own samples.
*/
static void two_steps(int local_size, uint64_t seed)
{
  const TrsPooledDistOptions plain = {.reproducible = PETSC_FALSE};
  TrsCommGroups groups = {0};
  TrsPooledChunks inside = NULL;
  TrsPooledAllToAll across = NULL;
  int64_t dims[MAX_RANKS], batch[MAX_RANKS], chunk_rows[MAX_RANKS] = {0}, across_batch[MAX_RANKS], n = 0;
  static float partial[MAX_RANKS * MAX_BATCH * MAX_DIM];
  const int64_t *displs;
  const float *got;
  float *summed, *send;
  int host, local;

  assert_petsc_ok(TrsCommGroupsCreate(MPI_COMM_WORLD, local_size, "mpi", device, compute, &groups));
  host = comm->rank / local_size;
  local = comm->rank % local_size;
  for (int q = 0; q < comm->size; q++) batch[q] = batch_of(seed, q);
  for (int h = 0; h < groups.n_hosts; h++) dims[h] = draw(seed, 2005, (uint64_t)h, MAX_DIM);
  for (int l = 0; l < local_size; l++) {
    for (int h = 0; h < groups.n_hosts; h++) {
      const int q = h * local_size + l;
      chunk_rows[l] += batch[q];
      for (int64_t i = 0; i < batch[q] * dims[host]; i++)
        partial[n++] = value_of(seed, comm->rank, q, i / dims[host], i % dims[host]);
    }
  }
  for (int h = 0; h < groups.n_hosts; h++) across_batch[h] = batch[h * local_size + local];
  assert_petsc_ok(TrsPooledReduceScatterCreate(groups.host, dims[host], &plain, &inside));
  assert_petsc_ok(TrsPooledAllToAllCreate(groups.cross, dims, &plain, &across));
  assert_petsc_ok(TrsPooledChunksStart(inside, NULL, partial, chunk_rows));
  assert_petsc_ok(TrsPooledChunksWait(inside, NULL, &got));
  assert_petsc_ok(TrsPooledChunksGradBuffer(inside, &summed));
  assert_ptr_equal(got, summed); /* the gradients overwrite the rows */
  assert_petsc_ok(TrsPooledAllToAllStart(across, NULL, summed, across_batch));
  assert_petsc_ok(TrsPooledAllToAllWait(across, NULL, &got, &displs));
  for (int h = 0; h < groups.n_hosts; h++) {
    for (int64_t i = 0; i < batch[comm->rank] * dims[h]; i++) {
      float sum = value_of(seed, h * local_size, comm->rank, i / dims[h], i % dims[h]);
      for (int l = 1; l < local_size; l++)
        sum += value_of(seed, h * local_size + l, comm->rank, i / dims[h], i % dims[h]);
      assert_true(got[displs[h] + i] == sum);
    }
  }
  /* backward: every rank of host h gets the gradients of all samples for its columns */
  assert_petsc_ok(TrsPooledAllToAllGradBuffer(across, &send, &displs));
  for (int h = 0; h < groups.n_hosts; h++)
    for (int64_t i = 0; i < batch[comm->rank] * dims[h]; i++)
      send[displs[h] + i] = value_of(seed, h, comm->rank, i / dims[h], i % dims[h]);
  assert_petsc_ok(TrsPooledAllToAllGradStart(across, NULL));
  assert_petsc_ok(TrsPooledAllToAllGradWait(across, NULL, &got));
  assert_ptr_equal(got, summed);
  assert_petsc_ok(TrsPooledChunksGradStart(inside, NULL));
  assert_petsc_ok(TrsPooledChunksGradWait(inside, NULL, &got));
  n = 0;
  for (int l = 0; l < local_size; l++)
    for (int h = 0; h < groups.n_hosts; h++)
      for (int64_t i = 0; i < batch[h * local_size + l] * dims[host]; i++, n++)
        assert_true(got[n] == value_of(seed, host, h * local_size + l, i / dims[host], i % dims[host]));
  assert_petsc_ok(TrsPooledChunksDestroy(&inside));
  assert_petsc_ok(TrsPooledAllToAllDestroy(&across));
  assert_petsc_ok(TrsCommGroupsDestroy(&groups));
}

/*
  The value that a test sends. If whole is set, it is a whole number, so sums are exact in any
  order.
*/
static float value_or_whole(PetscBool whole, uint64_t seed, int rank, int source, int64_t b, int64_t c)
{
  const float value = value_of(seed, rank, source, b, c);

  return whole ? rintf(1000.0F * value) : value;
}

/* Add the numbers of each host's ranks in order, then the sums of the hosts in order. */
static float sum_by_hosts(PetscBool whole, int local_size, uint64_t seed, int64_t b, int64_t c)
{
  float sum = 0;

  for (int h = 0; h < comm->size / local_size; h++) {
    float of_host = value_or_whole(whole, seed, h * local_size, comm->rank, b, c);
    for (int l = 1; l < local_size; l++)
      of_host += value_or_whole(whole, seed, h * local_size + l, comm->rank, b, c);
    sum = h == 0 ? of_host : sum + of_host;
  }
  return sum;
}

/*
  row_wise with two levels: sums inside each host, then over the hosts. In fp32 the bits follow this
  order. If the sums are exact, they equal the bits of a flat exchange. The sum of each host is sent
  encoded.
*/
static void hierarchical_once(const wire_format *format, int local_size, PetscBool whole, uint64_t seed)
{
  const TrsPooledDistOptions options = options_of(format);
  const int64_t dim = draw(seed, 2003, 0, MAX_DIM);
  const int hosts = comm->size / local_size;
  static float partial[MAX_RANKS * MAX_BATCH * MAX_DIM];
  int64_t batch[MAX_RANKS], n = 0, own;
  TrsCommGroups groups = {0};
  TrsPooledChunks dist = NULL;
  const float *got;
  float *send;

  assert_petsc_ok(TrsCommGroupsCreate(MPI_COMM_WORLD, local_size, "mpi", device, compute, &groups));
  for (int q = 0; q < comm->size; q++) batch[q] = batch_of(seed, q);
  for (int i = 0; i < comm->size; i++) {
    const int q = i % hosts * local_size + i / hosts;
    for (int64_t k = 0; k < batch[q] * dim; k++)
      partial[n++] = value_or_whole(whole, seed, comm->rank, q, k / dim, k % dim);
  }
  own = batch[comm->rank] * dim;
  assert_petsc_ok(TrsPooledHierarchicalCreate(groups.host, groups.cross, dim, &options, &dist));
  assert_petsc_ok(TrsPooledChunksStart(dist, NULL, partial, batch));
  assert_petsc_ok(TrsPooledChunksWait(dist, NULL, &got));
  for (int64_t i = 0; i < own; i++) {
    float flat = 0;
    for (int q = 0; q < comm->size; q++) flat += value_or_whole(whole, seed, q, comm->rank, i / dim, i % dim);
    if (format->codec.kind == TRS_CODEC_FP32)
      assert_true(got[i] == sum_by_hosts(whole, local_size, seed, i / dim, i % dim));
    if (format->codec.kind == TRS_CODEC_FP32 && whole) assert_true(got[i] == flat);
    assert_close(got[i], flat, comm->size * ((whole ? 1e3 : 1.0) * format->sum_error + 1e-6), 1e-6);
  }
  assert_petsc_ok(TrsPooledChunksGradBuffer(dist, &send));
  for (int64_t i = 0; i < own; i++) send[i] = value_of(seed + 1, 0, comm->rank, i / dim, i % dim);
  assert_petsc_ok(TrsPooledChunksGradStart(dist, NULL));
  assert_petsc_ok(TrsPooledChunksGradWait(dist, NULL, &got));
  n = 0;
  for (int i = 0; i < comm->size; i++) {
    const int q = i % hosts * local_size + i / hosts;
    for (int64_t k = 0; k < batch[q] * dim; k++, n++)
      assert_close(got[n], (double)value_of(seed + 1, 0, q, k / dim, k % dim),
                   0x1p-8 * (format->sum_error > 0.0), 1e-7);
  }
  assert_petsc_ok(TrsPooledChunksDestroy(&dist));
  assert_petsc_ok(TrsCommGroupsDestroy(&groups));
}

/*
  Test with hosts of every size that divides the number of ranks, and also with shared memory only
  inside these hosts.
*/
static void test_hierarchical(void **state)
{
  (void)state;
  for (int local_size = 1; local_size <= comm->size; local_size++)
    for (int round = 0; round < 4 && comm->size % local_size == 0; round++) {
      TrsSharedRanks(round < 2 ? 0 : local_size);
      for (int k = 0; k < N_FORMATS; k++)
        hierarchical_once(&formats[k], local_size, (PetscBool)(round % 2), 70 + (uint64_t)(10 * k + round));
    }
  TrsSharedRanks(0);
}

static void test_two_steps(void **state)
{
  (void)state;
  for (int local_size = 1; local_size <= comm->size; local_size++)
    for (uint64_t seed = 0; seed < 4 && comm->size % local_size == 0; seed++)
      two_steps(local_size, 50 + seed);
}

/*
  Each sample has the index of a row in the block of its feature. The backward adds all gradients
  for a row.
*/
static void test_expand(void **state)
{
  enum { F = 3, B = 5, STRIDE = 9 };
  const int64_t dims[F] = {2, 3, 1}, columns[F] = {6, 1, 5},
                displs[F + 1] = {0, 4, 10, 14}; /* features with 2, 2 and 4 rows */
  const int64_t inverse[F * B] = {0, 1, 1, 0, 1, 0, 0, 0,
                                  0, 0, 3, 2, 1, 0, 3}; /* no sample uses row 1 of feature 1 */
  float flat[14], matrix[B * STRIDE] = {0}, grad[14], expected[14] = {0};
  TrsVariableExpand expand = NULL;
  TrsTbeOccurrences occurrences = NULL;

  (void)state;
  for (int i = 0; i < 14; i++) flat[i] = (float)(i + 1);
  assert_petsc_ok(TrsVariableExpandCreate(device, compute, F, dims, columns, &expand));
  assert_petsc_ok(TrsVariableExpandForward(expand, NULL, B, inverse, flat, displs, matrix, STRIDE));
  for (int f = 0; f < F; f++)
    for (int b = 0; b < B; b++)
      for (int64_t c = 0; c < dims[f]; c++)
        assert_true(matrix[b * STRIDE + columns[f] + c] ==
                    flat[displs[f] + inverse[f * B + b] * dims[f] + c]);
  /* small integers, so that sums are exact */
  for (int i = 0; i < B * STRIDE; i++) matrix[i] = (float)(i % 7 - 3);
  for (int f = 0; f < F; f++)
    for (int b = 0; b < B; b++)
      for (int64_t c = 0; c < dims[f]; c++)
        expected[displs[f] + inverse[f * B + b] * dims[f] + c] += matrix[b * STRIDE + columns[f] + c];
  assert_petsc_ok(TrsVariableExpandSort(expand, NULL, B, inverse, displs, &occurrences));
  assert_null(occurrences); /* the CPU sorts one table after another in the backward */
  assert_petsc_ok(
      TrsVariableExpandBackward(expand, NULL, B, inverse, occurrences, matrix, STRIDE, grad, displs));
  for (int i = 0; i < 14; i++) assert_true(grad[i] == expected[i]);
  assert_petsc_ok(TrsVariableExpandDestroy(&expand));
}

/* An exchange that is repeated needs no more memory, in any format. */
static void test_allocates_once(void **state)
{
  static float partial[MAX_RANKS * MAX_BATCH * MAX_DIM];
  int64_t dims[MAX_RANKS], batch[MAX_RANKS], allocations = 0, now = 0;

  (void)state;
  for (int q = 0; q < comm->size; q++) {
    dims[q] = 20 + q;
    batch[q] = 3 + q % 2;
  }
  for (int k = 0; k < N_FORMATS; k++) {
    const TrsPooledDistOptions options = options_of(&formats[k]);
    TrsPooledAllToAll a2a = NULL;
    TrsPooledChunks sum = NULL;
    assert_petsc_ok(TrsPooledAllToAllCreate(comm, dims, &options, &a2a));
    assert_petsc_ok(TrsPooledReduceScatterCreate(comm, 20, &options, &sum));
    for (int round = 0; round < 4; round++) {
      const int64_t *displs;
      const float *got;
      float *send;
      assert_petsc_ok(TrsPooledAllToAllStart(a2a, NULL, partial, batch));
      assert_petsc_ok(TrsPooledChunksStart(sum, NULL, partial, batch));
      assert_petsc_ok(TrsPooledAllToAllWait(a2a, NULL, &got, &displs));
      assert_petsc_ok(TrsPooledChunksWait(sum, NULL, &got));
      assert_petsc_ok(TrsPooledAllToAllGradBuffer(a2a, &send, &displs));
      assert_petsc_ok(TrsPooledAllToAllGradStart(a2a, NULL));
      assert_petsc_ok(TrsPooledChunksGradBuffer(sum, &send));
      assert_petsc_ok(TrsPooledChunksGradStart(sum, NULL));
      assert_petsc_ok(TrsPooledAllToAllGradWait(a2a, NULL, &got));
      assert_petsc_ok(TrsPooledChunksGradWait(sum, NULL, &got));
      TrsMemoryUse(&now, NULL);
      if (round == 1) allocations = now;
      if (round > 1) assert_true(now == allocations);
    }
    assert_petsc_ok(TrsPooledAllToAllDestroy(&a2a));
    assert_petsc_ok(TrsPooledChunksDestroy(&sum));
  }
}

static int set_up(void **state)
{
  (void)state;
  if (TrsDeviceFind("cpu", &device) || TrsComputeFind("cpu", &compute)) return 1;
  return TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm) ? 1 : 0;
}

static int tear_down(void **state)
{
  (void)state;
  return TrsCommDestroy(&comm) ? 1 : 0;
}

TRS_TEST_MAIN(cmocka_unit_test_setup_teardown(test_exchanges, set_up, tear_down),
              cmocka_unit_test_setup_teardown(test_two_steps, set_up, tear_down),
              cmocka_unit_test_setup_teardown(test_hierarchical, set_up, tear_down),
              cmocka_unit_test_setup_teardown(test_expand, set_up, tear_down),
              cmocka_unit_test_setup_teardown(test_allocates_once, set_up, tear_down))
