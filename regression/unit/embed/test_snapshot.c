/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 3 */
/*
  Tests snapshots of shards: a file has the rows and states of its step, although updates change
  them while it is written. The buffer of saved rows is bounded, and other tensors are copied.
*/
#include "compute/changed_rows.h"
#include "embed/cut_table.h"
#include "embed/snapshot.h"
#include "io/checkpoint/checkpoint.h"
#include "scratch_folder.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { ROWS = 300, DIM = 40, OTHERS = 50 };

/* A table with two states, one a number for each row, and another tensor. Rank 0 has the table. */
typedef struct {
  CutTable table;
  TrsSnapshot snapshot;
  TrsState state;
  int32_t others[OTHERS];
} Fixture;

static float value_of(int64_t global, int k, int64_t c)
{
  return (float)(global * 1000 + k * 100 + c);
}

/* Set the weights and states of a row of shard 0 to numbers that identify the row, or to -1. */
static void set_row(const Fixture *f, int64_t row, PetscBool changed)
{
  const TrsTbeTable *t = &f->table.shards.shard[0].tbe;
  const int64_t global = t->row_offset + row;

  for (int64_t c = 0; c < DIM; c++) {
    ((float *)t->weight)[row * t->stride + c] = changed ? -1 : value_of(global, 0, c);
    t->state[0][row * DIM + c] = changed ? -1 : value_of(global, 1, c);
  }
  t->state[1][row] = changed ? -1 : value_of(global, 2, 0);
}

/* Change a row as an update does. */
static void change_row(const Fixture *f, int64_t row)
{
  TrsRowSave(f->table.shards.shard[0].tbe.to_save, row);
  set_row(f, row, PETSC_TRUE);
}

static int64_t rows_here(const Fixture *f)
{
  return f->table.shards.shard[0].tbe.rows;
}

static void set_up(Fixture *f, int64_t buffer_bytes)
{
  TrsStateTensor *others;

  memset(f, 0, sizeof(*f));
  create_cut_table(&f->table, ROWS, DIM, PETSC_TRUE,
                   &(TrsSparseOptimizerArgs){.kind = TRS_OPTIM_PARTIAL_ROWWISE_ADAM, .step = 1});
  assert_petsc_ok(TrsSnapshotCreate(&f->table.shards, buffer_bytes, &f->snapshot));
  assert_petsc_ok(TrsEmbeddingShardsAddState(&f->table.shards, &f->state));
  assert_petsc_ok(TrsStateAdd(&f->state, "others", TRS_INT32, 1, OTHERS, 1, &others));
  others->replicated = PETSC_TRUE;
  assert_petsc_ok(TrsStateAddPart(others, 0, 0, OTHERS, 1, f->others, 1));
  for (int64_t r = 0; r < rows_here(f); r++) set_row(f, r, PETSC_FALSE);
  for (int i = 0; i < OTHERS; i++) f->others[i] = i;
}

static void tear_down(Fixture *f)
{
  assert_petsc_ok(TrsSnapshotDestroy(&f->snapshot));
  assert_petsc_ok(TrsStateFree(&f->state));
  assert_petsc_ok(TrsEmbeddingShardsDestroy(&f->table.shards));
}

/* Take a snapshot, and announce all rows of the tensors that this rank writes. */
static const TrsState *take(const Fixture *f)
{
  const TrsState *state;

  assert_petsc_ok(TrsCheckpointPlace(MPI_COMM_WORLD, &f->state));
  assert_petsc_ok(TrsSnapshotTake(f->snapshot, &f->state, &state));
  for (int t = 0; t < state->n; t++) {
    const TrsStateTensor *tensor = &state->tensor[t];

    assert_petsc_ok(tensor->expect(tensor->give_context, 0, 0, tensor->part[0].rows));
  }
  return state;
}

/* Rows [first, first + n) of tensor k are those of the snapshot: the weights are tensor 0. */
static void check_rows(const Fixture *f, const TrsState *state, int k, int64_t first, int64_t n)
{
  static float rows[ROWS * DIM];
  const TrsStateTensor *tensor = &state->tensor[k];
  const int64_t offset = f->table.shards.shard[0].tbe.row_offset, cols = tensor->cols;

  assert_petsc_ok(tensor->give(tensor->give_context, 0, first, n, rows));
  for (int64_t i = 0; i < n * cols; i++)
    assert_true(rows[i] == value_of(offset + first + i / cols, k, i % cols));
}

/* Rows change before, between and after the pieces of the file. A row is saved once. */
static void test_rows_of_one_step(void **unused)
{
  TrsSnapshotCounts counts;
  const TrsState *state;
  int32_t others[OTHERS];
  int64_t n, before;
  Fixture f;

  (void)unused;
  set_up(&f, 1 << 20);
  for (int round = 0; round < 2; round++) {
    state = take(&f);
    n = rows_here(&f);
    assert_int_equal(state->n, 4);
    for (int i = 0; i < OTHERS; i++) f.others[i] = -1;
    for (int64_t r = 0; r < n; r += 3) change_row(&f, r); /* all of these rows are needed */
    for (int64_t r = 0; r < n; r += 6) change_row(&f, r); /* they are saved already */
    check_rows(&f, state, 0, 0, n / 2);
    for (int64_t r = 1; r < n; r += 3) change_row(&f, r); /* the file has half of their weights */
    check_rows(&f, state, 0, n / 2, n - n / 2);
    check_rows(&f, state, 1, 0, n);
    before = n - (n + 2) / 3 - (n + 1) / 3;
    for (int64_t r = 2; r < n; r += 3) change_row(&f, r); /* only the last state is needed */
    check_rows(&f, state, 2, 0, n);
    /* nothing is needed any more */
    assert_null(TrsRowsToSaveBits(f.table.shards.shard[0].tbe.to_save));
    assert_petsc_ok(state->tensor[3].give(state->tensor[3].give_context, 0, 0, OTHERS, others));
    for (int i = 0; i < OTHERS; i++) assert_int_equal(others[i], i);
    assert_petsc_ok(TrsSnapshotRelease(f.snapshot, &counts));
    assert_int_equal(counts.saved_rows, n);
    assert_int_equal(counts.saved_bytes, (n + 2) / 3 * (2 * DIM + 1) * 4 + /* all of them */
                                             (n + 1) / 3 * (2 * DIM + 1) * 4 - (n / 2 + 1) / 3 * DIM * 4 +
                                             before * 4);
    assert_int_equal(counts.copied_bytes, OTHERS * 4);
    assert_int_equal(counts.n_waits, 0);
    for (int64_t r = 0; r < n; r++) set_row(&f, r, PETSC_FALSE);
    for (int i = 0; i < OTHERS; i++) f.others[i] = i;
  }
  tear_down(&f);
}

