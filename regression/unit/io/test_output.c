/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/* Tests outputs and the owners of existing files. No file of another run is ever lost. */
#include "io/output.h"
#include "trs_test.h"

#include <hdf5.h>

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256], path[300];

static void make_folder(void **state)
{
  (void)state;
  snprintf(folder, sizeof(folder), "%s/trs_output_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof(path), "%s/run.h5", folder);
}

static void write_text(const char *name, const char *text)
{
  FILE *file = fopen(name, "w");

  assert_true(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void check_text(const char *name, const char *expected)
{
  char text[64] = "";
  FILE *file = fopen(name, "r");

  assert_non_null(file);
  assert_true(fgets(text, sizeof(text), file) != NULL && fclose(file) == 0);
  assert_string_equal(text, expected);
}

static void backup_name(int n, char name[400])
{
  snprintf(name, 400, "%s.~%d~", path, n);
}

/* Write a file of a run in the same way as the program. */
static void write_run(const char *run_id)
{
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), type = H5Tcopy(H5T_C_S1);
  hid_t space = H5Screate(H5S_SCALAR), attribute;

  assert_true(file >= 0 && H5Tset_size(type, strlen(run_id)) >= 0);
  attribute = H5Acreate2(file, "run_id", type, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(attribute >= 0 && H5Awrite(attribute, type, run_id) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
  assert_true(H5Fclose(file) >= 0);
}

static PetscErrorCode publish(TrsOutput *output, const char *text)
{
  TrsAtomicFile file;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsAtomicCreate(path, &file));
  PetscCheck(write(file.fd, text, strlen(text)) == (ssize_t)strlen(text), PETSC_COMM_SELF, TRS_ERR_IO,
             "write");
  ierr = TrsOutputPublish(output, &file);
  PetscCall(TrsAtomicDiscard(&file));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Publish "first" and then `text` for a run. Returns true if this made a backup. */
static PetscBool put(TrsExisting existing, const char *run_id, const char *text)
{
  TrsOutput output;
  PetscBool kept;

  assert_petsc_ok(TrsOutputOpen(path, existing, &output));
  assert_petsc_ok(TrsOutputClaim(&output, run_id));
  assert_petsc_ok(publish(&output, "first"));
  assert_petsc_ok(publish(&output, text)); /* the file now belongs to this run */
  check_text(path, text);
  kept = (PetscBool)(output.backup != NULL);
  assert_petsc_ok(TrsOutputClose(&output));
  return kept;
}

static void test_backups_are_numbered(void **state)
{
  char name[400];

  (void)state;
  assert_false(put(TRS_EXISTING_BACKUP, "0123456789abcdef", "a")); /* no file existed */
  /* a text belongs to no run, so it is kept */
  assert_true(put(TRS_EXISTING_BACKUP, "0123456789abcdef", "b"));
  backup_name(2, name);
  write_text(name, "the user's"); /* the next number is already used */
  assert_true(put(TRS_EXISTING_BACKUP, NULL, "c"));
  backup_name(1, name);
  check_text(name, "a");
  backup_name(2, name);
  check_text(name, "the user's");
  backup_name(3, name);
  check_text(name, "b");
  assert_int_equal(unlink(name), 0);
  backup_name(2, name);
  assert_int_equal(unlink(name), 0);
  backup_name(1, name);
  assert_int_equal(unlink(name), 0);
}

static void test_own_files_are_replaced(void **state)
{
  char name[400];

  (void)state;
  write_run("0123456789abcdef");
  assert_false(put(TRS_EXISTING_BACKUP, "0123456789abcdef", "a"));
  write_run("0123456789abcdef");
  assert_false(put(TRS_EXISTING_REFUSE, "0123456789abcdef", "a"));
  write_run("0123456789abcdef");
  assert_false(put(TRS_EXISTING_REPLACE, "fedcba9876543210", "a"));
  write_run("0123456789abcdef");
  assert_true(put(TRS_EXISTING_BACKUP, "fedcba9876543210", "a"));
  backup_name(1, name);
  assert_int_equal(unlink(name), 0);
  write_run("0123456789abcdef");
  assert_true(put(TRS_EXISTING_BACKUP, "", "a")); /* a run without an id owns no file */
  assert_int_equal(unlink(name), 0);
}

/*
  If a file cannot be published, the next checkpoint tries again. One backup is enough for all
  attempts.
*/
static void test_failing_publication(void **state)
{
  TrsOutput output;
  char name[400];

  (void)state;
  write_text(path, "other");
  assert_petsc_ok(TrsOutputOpen(path, TRS_EXISTING_BACKUP, &output));
  assert_petsc_ok(TrsOutputClaim(&output, "0123456789abcdef"));
  for (int i = 0; i < 3; i++) {
    TrsAtomicFile file;

    assert_petsc_ok(TrsAtomicCreate(path, &file));
    assert_int_equal(unlink(file.temporary), 0); /* without the temporary file, the rename fails */
    assert_true(TrsOutputPublish(&output, &file) != PETSC_SUCCESS);
    TrsErrorClear();
    assert_petsc_ok(TrsAtomicDiscard(&file));
  }
  assert_petsc_ok(publish(&output, "a"));
  assert_petsc_ok(TrsOutputClose(&output));
  backup_name(2, name);
  assert_int_equal(access(name, F_OK), -1);
  backup_name(1, name);
  check_text(name, "other");
  assert_int_equal(unlink(name), 0);
}

static void test_refused(void **state)
{
  TrsOutput output;

  (void)state;
  write_run("0123456789abcdef");
  assert_petsc_ok(TrsOutputOpen(path, TRS_EXISTING_REFUSE, &output));
  assert_petsc_error(TrsOutputClaim(&output, "fedcba9876543210"), TRS_ERR_CANT_CREATE);
  assert_petsc_ok(TrsOutputClose(&output));
}

/* If another run's file appears during the run, it is kept, even with TRS_EXISTING_REFUSE. */
static void test_appears_later(void **state)
{
  TrsOutput output;
  char name[400];

  (void)state;
  for (int refuse = 0; refuse < 2; refuse++) {
    (void)unlink(path);
    assert_petsc_ok(TrsOutputOpen(path, refuse ? TRS_EXISTING_REFUSE : TRS_EXISTING_BACKUP, &output));
    assert_petsc_ok(TrsOutputClaim(&output, "0123456789abcdef"));
    assert_petsc_ok(publish(&output, "ours"));
    write_text(path, "theirs");
    assert_petsc_ok(publish(&output, "ours again"));
    assert_non_null(output.backup);
    check_text(output.backup, "theirs");
    check_text(path, "ours again");
    backup_name(1, name);
    assert_string_equal(output.backup, name);
    assert_int_equal(unlink(name), 0);
    assert_petsc_ok(TrsOutputClose(&output));
  }
}

/*
  The name is a symbolic link to another link. The path in the link has one part, or folders. The
  links stay, the file is made at the target of the last link, and an existing file is kept as a
  backup in the same folder.
*/
static void test_link(void **state)
{
  char middle[400], target[400], name[500];
  struct stat status;

  (void)state;
  snprintf(middle, sizeof(middle), "%s/below/middle", folder);
  snprintf(target, sizeof(target), "%s/below/target", folder);
  assert_true(unlink(path) == 0 && symlink("below/middle", path) == 0);
  assert_petsc_error(TrsAtomicTry(path), TRS_ERR_CANT_CREATE); /* the folder does not exist yet */
  TrsErrorClear();
  snprintf(name, sizeof(name), "%s/below", folder);
  assert_true(mkdir(name, 0777) == 0 && symlink(target, middle) == 0);
  /* the target of the links did not exist */
  assert_false(put(TRS_EXISTING_BACKUP, "0123456789abcdef", "a"));
  check_text(target, "a");
  write_text(target, "precious");
  assert_true(put(TRS_EXISTING_BACKUP, "0123456789abcdef", "b"));
  check_text(target, "b");
  assert_true(lstat(path, &status) == 0 && S_ISLNK(status.st_mode));
  assert_true(lstat(middle, &status) == 0 && S_ISLNK(status.st_mode));
  snprintf(name, sizeof(name), "%s.~1~", target);
  check_text(name, "precious");
  assert_true(unlink(name) == 0 && unlink(target) == 0 && unlink(middle) == 0);
  assert_int_equal(symlink("../run.h5", middle), 0); /* the links form a circle */
  assert_petsc_error(TrsAtomicTry(path), TRS_ERR_CANT_CREATE);
  TrsErrorClear();
  snprintf(name, sizeof(name), "%s/below", folder);
  assert_true(unlink(middle) == 0 && rmdir(name) == 0);
}

static void test_no_room_for_a_name(void **state)
{
  char long_path[1024];
  TrsOutput output;

  (void)state;
  snprintf(long_path, sizeof(long_path), "%s/%0250d", folder, 0);
  write_text(long_path, "x");
  assert_petsc_ok(TrsOutputOpen(long_path, TRS_EXISTING_BACKUP, &output));
  assert_petsc_error(TrsOutputClaim(&output, "0123456789abcdef"), TRS_ERR_CANT_CREATE);
  assert_petsc_ok(TrsOutputClose(&output));
  assert_true(unlink(long_path) == 0 && unlink(path) == 0 && rmdir(folder) == 0);
}

TRS_TEST_MAIN(cmocka_unit_test(make_folder), cmocka_unit_test(test_backups_are_numbered),
              cmocka_unit_test(test_own_files_are_replaced), cmocka_unit_test(test_failing_publication),
              cmocka_unit_test(test_refused), cmocka_unit_test(test_appears_later),
              cmocka_unit_test(test_link), cmocka_unit_test(test_no_room_for_a_name))
