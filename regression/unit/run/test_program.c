/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 4 */
/*
  Tests several runs in one process. Parts of a job run at the same time, one of them fails, and the
  job continues.
*/
#include "api/api_test.h"
#include "io/make_dataset.h"

#include <dirent.h>
#include <malloc.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char folder[] = "/tmp/trs_program_XXXXXX";

static int run(MPI_Comm comm, const char *more)
{
  char options[1024];

  snprintf(options, sizeof(options),
           "-device cpu -cpu_bind none -data_train %s/data.h5 -tables_embedding_dim 4 -dense_arch 4 "
           "-over_arch 4,1 "
           "-batch_size 4 -report_interval 1e9 %s",
           folder, more);
  return TrshardRun(comm, options);
}

static PetscBool is_there(const char *name)
{
  char path[256];

  snprintf(path, sizeof(path), "%s/%s", folder, name);
  return (PetscBool)(access(path, R_OK) == 0);
}

static void remove_file(const char *name)
{
  char path[256];

  snprintf(path, sizeof(path), "%s/%s", folder, name);
  (void)remove(path);
}

static void make_folder(void **state)
{
  char path[256];

  (void)state;
  if (trs_rank() == 0) assert_non_null(mkdtemp(folder));
  MPI_Bcast(folder, (int)sizeof(folder), MPI_CHAR, 0, MPI_COMM_WORLD);
  snprintf(path, sizeof(path), "%s/data.h5", folder);
  if (trs_rank() == 0) made_dataset(path, MADE_PLAIN);
  MPI_Barrier(MPI_COMM_WORLD);
}

static void remove_folder(void **state)
{
  static const char *const names[] = {"data.h5", "0.h5", "1.h5", "all.h5"};

  (void)state;
  MPI_Barrier(MPI_COMM_WORLD);
  for (size_t i = 0; trs_rank() == 0 && i < sizeof(names) / sizeof(names[0]); i++) remove_file(names[i]);
  if (trs_rank() == 0) assert_int_equal(rmdir(folder), 0);
}

static void test_all(void **state)
{
  char more[256];

  (void)state;
  snprintf(more, sizeof(more), "-steps 3 -checkpoint_final %s/all.h5", folder);
  assert_ok(run(MPI_COMM_WORLD, more));
  if (trs_rank() == 0) assert_true(is_there("all.h5"));
}

/* Even ranks train one model, and odd ranks another. In the second round, the odd ranks fail. */
static void test_parts(void **state)
{
  const int part = trs_rank() % 2;
  char more[256];
  MPI_Comm comm;
  int sum = 1;

  (void)state;
  MPI_Comm_split(MPI_COMM_WORLD, part, 0, &comm);
  snprintf(more, sizeof(more), "-steps %d -checkpoint_final %s/%d.h5", 2 + part, folder, part);
  assert_ok(run(comm, more));
  assert_fails(run(comm, part ? "-steps 3 -tables_embedding_dim -4" : "-steps 3"),
               part ? TRSHARD_ERROR_OPTION : TRSHARD_SUCCESS);
  if (part) assert_non_null(strstr(TrshardErrorMessage(), "-tables_embedding_dim"));
  MPI_Comm_free(&comm);
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  assert_int_equal(sum, trs_size());
  if (trs_rank() == 0) {
    assert_true(is_there("0.h5"));
    assert_int_equal(is_there("1.h5"), trs_size() > 1);
  }
}

/* A stop request before a run stops this run at its first step. Later runs are not stopped. */
static void test_stop(void **state)
{
  (void)state;
  TrshardRequestStop();
  assert_fails(run(MPI_COMM_WORLD, "-steps 1000000 -epochs 1000000"), TRSHARD_STOPPED);
  assert_ok(run(MPI_COMM_WORLD, "-steps 2"));
  assert_ok(run(MPI_COMM_WORLD, "-task plan"));
}

static int threads(void)
{
  DIR *tasks = opendir("/proc/self/task");
  int n = 0;

  assert_non_null(tasks);
  while (readdir(tasks)) n++;
  closedir(tasks);
  return n;
}

