/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 */
/*
  If the caller passes a CUDA stream, this stream orders the caller's work and the library's work,
  and the host never waits. The bits equal those of a collection whose caller waits. In the CUDA
  stand-in, streams run in a random order, so a missing event changes the results or is reported as
  a race.
*/
#include "api_test.h"
#include "device/device.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 4, DIM = 8, WIDTH = FEATURES * DIM, MATRIX = MOST * WIDTH, ROWS = MOST * MOST_IDS * FEATURES };

static const char *const features[] = {"a", "b", "c", "d"};
static const TrsDeviceOps *device;

/* If by_id is set, the collection returns a row for each id, in matrices of DIM columns. */
static TrshardCollection make(int by_id, const char *options)
{
  TrshardTable table[FEATURES];
  const TrshardConfig config = {
      .n_tables = FEATURES, .tables = table, .batch_size = MOST, .options = options};
  TrshardCollection collection;

  for (int t = 0; t < FEATURES; t++)
    table[t] = (TrshardTable){.name = features[t],
                              .num_embeddings = rows_of[t],
                              .embedding_dim = DIM,
                              .pooling = by_id ? TRSHARD_POOLING_NONE : TRSHARD_POOLING_SUM};
  assert_ok(TrshardCollectionCreate(MPI_COMM_WORLD, &config, &collection));
  return collection;
}

/* The caller's device memory: matrices, and all embeddings that the calls returned. */
typedef struct {
  float *pooled, *gradient, *evaluated, *history;
  int64_t bytes; /* bytes of a matrix */
  TrsStream stream;
  int waits; /* true if the host waits before and after each call */
} caller;

static void wait(const caller *w)
{
  if (w->waits) assert_petsc_ok(device->stream_synchronize(w->stream));
}

static void copy(const caller *w, float *to, const float *from)
{
  assert_petsc_ok(device->copy(to, from, w->bytes, w->stream));
}

static void train(TrshardCollection collection, const caller *w, int64_t stride)
{
  static batch_ids mine;
  const int64_t n = w->bytes / (int64_t)sizeof(float);

  for (int step = 0; step < STEPS; step++) {
    make_ids(step, trs_rank(), trs_rank() + 1, &mine);
    assert_ok(TrshardInputDist(collection, &mine.batch));
    wait(w);
    assert_ok(TrshardForward(collection, w->pooled, stride));
    copy(w, w->history + 2 * step * n, w->pooled);
    wait(w);
    assert_ok(TrshardEvaluate(collection, &mine.batch, w->evaluated, stride));
    copy(w, w->history + (2 * step + 1) * n, w->evaluated);
    copy(w, w->gradient, w->pooled);
    wait(w);
    assert_ok(TrshardBackward(collection, w->gradient, stride));
    /* Clear the memory that the next calls write, and the memory that this call reads. */
    assert_petsc_ok(device->zero(w->pooled, w->bytes, w->stream));
    assert_petsc_ok(device->zero(w->evaluated, w->bytes, w->stream));
    assert_petsc_ok(device->zero(w->gradient, w->bytes, w->stream));
  }
}

typedef struct {
  TrshardCollection collection;
  const caller *w;
  int64_t stride;
} training;

static void *train_on_thread(void *of)
{
  const training *t = (const training *)of;

  train(t->collection, t->w, t->stride);
  return NULL;
}

