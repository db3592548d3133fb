/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 */
/*
  Tests the library's reader. It returns the file's samples in the order of a training, beginning at
  any step, and error codes for bad files.
*/
#include "api_test.h"
#include "io/make_dataset.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 5 };

static char path[256];
static const char *const paths[] = {path};
static const char *const first_features[] = {"hist"};
static const TrshardTable tables[] = {
    {.name = "t0", .num_embeddings = 60, .embedding_dim = 4, .n_features = 1, .features = first_features},
    {.name = "user", .num_embeddings = 50, .embedding_dim = 4}};
static const int keys[] = {2, 0}; /* the features' indices in the file */

static TrshardCollection make(const TrshardTable *of)
{
  const TrshardConfig config = {.n_tables = 2, .tables = of, .batch_size = BATCH, .options = "-device cpu"};
  TrshardCollection collection;

  assert_ok(TrshardCollectionCreate(MPI_COMM_WORLD, &config, &collection));
  return collection;
}

static void check_samples(const TrshardSamples *x, int64_t first)
{
  int64_t n = 0;

  assert_int_equal(x->num_dense, MADE_DENSE);
  assert_int_equal(x->n_labels, 1);
  for (int64_t i = 0; i < x->ids.batch; i++) {
    for (int d = 0; d < MADE_DENSE; d++)
      assert_float_equal(x->dense[i * MADE_DENSE + d], made_dense(first + i, d), 0);
    assert_float_equal(x->labels[i], made_label(first + i), 0);
  }
  for (int f = 0; f < 2; f++)
    for (int64_t i = 0; i < x->ids.batch; i++) {
      assert_int_equal(x->ids.lengths[f * x->ids.batch + i], made_length(first + i, keys[f]));
      for (int j = 0; j < made_length(first + i, keys[f]); j++)
        assert_int_equal(x->ids.values[n++], made_id(first + i, keys[f], j));
    }
  assert_int_equal(n, x->ids.n_values);
}

/*
  A rank's number of samples in a global batch. The first ranks have one sample more than the
  others.
*/
static int64_t part_of(int64_t global, int64_t rank)
{
  return global / trs_size() + (rank < global % trs_size());
}

static int64_t part_begin(int64_t global, int64_t rank)
{
  int64_t begin = 0;

  for (int64_t r = 0; r < rank; r++) begin += part_of(global, r);
  return begin;
}

/*
  Read a pass from a step on. Each rank gets its part of each global batch, and the collection
  accepts it.
*/
static void check_pass(TrshardCollection collection, int64_t start)
{
  const int64_t size = trs_size(), all = (MADE_SAMPLES + size * BATCH - 1) / (size * BATCH);
  float pooled[BATCH * 8];
  TrshardReader reader;
  TrshardSamples samples;
  int32_t more;

  assert_ok(TrshardReaderOpen(collection, 1, paths, "-epochs 1", start, &reader));
  for (int64_t step = start; step < all; step++) {
    const int64_t begin = step * size * BATCH,
                  global = MADE_SAMPLES - begin < size * BATCH ? MADE_SAMPLES - begin : size * BATCH;

    assert_ok(TrshardReaderNext(reader, &samples, &more));
    assert_int_equal(more, 1);
    assert_int_equal(samples.step, step);
    assert_int_equal(samples.global_batch, global);
    assert_int_equal(samples.ids.batch, part_of(global, trs_rank()));
    check_samples(&samples, begin + part_begin(global, trs_rank()));
    assert_ok(TrshardInputDist(collection, &samples.ids));
    assert_ok(TrshardForward(collection, pooled, 8));
    assert_ok(TrshardBackward(collection, pooled, 8));
  }
  assert_ok(TrshardReaderNext(reader, &samples, &more));
  assert_int_equal(more, 0);
  assert_ok(TrshardReaderClose(&reader));
  assert_null(reader);
}

static void test_batches(void **state)
{
  TrshardCollection collection = make(tables);

  (void)state;
  check_pass(collection, 0);
  check_pass(collection, 1);
  assert_ok(TrshardCollectionDestroy(&collection));
}

static void check_refused(const TrshardTable *of, const char *file, const char *options, int status,
                          const char *word)
{
  const char *const names[] = {path, file};
  TrshardCollection collection = make(of);
  TrshardReader reader;

  assert_fails(TrshardReaderOpen(collection, 2, names, options, 0, &reader), status);
  assert_null(reader);
  if (!strstr(TrshardErrorMessage(), word))
    print_error("\"%s\" is not in: %s\n", word, TrshardErrorMessage());
  assert_non_null(strstr(TrshardErrorMessage(), word));
  assert_ok(TrshardCollectionDestroy(&collection));
}

