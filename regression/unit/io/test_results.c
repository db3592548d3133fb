/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 */
/*
  Tests the results of runs. Any HDF5 reader finds the collected values. The file is rewritten many
  times and is always complete.
*/
#include "core/buffer.h"
#include "io/column.h"
#include "io/results.h"
#include "trs_test.h"

#include <hdf5.h>

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[4096];

static void choose_path(void **state)
{
  (void)state;
  if (trs_rank() == 0) {
    snprintf(path, sizeof(path), "%s/trs_results_%d.h5", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
             (int)getpid());
    (void)unlink(path); /* the file of a killed process with the same number */
  }
  MPI_Bcast(path, (int)sizeof(path), MPI_CHAR, 0, MPI_COMM_WORLD);
}

/* Read a dataset of n elements. */
static void read_all(hid_t file, const char *name, hid_t type, int ndim, int64_t n, void *data)
{
  hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space, found;

  assert_true(dataset >= 0);
  space = H5Dget_space(dataset);
  found = H5Dget_type(dataset);
  assert_int_equal(H5Sget_simple_extent_ndims(space), ndim);
  assert_int_equal(H5Sget_simple_extent_npoints(space), n);
  assert_true(H5Tequal(found, type) > 0);
  assert_true(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  H5Tclose(found);
  H5Sclose(space);
  H5Dclose(dataset);
}

static void check_text(hid_t file, const char *name, const char *expected)
{
  hid_t attribute = H5Aopen(file, name, H5P_DEFAULT), type = H5Aget_type(attribute);
  char *text = NULL;

  assert_true(H5Tis_variable_str(type) > 0); /* for this type, h5py returns str */
  assert_true(H5Aread(attribute, type, &text) >= 0);
  assert_string_equal(text, expected);
  H5free_memory(text);
  H5Tclose(type);
  H5Aclose(attribute);
}

static int64_t read_int(hid_t file, const char *name)
{
  hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
  int64_t value = -1;

  assert_true(H5Aread(attribute, H5T_NATIVE_INT64, &value) >= 0);
  H5Aclose(attribute);
  return value;
}

static void check_file(int n_steps, int64_t n_predictions)
{
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  double loss[16], array[6];
  int64_t step[16];
  float predictions[64];

  assert_true(file >= 0);
  check_text(file, "format", "trshard-run");
  check_text(file, "options", "-steps 3\n");
  check_text(file, "empty", "");
  assert_int_equal(read_int(file, "version"), 1);
  assert_int_equal(read_int(file, "world_size"), trs_size());
  read_all(file, "train/loss", H5T_NATIVE_DOUBLE, 1, n_steps, loss);
  read_all(file, "train/step", H5T_NATIVE_INT64, 1, n_steps, step);
  for (int i = 0; i < n_steps; i++) {
    assert_true(loss[i] == 0.5 / (i + 1));
    assert_int_equal(step[i], i);
  }
  read_all(file, "bench/matrix", H5T_NATIVE_DOUBLE, 2, 6, array);
  assert_true(array[5] == 5.0);
  read_all(file, "predictions", H5T_NATIVE_FLOAT, 1, n_predictions, predictions);
  for (int64_t i = 0; i < n_predictions - 1; i++) assert_true(predictions[i] == (float)i * 0.125f);
  /* no rank passed a prediction for the last sample */
  assert_true(isnan(predictions[n_predictions - 1]));
  H5Fclose(file);
}

static void test_results(void **state)
{
  const double array[6] = {0, 1, 2, 3, 4, 5};
  int rank = trs_rank(), size = trs_size();
  int64_t n_total = 10 * size + 1;
  TrsResults results;

  (void)state;
  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, path, &results));
  assert_int_not_equal(access(path, F_OK), 0); /* before the first write there is no file */
  assert_petsc_ok(TrsResultsSetText(results, "options", "something longer that is replaced"));
  assert_petsc_ok(TrsResultsSetText(results, "options", "-steps 3\n"));
  assert_petsc_ok(TrsResultsSetText(results, "empty", ""));
  assert_petsc_ok(TrsResultsSetInt(results, "world_size", size));
  assert_petsc_ok(TrsResultsSetArray(results, "bench/matrix", 2, 3, array));
  /* each rank has 5 predictions per step, and the ranks are in order */
  for (int64_t s = 0; s < 2; s++) {
    float values[5];
    int64_t first = 5 * (s * size + rank);

    for (int i = 0; i < 5; i++) values[i] = (float)(first + i) * 0.125f;
    assert_petsc_ok(TrsResultsAddPredictions(results, "predictions", n_total, first, 5, values));
  }
  assert_petsc_ok(TrsResultsAddPredictions(results, "predictions", n_total, n_total, 0,
                                           NULL)); /* a rank without samples */
  for (int i = 0; i < 12; i++) {
    assert_petsc_ok(TrsResultsAppend(results, "train/loss", 0.5 / (i + 1)));
    assert_petsc_ok(TrsResultsAppendInt(results, "train/step", i));
    if (i % 5 == 0 || i == 11) {
      assert_petsc_ok(TrsResultsWrite(results));
      check_file(i + 1, n_total);
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
  assert_petsc_ok(TrsResultsDestroy(&results));
  assert_null(results);
}

/* Add rows of a matrix in batches that the ranks share. The numbers are the indices of rows. */
static void test_rows(void **state)
{
  enum { TRS_COLS = 300 };
  /* n_total rows have more bytes than one block of a copy */
  const int64_t per_rank = 31, n_total = 3 * per_rank * trs_size();
  const int64_t first_of[3] = {2, 0, 1}; /* the batches come in any order */
  static float values[31 * TRS_COLS], *found;
  TrsResults results;
  hid_t file;

  (void)state;
  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, path, &results));
  for (int s = 0; s < 3; s++) {
    const int64_t first = (first_of[s] * trs_size() + trs_rank()) * per_rank;

    for (int64_t i = 0; i < per_rank * TRS_COLS; i++) values[i] = (float)(first * TRS_COLS + i);
    assert_petsc_ok(
        TrsResultsAddRows(results, "embeddings/user", n_total, first, per_rank, TRS_COLS, values));
    assert_petsc_ok(
        TrsResultsAddRows(results, "embeddings/one", n_total, first, s == 1 ? 0 : per_rank, 1, values));
  }
  if (trs_rank() == 0) assert_int_equal(TrsResultsBytes(results), n_total * (TRS_COLS + 1) * 4);
  for (int again = 0; again < 2; again++) {
    assert_petsc_ok(TrsResultsWrite(results));
    assert_petsc_ok(PetscMalloc1((size_t)(n_total * TRS_COLS), &found));
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    read_all(file, "embeddings/user", H5T_NATIVE_FLOAT, 2, n_total * TRS_COLS, found);
    for (int64_t i = 0; i < n_total * TRS_COLS; i++) assert_true(found[i] == (float)i);
    read_all(file, "embeddings/one", H5T_NATIVE_FLOAT, 2, n_total, found);
    assert_true(found[0] == 0.0f && found[n_total - per_rank * trs_size()] ==
                                        (float)((n_total - per_rank * trs_size()) * TRS_COLS));
    H5Fclose(file);
    assert_petsc_ok(PetscFree(found));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  assert_petsc_ok(TrsResultsDestroy(&results));
}

