/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Compares the exchange of ids with its definition. Each id encodes its origin (rank, feature,
  sample, position), so the expected result follows from the definition. The number of features is
  random. Batches are ragged or empty, and differ between ranks and between features. Several KJTs
  are exchanged at once.
*/
#include "core/random/random.h"
#include "dist/kjt_all_to_all.h"
#include "trs_test.h"

enum { MAX_RANKS = 8, MAX_FEATURES = 4, MAX_BATCH = 6, ROUNDS = 40 };

static const TrsDeviceOps *device;
static const TrsComputeOps *compute;

/* A random exchange, which is the same on all ranks. */
typedef struct {
  uint64_t seed;
  PetscBool weighted, variable;
  int n_features[MAX_RANKS]; /* number of features for each destination */
  int n_sent;
  int source_order[MAX_RANKS];
} plan;

static int64_t draw(uint64_t seed, uint64_t a, uint64_t b, int64_t limit)
{
  uint32_t bits[4];

  TrsRandom(seed, TRS_RANDOM_TEST, a, b, bits);
  return (int64_t)(bits[0] % (uint64_t)limit);
}

static int64_t batch_of(const plan *p, int rank, int feature)
{
  const uint64_t key = (uint64_t)(rank * 100 + (p->variable ? feature + 1 : 0));

  return draw(p->seed, 1, key, 4) == 0 ? 0 : draw(p->seed, 2, key, MAX_BATCH);
}

static int64_t length_of(const plan *p, int rank, int feature, int64_t sample)
{
  const uint64_t key = (uint64_t)((rank * 100 + feature) * MAX_BATCH + sample);

  return draw(p->seed, 3, key, 3) == 0 ? 0 : draw(p->seed, 4, key, 5);
}

static int64_t id_of(int rank, int feature, int64_t sample, int64_t place)
{
  return (((int64_t)rank * 1000 + feature) * 1000 + sample) * 1000 + place +
         3000000000; /* an id with more than 32 bits */
}

static float weight_of(int64_t id)
{
  return (float)(id % 1009) / 64.0F;
}

static void make_plan(uint64_t seed, int size, PetscBool variable, plan *p)
{
  *p = (plan){.seed = seed, .weighted = (PetscBool)draw(seed, 5, 0, 2), .variable = variable};
  for (int q = 0; q < size; q++) {
    p->n_features[q] = (int)draw(seed, 6, (uint64_t)q, MAX_FEATURES);
    p->n_sent += p->n_features[q];
    p->source_order[q] = q;
  }
  for (int q = size - 1; q > 0; q--) { /* shuffle the destinations */
    const int other = (int)draw(seed, 7, (uint64_t)q, q + 1), kept = p->source_order[q];
    p->source_order[q] = p->source_order[other];
    p->source_order[other] = kept;
  }
}

/* Make the data that this rank sends. */
static void make_send(const plan *p, int rank, int64_t *strides, TrsKjt *send)
{
  int64_t n_values = 0, bag = 0, at = 0;

  for (int f = 0; f < p->n_sent; f++) {
    strides[f] = batch_of(p, rank, f);
    for (int64_t b = 0; b < strides[f]; b++) n_values += length_of(p, rank, f, b);
  }
  if (p->variable) {
    assert_petsc_ok(TrsKjtReserveVariable(device, send, p->n_sent, strides, n_values, p->weighted));
  } else {
    assert_petsc_ok(TrsKjtReserve(device, send, p->n_sent, batch_of(p, rank, 0), n_values, p->weighted));
  }
  for (int f = 0; f < p->n_sent; f++) {
    for (int64_t b = 0; b < strides[f]; b++, bag++) {
      send->jagged.lengths[bag] = (int32_t)length_of(p, rank, f, b);
      for (int64_t i = 0; i < send->jagged.lengths[bag]; i++, at++) {
        send->jagged.values[at] = id_of(rank, f, b, i);
        if (p->weighted) send->jagged.weights[at] = weight_of(send->jagged.values[at]);
      }
    }
  }
  assert_petsc_ok(TrsKjtOffsets(compute, NULL, send));
}