/*
  A file may declare more rows than a table has. The first id outside of the table is then refused.
*/
static void test_fewer_rows(void **state)
{
  const TrshardTable few[] = {tables[0], {.name = tables[1].name, .num_embeddings = 3, .embedding_dim = 4}};
  TrshardCollection collection = make(few);
  TrshardReader reader;
  TrshardSamples samples;
  int32_t more = 1;
  int status = TRSHARD_SUCCESS;

  (void)state;
  assert_ok(TrshardReaderOpen(collection, 1, paths, "-epochs 1", 0, &reader));
  while (more && status == TRSHARD_SUCCESS) status = TrshardReaderNext(reader, &samples, &more);
  assert_int_equal(status, TRSHARD_ERROR_DATA);
  assert_non_null(strstr(TrshardErrorMessage(), ", expected 0 to 2 (-bounds_check_mode warning"));
  assert_ok(TrshardReaderClose(&reader));
  assert_ok(TrshardCollectionDestroy(&collection));
}

static void test_refused(void **state)
{
  TrshardTable few[] = {tables[0], tables[1]};
  TrshardSamples samples;
  int32_t more;

  (void)state;
  check_refused(tables, NULL, "", TRSHARD_ERROR_OPTION, "TrshardReaderOpen: paths[1] is NULL");
  check_refused(tables, "/nowhere.h5", "", TRSHARD_ERROR_NO_INPUT, "/nowhere.h5");
  check_refused(tables, "/proc/self/status", "", TRSHARD_ERROR_DATA, "/proc/self/status");
  check_refused(tables, path, "-epoch 1", TRSHARD_ERROR_OPTION, "-epoch");
  check_refused(tables, path, "-batch_size 100", TRSHARD_ERROR_OPTION, "-batch_size \"100\"");
  check_refused(tables, path, "-accumulate_steps 2", TRSHARD_ERROR_OPTION, "-accumulate_steps \"2\"");
  check_refused(tables, path, "-seed \"1", TRSHARD_ERROR_OPTION, "quote");
  few[1].name = "nobody";
  check_refused(few, path, "", TRSHARD_ERROR_DATA, "'nobody'");
  assert_fails(TrshardReaderOpen(NULL, 1, paths, "", 0, NULL), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardReaderNext(NULL, &samples, &more), TRSHARD_ERROR_OPTION);
  assert_string_equal(TrshardErrorMessage(), "TrshardReaderNext: reader is NULL");
  assert_ok(TrshardReaderClose(NULL));
}

static int make_file(void **state)
{
  int pid = (int)getpid();

  (void)state;
  MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
  snprintf(path, sizeof(path), "%s/trs_api_read_%d.h5", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", pid);
  if (trs_rank() == 0) made_dataset(path, MADE_PLAIN);
  MPI_Barrier(MPI_COMM_WORLD);
  return 0;
}

static int remove_file(void **state)
{
  (void)state;
  MPI_Barrier(MPI_COMM_WORLD);
  return trs_rank() == 0 ? unlink(path) : 0;
}

/* A collection closes its readers. Their handles are then dead, like copies of closed handles. */
static void test_dead_readers(void **state)
{
  TrshardCollection all = make(tables);
  TrshardReader one, two, copy;
  TrshardSamples samples;
  int32_t more;

  (void)state;
  assert_ok(TrshardReaderOpen(all, 1, paths, NULL, 0, &one));
  assert_ok(TrshardReaderOpen(all, 1, paths, NULL, 0, &two));
  assert_ok(TrshardReaderNext(two, &samples, &more));
  copy = one;
  assert_ok(TrshardReaderClose(&one));
  assert_fails(TrshardReaderNext(copy, &samples, &more), TRSHARD_ERROR_OPTION);
  assert_fails(TrshardReaderClose(&copy), TRSHARD_ERROR_OPTION);
  assert_ok(TrshardCollectionDestroy(&all));
  assert_fails(TrshardReaderNext(two, &samples, &more), TRSHARD_ERROR_OPTION);
  assert_non_null(strstr(TrshardErrorMessage(), "TrshardReaderNext: the reader is not alive"));
  assert_fails(TrshardReaderClose(&two), TRSHARD_ERROR_OPTION);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_batches), cmocka_unit_test(test_fewer_rows),
                                     cmocka_unit_test(test_refused), cmocka_unit_test(test_dead_readers)};
  int provided, n_failed;

  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  n_failed = cmocka_run_group_tests(tests, make_file, remove_file);
  if (n_failed) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