/*
  Train, and return all embeddings of the training. If waits is set, train on another thread, and
  wait before and after each call.
*/
static void run(TrshardCollection collection, int by_id, int waits, float *found)
{
  const int64_t n = by_id ? ROWS * DIM : MATRIX;
  caller w = {.bytes = n * (int64_t)sizeof(float), .waits = waits};
  float **matrix[] = {&w.pooled, &w.gradient, &w.evaluated};
  pthread_t thread;
  training t;

  for (int i = 0; i < 3; i++) assert_petsc_ok(device->alloc(w.bytes, (void **)matrix[i]));
  assert_petsc_ok(device->alloc(2 * STEPS * w.bytes, (void **)&w.history));
  /* Collections with a row for each id use the default stream. */
  if (!by_id) assert_petsc_ok(device->stream_create("caller", &w.stream));
  if (!waits) assert_ok(TrshardSetStream(collection, (void *)w.stream));
  t = (training){collection, &w, by_id ? DIM : WIDTH};
  if (waits) {
    assert_int_equal(pthread_create(&thread, NULL, train_on_thread, &t), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
  } else {
    (void)train_on_thread(&t);
  }
  assert_petsc_ok(device->copy(found, w.history, 2 * STEPS * w.bytes, w.stream));
  assert_petsc_ok(device->stream_synchronize(w.stream));
  if (!by_id) assert_petsc_ok(device->stream_destroy(&w.stream));
  for (int i = 0; i < 3; i++) assert_petsc_ok(device->release((void **)matrix[i]));
  assert_petsc_ok(device->release((void **)&w.history));
}

static void check(int by_id, const char *options)
{
  static float with[2 * STEPS * ROWS * DIM], without[2 * STEPS * ROWS * DIM];
  TrshardCollection one = make(by_id, options), other = make(by_id, options);
  char path[128];
  int pid = (int)getpid();

  run(one, by_id, 0, with);
  run(other, by_id, 1, without);
  assert_memory_equal(with, without, sizeof(with));
  assert_int_not_equal(memcmp(with, with + 2 * (by_id ? ROWS * DIM : MATRIX), DIM * sizeof(*with)),
                       0); /* the training changed the embeddings */
  MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
  snprintf(path, sizeof(path), "/tmp/trshard_test_stream_%d.h5", pid);
  /* TrshardSave() waits until the last backward is complete. */
  assert_ok(TrshardSave(one, path, 0, NULL));
  assert_ok(TrshardLoad(other, path, 0, NULL));
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) unlink(path);
  assert_ok(TrshardCollectionDestroy(&one));
  assert_ok(TrshardCollectionDestroy(&other));
}

/* A call uses the GPU of its collection, and then restores the thread's current GPU. */
static void check_devices(int n_devices)
{
  TrshardCollection collection = make(0, "-device cuda -gpu_share -comm_backend mpi");
  static batch_ids mine;
  float *pooled;
  int ours, other, had;

  make_ids(1, trs_rank(), trs_rank() + 1, &mine);
  assert_petsc_ok(device->alloc(MATRIX * (int64_t)sizeof(*pooled), (void **)&pooled));
  assert_petsc_ok(device->use(-1, &ours));
  other = (ours + 1) % n_devices;
  assert_petsc_ok(device->use(other, &had));
  assert_ok(TrshardEvaluate(collection, &mine.batch, pooled, WIDTH));
  assert_ok(TrshardCollectionDestroy(&collection));
  assert_petsc_ok(device->use(ours, &had));
  assert_int_equal(had, other);
  assert_petsc_ok(device->release((void **)&pooled));
}

static void test_cuda(void **state)
{
  char why[256];
  int n_devices = 0;

  (void)state;
  device = trs_device_backends[1];
  if (!device) return; /* the build has no GPU support */
  assert_petsc_ok(device->available(&n_devices, why, sizeof(why)));
  if (n_devices == 0) return;
  assert_petsc_ok(device->setup(trs_rank(), trs_size()));
  check(0, "-device cuda -gpu_share -comm_backend mpi -seed 3 -tables_sharding_types row_wise");
  check(0,
        "-device cuda -gpu_share -comm_backend mpi -seed 3 -tables_sharding_types table_wise,data_parallel "
        "-embedding_optimizer adam");
  check(1, "-device cuda -gpu_share -comm_backend mpi -seed 3 -tables_sharding_types table_wise");
  check_devices(n_devices);
}

static void test_cpu(void **state)
{
  TrshardCollection collection = make(0, "-device cpu");

  (void)state;
  assert_fails(TrshardSetStream(collection, NULL), TRSHARD_ERROR_OPTION);
  assert_non_null(strstr(TrshardErrorMessage(), "-device cuda"));
  assert_fails(TrshardSetStream(NULL, NULL), TRSHARD_ERROR_OPTION);
  assert_ok(TrshardCollectionDestroy(&collection));
}

TRS_TEST_MAIN(cmocka_unit_test(test_cpu), cmocka_unit_test(test_cuda))
