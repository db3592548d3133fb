/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests checkpoints and results when system calls fail.

    checkpoint_faults every FOLDER       for each call that can fail and each of two ranks: the call
    fails once on this rank checkpoint_faults write FOLDER STEP  write step STEP; end with the
    documented exit status checkpoint_faults newest FOLDER      check the newest good checkpoint and
    print its step
*/
#include "core/buffer.h"
#include "core/start.h"
#include "fault_injector.h"
#include "io/checkpoint/checkpoint.h"
#include "io/results.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 300, COLS = 8, N_COLUMNS = 2 };
static int rank, size;
static TrsCheckpointFolder own; /* this job's output folder, which was opened without a fault */

#define REQUIRE(condition, ...) PetscCheck(condition, PETSC_COMM_SELF, TRS_ERR_INTERNAL, __VA_ARGS__)

/*
  The tensors of the test are:
  - a row-split table
  - one integer for each of this table's rows; give_count() supplies the integers in pieces
  - a column-split table with a split row-wise state
  - a replicated bias
*/
typedef struct {
  TrsState state;
  float *rows, *cols, *momentum, bias[7];
  int64_t *count; /* [n_rows] */
  int64_t row, n_rows;
} model;

static float element(int64_t step, int64_t r, int64_t c)
{
  return (float)(step * 1000 + r) + 0.125f * (float)c;
}