/* Wait until there are at most n threads: a thread that was joined is still there for a moment. */
static void threads_end(int n)
{
  static const struct timespec nap = {.tv_nsec = 10000000};

  for (int i = 0; threads() > n && i < 6000; i++) (void)nanosleep(&nap, NULL);
  assert_true(threads() <= n);
}

/*
  A run that ends with an error frees its threads and memory. Six more such runs need a little
  memory for HDF5 and MPI, but none for a model. If one of several ranks had an error, MPI keeps
  messages that were not received, so the test does not compare memory.
*/
static void fails_and_leaves_nothing(const char *more, PetscBool stop, int expected)
{
  enum { RUNS = 8, LITTLE = 512 << 10 };
  size_t bytes = 0;
  int n = 0;

  for (int i = 0; i < RUNS; i++) {
    if (stop) TrshardRequestStop();
    assert_fails(run(MPI_COMM_WORLD, more), expected);
    if (i > 1) continue;
    bytes = mallinfo2().uordblks;
    n = threads();
  }
  threads_end(n);
  if (!stop && trs_size() > 1) return;
  if (mallinfo2().uordblks > bytes + LITTLE)
    print_error("%s: %zu bytes, and six runs later %zu\n", more, bytes, mallinfo2().uordblks);
  assert_true(mallinfo2().uordblks <= bytes + LITTLE);
}

/* Make a dataset whose last label is 2. */
static void make_bad_dataset(const char *path)
{
  const hsize_t last = MADE_SAMPLES - 1, one = 1;
  const float two = 2;
  hid_t file, labels, one_number, place;

  made_dataset(path, MADE_PLAIN);
  file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  labels = H5Dopen(file, "labels", H5P_DEFAULT);
  place = H5Dget_space(labels);
  one_number = H5Screate_simple(1, &one, NULL);
  assert_true(H5Sselect_hyperslab(place, H5S_SELECT_SET, &last, NULL, &one, NULL) >= 0);
  assert_true(H5Dwrite(labels, H5T_NATIVE_FLOAT, one_number, place, H5P_DEFAULT, &two) >= 0);
  H5Sclose(one_number);
  H5Sclose(place);
  H5Dclose(labels);
  H5Fclose(file);
}

/* Test an evaluation, a prediction, a training, and an evaluation during training that fail. */
static void test_leaves_nothing(void **state)
{
  char more[512], path[256];

  (void)state;
  snprintf(path, sizeof(path), "%s/bad.h5", folder);
  if (trs_rank() == 0) make_bad_dataset(path);
  MPI_Barrier(MPI_COMM_WORLD);
  snprintf(more, sizeof(more), "-task eval -init_from %s/all.h5 -data_eval %s/data.h5", folder, folder);
  fails_and_leaves_nothing(more, PETSC_TRUE, TRSHARD_STOPPED);
  snprintf(more, sizeof(more), "-task eval -init_from %s/all.h5 -data_eval %s/bad.h5", folder, folder);
  fails_and_leaves_nothing(more, PETSC_FALSE, TRSHARD_ERROR_DATA);
  snprintf(more, sizeof(more), "-task predict -init_from %s/all.h5 -data_eval %s/data.h5", folder, folder);
  fails_and_leaves_nothing(more, PETSC_TRUE, TRSHARD_STOPPED);
  snprintf(more, sizeof(more), "-steps 3 -eval_every 1 -data_eval %s/bad.h5", folder);
  fails_and_leaves_nothing(more, PETSC_FALSE, TRSHARD_ERROR_DATA);
  fails_and_leaves_nothing("-steps 1000000 -epochs 1000000", PETSC_TRUE, TRSHARD_STOPPED);
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) remove_file("bad.h5");
}

TRS_TEST_MAIN(cmocka_unit_test(make_folder), cmocka_unit_test(test_all), cmocka_unit_test(test_parts),
              cmocka_unit_test(test_stop), cmocka_unit_test(test_leaves_nothing),
              cmocka_unit_test(remove_folder))
