/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests the folder from which a training takes files: the order, names that do not count, the file
  STOP, and files that come too late, which are counted once.
*/
#include "io/follow_folder.h"
#include "scratch_folder.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void make(const char *name)
{
  char at[400];
  int fd;

  snprintf(at, sizeof(at), "%s/%s", folder, name);
  fd = open(at, O_WRONLY | O_CREAT, 0666);
  assert_true(fd >= 0);
  (void)close(fd);
}

static void remove_name(const char *name)
{
  char at[400];

  snprintf(at, sizeof(at), "%s/%s", folder, name);
  assert_int_equal(remove(at), 0);
}

static void check_look(TrsFollowFolder *f, const char *next, int n_late, const char *late, PetscBool has_stop)
{
  TrsFollowLook look;

  assert_petsc_ok(TrsFollowFolderLook(f, &look));
  assert_string_equal(look.next, next);
  assert_int_equal(look.n_late, n_late);
  assert_string_equal(look.late, late);
  assert_int_equal(look.has_stop, has_stop);
}

static void test_order(void **state)
{
  TrsFollowFolder f;
  char at[400];
  int n_before;

  (void)state;
  assert_petsc_ok(TrsFollowFolderOpen(folder, "", &f, &n_before));
  assert_int_equal(n_before, 0);
  snprintf(at, sizeof(at), "%s/aa", folder);
  assert_int_equal(mkdir(at, 0777), 0);
  make(".a");
  make("a.tmp");
  check_look(&f, "", 0, "", PETSC_FALSE);
  make("c");
  make("b");
  make("B"); /* the order of bytes, not of a language */
  make("STOP");
  check_look(&f, "B", 0, "", PETSC_FALSE);
  assert_petsc_ok(TrsFollowFolderTake(&f, "B"));
  make("A");
  check_look(&f, "b", 1, "A", PETSC_FALSE);
  check_look(&f, "b", 0, "", PETSC_FALSE);
  assert_petsc_ok(TrsFollowFolderTake(&f, "b"));
  remove_name("B"); /* a file that was taken may be removed */
  make("bb");       /* comes before c, which was not taken yet */
  check_look(&f, "bb", 0, "", PETSC_FALSE);
  assert_petsc_ok(TrsFollowFolderTake(&f, "bb"));
  check_look(&f, "c", 0, "", PETSC_FALSE);
  assert_petsc_ok(TrsFollowFolderTake(&f, "c"));
  check_look(&f, "", 0, "", PETSC_TRUE);
  assert_petsc_ok(TrsFollowFolderFree(&f));
  /* files up to the given name are left alone, without a word about each */
  assert_petsc_ok(TrsFollowFolderOpen(folder, "bb", &f, &n_before));
  assert_int_equal(n_before, 3);
  check_look(&f, "c", 0, "", PETSC_FALSE);
  make("B1");
  make("a");
  check_look(&f, "c", 2, "B1", PETSC_FALSE);
  assert_petsc_ok(TrsFollowFolderFree(&f));
}

static void test_missing(void **state)
{
  TrsFollowFolder f;
  int n_before;

  (void)state;
  assert_petsc_error(TrsFollowFolderOpen("/no/such/folder", "", &f, &n_before), TRS_ERR_NO_INPUT);
  assert_non_null(strstr(TrsErrorMessage(), "-data_follow /no/such/folder: the folder cannot be read"));
  TrsErrorClear();
  assert_petsc_ok(TrsFollowFolderFree(&f));
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_order), cmocka_unit_test(test_missing))
