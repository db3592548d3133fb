/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 3 */
/*
  Tests how datasets are opened: more files than stay open, files that change meanwhile, and a
  thread that reads one dataset while another thread opens another one.
*/
#include "io/dataset.h"
#include "io/hdf5_util.h"
#include "make_dataset.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

static char path[4096];
static const char *const paths[1] = {path};

static void choose_path(void **state)
{
  (void)state;
  made_choose_path("trs_open", path);
}

static void remove_file(void **state)
{
  (void)state;
  made_remove(path);
}

/*
  Use more files than stay open, of both kinds. They are closed and opened again, and files that
  changed are detected.
*/
static void test_many_files(void **state)
{
  enum { N_FILES = 600 };
  static const made_kind kinds[2] = {MADE_PLAIN, MADE_COMPRESSED};
  static const char *names[N_FILES];
  char other[4200];
  TrsFault fault = {PETSC_SUCCESS, ""};

  (void)state;
  for (int k = 0; k < 2; k++) {
    const int n = kinds[k] == MADE_PLAIN ? N_FILES : 9;
    TrsDataset dataset;

    for (int i = 0; i < n; i++) names[i] = path;
    MPI_Barrier(MPI_COMM_WORLD);
    if (trs_rank() == 0) made_part(path, kinds[k], 0, 4);
    MPI_Barrier(MPI_COMM_WORLD);
    assert_petsc_ok(TrsDatasetOpen(MPI_COMM_WORLD, n, names, &dataset));
    for (int turn = 0; turn < 2; turn++) {
      for (int64_t i = 0; i < n; i++) {
        const TrsRowRun run = {4 * ((7 * i) % n) + 1, 6};
        float labels[6];
        int32_t lengths[6 * MADE_FEATURES];
        int64_t offsets[7];
        const TrsSampleRows to = {.labels = labels, .lengths = lengths, .offsets = offsets};

        if (run.first + run.n > 4 * (int64_t)n) continue;
        assert_int_equal(TrsDatasetReadSamples(dataset, 1, &run, &to, &fault), PETSC_SUCCESS);
        /* 18 ids per file, of which sample 0 has 3 */
        assert_int_equal(offsets[0], (run.first - 1) / 4 * 18 + 3);
        for (int j = 0; j < 6; j++) {
          assert_true(labels[j] == made_label((1 + j) % 4));
          for (int f = 0; f < MADE_FEATURES; f++)
            assert_int_equal(lengths[j * MADE_FEATURES + f], made_length((1 + j) % 4, f));
        }
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(other, sizeof(other), "%s.other", path);
    if (trs_rank() == 0) {
      made_part(other, kinds[k], 0, 5);
      assert_int_equal(rename(other, path), 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int64_t i = 0; i < n && fault.code == PETSC_SUCCESS; i++) {
      const TrsRowRun run = {4 * i, 1};
      int32_t lengths[MADE_FEATURES];
      int64_t offsets[2];
      const TrsSampleRows to = {.lengths = lengths, .offsets = offsets};

      if (TrsDatasetReadSamples(dataset, 1, &run, &to, &fault) != PETSC_SUCCESS)
        assert_non_null(strstr(fault.text, "has changed since this run checked it"));
    }
    assert_int_equal(fault.code, TRS_ERR_DATA);
    fault = (TrsFault){PETSC_SUCCESS, ""};
    assert_petsc_ok(TrsDatasetClose(&dataset));
  }
}

/* A thread that stays inside HDF5 for a while, like a reader of compressed samples. */
static void *be_inside(void *barrier)
{
  const struct timespec while_others_open = {.tv_nsec = 200000000};

  TrsHDF5Lock();
  (void)pthread_barrier_wait((pthread_barrier_t *)barrier);
  (void)nanosleep(&while_others_open, NULL);
  TrsHDF5Unlock();
  return NULL;
}

/*
  Open a dataset while a thread reads another one. The child process that checks the dataset does
  not have this thread, so it must not wait for a lock of this thread.
*/
static void test_beside_a_reader(void **state)
{
  pthread_barrier_t barrier;
  pthread_t reader;
  TrsDataset dataset;

  (void)state;
  if (trs_rank() == 0) made_dataset(path, MADE_PLAIN);
  MPI_Barrier(MPI_COMM_WORLD);
  assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
  assert_int_equal(pthread_create(&reader, NULL, be_inside, &barrier), 0);
  (void)pthread_barrier_wait(&barrier);
  assert_petsc_ok(TrsDatasetOpen(MPI_COMM_WORLD, 1, paths, &dataset));
  assert_int_equal(pthread_join(reader, NULL), 0);
  assert_petsc_ok(TrsDatasetClose(&dataset));
  assert_int_equal(pthread_barrier_destroy(&barrier), 0);
}

TRS_TEST_MAIN(cmocka_unit_test(choose_path), cmocka_unit_test(test_many_files),
              cmocka_unit_test(test_beside_a_reader), cmocka_unit_test(remove_file))