static void check_recv(const plan *p, const TrsComm comm, const int *order, const TrsKjt *recv,
                       const int64_t *source_batch)
{
  int64_t bag = 0, at = 0, batch = 0;
  int first = 0;

  for (int q = 0; q < comm->rank; q++) first += p->n_features[q];
  assert_int_equal(recv->n_features, p->n_features[comm->rank]);
  for (int f = 0; f < recv->n_features; f++) {
    int64_t stride = 0;
    for (int i = 0; i < comm->size; i++) {
      const int source = order ? order[i] : i;
      stride += batch_of(p, source, first + f);
      for (int64_t b = 0; b < batch_of(p, source, first + f); b++, bag++) {
        assert_int_equal(recv->jagged.lengths[bag], length_of(p, source, first + f, b));
        assert_int_equal(recv->jagged.offsets[bag], at);
        for (int64_t k = 0; k < recv->jagged.lengths[bag]; k++, at++) {
          assert_int_equal(recv->jagged.values[at], id_of(source, first + f, b, k));
          if (p->weighted) assert_true(recv->jagged.weights[at] == weight_of(recv->jagged.values[at]));
        }
      }
    }
    assert_int_equal(TrsKjtStride(recv, f), stride);
  }
  assert_int_equal(recv->jagged.offsets[bag], at);
  assert_int_equal(recv->jagged.n_bags, bag);
  assert_int_equal(recv->jagged.n_values, at);
  if (!p->variable) {
    for (int q = 0; q < comm->size; q++) {
      assert_int_equal(source_batch[q], batch_of(p, q, 0));
      batch += source_batch[q];
    }
    assert_int_equal(recv->batch, batch);
  }
}

/* Run n exchanges whose counts are sent together. Do it twice, so that buffers are reused. */
static void exchange_together(TrsComm comm, uint64_t seed, int n)
{
  plan plans[3];
  TrsKjt send[3] = {{0}}, recv[3] = {{0}};
  const TrsKjt *sent[3] = {&send[0], &send[1], &send[2]};
  TrsKjtExchange exchange[3];
  int64_t strides[3][MAX_RANKS * MAX_FEATURES];

  for (int i = 0; i < n; i++) {
    make_plan(seed * 10 + (uint64_t)i, comm->size, (PetscBool)(i == 1), &plans[i]);
    assert_petsc_ok(TrsKjtExchangeCreate(comm, plans[i].n_features, plans[i].n_features[comm->rank],
                                         plans[i].weighted, i == 2 ? plans[i].source_order : NULL,
                                         &exchange[i]));
    if (plans[i].variable) assert_petsc_ok(TrsKjtExchangeSetVariable(exchange[i]));
    if (seed % 2) TrsKjtExchangeReadInPlace(exchange[i]);
  }
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < n; i++) {
      plans[i].seed = seed * 100 + (uint64_t)(round * 10 + i);
      make_send(&plans[i], comm->rank, strides[i], &send[i]);
    }
    assert_petsc_ok(TrsKjtExchangeStartSplits(n, exchange, sent, NULL));
    assert_petsc_ok(TrsKjtExchangeStartTensors(n, exchange, NULL));
    for (int i = n - 1; i >= 0; i--) {
      const int64_t *source_batch;
      assert_petsc_ok(TrsKjtExchangeWait(exchange[i], NULL, &recv[i], &source_batch));
      check_recv(&plans[i], comm, i == 2 ? plans[i].source_order : NULL, &recv[i], source_batch);
    }
  }
  for (int i = 0; i < n; i++) {
    assert_petsc_ok(TrsKjtExchangeDestroy(&exchange[i]));
    assert_petsc_ok(TrsKjtFree(device, &send[i]));
    assert_petsc_ok(TrsKjtFree(device, &recv[i]));
  }
}

static void find_backends(void)
{
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
}

static void test_random(void **state)
{
  TrsComm comm = NULL;

  (void)state;
  find_backends();
  assert_petsc_ok(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm));
  for (uint64_t seed = 0; seed < ROUNDS; seed++) exchange_together(comm, seed, 1 + (int)(seed % 3));
  assert_petsc_ok(TrsCommDestroy(&comm));
}

