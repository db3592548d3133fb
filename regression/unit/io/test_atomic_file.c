/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests atomic files. Many processes write a file of the same name at the same time, and all of them
  remove left-overs. No writer loses its file.
*/
#include "io/atomic_file.h"
#include "scratch_folder.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { N_ROUNDS = 300, N_WORDS = 1024 };

/* Check that the file at the path is complete, and that a single writer wrote it. */
static void check_whole(void)
{
  int64_t word[N_WORDS];
  const int fd = open(path, O_RDONLY);

  assert_true(fd >= 0);
  assert_int_equal(read(fd, word, sizeof(word)), sizeof(word));
  for (int i = 1; i < N_WORDS; i++) assert_int_equal(word[i], word[0]);
  close(fd);
}

static void test_writers_at_once(void **state)
{
  int64_t word[N_WORDS];

  (void)state;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < N_ROUNDS; i++) {
    TrsAtomicFile file;

    for (int k = 0; k < N_WORDS; k++) word[k] = 1000 * i + trs_rank();
    assert_petsc_ok(TrsAtomicCreate(path, &file));
    assert_int_equal(write(file.fd, word, sizeof(word)), sizeof(word));
    TrsAtomicClean(folder, "run.h5"); /* as if another job starts */
    assert_petsc_ok(TrsAtomicPublish(&file));
    assert_petsc_ok(TrsAtomicDiscard(&file));
    check_whole();
  }
}

/* If a cleaner holds a new file, the file's writer gives it up and makes another file. */
static void test_leftover_is_removed(void **state)
{
  char leftover[400];
  TrsAtomicFile file;
  int fd;

  (void)state;
  snprintf(leftover, sizeof(leftover), "%s/.run%d.h5.0123456789abcdef.tmp", folder, trs_rank());
  snprintf(path, sizeof(path), "%s/run%d.h5", folder, trs_rank());
  fd = open(leftover, O_WRONLY | O_CREAT, 0666);
  assert_true(fd >= 0);
  close(fd);
  assert_petsc_ok(TrsAtomicCreate(path, &file));
  assert_int_not_equal(access(leftover, F_OK), 0);
  assert_int_equal(access(file.temporary, F_OK), 0);
  assert_petsc_ok(TrsAtomicDiscard(&file));
  assert_int_not_equal(access(path, F_OK), 0);
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_writers_at_once), cmocka_unit_test(test_leftover_is_removed))
