/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests collections that return a row for each id. One collection is on all ranks. Another
  collection is only on this rank and gets the whole global batch. The rows of a feature's ids then
  have other indices in the result, but with -reproducible the rows and their updates have the same
  bits.
*/
#include "ranks_agree.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { DIM = 8, STRIDE = DIM + 3, STEPS = 4, MOST_VALUES = FEATURES * MOST * MOST_IDS * 4 };

static const char *const first_features[] = {"a", "b"};
static const TrshardTable tables[] = {
    {.name = "t0",
     .num_embeddings = 50,
     .embedding_dim = DIM,
     .n_features = 2,
     .features = first_features,
     .pooling = TRSHARD_POOLING_NONE},
    {.name = "t1", .num_embeddings = 7, .embedding_dim = DIM, .pooling = TRSHARD_POOLING_NONE},
    {.name = "t2", .num_embeddings = 200, .embedding_dim = DIM, .pooling = TRSHARD_POOLING_NONE}};

static const agreement cases[] = {
    {"-tables_sharding_types row_wise", "-embedding_optimizer rowwise_adagrad", "-ec_index_dedup"},
    {"-tables_sharding_types column_wise -tables_min_partition 4", "-embedding_optimizer adagrad", ""},
    {"-tables_sharding_types data_parallel", "-embedding_optimizer adam", "-ec_index_dedup"},
    {"-tables_sharding_types table_wise", "-embedding_optimizer adam -tables_output_dtype fp16", ""},
    {"-tables_sharding_types row_wise",
     "-embedding_optimizer sgd -table_t1_id_map hash -embedding_max_gradient 0.05", "-ec_index_dedup"},
    /* rows that are given to ids and taken back */
    {"-tables_sharding_types row_wise",
     "-table_t0_id_map zch -table_t0_zch_interval 2 -table_t0_zch_buckets 5 -table_t2_id_map dynamic "
     "-table_t2_dynamic_cap 40 -table_t2_dynamic_buckets 4 -embedding_optimizer adam",
     ""},
    {"-tables_sharding_types column_wise -tables_min_partition 4",
     "-table_t0_id_map zch -table_t1_id_map dynamic -table_t1_unknown_row zero -table_t2_id_map dynamic "
     "-table_t2_dynamic_cap 40 -table_t2_dynamic_ttl 3 -embedding_optimizer adagrad",
     ""}};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };

static TrshardCollection make(MPI_Comm comm, const char *plan, const char *numbers, const char *more)
{
  return make_of(tables, comm, plan, numbers, more);
}