static void test_random_in_pieces(void **state)
{
  TrsComm comm = NULL;

  (void)state;
  setenv("TRSHARD_MAX_COUNT", "13", 1);
  assert_petsc_ok(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm));
  unsetenv("TRSHARD_MAX_COUNT");
  for (uint64_t seed = 100; seed < 100 + ROUNDS / 4; seed++) exchange_together(comm, seed, 3);
  assert_petsc_ok(TrsCommDestroy(&comm));
}

/* The rows of the lookup are sent back in the order of arrival, [source][feature][sample]. */
static void test_row_order(void **state)
{
  TrsComm comm = NULL;
  TrsKjtExchange exchange = NULL;
  TrsKjt send = {0}, recv = {0};
  const TrsKjt *sent = &send;
  const int64_t *source_batch, *ids_sent, *ids_received;
  int64_t strides[MAX_RANKS * MAX_FEATURES], at = 0;
  float *rows, *arrival, *back;
  plan p;
  int first = 0;

  (void)state;
  assert_petsc_ok(TrsCommCreate(MPI_COMM_WORLD, "mpi", device, compute, &comm));
  make_plan(5, comm->size, PETSC_FALSE, &p);
  assert_petsc_ok(
      TrsKjtExchangeCreate(comm, p.n_features, p.n_features[comm->rank], p.weighted, NULL, &exchange));
  make_send(&p, comm->rank, strides, &send);
  assert_petsc_ok(TrsKjtExchangeStartSplits(1, &exchange, &sent, NULL));
  assert_petsc_ok(TrsKjtExchangeStartTensors(1, &exchange, NULL));
  assert_petsc_ok(TrsKjtExchangeWait(exchange, NULL, &recv, &source_batch));
  rows = calloc((size_t)recv.jagged.n_values * 2 + 1, sizeof(*rows));
  arrival = calloc((size_t)recv.jagged.n_values * 2 + 1, sizeof(*rows));
  back = calloc((size_t)recv.jagged.n_values * 2 + 1, sizeof(*rows));
  for (int64_t i = 0; i < recv.jagged.n_values; i++) {
    rows[2 * i] = (float)(recv.jagged.values[i] - 3000000000);
    rows[2 * i + 1] = -rows[2 * i];
  }
  assert_petsc_ok(TrsKjtExchangeRowsToArrival(exchange, NULL, 2, rows, arrival));
  assert_petsc_ok(TrsKjtExchangeIds(exchange, &ids_sent, &ids_received));
  for (int q = 0; q < comm->rank; q++) first += p.n_features[q];
  for (int q = 0; q < comm->size; q++) {
    const int64_t begin = at;
    for (int f = first; f < first + p.n_features[comm->rank]; f++) {
      for (int64_t b = 0; b < batch_of(&p, q, f); b++) {
        for (int64_t k = 0; k < length_of(&p, q, f, b); k++, at++) {
          assert_true(arrival[2 * at] == (float)(id_of(q, f, b, k) - 3000000000));
          assert_true(arrival[2 * at + 1] == -arrival[2 * at]);
        }
      }
    }
    assert_int_equal(ids_received[q], at - begin);
  }
  assert_petsc_ok(TrsKjtExchangeRowsFromArrival(exchange, NULL, 2, arrival, back));
  assert_memory_equal(rows, back, (size_t)recv.jagged.n_values * 2 * sizeof(*rows));
  free(rows);
  free(arrival);
  free(back);
  assert_petsc_ok(TrsKjtFree(device, &send));
  assert_petsc_ok(TrsKjtFree(device, &recv));
  assert_petsc_ok(TrsKjtExchangeDestroy(&exchange));
  assert_petsc_ok(TrsCommDestroy(&comm));
}

TRS_TEST_MAIN(cmocka_unit_test(test_random), cmocka_unit_test(test_random_in_pieces),
              cmocka_unit_test(test_row_order))
