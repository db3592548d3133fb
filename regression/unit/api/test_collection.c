/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests the library as another program uses it. One collection is on all ranks. Another collection
  is only on this rank and gets the whole global batch. Both start from the same initial values, so
  their pooled rows agree, and after training their tables agree. With -reproducible they are equal
  to the last bit.
*/
#include "comm/comm.h"
#include "compute/compute_ops.h"
#include "ranks_agree.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 8 + 8 + 12 + 16, STEPS = 5 };

static const char *const first_features[] = {"a", "b"};
static const TrshardTable tables[] = {
    {.name = "t0", .num_embeddings = 50, .embedding_dim = 8, .n_features = 2, .features = first_features},
    {.name = "t1", .num_embeddings = 7, .embedding_dim = 12, .pooling = TRSHARD_POOLING_MEAN},
    {.name = "t2", .num_embeddings = 200, .embedding_dim = 16, .weighted = 1}};

/* Table t0 gives its rows to ids every second batch. Table t2 has room for some of its ids. */
#define GIVEN_ROWS \
  "-table_t0_id_map zch -table_t0_zch_interval 2 -table_t2_id_map dynamic -table_t2_dynamic_cap 40 " \
  "-table_t2_dynamic_ttl 3"

/*
  The columns of a table are split only for optimizers that treat all elements alike, because the
  results of other optimizers would depend on the split.
*/
static const agreement cases[] = {
    {"-tables_sharding_types row_wise", "", ""},
    {"-tables_sharding_types column_wise -tables_min_partition 4", "-embedding_optimizer adagrad", ""},
    {"-tables_sharding_types data_parallel", "", ""},
    {"-tables_sharding_types table_wise", "-embedding_optimizer adam -tables_output_dtype fp16", ""},
    {"-tables_sharding_types row_wise",
     "-embedding_optimizer adam -table_t1_id_map hash -embedding_max_gradient 0.05", ""},
    /* rows that are given to ids and taken back */
    {"-tables_sharding_types row_wise",
     GIVEN_ROWS " -table_t0_zch_buckets 5 -table_t2_dynamic_buckets 4 -embedding_optimizer adam", ""},
    {"-tables_sharding_types column_wise -tables_min_partition 4",
     GIVEN_ROWS " -tables_unknown_row zero -table_t1_id_map dynamic -embedding_optimizer adagrad", ""},
    {"-tables_sharding_types table_wise -table_t0_compute_kernels fused_uvm_caching "
     "-table_t2_compute_kernels fused_uvm_caching -tables_cache_load_factor 0.5",
     GIVEN_ROWS " -table_t0_unknown_row zero -table_t2_unknown_row initial", ""}};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };

static TrshardCollection make(MPI_Comm comm, const char *plan, const char *numbers, const char *more)
{
  return make_of(tables, comm, plan, numbers, more);
}

/* Make a gradient that depends only on the pooled value and on the sample's index. */
static void make_gradient(const float *pooled, int64_t samples, int64_t first, float *gradient)
{
  for (int64_t i = 0; i < samples * WIDTH; i++)
    gradient[i] = 0.1F * (float)sin((double)pooled[i] * 3 + (double)(first * WIDTH + i));
}

