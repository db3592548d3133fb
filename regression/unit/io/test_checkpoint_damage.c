/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/* Damage of a checkpoint is found, or has no effect. */
#include "checkpoint_fixture.h"

#include <unistd.h>

/*
  Flip one bit in every 23rd byte if there is one rank, and in every 23 W-th byte if there are W
  ranks. The damage is found, or has no effect.
*/
static void test_bit_flips(void **state)
{
  char *good = NULL;
  long n = 0;
  int n_found = 0, n_harmless = 0;

  (void)state;
  write_split(SPLIT_COLUMNS, 3);
  if (trs_rank() == 0) good = read_bytes(path, &n);
  MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  for (long at = 0; at < n; at += 23 * trs_size()) {
    TrsCheckpointInfo info;
    PetscErrorCode ierr;
    fixture f;

    if (trs_rank() == 0) {
      good[at] = (char)(good[at] ^ (1 << at % 8));
      write_bytes(path, good, n);
      good[at] = (char)(good[at] ^ (1 << at % 8));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    add_tensor(&f, "embedding/user/weight", SPLIT_REPLICATED);
    ierr = TrsCheckpointRead(MPI_COMM_WORLD, path, &f.state, &info);
    if (ierr != PETSC_SUCCESS) {
      if (ierr != TRS_ERR_DATA) print_error("bit flip at %ld: %d %s\n", at, ierr, TrsErrorMessage());
      assert_int_equal(ierr, TRS_ERR_DATA);
      TrsErrorClear();
      n_found++;
    } else {
      n_harmless++;
      assert_int_equal(info.step, 7);
      for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLS; c++) assert_true(f.data[r * (COLS + 1) + c] == element(3, r, c));
    }
    free_fixture(&f);
  }
  if (trs_rank() == 0) print_message("bit flips: %d found, %d without effect\n", n_found, n_harmless);
  assert_true(n_found > 0);
  free(good);
}

/* Find n bytes in a file, or return -1. */
static long find_bytes(const char *bytes, long n_bytes, const void *what, long n)
{
  for (long at = 0; at + n <= n_bytes; at++)
    if (memcmp(bytes + at, what, (size_t)n) == 0) return at;
  return -1;
}

/* Flip bits of large attributes, for which HDF5 has no checksum. All flips are found. */
static void test_flips_of_large_attributes(void **state)
{
  enum { N_NUMBERS = 2010, N_TEXT = 6000, N_KINDS = 4 };
  double metrics[N_NUMBERS], early[N_NUMBERS];
  char options[N_TEXT + 1], plan[N_TEXT + 1], *good = NULL;
  const void *what[N_KINDS] = {metrics, early, options, plan};
  const long bytes[N_KINDS] = {sizeof(metrics), sizeof(early), N_TEXT, N_TEXT};
  TrsCheckpointInfo info = {.step = 7, .options = options, .plan = plan}, found;
  long n = 0, at[N_KINDS] = {0};
  fixture f;

  (void)state;
  for (int i = 0; i < N_NUMBERS; i++) metrics[i] = early[N_NUMBERS - 1 - i] = 0.5 + i;
  for (int i = 0; i < N_TEXT; i++) {
    options[i] = (char)('a' + i % 23);
    plan[i] = (char)('A' + i % 19);
  }
  options[N_TEXT] = plan[N_TEXT] = '\0';
  info.metrics = (TrsCheckpointNumbers){N_NUMBERS, metrics};
  info.early_stopping = (TrsCheckpointNumbers){N_NUMBERS, early};
  add_tensor(&f, "embedding/user/weight", SPLIT_ROWS);
  fill(&f, 3);
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &f.state, &info));
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &f.state, &found));
  assert_int_equal(found.metrics.n, N_NUMBERS);
  assert_memory_equal(found.metrics.value, metrics, sizeof(metrics));
  assert_petsc_ok(TrsCheckpointInfoFree(&found));
  if (trs_rank() == 0) {
    good = read_bytes(path, &n);
    for (int k = 0; k < N_KINDS; k++) {
      at[k] = find_bytes(good, n, what[k], bytes[k]);
      assert_true(at[k] >= 0);
    }
  }
  for (int k = 0; k < N_KINDS; k++)
    for (long i = 0; i < bytes[k]; i += 1 + bytes[k] / 50) {
      if (trs_rank() == 0) {
        good[at[k] + i] = (char)(good[at[k] + i] ^ (1 << i % 8));
        write_bytes(path, good, n);
        good[at[k] + i] = (char)(good[at[k] + i] ^ (1 << i % 8));
      }
      MPI_Barrier(MPI_COMM_WORLD);
      assert_petsc_error(TrsCheckpointRead(MPI_COMM_WORLD, path, &f.state, &found), TRS_ERR_DATA);
      MPI_Barrier(MPI_COMM_WORLD);
    }
  /*
    The name, the type and the extent are directly before the numbers. If one of their bits is
    flipped, this is found or changes no number.
  */
  for (long i = trs_size(); i <= 48 * 8; i += trs_size()) {
    const long bit = at[0] * 8 - i;
    PetscErrorCode ierr;

    if (trs_rank() == 0) {
      good[bit / 8] = (char)(good[bit / 8] ^ (1 << bit % 8));
      write_bytes(path, good, n);
      good[bit / 8] = (char)(good[bit / 8] ^ (1 << bit % 8));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    ierr = TrsCheckpointRead(MPI_COMM_WORLD, path, &f.state, &found);
    TrsErrorClear();
    if (ierr == PETSC_SUCCESS) {
      assert_int_equal(found.metrics.n, N_NUMBERS);
      assert_memory_equal(found.metrics.value, metrics, sizeof(metrics));
      assert_petsc_ok(TrsCheckpointInfoFree(&found));
    } else
      assert_int_equal(ierr, TRS_ERR_DATA);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  free(good);
  free_fixture(&f);
}

/* A file that is cut off at any length is refused, and the program never crashes. */
static void test_truncation(void **state)
{
  char *good = NULL;
  long n = 0;

  (void)state;
  write_split(SPLIT_ROWS, 3);
  if (trs_rank() == 0) good = read_bytes(path, &n);
  MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  for (long length = 0; length < n; length += 211 * trs_size()) {
    TrsCheckpointInfo info;
    fixture f;

    if (trs_rank() == 0) write_bytes(path, good, length);
    MPI_Barrier(MPI_COMM_WORLD);
    add_tensor(&f, "embedding/user/weight", SPLIT_ONE);
    assert_petsc_error(TrsCheckpointRead(MPI_COMM_WORLD, path, &f.state, &info), TRS_ERR_DATA);
    TrsErrorClear();
    free_fixture(&f);
  }
  free(good);
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_bit_flips), cmocka_unit_test(test_flips_of_large_attributes),
                        cmocka_unit_test(test_truncation))
