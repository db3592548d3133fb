/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 4 */
/*
  Runs of the program's tasks inside this one: parts of a job have runs of their own at the same time, one of which fails, and the job goes on.
*/
#include "api/api_test.h"
#include "io/make_dataset.h"

#include <string.h>
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

/* Even ranks train one model, odd ones another; in the second round the odd ones fail. */
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

/* A request before a run stops it at its first step, and only it. */
static void test_stop(void **state)
{
  (void)state;
  TrshardRequestStop();
  assert_fails(run(MPI_COMM_WORLD, "-steps 1000000 -epochs 1000000"), TRSHARD_STOPPED);
  assert_ok(run(MPI_COMM_WORLD, "-steps 2"));
  assert_ok(run(MPI_COMM_WORLD, "-task plan"));
}

TRS_TEST_MAIN(cmocka_unit_test(make_folder), cmocka_unit_test(test_all), cmocka_unit_test(test_parts),
              cmocka_unit_test(test_stop), cmocka_unit_test(remove_folder))