static void get(int64_t n, float *rows)
{
  assert_petsc_ok(device->copy(rows, staged, n * STRIDE * (int64_t)sizeof(*rows), NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
}

static void put(int64_t n, const float *rows)
{
  assert_petsc_ok(device->copy(staged, rows, n * STRIDE * (int64_t)sizeof(*rows), NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
}

/* The index of the first id of feature f, from `sample` on. */
static int64_t begin_of(const batch_ids *x, int f, int64_t sample)
{
  int64_t n = 0;

  for (int64_t bag = 0; bag < f * x->batch.batch + sample; bag++) n += x->lengths[bag];
  return n;
}

/* Find the index in the global batch of each of this rank's ids. */
static void find_places(const batch_ids *mine, const batch_ids *everything, int64_t first, int64_t *place)
{
  int64_t n = 0;

  for (int f = 0; f < FEATURES; f++) {
    const int64_t begin = begin_of(everything, f, first),
                  own = begin_of(mine, f, mine->batch.batch) - begin_of(mine, f, 0);

    for (int64_t i = 0; i < own; i++) place[n++] = begin + i;
  }
  assert_int_equal(n, mine->batch.n_values);
}

static void check_rows(const batch_ids *mine, const int64_t *place, const float *rows, const float *whole,
                       double tolerance)
{
  for (int64_t i = 0; i < mine->batch.n_values; i++)
    for (int d = 0; d < DIM; d++)
      assert_close(rows[i * STRIDE + d], whole[place[i] * STRIDE + d], tolerance, tolerance);
}

/* Make gradients that depend only on the id's row and on the id's index in the global batch. */
static void make_gradient(const float *whole, int64_t n, const int64_t *place, float *gradient)
{
  for (int64_t i = 0; i < n; i++)
    for (int d = 0; d < DIM; d++) {
      const int64_t at = (place ? place[i] : i) * STRIDE + d;

      gradient[i * STRIDE + d] = 0.1F * (float)sin((double)whole[at] * 3 + (double)at);
    }
}

/*
  Train both collections for a few steps, and compare their results. If between is set, evaluate
  other batches between the calls of a step.
*/
static void train(TrshardCollection all, TrshardCollection alone, int between, double tolerance)
{
  static float rows[MOST_VALUES * STRIDE], whole[MOST_VALUES * STRIDE], gradient[MOST_VALUES * STRIDE];
  static batch_ids mine, everything, other;
  int64_t place[MOST_VALUES], first = 0;

  for (int r = 0; r < trs_rank(); r++) first += samples_of(r);
  for (int step = 0; step <= STEPS; step++) {
    make_ids(step, trs_rank(), trs_rank() + 1, &mine);
    make_ids(step, 0, trs_size(), &everything);
    make_ids(step + 70, 0, trs_size() - trs_rank(), &other);
    find_places(&mine, &everything, first, place);
    assert_ok(TrshardInputDist(all, &mine.batch));
    if (between) assert_ok(TrshardEvaluate(all, &other.batch, staged, STRIDE));
    assert_ok(TrshardForward(all, staged, STRIDE));
    get(mine.batch.n_values, rows);
    if (between) assert_ok(TrshardEvaluate(all, &other.batch, staged, STRIDE));
    assert_ok(TrshardInputDist(alone, &everything.batch));
    assert_ok(TrshardForward(alone, staged, STRIDE));
    get(everything.batch.n_values, whole);
    check_rows(&mine, place, rows, whole, tolerance);
    make_gradient(whole, mine.batch.n_values, place, gradient);
    put(mine.batch.n_values, gradient);
    assert_ok(TrshardBackward(all, staged, STRIDE));
    make_gradient(whole, everything.batch.n_values, NULL, gradient);
    put(everything.batch.n_values, gradient);
    assert_ok(TrshardBackward(alone, staged, STRIDE));
  }
}

static void test_ranks_agree(void **state)
{
  (void)state;
  check_ranks_agree(tables, N_CASES, cases, MOST_VALUES * STRIDE, train);
}

/*
  The row of an id equals the pooled row of a bag with only this id, in a pooled collection with the
  same seed. The memory behind the DIM columns, and the rows of id -1, are also checked.
*/
static void test_rows_are_those_of_bags(void **state)
{
  static const TrshardTable bag = {.name = "t2", .num_embeddings = 200, .embedding_dim = DIM},
                            row = {.name = "t2",
                                   .num_embeddings = 200,
                                   .embedding_dim = DIM,
                                   .pooling = TRSHARD_POOLING_NONE};
  const int32_t lengths[] = {2, 0, 3}, ones[] = {1, 1, 1, 1, 1};
  const int64_t values[] = {199, 3, 3, -1, 0};
  const TrshardBatch jagged = {.batch = 3, .lengths = lengths, .n_values = 5, .values = values},
                     bags = {.batch = 5, .lengths = ones, .n_values = 5, .values = values};
  TrshardConfig config = {.n_tables = 1, .tables = &bag, .batch_size = 5, .options = "-device cpu"};
  TrshardCollection pooled, rows;
  float expected[5 * DIM], found[5 * STRIDE];
  const int64_t *columns;
  int64_t width;
  int32_t n;

  (void)state;
  assert_ok(TrshardCollectionCreate(MPI_COMM_WORLD, &config, &pooled));
  config.tables = &row;
  assert_ok(TrshardCollectionCreate(MPI_COMM_WORLD, &config, &rows));
  assert_ok(TrshardCollectionColumns(rows, &n, &columns, &width));
  assert_int_equal(width, DIM);
  assert_int_equal(columns[n - 1], 0);
  for (int i = 0; i < 5 * STRIDE; i++) found[i] = 7;
  assert_ok(TrshardEvaluate(pooled, &bags, expected, DIM));
  assert_ok(TrshardEvaluate(rows, &jagged, found, STRIDE));
  for (int i = 0; i < 5; i++) {
    assert_memory_equal(found + i * STRIDE, expected + i * DIM, DIM * sizeof(float));
    for (int d = DIM; d < STRIDE; d++) assert_float_equal(found[i * STRIDE + d], 7, 0);
  }
  assert_true(found[0] != 0);
  for (int d = 0; d < DIM; d++) assert_float_equal(found[3 * STRIDE + d], 0, 0);
  assert_ok(TrshardCollectionDestroy(&pooled));
  assert_ok(TrshardCollectionDestroy(&rows));
}

static void test_files(void **state)
{
  static float before[MOST_VALUES * STRIDE], after[MOST_VALUES * STRIDE];
  static batch_ids mine;
  char path[128];
  int pid = (int)getpid();
  TrshardCollection all = make(MPI_COMM_WORLD, cases[0].plan, cases[2].numbers, "-device cpu"),
                    other = make(MPI_COMM_WORLD, cases[3].plan, cases[2].numbers, "-device cpu -seed 8");

  (void)state;
  MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
  snprintf(path, sizeof(path), "/tmp/trshard_test_rows_%d.h5", pid);
  make_ids(1, trs_rank(), trs_rank() + 1, &mine);
  assert_ok(TrshardInputDist(all, &mine.batch));
  assert_ok(TrshardForward(all, before, STRIDE));
  assert_ok(TrshardBackward(all, before, STRIDE));
  assert_ok(TrshardSave(all, path, 0, NULL));
  assert_ok(TrshardLoad(other, path, 0, NULL));
  assert_ok(TrshardEvaluate(all, &mine.batch, before, STRIDE));
  assert_ok(TrshardEvaluate(other, &mine.batch, after, STRIDE));
  for (int64_t i = 0; i < mine.batch.n_values; i++)
    assert_memory_equal(before + i * STRIDE, after + i * STRIDE, DIM * sizeof(float));
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) unlink(path);
  assert_ok(TrshardCollectionDestroy(&all));
  assert_ok(TrshardCollectionDestroy(&other));
}

static void check_refused(const TrshardTable *two, const char *word)
{
  const TrshardConfig config = {.n_tables = 2, .tables = two, .batch_size = 5};
  TrshardCollection collection;

  assert_fails(TrshardCollectionCreate(MPI_COMM_WORLD, &config, &collection), TRSHARD_ERROR_OPTION);
  if (!strstr(TrshardErrorMessage(), word))
    print_error("\"%s\" is not in: %s\n", word, TrshardErrorMessage());
  assert_non_null(strstr(TrshardErrorMessage(), word));
}

static void test_bad_tables(void **state)
{
  TrshardTable two[] = {tables[1], tables[2]};

  (void)state;
  two[1].embedding_dim = 4;
  check_refused(two, "need one embedding_dim");
  two[1].pooling = TRSHARD_POOLING_SUM;
  check_refused(two, "pooling none");
  two[1] = tables[2];
  two[1].weighted = 1;
  check_refused(two, "t2");
  two[1] = tables[2];
  two[1].pooling = (TrshardPooling)3;
  check_refused(two, "pooling is 3");
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_agree),
                                     cmocka_unit_test(test_rows_are_those_of_bags),
                                     cmocka_unit_test(test_files), cmocka_unit_test(test_bad_tables)};
  int provided, n_failed;

  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  n_failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (n_failed) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