static void test_no_file(void **state)
{
  TrsResults results;

  (void)state;
  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, NULL, &results));
  assert_petsc_ok(TrsResultsAppend(results, "train/loss", 1.0));
  assert_petsc_ok(TrsResultsAddPredictions(results, "predictions", 1, 0, 0, NULL));
  assert_petsc_ok(TrsResultsWrite(results));
  assert_petsc_ok(TrsResultsDestroy(&results));
}

/* If the path is a symbolic link, the link stays and the results are at its target. */
static void test_link(void **state)
{
  char target[4110];
  struct stat status;
  TrsResults results;

  (void)state;
  snprintf(target, sizeof(target), "%s.target", path);
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) assert_true(unlink(path) == 0 && symlink(target, path) == 0);
  MPI_Barrier(MPI_COMM_WORLD);
  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, path, &results));
  assert_petsc_ok(TrsResultsWrite(results));
  assert_petsc_ok(TrsResultsDestroy(&results));
  if (trs_rank() == 0) {
    assert_true(lstat(path, &status) == 0 && S_ISLNK(status.st_mode));
    assert_true(lstat(target, &status) == 0 && S_ISREG(status.st_mode));
    assert_int_equal(unlink(target), 0);
    assert_int_equal(unlink(path), 0);
  }
}