static _Atomic int64_t n_changed; /* by change_all */

/* Change all rows, from the last to the first. */
static void *change_all(void *context)
{
  const Fixture *f = (const Fixture *)context;

  for (int64_t r = rows_here(f) - 1; r >= 0; r--, n_changed++) change_row(f, r);
  return NULL;
}

/* Start change_all in a thread. Returns when it has begun, and had time to fill the memory. */
static void start_changes(Fixture *f, pthread_t *thread)
{
  const struct timespec nap = {.tv_nsec = 20000000};

  n_changed = 0;
  assert_int_equal(pthread_create(thread, NULL, change_all, f), 0);
  do (void)nanosleep(&nap, NULL);
  while (n_changed == 0);
}

/* With memory for a few rows, a thread that changes rows waits for the writer. */
static void test_bounded_memory(void **unused)
{
  const int64_t buffer_bytes = 4096;
  TrsSnapshotCounts counts;
  const TrsState *state;
  pthread_t thread;
  int64_t n;
  Fixture f;

  (void)unused;
  set_up(&f, buffer_bytes);
  state = take(&f);
  n = rows_here(&f);
  start_changes(&f, &thread);
  for (int k = 0; k < 3; k++)
    for (int64_t r = 0; r < n; r += 10) check_rows(&f, state, k, r, PetscMin(10, n - r));
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_petsc_ok(TrsSnapshotRelease(f.snapshot, &counts));
  assert_true(counts.most_bytes > 0 && counts.most_bytes <= buffer_bytes);
  assert_true(((float *)f.table.shards.shard[0].tbe.weight)[0] == -1);

  /* If the file is given up, nobody waits. */
  (void)take(&f);
  start_changes(&f, &thread);
  TrsSnapshotAbandon(f.snapshot);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_petsc_ok(TrsSnapshotRelease(f.snapshot, &counts));
  assert_true(counts.most_bytes <= buffer_bytes);
  tear_down(&f);
}

/* A file that the stages write has the snapshot's contents, and the id of a file at its step. */
static void test_file(void **unused)
{
  char id[TRS_FILE_ID_SIZE], other_id[TRS_FILE_ID_SIZE], other[300];
  TrsCheckpointInfo info = {.step = 7, .id = id};
  TrsCheckpointStage stage = TRS_CHECKPOINT_TENSORS;
  TrsCheckpointWriter writer;
  const TrsState *state;
  Fixture f;

  (void)unused;
  snprintf(other, sizeof(other), "%s/blocking.h5", folder);
  set_up(&f, 1 << 20);
  info.id = other_id;
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, other, &f.state, &info));
  info.id = id;
  assert_petsc_ok(TrsCheckpointPlace(MPI_COMM_WORLD, &f.state));
  assert_petsc_ok(TrsSnapshotTake(f.snapshot, &f.state, &state));
  assert_petsc_ok(TrsCheckpointBegin(MPI_COMM_WORLD, path, state, &info, &writer));
  for (int64_t r = 0; r < rows_here(&f); r += 2) change_row(&f, r);
  while (stage != TRS_CHECKPOINT_WRITTEN) {
    assert_petsc_ok(TrsAgree(MPI_COMM_WORLD, TrsCheckpointDoStage(writer)));
    assert_petsc_ok(TrsCheckpointNextStage(writer, &stage));
  }
  assert_petsc_ok(TrsCheckpointEnd(&writer));
  assert_petsc_ok(TrsSnapshotRelease(f.snapshot, NULL));
  assert_string_equal(id, other_id);

  /* a writer that is told to stop leaves no file */
  assert_petsc_ok(TrsSnapshotTake(f.snapshot, &f.state, &state));
  info.step = 8;
  assert_petsc_ok(TrsCheckpointBegin(MPI_COMM_WORLD, other, state, &info, &writer));
  TrsCheckpointStop(writer);
  assert_petsc_error(TrsAgree(MPI_COMM_WORLD, TrsCheckpointDoStage(writer)), TRS_ERR_STOPPED);
  assert_petsc_ok(TrsCheckpointEnd(&writer));
  assert_petsc_ok(TrsSnapshotRelease(f.snapshot, NULL));
  info = (TrsCheckpointInfo){0};
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, other, &f.state, &info));
  assert_int_equal(info.step, 7);
  assert_petsc_ok(TrsCheckpointInfoFree(&info));
  tear_down(&f);
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_rows_of_one_step), cmocka_unit_test(test_bounded_memory),
                        cmocka_unit_test(test_file))