static PetscErrorCode give_count(void *context, int part, int64_t first, int64_t n, void *rows)
{
  const model *m = (const model *)context;

  PetscFunctionBegin;
  REQUIRE(part == 0 && first >= 0 && first + n <= m->n_rows, "part %d, %d rows", part, (int)n);
  memcpy(rows, m->count + first, (size_t)n * sizeof(*m->count));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_count(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                 const void *rows)
{
  model *m = (model *)context;

  PetscFunctionBegin;
  REQUIRE(part == 0 && dtype == TRS_INT64 && first >= 0 && first + n <= m->n_rows, "part %d", part);
  memcpy(m->count + first, rows, (size_t)n * sizeof(*m->count));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_model(model *m)
{
  const int64_t offsets[N_COLUMNS] = {0, 4};
  const double weights[N_COLUMNS] = {0.5, 0.5};
  int64_t block = (ROWS + size - 1) / size;
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  memset(m, 0, sizeof(*m));
  m->row = rank * block;
  m->n_rows = ROWS - m->row < block ? ROWS - m->row : block;
  PetscCall(TrsAlloc(ROWS * COLS, sizeof(float), &m->rows));
  PetscCall(TrsAlloc(ROWS * COLS, sizeof(float), &m->cols));
  PetscCall(TrsAlloc(ROWS * N_COLUMNS, sizeof(float), &m->momentum));
  PetscCall(TrsStateAdd(&m->state, "embedding/a/weight", TRS_FP32, 2, ROWS, COLS, &tensor));
  PetscCall(TrsStateAddPart(tensor, m->row, 0, m->n_rows, COLS, m->rows, COLS));
  PetscCall(TrsAlloc(ROWS, sizeof(*m->count), &m->count));
  PetscCall(TrsStateAdd(&m->state, "embedding/a/count", TRS_INT64, 1, ROWS, 1, &tensor));
  tensor->take = take_count;
  tensor->give = give_count;
  tensor->take_context = tensor->give_context = m;
  PetscCall(TrsStateAddPart(tensor, m->row, 0, m->n_rows, 1, NULL, 1));
  PetscCall(TrsStateAdd(&m->state, "embedding/b/weight", TRS_FP32, 2, ROWS, COLS, &tensor));
  for (int c = rank; c < N_COLUMNS; c += size)
    PetscCall(TrsStateAddPart(tensor, 0, 4 * c, ROWS, 4, m->cols + 4 * c, COLS));
  PetscCall(TrsStateAdd(&m->state, "embedding/b/momentum1_columns", TRS_FP32, 2, ROWS, N_COLUMNS, &tensor));
  PetscCall(TrsStateSetColumns(tensor, "embedding/b/momentum1", N_COLUMNS, offsets, weights));
  for (int c = rank; c < N_COLUMNS; c += size)
    PetscCall(TrsStateAddPart(tensor, 0, c, ROWS, 1, m->momentum + c, N_COLUMNS));
  PetscCall(TrsStateAdd(&m->state, "dense/over_arch/0/bias", TRS_FP32, 1, 7, 1, &tensor));
  tensor->replicated = PETSC_TRUE;
  PetscCall(TrsStateAddPart(tensor, 0, 0, 7, 1, m->bias, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_model(model *m)
{
  PetscFunctionBegin;
  PetscCall(TrsStateFree(&m->state));
  PetscCall(TrsFree(&m->rows));
  PetscCall(TrsFree(&m->cols));
  PetscCall(TrsFree(&m->momentum));
  PetscCall(TrsFree(&m->count));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An integer that a double cannot represent exactly. */
static int64_t integer(int64_t step, int64_t r)
{
  return INT64_MAX - 1000 * step - r;
}

static void fill_model(model *m, int64_t step)
{
  for (int64_t r = 0; r < m->n_rows; r++) m->count[r] = integer(step, m->row + r);
  for (int64_t r = 0; r < ROWS; r++) {
    for (int64_t c = 0; c < COLS; c++) {
      m->rows[r * COLS + c] = element(step, m->row + r, c);
      m->cols[r * COLS + c] = element(step, r, c + 100);
    }
    for (int64_t c = 0; c < N_COLUMNS; c++) m->momentum[r * N_COLUMNS + c] = element(step, r, c + 200);
  }
  for (int c = 0; c < 7; c++) m->bias[c] = element(step, c, 300);
}

static PetscErrorCode write_step(const char *folder, int64_t step)
{
  const TrsCheckpointInfo info = {
      .step = step, .run_id = "0123456789abcdef", .options = "-steps 1", .plan = "{}"};
  const TrsRunWait no_wait = {.seconds = 0};
  model m;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(create_model(&m));
  fill_model(&m, step);
  if (!own)
    PetscCall(TrsCheckpointFolderOpen(PETSC_COMM_WORLD, folder, &trs_folder_checkpoints, 3, &no_wait, &own));
  ierr = TrsCheckpointFolderWrite(own, &m.state, &info);
  PetscCall(free_model(&m));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_model(const model *m, int64_t step)
{
  PetscFunctionBegin;
  for (int64_t r = 0; r < m->n_rows; r++)
    REQUIRE(m->count[r] == integer(step, m->row + r), "count[%" PRId64 "] of step %" PRId64, r, step);
  for (int64_t r = 0; r < m->n_rows; r++)
    for (int64_t c = 0; c < COLS; c++)
      REQUIRE(m->rows[r * COLS + c] == element(step, m->row + r, c), "a[%" PRId64 "] of step %" PRId64, r,
              step);
  for (int64_t r = 0; r < ROWS; r++) {
    for (int p = rank; p < N_COLUMNS; p += size) {
      for (int c = 4 * p; c < 4 * p + 4; c++)
        REQUIRE(m->cols[r * COLS + c] == element(step, r, c + 100), "b[%" PRId64 "]", r);
      REQUIRE(m->momentum[r * N_COLUMNS + p] == element(step, r, p + 200), "momentum[%" PRId64 "]", r);
    }
  }
  for (int c = 0; c < 7; c++) REQUIRE(m->bias[c] == element(step, c, 300), "bias[%d]", c);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Get the step of the newest checkpoint, or 0 if there is none. Check its contents. */
static PetscErrorCode newest_step(const char *folder, int64_t *step)
{
  TrsCheckpointInfo info = {.step = 0};
  char *path;
  model m;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointFolderFindNewest(PETSC_COMM_WORLD, folder, NULL, &path));
  *step = 0;
  if (path) {
    PetscCall(create_model(&m));
    PetscCall(TrsCheckpointRead(PETSC_COMM_WORLD, path, &m.state, &info));
    PetscCall(check_model(&m, info.step));
    PetscCall(free_model(&m));
    *step = info.step;
  }
  PetscCall(PetscFree(path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The number of temporary files in the folder. */
static int count_leftovers(const char *folder)
{
  DIR *dir = opendir(folder);
  struct dirent *entry;
  int n = 0;

  while (dir && (entry = readdir(dir)) != NULL) n += strstr(entry->d_name, ".tmp") != NULL;
  if (dir) closedir(dir);
  return n;
}

static PetscErrorCode write_results(const char *folder, int64_t step)
{
  TrsResults results = NULL;
  char path[4096];

  PetscFunctionBegin;
  snprintf(path, sizeof(path), "%s/results.h5", folder);
  PetscCall(TrsResultsCreate(PETSC_COMM_WORLD, path, &results));
  PetscCall(TrsResultsAppend(results, "train/loss", (double)step));
  PetscCall(TrsResultsWrite(results));
  PetscCall(TrsResultsDestroy(&results));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Inject one fault on the victim. *count is the number of calls of the function on this rank. All
  ranks must fail in the same way, or all must succeed. No partial output may remain.
*/
static PetscErrorCode one_fault(const char *folder, PetscErrorCode (*work)(const char *, int64_t),
                                int64_t *step, const char *function, int n, int what, int victim, int *count)
{
  PetscErrorCode ierr;
  int64_t found;
  int codes[2];

  PetscFunctionBegin;
  fault_arm(function, folder, rank == victim ? n : 0, what);
  ierr = work(folder, *step + 1);
  *count = fault_disarm();
  PetscCallMPI(MPI_Bcast(count, 1, MPI_INT, victim, PETSC_COMM_WORLD));
  TrsErrorClear();
  codes[0] = ierr;
  codes[1] = -ierr;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, codes, 2, MPI_INT, MPI_MAX, PETSC_COMM_WORLD));
  REQUIRE(codes[0] == -codes[1], "%s %d on rank %d: codes from %d to %d", function, n, victim, -codes[1],
          codes[0]);
  REQUIRE(ierr == PETSC_SUCCESS || ierr == TRS_ERR_IO || ierr == TRS_ERR_CANT_CREATE,
          "%s %d on rank %d: code %d", function, n, victim, ierr);
  REQUIRE(count_leftovers(folder) == 0, "%s %d on rank %d: a temporary file is left", function, n, victim);
  PetscCall(newest_step(folder, &found));
  if (work == write_step) {
    REQUIRE(found == *step || found == *step + 1, "%s %d on rank %d: newest is %" PRId64 " for %" PRId64,
            function, n, victim, found, *step);
    REQUIRE(ierr != PETSC_SUCCESS || found == *step + 1, "%s %d on rank %d: success, but no file", function,
            n, victim);
    REQUIRE(n == 0 || n > *count || what < 0 || what == EINTR || ierr != PETSC_SUCCESS ||
                strcmp(function, "fallocate") == 0 || strcmp(function, "open") == 0,
            "%s %d on rank %d: no error", function, n, victim);
    *step = found;
  }
  PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode every_fault(const char *folder)
{
  PetscErrorCode (*const works[])(const char *, int64_t) = {write_step, write_results};
  const int faults[] = {EIO, ENOSPC, EDQUOT, EINTR, FAULT_SHORT};
  int64_t step = 1;
  int n_faults = 0;

  PetscFunctionBegin;
  PetscCall(write_step(folder, step));
  for (int w = 0; w < 2; w++) {
    for (int victim = 0; victim < size && victim < 2; victim++) {
      for (const char *const *function = fault_functions; *function; function++) {
        for (int k = 0; k < 5; k++) {
          int count = 0;

          if (faults[k] == FAULT_SHORT && strcmp(*function, "pwrite") != 0) continue;
          if (faults[k] == EINTR && strcmp(*function, "pwrite") != 0 && strcmp(*function, "fallocate") != 0)
            continue;
          for (int n = 1; n == 1 || n <= count; n++, n_faults++)
            PetscCall(one_fault(folder, works[w], &step, *function, n, faults[k], victim, &count));
        }
      }
    }
  }
  PetscCall(
      PetscPrintf(PETSC_COMM_WORLD, "%d faults, each reported by all ranks or without effect\n", n_faults));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(int argc, char **argv)
{
  const char *what = argc > 2 ? argv[1] : "", *folder = argc > 2 ? argv[2] : "";
  int64_t step = argc > 3 ? strtoll(argv[3], NULL, 10) : 0;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
  PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &size));
  if (strcmp(what, "every") == 0) {
    PetscCall(every_fault(folder));
  } else if (strcmp(what, "write") == 0) {
    PetscCall(write_step(folder, step));
  } else if (strcmp(what, "newest") == 0) {
    PetscCall(newest_step(folder, &step));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "newest %" PRId64 "\n", step));
  } else {
    SETERRQ(PETSC_COMM_WORLD, TRS_ERR_OPTION, "see the head of checkpoint_faults.c");
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  int status;

  if (TrsStart(argc, argv) != PETSC_SUCCESS) return 70;
  status = TrsErrorFinish(PETSC_COMM_WORLD, run(argc, argv));
  return TrsStop(PETSC_FALSE) ? 70 : status;
}