static int forward(TrshardCollection collection, int64_t samples, float *pooled)
{
  const int status = TrshardForward(collection, staged, WIDTH);

  assert_petsc_ok(device->copy(pooled, staged, samples * WIDTH * (int64_t)sizeof(*pooled), NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  return status;
}

/*
  Evaluate between the calls of a step, which must change nothing. The batches of evaluation and
  training have different sizes.
*/
static void evaluate_between(TrshardCollection all, int step)
{
  static batch_ids other;

  make_ids(step + 70, 0, trs_size() - trs_rank(), &other);
  assert_ok(TrshardEvaluate(all, &other.batch, staged, WIDTH));
}

static int backward(TrshardCollection collection, int64_t samples, const float *gradient)
{
  static float left[4 * MOST * WIDTH];
  int status;

  assert_petsc_ok(device->copy(staged, gradient, samples * WIDTH * (int64_t)sizeof(*gradient), NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  status = TrshardBackward(collection, staged, WIDTH);
  assert_petsc_ok(device->copy(left, staged, samples * WIDTH * (int64_t)sizeof(*left), NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  /* the caller's gradient must not change */
  assert_memory_equal(left, gradient, (size_t)(samples * WIDTH) * sizeof(*left));
  return status;
}

static int evaluate(TrshardCollection collection, const TrshardBatch *batch, float *pooled)
{
  const int status = TrshardEvaluate(collection, batch, staged, WIDTH);

  assert_petsc_ok(device->copy(pooled, staged, batch->batch * WIDTH * (int64_t)sizeof(*pooled), NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  return status;
}

/*
  Train both collections for a few steps, and compare their results. If ahead is set, the next
  batch's ids are sent early.
*/
static void train(TrshardCollection all, TrshardCollection alone, int ahead, double tolerance)
{
  static float pooled[4 * MOST * WIDTH], whole[4 * MOST * WIDTH], gradient[4 * MOST * WIDTH];
  static batch_ids mine, everything;
  int64_t first = 0;

  for (int r = 0; r < trs_rank(); r++) first += samples_of(r);
  for (int step = 0; step < STEPS; step++) {
    const int64_t samples = samples_of(trs_rank());

    if (step == 0 || !ahead) {
      make_ids(step, trs_rank(), trs_rank() + 1, &mine);
      assert_ok(TrshardInputDist(all, &mine.batch));
    }
    if (ahead && step + 1 < STEPS) {
      make_ids(step + 1, trs_rank(), trs_rank() + 1, &mine);
      assert_ok(TrshardInputDist(all, &mine.batch));
    }
    if (step % 2) evaluate_between(all, step);
    assert_ok(forward(all, samples, pooled));
    if (step % 2) evaluate_between(all, step);
    make_ids(step, 0, trs_size(), &everything);
    assert_ok(TrshardInputDist(alone, &everything.batch));
    assert_ok(forward(alone, everything.batch.batch, whole));
    for (int64_t i = 0; i < samples * WIDTH; i++)
      assert_close(pooled[i], whole[first * WIDTH + i], tolerance, tolerance);
    /*
      Both collections get the gradient of the same pooled values, because otherwise rounding errors
      would grow.
    */
    make_gradient(whole + first * WIDTH, samples, first, gradient);
    assert_ok(backward(all, samples, gradient));
    make_gradient(whole, everything.batch.batch, 0, gradient);
    assert_ok(backward(alone, everything.batch.batch, gradient));
  }
  make_ids(99, trs_rank(), trs_rank() + 1, &mine);
  assert_ok(evaluate(all, &mine.batch, pooled));
  assert_ok(evaluate(alone, &mine.batch, whole));
  for (int64_t i = 0; i < mine.batch.batch * WIDTH; i++)
    assert_close(pooled[i], whole[i], tolerance, tolerance);
}

static void test_ranks_agree(void **state)
{
  (void)state;
  check_ranks_agree(tables, N_CASES, cases, 4 * MOST * WIDTH, train);
}

/*
  The backward never changes the caller's gradient. It works on a copy where needed.
*/
static void test_gradient_stays(void **state)
{
  static const char *const options[] = {"-device cpu", "-device cpu -tables_output_dtype fp16",
                                        "-device cpu -embedding_max_gradient 0.05"};
  static const int32_t lengths[] = {1, 2};
  static const int64_t values[] = {3, 3, 4};
  static const TrshardTable pooled_by[] = {
      {.name = "sum", .num_embeddings = 5, .embedding_dim = 4},
      {.name = "mean", .num_embeddings = 5, .embedding_dim = 4, .pooling = TRSHARD_POOLING_MEAN}};
  const TrshardBatch batch = {.batch = 2, .lengths = lengths, .n_values = 3, .values = values};

  (void)state;
  for (int i = 0; i < 6; i++) {
    const TrshardConfig config = {
        .n_tables = 1, .tables = &pooled_by[i / 3], .batch_size = 2, .options = options[i % 3]};
    float pooled[8], gradient[8], before[8];
    TrshardCollection collection;

    for (int k = 0; k < 8; k++) gradient[k] = before[k] = 0.1234567F * (float)(k + 1);
    assert_ok(TrshardCollectionCreate(MPI_COMM_WORLD, &config, &collection));
    assert_ok(TrshardInputDist(collection, &batch));
    assert_ok(TrshardForward(collection, pooled, 4));
    assert_ok(TrshardBackward(collection, gradient, 4));
    assert_memory_equal(gradient, before, sizeof(before));
    assert_ok(TrshardCollectionDestroy(&collection));
  }
}

static void check_message(const char *word)
{
  if (!strstr(TrshardErrorMessage(), word))
    print_error("\"%s\" is not in: %s\n", word, TrshardErrorMessage());
  assert_non_null(strstr(TrshardErrorMessage(), word));
}

/*
  A collection of one rank can load a file that all ranks saved, with the caller's tensor and the
  number of steps.
*/
static void test_files(void **state)
{
  static float pooled[4 * MOST * WIDTH], again[4 * MOST * WIDTH], before[6] = {1, 2, 3, 4, 5, 6}, after[6];
  TrshardTensor tensor = {.name = "over/weight", .ndim = 2, .rows = 2, .cols = 3, .data = before};
  char path[128];
  int pid = (int)getpid();
  TrshardCollection all = make(MPI_COMM_WORLD, cases[4].plan, cases[4].numbers, ""),
                    alone = make(MPI_COMM_SELF, cases[0].plan, cases[4].numbers, "-seed 8");
  batch_ids mine;

  (void)state;
  MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
  snprintf(path, sizeof(path), "/tmp/trshard_test_collection_%d.h5", pid);
  make_ids(1, trs_rank(), trs_rank() + 1, &mine);
  for (int step = 0; step < 2; step++) {
    assert_ok(TrshardInputDist(all, &mine.batch));
    assert_ok(TrshardForward(all, pooled, WIDTH));
    assert_ok(TrshardBackward(all, pooled, WIDTH));
  }
  assert_ok(TrshardSave(all, path, 1, &tensor));
  tensor.data = after;
  assert_ok(TrshardLoad(alone, path, 1, &tensor));
  assert_memory_equal(before, after, sizeof(before));
  assert_ok(TrshardEvaluate(all, &mine.batch, pooled, WIDTH));
  assert_ok(TrshardEvaluate(alone, &mine.batch, again, WIDTH));
  for (int64_t i = 0; i < mine.batch.batch * WIDTH; i++) assert_close(pooled[i], again[i], 1e-6, 1e-6);
  tensor.name = "other";
  assert_fails(TrshardLoad(alone, path, 1, &tensor), TRSHARD_ERROR_DATA);
  assert_non_null(strstr(TrshardErrorMessage(), "dense/other"));
  assert_ok(TrshardCollectionDestroy(&alone));
  /*
    As with -resume, updates continue with the same optimizer. A collection whose optimizer has no
    states loads only the weights.
  */
  alone = make(MPI_COMM_SELF, cases[0].plan, "-embedding_optimizer rowwise_adagrad -table_t1_id_map hash",
               "");
  assert_fails(TrshardLoad(alone, path, 0, NULL), TRSHARD_ERROR_DATA);
  check_message("lacks /embedding/t0/momentum1, a state of optimizer rowwise_adagrad, at step 2");
  assert_ok(TrshardCollectionDestroy(&alone));
  alone = make(MPI_COMM_SELF, cases[0].plan, "-embedding_optimizer lamb -table_t1_id_map hash", "");
  assert_fails(TrshardLoad(alone, path, 0, NULL), TRSHARD_ERROR_DATA);
  check_message("exp_avg is of optimizer adam, the collection's table has lamb");
  assert_ok(TrshardCollectionDestroy(&alone));
  alone = make(MPI_COMM_SELF, cases[0].plan, "-embedding_optimizer sgd -table_t1_id_map hash", "");
  assert_ok(TrshardLoad(alone, path, 0, NULL));
  assert_ok(TrshardEvaluate(alone, &mine.batch, again, WIDTH));
  for (int64_t i = 0; i < mine.batch.batch * WIDTH; i++) assert_close(pooled[i], again[i], 1e-6, 1e-6);
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) unlink(path);
  assert_ok(TrshardCollectionDestroy(&all));
  assert_ok(TrshardCollectionDestroy(&alone));
}

/*
  If a configuration is refused, every rank gets the program's exit code and message, and the
  process continues.
*/
static void check_config(TrshardConfig config, int status, const char *word)
{
  TrshardCollection collection;

  assert_fails(TrshardCollectionCreate(MPI_COMM_WORLD, &config, &collection), status);
  assert_null(collection);
  check_message(word);
}

static void test_bad_configurations(void **state)
{
  static const TrshardTable empty = {.name = "x", .num_embeddings = 0, .embedding_dim = 4},
                            option = {.name = "-x", .num_embeddings = 3, .embedding_dim = 4},
                            mean = {.name = "x",
                                    .num_embeddings = 3,
                                    .embedding_dim = 4,
                                    .weighted = 1,
                                    .pooling = TRSHARD_POOLING_MEAN};
  const TrshardConfig good = {.n_tables = 3, .tables = tables, .batch_size = 5};
  TrshardConfig bad = good;

  (void)state;
  for (int k = 0; k < 4; k++) {
    static const char *const names[] = {"a", "b"};
    static const int32_t n_features[] = {-3, 2, -1, 0};
    const TrshardTable table = {.name = "x",
                                .num_embeddings = 3,
                                .embedding_dim = 4,
                                .n_features = n_features[k],
                                .features = k < 2 ? NULL : names};
    const TrshardConfig one = {.n_tables = 1, .tables = &table, .batch_size = 5};

    check_config(one, TRSHARD_ERROR_OPTION, "table \"x\": n_features is");
  }
  bad.options = "-embedding_optimizr adam";
  check_config(bad, TRSHARD_ERROR_OPTION, "-embedding_optimizer");
  bad.options = "-data_train d.h5";
  check_config(bad, TRSHARD_ERROR_OPTION, "-data_train");
  bad.options = "-table_t9_data_type fp16";
  check_config(bad, TRSHARD_ERROR_OPTION, "t9");
  bad.options = "-seed \"3";
  check_config(bad, TRSHARD_ERROR_OPTION, "quote");
  bad.options = "-plan_input nowhere.json";
  check_config(bad, TRSHARD_ERROR_NO_INPUT, "nowhere.json");
  bad.options = "-plan_output /tmp/never.json";
  check_config(bad, TRSHARD_ERROR_OPTION, "-plan_output");
  bad.options = "-device cpu -topology_ddr_cap 1KiB";
  check_config(bad, TRSHARD_ERROR_NO_PLAN, "-topology_ddr_cap");
  bad.options = "-help";
  check_config(bad, TRSHARD_ERROR_OPTION, "-help (command line): is for the program");
  bad.options = "-log_view";
  check_config(bad, TRSHARD_ERROR_OPTION, "-log_view (command line): is for the program");
  bad.options = "-batch_size 9";
  check_config(bad, TRSHARD_ERROR_OPTION,
               "-batch_size \"9\" (command line): not for a collection: its config says 5");
  bad.options = "-tables other";
  check_config(bad, TRSHARD_ERROR_OPTION, "its config says t0,t1,t2");
  bad.options = "-table_t1_num_embeddings 5";
  check_config(bad, TRSHARD_ERROR_OPTION, "its config says 7");
  bad.options = "-table_t1_embedding_dim 4";
  check_config(bad, TRSHARD_ERROR_OPTION, "its config says 12");
  bad.options = "-table_t1_pooling sum";
  check_config(bad, TRSHARD_ERROR_OPTION, "its config says mean");
  bad = good;
  bad.batch_size = 0;
  check_config(bad, TRSHARD_ERROR_OPTION, "batch_size");
  bad = good;
  bad.tables = NULL;
  check_config(bad, TRSHARD_ERROR_OPTION, "config.tables is NULL");
  bad.tables = &option;
  bad.n_tables = 1;
  check_config(bad, TRSHARD_ERROR_OPTION, "config.tables: the first name is \"-x\"");
  bad.n_tables = 0;
  check_config(bad, TRSHARD_ERROR_OPTION, "config.n_tables is 0");
  bad = good;
  bad.n_tables = 1;
  bad.tables = &empty;
  check_config(bad, TRSHARD_ERROR_OPTION, "num_embeddings");
  bad.tables = &mean;
  check_config(bad, TRSHARD_ERROR_OPTION, "mean");
}

/*
  If one rank refuses a call, the call fails on all ranks. The next batch then gets its own rows.
*/
static void check_refused_by_one(TrshardCollection all, const TrshardBatch *batch)
{
  static float before[4 * MOST * WIDTH], after[4 * MOST * WIDTH];
  const int last = trs_rank() == trs_size() - 1;
  char word[64];

  assert_ok(TrshardEvaluate(all, batch, before, WIDTH));
  assert_fails(TrshardInputDist(all, last ? NULL : batch), TRSHARD_ERROR_OPTION);
  snprintf(word, sizeof(word), "TrshardInputDist: batch is NULL on rank %d", trs_size() - 1);
  check_message(word);
  assert_fails(TrshardEvaluate(all, last ? NULL : batch, after, WIDTH), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardEvaluate(all, batch, after, last ? WIDTH - 1 : WIDTH), TRSHARD_ERROR_OPTION);
  check_message("stride is 43 floats");
  assert_ok(TrshardEvaluate(all, batch, after, WIDTH));
  assert_memory_equal(before, after, (size_t)(batch->batch * WIDTH) * sizeof(*after));
}

/* Refused calls do not change the collection. */
static void test_bad_batches(void **state)
{
  static float pooled[4 * MOST * WIDTH];
  TrshardCollection all = make(MPI_COMM_WORLD, cases[0].plan, "", "-bounds_check_mode fatal");
  batch_ids mine;

  (void)state;
  assert_fails(TrshardForward(all, pooled, WIDTH), TRSHARD_ERROR_INTERNAL);
  make_ids(1, trs_rank(), trs_rank() + 1, &mine);
  /* an id of t2, changed on only one rank */
  if (trs_rank() == trs_size() - 1) mine.values[mine.batch.n_values - 1] = 200;
  assert_fails(TrshardInputDist(all, &mine.batch), TRSHARD_ERROR_DATA);
  assert_non_null(strstr(TrshardErrorMessage(), "table \"t2\""));
  assert_non_null(strstr(TrshardErrorMessage(), "id 200, expected 0 to 199"));
  make_ids(1, trs_rank(), trs_rank() + 1, &mine);
  mine.batch.n_values--;
  assert_fails(TrshardInputDist(all, &mine.batch), TRSHARD_ERROR_DATA);
  assert_fails(TrshardBackward(all, pooled, WIDTH), TRSHARD_ERROR_INTERNAL);
  mine.batch.n_values++;
  check_refused_by_one(all, &mine.batch);
  assert_ok(TrshardInputDist(all, &mine.batch));
  check_refused_by_one(all, &mine.batch);
  assert_ok(TrshardInputDist(all, &mine.batch));
  assert_fails(TrshardInputDist(all, &mine.batch), TRSHARD_ERROR_INTERNAL);
  assert_fails(TrshardForward(all, pooled, WIDTH - 1), TRSHARD_ERROR_OPTION);
  for (int i = 0; i < 2; i++) {
    assert_ok(TrshardForward(all, pooled, WIDTH));
    assert_fails(TrshardSave(all, "/tmp/never.h5", 0, NULL), TRSHARD_ERROR_INTERNAL);
    assert_ok(TrshardBackward(all, pooled, WIDTH));
  }
  assert_ok(TrshardCollectionDestroy(&all));
}

static void test_facts(void **state)
{
  TrshardCollection all = make(MPI_COMM_WORLD, cases[0].plan, "", "");
  const int64_t *columns, expected[FEATURES] = {0, 8, 16, 28};
  const char *plan;
  int64_t width;
  int32_t n;

  (void)state;
  assert_ok(TrshardCollectionColumns(all, &n, &columns, &width));
  assert_int_equal(n, FEATURES);
  assert_int_equal(width, WIDTH);
  assert_memory_equal(columns, expected, sizeof(expected));
  assert_ok(TrshardCollectionPlan(all, &plan));
  assert_non_null(strstr(plan, "row_wise"));
  assert_ok(TrshardSetLearningRateFactor(all, 0));
  for (int i = 0; i < 3; i++) {
    assert_fails(TrshardSetLearningRateFactor(all, (const double[]){NAN, INFINITY, -1}[i]),
                 TRSHARD_ERROR_OPTION);
    check_message("expected a finite number, 0 or more");
  }
  assert_ok(TrshardCollectionDestroy(&all));
  assert_ok(TrshardCollectionDestroy(&all)); /* destroying NULL succeeds */
  all = make(MPI_COMM_WORLD, cases[0].plan, "-table_t1_optimizer ftrl", "");
  assert_ok(TrshardSetLearningRateFactor(all, 1));
  assert_fails(TrshardSetLearningRateFactor(all, 0), TRSHARD_ERROR_OPTION);
  check_message("ftrl takes 1 alone");
  assert_ok(TrshardCollectionDestroy(&all));
}

/* A collection's options affect neither the next collection nor PETSc. */
static void test_own_options(void **state)
{
  const char *options[] = {"", "-cpu_isa portable -comm_wait_seconds 4", ""}, *isa[3];
  PetscBool found;

  (void)state;
  for (int i = 0; i < 3; i++) {
    TrshardCollection all = make(MPI_COMM_WORLD, cases[0].plan, options[i], "");

    isa[i] = TrsComputeIsa();
    assert_true(TrsCommWaitAtMost(0) == (i == 1 ? 4 : TRS_COMM_WAIT_SECONDS));
    assert_ok(TrshardCollectionDestroy(&all));
  }
  assert_string_equal(isa[1], "portable");
  assert_string_equal(isa[2], isa[0]);
  assert_petsc_ok(PetscOptionsHasName(NULL, NULL, "-comm_wait_seconds", &found));
  assert_false(found);
}

/* A NULL pointer gives a code, and the collection stays usable. */
static void test_null(void **state)
{
  static float pooled[4 * MOST * WIDTH];
  const TrshardConfig config = {.n_tables = 3, .tables = tables, .batch_size = 5};
  TrshardCollection all = make(MPI_COMM_WORLD, cases[0].plan, "", ""), none = NULL;
  const char *plan;
  batch_ids mine;

  (void)state;
  make_ids(1, trs_rank(), trs_rank() + 1, &mine);
  assert_fails(TrshardCollectionCreate(MPI_COMM_WORLD, NULL, &none), TRSHARD_ERROR_OPTION);
  check_message("TrshardCollectionCreate: config is NULL");
  assert_fails(TrshardCollectionCreate(MPI_COMM_WORLD, &config, NULL), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardCollectionCreate(MPI_COMM_NULL, &config, &none), TRSHARD_ERROR_OPTION);
  check_message("MPI_COMM_NULL");
  assert_fails(TrshardInputDist(NULL, &mine.batch), TRSHARD_ERROR_OPTION);
  check_message("TrshardInputDist: collection is NULL");
  assert_fails(TrshardForward(NULL, pooled, WIDTH), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardBackward(NULL, pooled, WIDTH), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardEvaluate(NULL, &mine.batch, pooled, WIDTH), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardCollectionColumns(NULL, NULL, NULL, NULL), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardCollectionPlan(NULL, &plan), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardCollectionPlan(all, NULL), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardSetLearningRateFactor(NULL, 1), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardWorld(NULL), TRSHARD_ERROR_OPTION);
  check_message("TrshardWorld: comm is NULL");
  assert_fails(TrshardSave(NULL, "/tmp/never.h5", 0, NULL), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardSave(all, NULL, 0, NULL), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardSave(all, "/tmp/never.h5", 1, NULL), TRSHARD_ERROR_OPTION);
  {
    static char name[600];
    float number = 0;
    TrshardTensor two[2] = {{"b", 1, 1, 1, &number}, {"b", 1, 1, 1, &number}};

    assert_fails(TrshardSave(all, "/tmp/never.h5", 2, two), TRSHARD_ERROR_OPTION);
    check_message("\"b\" is there twice");
    memset(name, 'x', sizeof(name) - 1);
    two[0].name = name;
    assert_fails(TrshardSave(all, "/tmp/never.h5", 1, two), TRSHARD_ERROR_OPTION);
    check_message("a name of 599 bytes");
  }
  assert_fails(TrshardLoad(all, NULL, 0, NULL), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardInputDist(all, NULL), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardEvaluate(all, NULL, pooled, WIDTH), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardEvaluate(all, &mine.batch, NULL, WIDTH), TRSHARD_ERROR_OPTION);
  assert_ok(TrshardInputDist(all, &mine.batch));
  assert_fails(TrshardForward(all, NULL, WIDTH), TRSHARD_ERROR_OPTION);
  check_message("TrshardForward: the matrix is NULL");
  assert_ok(TrshardForward(all, pooled, WIDTH));
  assert_fails(TrshardBackward(all, NULL, WIDTH), TRSHARD_ERROR_OPTION);
  assert_ok(TrshardBackward(all, pooled, WIDTH));
  assert_ok(TrshardCollectionDestroy(&all));
  assert_ok(TrshardCollectionDestroy(NULL));
}

/*
  After Destroy, a copy of the handle is dead, even if new collections are created. Every function
  returns an error for it.
*/
static void test_dead_handles(void **state)
{
  static float pooled[4 * MOST * WIDTH];
  TrshardReader reader = NULL;
  const char *plan;
  batch_ids mine;

  (void)state;
  make_ids(1, trs_rank(), trs_rank() + 1, &mine);
  for (int i = 0; i < 3; i++) {
    TrshardCollection all = make(MPI_COMM_WORLD, cases[0].plan, "", ""), copy = all, next, again;

    assert_ok(TrshardCollectionDestroy(&all));
    assert_null(all);
    /* its address must differ from the dead collection's address */
    next = make(MPI_COMM_WORLD, cases[0].plan, "", "");
    assert_ptr_not_equal(next, copy);
    assert_fails(TrshardInputDist(copy, &mine.batch), TRSHARD_ERROR_OPTION);
    check_message("TrshardInputDist: the collection is not alive");
    assert_fails(TrshardForward(copy, pooled, WIDTH), TRSHARD_ERROR_OPTION);
    assert_fails(TrshardBackward(copy, pooled, WIDTH), TRSHARD_ERROR_OPTION);
    assert_fails(TrshardEvaluate(copy, &mine.batch, pooled, WIDTH), TRSHARD_ERROR_OPTION);
    assert_fails(TrshardCollectionColumns(copy, NULL, NULL, NULL), TRSHARD_ERROR_OPTION);
    assert_fails(TrshardCollectionPlan(copy, &plan), TRSHARD_ERROR_OPTION);
    assert_fails(TrshardSetLearningRateFactor(copy, 1), TRSHARD_ERROR_OPTION);
    assert_fails(TrshardSetStream(copy, NULL), TRSHARD_ERROR_OPTION);
    assert_fails(TrshardSave(copy, "/tmp/never.h5", 0, NULL), TRSHARD_ERROR_OPTION);
    assert_fails(TrshardLoad(copy, "/tmp/never.h5", 0, NULL), TRSHARD_ERROR_OPTION);
    assert_fails(TrshardReaderOpen(copy, 1, &plan, NULL, 0, &reader), TRSHARD_ERROR_OPTION);
    again = copy;
    assert_fails(TrshardCollectionDestroy(&again), TRSHARD_ERROR_OPTION);
    check_message("TrshardCollectionDestroy: the collection is not alive");
    assert_null(again);
    assert_ok(TrshardInputDist(next, &mine.batch)); /* the living collection still works */
    assert_ok(TrshardCollectionDestroy(&next));
  }
}

/* Single ranks, or some ranks together, may use the library before all ranks do. */
static void test_alone_first(void **state)
{
  TrshardCollection mine = NULL, all;
  MPI_Comm some;

  (void)state;
  MPI_Comm_split(MPI_COMM_WORLD, trs_rank() % 2, trs_rank(), &some);
  if (trs_rank() % 2) mine = make(some, cases[0].plan, "", "");
  all = make(MPI_COMM_WORLD, cases[0].plan, "", "");
  assert_ok(TrshardCollectionDestroy(&mine));
  assert_ok(TrshardCollectionDestroy(&all));
  MPI_Comm_free(&some);
}

/*
  A collection may be destroyed while batches are under way, before and after the first batch's
  forward.
*/
static void test_destroy_early(void **state)
{
  static float pooled[4 * MOST * WIDTH];

  (void)state;
  for (int i = 0; i < 6; i++) {
    TrshardCollection all = make(MPI_COMM_WORLD, cases[i % 2].plan, "", "");
    batch_ids mine[2];

    for (int b = 0; b <= i % 3 / 2; b++) {
      make_ids(b, trs_rank(), trs_rank() + 1, &mine[b]);
      assert_ok(TrshardInputDist(all, &mine[b].batch));
    }
    if (i % 3) assert_ok(TrshardForward(all, pooled, WIDTH));
    assert_ok(TrshardCollectionDestroy(&all));
  }
}

/* By default an id outside of its table is an error. */
static void test_bad_ids_by_default(void **state)
{
  TrshardCollection all = make(MPI_COMM_WORLD, cases[0].plan, "", "");
  batch_ids mine;

  (void)state;
  make_ids(1, trs_rank(), trs_rank() + 1, &mine);
  mine.values[mine.batch.n_values - 1] = 200;
  assert_fails(TrshardInputDist(all, &mine.batch), TRSHARD_ERROR_DATA);
  assert_ok(TrshardCollectionDestroy(&all));
  all = make(MPI_COMM_WORLD, cases[0].plan, "", "-bounds_check_mode warning");
  assert_ok(TrshardInputDist(all, &mine.batch));
  assert_ok(TrshardCollectionDestroy(&all));
}

/*
  If the build does not have a backend, the result is an error with a message. The process does not
  exit.
*/
static void test_missing_backends(void **state)
{
  TrshardConfig config = {.n_tables = 3, .tables = tables, .batch_size = 5};

  (void)state;
  config.options = "-device cpu -comm_backend nccl";
  check_config(config, TRSHARD_ERROR_UNAVAILABLE, "nccl");
  if (trs_device_backends[1]) return; /* the build has GPU support */
  config.options = "-device cuda";
  check_config(config, TRSHARD_ERROR_UNAVAILABLE, "cuda");
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone_first),
                                     cmocka_unit_test(test_facts),
                                     cmocka_unit_test(test_own_options),
                                     cmocka_unit_test(test_ranks_agree),
                                     cmocka_unit_test(test_gradient_stays),
                                     cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_bad_configurations),
                                     cmocka_unit_test(test_bad_batches),
                                     cmocka_unit_test(test_null),
                                     cmocka_unit_test(test_dead_handles),
                                     cmocka_unit_test(test_destroy_early),
                                     cmocka_unit_test(test_bad_ids_by_default),
                                     cmocka_unit_test(test_missing_backends)};
  const TrshardConfig config = {
      .n_tables = 1,
      .tables = &(const TrshardTable){.name = "x", .num_embeddings = 1, .embedding_dim = 4},
      .batch_size = 1};
  TrshardCollection collection;
  int provided, n_failed;

  if (TrshardCollectionCreate(MPI_COMM_NULL, &config, &collection) != TRSHARD_ERROR_OPTION)
    return 1; /* MPI is missing */
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  n_failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (n_failed) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  if (TrshardWorld(&provided) != TRSHARD_ERROR_OPTION) return 1;
  return strcmp(TrshardErrorMessage(), "MPI is finalised already") != 0;
}