enum { MANY_ROWS = 20 * TRS_COLUMN_BLOCK_ROWS + 77 };

static int64_t held_bytes(void)
{
  int64_t n, held;

  TrsMemoryUse(&n, &held);
  return held;
}

static void append_rows(TrsResults results, int64_t first, int64_t end)
{
  for (int64_t i = first; i < end; i++) {
    assert_petsc_ok(TrsResultsAppendInt(results, "train/step", i));
    assert_petsc_ok(TrsResultsAppend(results, "train/loss", 1.0 / (double)(i + 1)));
  }
}

/* On rank 0, check that the steps are 0, 1, 2 and so on without a gap, and check their losses. */
static void check_rows(int64_t n)
{
  hid_t file;
  int64_t *step;
  double *loss;

  if (trs_rank() != 0) return;
  file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  step = malloc((size_t)n * sizeof(*step));
  loss = malloc((size_t)n * sizeof(*loss));
  assert_true(file >= 0 && step && loss);
  read_all(file, "train/step", H5T_NATIVE_INT64, 1, n, step);
  read_all(file, "train/loss", H5T_NATIVE_DOUBLE, 1, n, loss);
  for (int64_t i = 0; i < n; i++) assert_true(step[i] == i && loss[i] == 1.0 / (double)(i + 1));
  free(step);
  free(loss);
  H5Fclose(file);
}

/*
  Rows go to the spill file. Memory stays at one block per column and 8 bytes per block. The spill
  file has no name.
*/
static void test_bounded_memory(void **state)
{
  const int64_t before = held_bytes();
  TrsResults results;

  (void)state;
  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, path, &results));
  append_rows(results, 0, MANY_ROWS);
  assert_true(held_bytes() - before <= 2 * (TRS_COLUMN_BLOCK_ROWS * 8 + 1024));
  assert_int_equal(TrsResultsRows(results, "train/step"), trs_rank() == 0 ? MANY_ROWS : 0);
  assert_petsc_ok(TrsResultsWrite(results));
  assert_true(held_bytes() - before <= 2 * (TRS_COLUMN_BLOCK_ROWS * 8 + 1024));
  check_rows(MANY_ROWS);
  append_rows(results, MANY_ROWS, MANY_ROWS + 5);
  assert_petsc_ok(TrsResultsWrite(results));
  check_rows(MANY_ROWS + 5);
  assert_petsc_ok(TrsResultsDestroy(&results));
  assert_int_equal(held_bytes(), before);
}

/* If the spill file cannot grow, rows stay in memory until it can grow again. */
static void test_spill_fails(void **state)
{
  const struct rlimit small = {8192, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
  TrsResults results;
  int64_t held;

  (void)state;
  (void)signal(SIGXFSZ, SIG_IGN);
  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, path, &results));
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  append_rows(results, 0, 3 * TRS_COLUMN_BLOCK_ROWS + 10);
  held = held_bytes();
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
  if (trs_rank() == 0) assert_true(held >= 2 * 3 * TRS_COLUMN_BLOCK_ROWS * 8);
  append_rows(results, 3 * TRS_COLUMN_BLOCK_ROWS + 10, MANY_ROWS);
  assert_petsc_ok(TrsResultsWrite(results));
  check_rows(MANY_ROWS);
  assert_petsc_ok(TrsResultsDestroy(&results));
}

