/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/* A folder of checkpoints: which files stay, and which one is the newest. */
#include "checkpoint_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_step(const char *where, int64_t step, int keep)
{
  const TrsCheckpointInfo info = {.step = step, .run_id = "0123456789abcdef"};
  const TrsRunWait no_wait = {.seconds = 0};
  TrsCheckpointFolder open;
  fixture f;

  add_tensor(&f, "embedding/user/weight", SPLIT_ROWS);
  fill(&f, (int)step);
  assert_petsc_ok(
      TrsCheckpointFolderOpen(MPI_COMM_WORLD, where, &trs_folder_checkpoints, keep, &no_wait, &open));
  assert_petsc_ok(TrsCheckpointFolderWrite(open, &f.state, &info));
  assert_petsc_ok(TrsCheckpointFolderClose(&open));
  assert_null(open);
  free_fixture(&f);
}

static void expect_newest(const char *where, const char *name)
{
  char *newest;

  assert_petsc_ok(TrsCheckpointFolderFindNewest(MPI_COMM_WORLD, where, NULL, &newest));
  if (name) {
    assert_non_null(newest);
    assert_string_equal(strrchr(newest, '/') + 1, name);
  } else {
    assert_null(newest);
  }
  assert_petsc_ok(PetscFree(newest));
}

static void test_folder(void **state)
{
  char where[300], file[400], leftover[400];
  long n;
  char *bytes;

  (void)state;
  snprintf(where, sizeof(where), "%s/a/b", folder);
  expect_newest(where, NULL); /* the folder does not exist */
  write_step(where, 5, 2);
  write_step(where, 10, 2);
  snprintf(leftover, sizeof(leftover), "%s/.step-000000007.h5.0123456789abcdef.tmp", where);
  if (trs_rank() == 0) write_bytes(leftover, "x", 1);
  expect_newest(where, "step-000000010.h5");
  write_step(where, 20, 2);
  expect_newest(where, "step-000000020.h5");
  /* the left-over file of a killed run was removed */
  assert_int_not_equal(access(leftover, F_OK), 0);
  snprintf(file, sizeof(file), "%s/step-000000005.h5", where);
  assert_int_not_equal(access(file, F_OK), 0); /* only two files are kept */
  snprintf(file, sizeof(file), "%s/step-000000020.h5", where);
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) { /* the newest file is damaged, so the file before it is found */
    bytes = read_bytes(file, &n);
    for (long i = 0; i + 4 <= n; i++) {
      float x = element(20, 30, 5), y;

      memcpy(&y, bytes + i, sizeof(y));
      if (x == y) bytes[i + 1] = (char)(bytes[i + 1] ^ 1);
    }
    write_bytes(file, bytes, n);
    free(bytes);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  expect_newest(where, "step-000000010.h5");
}

/* A file that a reader holds is not removed. The next write after its release removes it. */
static void test_held(void **state)
{
  char where[300], file[400], *newest;
  int hold, held;

  (void)state;
  snprintf(where, sizeof(where), "%s/held", folder);
  snprintf(file, sizeof(file), "%s/step-000000001.h5", where);
  write_step(where, 1, 1);
  assert_petsc_ok(TrsCheckpointFolderFindNewest(MPI_COMM_WORLD, where, &hold, &newest));
  assert_string_equal(newest, file);
  held = hold >= 0;
  assert_int_equal(held, trs_rank() == 0);
  write_step(where, 2, 1);
  write_step(where, 3, 1);
  assert_int_equal(access(file, F_OK), 0);
  expect_newest(where, "step-000000003.h5");
  MPI_Barrier(MPI_COMM_WORLD);
  TrsCheckpointRelease(&hold);
  MPI_Barrier(MPI_COMM_WORLD);
  write_step(where, 4, 1);
  assert_int_not_equal(access(file, F_OK), 0);
  expect_newest(where, "step-000000004.h5");
  assert_petsc_ok(PetscFree(newest));
}

static void test_unwritable(void **state)
{
  const TrsCheckpointInfo info = {.step = 1};
  const TrsRunWait no_wait = {.seconds = 0};
  TrsCheckpointFolder open;
  TrsState s = {0};
  char where[300];

  (void)state;
  snprintf(where, sizeof(where), "%s/none/run.h5", folder);
  assert_petsc_error(TrsCheckpointWrite(MPI_COMM_WORLD, where, &s, &info), TRS_ERR_CANT_CREATE);
  assert_petsc_error(TrsCheckpointWrite(MPI_COMM_WORLD, folder, &s, &info), TRS_ERR_CANT_CREATE);
  write_split(SPLIT_ROWS, 1);
  assert_petsc_error(
      TrsCheckpointFolderOpen(MPI_COMM_WORLD, path, &trs_folder_checkpoints, 2, &no_wait, &open),
      TRS_ERR_CANT_CREATE);
  assert_null(open);
  snprintf(where, sizeof(where), "%s/none.h5", folder);
  assert_petsc_error(TrsCheckpointRead(MPI_COMM_WORLD, where, &s, &(TrsCheckpointInfo){0}), TRS_ERR_NO_INPUT);
  assert_petsc_error(TrsCheckpointRead(MPI_COMM_WORLD, folder, &s, &(TrsCheckpointInfo){0}),
                     TRS_ERR_NO_INPUT);
  TrsErrorClear();
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_folder), cmocka_unit_test(test_held),
                        cmocka_unit_test(test_unwritable))