static const TrsResultsRange train_rows[] = {
    {"train", "train/step", MANY_ROWS - 1000}, {"eval", "eval/step", 1000}, {"none", "none/step", 5}};

/*
  Load the rows of an earlier part of the run, except the rows that will be appended again. Columns
  that begin or end at this point are filled up.
*/
static void test_load(void **state)
{
  TrsResults results;
  double more[8];
  hid_t file;

  (void)state;
  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, path, &results));
  append_rows(results, 0, MANY_ROWS);
  for (int64_t i = 0; i < 3; i++) {
    assert_petsc_ok(TrsResultsAppendInt(results, "eval/step", 10 * i));
    assert_petsc_ok(TrsResultsAppend(results, "eval/gone", 0.5));
    assert_petsc_ok(TrsResultsAppendText(results, "eval/text", i == 1 ? "one" : ""));
  }
  assert_petsc_ok(TrsResultsWrite(results));
  assert_petsc_ok(TrsResultsDestroy(&results));

  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, path, &results));
  assert_petsc_ok(TrsResultsLoad(results, 3, train_rows));
  if (trs_rank() == 0) {
    assert_int_equal(TrsResultsRows(results, "train/loss"), MANY_ROWS - 1000);
    assert_int_equal(TrsResultsLastInt(results, "train/step", -1), MANY_ROWS - 1001);
    assert_string_equal(TrsResultsLastText(results, "eval/text"), "one");
  }
  append_rows(results, MANY_ROWS - 1000, MANY_ROWS + 10);
  /* step 20 exists, and is dropped because it will be appended again */
  assert_petsc_ok(TrsResultsDropLast(results, "eval/", "eval/step", 20));
  /* the last step is now 10 */
  assert_petsc_ok(TrsResultsDropLast(results, "eval/", "eval/step", 20));
  for (int64_t i = 2; i < 4; i++) {
    assert_petsc_ok(TrsResultsAppendInt(results, "eval/step", 10 * i));
    assert_petsc_ok(TrsResultsAppend(results, "eval/more", (double)i));
  }
  assert_petsc_ok(TrsResultsWrite(results));
  assert_petsc_ok(TrsResultsDestroy(&results));
  check_rows(MANY_ROWS + 10);
  if (trs_rank() != 0) return;
  file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  assert_true(file >= 0);
  read_all(file, "eval/gone", H5T_NATIVE_DOUBLE, 1, 4, more);
  assert_true(more[0] == 0.5 && more[1] == 0.5 && isnan(more[2]) && isnan(more[3]));
  read_all(file, "eval/more", H5T_NATIVE_DOUBLE, 1, 4, more + 4);
  assert_true(isnan(more[4]) && isnan(more[5]) && more[6] == 2.0 && more[7] == 3.0);
  H5Fclose(file);
}

/* Append a row of a matrix in which all numbers differ. */
static void append_matrix_row(TrsResults results, int64_t row, int width)
{
  double values[TRS_COLUMN_BLOCK_ROWS];

  for (int i = 0; i < width; i++) values[i] = (double)row + 0.001 * i;
  assert_petsc_ok(TrsResultsAppendInt(results, "eval/step", row));
  assert_petsc_ok(TrsResultsAppendRow(results, "eval/matrix", width, values));
}

/* Check that rows from .. n - 1 have their values, and earlier rows are NaN. */
static void check_matrix(int64_t from, int64_t n, int width)
{
  hid_t file;
  double *values;

  if (trs_rank() != 0) return;
  file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  values = malloc((size_t)(n * width) * sizeof(*values));
  assert_true(file >= 0 && values);
  read_all(file, "eval/matrix", H5T_NATIVE_DOUBLE, 2, n * width, values);
  for (int64_t i = 0; i < n * width; i++)
    assert_true(i / width < from ? isnan(values[i])
                                 : values[i] == (double)(i / width) + 0.001 * (double)(i % width));
  free(values);
  H5Fclose(file);
}

/*
  Test rows of several numbers that do not fill their blocks exactly. They are written, dropped,
  loaded, and started again with another width.
*/
static void test_matrix(void **state)
{
  static const TrsResultsRange rows[] = {{"eval", "eval/step", 4000}};
  enum { TRS_WIDTH = 5, TRS_ROWS = 2 * (TRS_COLUMN_BLOCK_ROWS / TRS_WIDTH) + 1 };
  TrsResults results;

  (void)state;
  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, path, &results));
  for (int64_t i = 0; i < TRS_ROWS; i++) append_matrix_row(results, i, TRS_WIDTH);
  /* this is the first row of its block */
  assert_petsc_ok(TrsResultsDropLast(results, "eval/", "eval/step", TRS_ROWS - 1));
  append_matrix_row(results, TRS_ROWS - 1, TRS_WIDTH);
  assert_petsc_ok(TrsResultsWrite(results));
  check_matrix(0, TRS_ROWS, TRS_WIDTH);
  assert_petsc_ok(TrsResultsDestroy(&results));

  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, path, &results));
  assert_petsc_ok(TrsResultsLoad(results, 1, rows));
  append_matrix_row(results, TRS_ROWS, TRS_WIDTH);
  assert_petsc_ok(TrsResultsWrite(results));
  check_matrix(0, TRS_ROWS + 1, TRS_WIDTH);
  append_matrix_row(results, TRS_ROWS + 1, 3);
  assert_petsc_ok(TrsResultsWrite(results));
  check_matrix(TRS_ROWS + 1, TRS_ROWS + 2, 3);
  assert_petsc_ok(TrsResultsDestroy(&results));
}

/* If the file is damaged, there is an error, and nothing is loaded from it. */
static void test_load_damaged(void **state)
{
  TrsResults results;
  hid_t file;

  (void)state;
  assert_petsc_ok(TrsResultsCreate(MPI_COMM_WORLD, path, &results));
  if (trs_rank() == 0) {
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0 && H5Ldelete(file, "train/step", H5P_DEFAULT) >= 0 && H5Fclose(file) >= 0);
    assert_petsc_error(TrsResultsLoad(results, 3, train_rows), TRS_ERR_DATA);
    assert_int_equal(truncate(path, 3000), 0);
    assert_petsc_error(TrsResultsLoad(results, 3, train_rows), TRS_ERR_DATA);
    assert_int_equal(TrsResultsRows(results, "train/loss"), 0);
    assert_int_equal(TrsResultsRows(results, "eval/text"), 0);
    assert_int_equal(unlink(path), 0);
    assert_petsc_error(TrsResultsLoad(results, 3, train_rows), TRS_ERR_NO_INPUT);
  }
  assert_petsc_ok(TrsResultsDestroy(&results));
}

static void test_cannot_create(void **state)
{
  TrsResults results;

  (void)state;
  assert_petsc_error(TrsResultsCreate(MPI_COMM_WORLD, "/nonexistent/folder/run.h5", &results),
                     TRS_ERR_CANT_CREATE);
  assert_petsc_error(TrsResultsCreate(MPI_COMM_WORLD, "/tmp", &results), TRS_ERR_CANT_CREATE);
  assert_petsc_error(TrsResultsCreate(MPI_COMM_WORLD, "/tmp/", &results), TRS_ERR_CANT_CREATE);
  assert_petsc_error(TrsResultsCreate(MPI_COMM_WORLD, "/dev/full", &results), TRS_ERR_CANT_CREATE);
}

TRS_TEST_MAIN(cmocka_unit_test(choose_path), cmocka_unit_test(test_results), cmocka_unit_test(test_rows),
              cmocka_unit_test(test_no_file), cmocka_unit_test(test_link),
              cmocka_unit_test(test_bounded_memory), cmocka_unit_test(test_spill_fails),
              cmocka_unit_test(test_matrix), cmocka_unit_test(test_load), cmocka_unit_test(test_load_damaged),
              cmocka_unit_test(test_cannot_create))
