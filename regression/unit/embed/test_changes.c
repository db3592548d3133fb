/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests the changed rows of shards: updates mark the rows of their ids, and these rows go into a
  file, from any cut of the table, in ascending order. A checkpoint keeps those that no delta has.
*/
#include "compute/changed_rows.h"
#include "embed/changes.h"
#include "embed/cut_table.h"
#include "embed/lookup.h"
#include "io/checkpoint/checkpoint.h"
#include "scratch_folder.h"

#include <string.h>

enum { ROWS = 200, DIM = 8 };

static const TrsComputeOps *compute;

typedef struct {
  CutTable table;
  TrsChanges changes;
} Fixture;

static void set_up(Fixture *f, PetscBool by_rows)
{
  create_cut_table(&f->table, ROWS, DIM, by_rows,
                   &(TrsSparseOptimizerArgs){.kind = TRS_OPTIM_SGD, .learning_rate = 1.0F, .step = 1});
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsChangesCreate(&f->table.shards, 1u << TRS_CHANGES_OF_DELTAS, &f->changes));
}

static void tear_down(Fixture *f)
{
  assert_petsc_ok(TrsChangesDestroy(&f->changes));
  assert_petsc_ok(TrsEmbeddingShardsDestroy(&f->table.shards));
}

/*
  Update the rows of these ids of the table, of which a shard gets its own. Column c of row r is r +
  c / 10.
*/
static void update(Fixture *f, int n, const int64_t *ids)
{
  TrsEmbeddingShard *shard = &f->table.shards.shard[0];
  int64_t rows[16], offsets[17];
  float grad[16][DIM] = {{0}};
  TrsLookup lookup;
  TrsKjt kjt;

  for (int i = 0; i <= n; i++) offsets[i] = i;
  for (int i = 0; i < n; i++) rows[i] = ids[i] < 0 ? -1 : ids[i] - shard->tbe.row_offset;
  for (int i = 0; i < n; i++)
    if (rows[i] >= shard->tbe.rows) rows[i] = -1;
  for (int64_t r = 0; r < shard->tbe.rows; r++)
    for (int64_t c = 0; c < shard->tbe.dim; c++)
      ((float *)shard->tbe.weight)[r * shard->tbe.stride + c] = (float)(shard->tbe.row_offset + r) +
                                                                0.1F * (float)(shard->tbe.col_offset + c);
  kjt = (TrsKjt){.n_features = 1,
                 .batch = n,
                 .jagged = {.n_bags = n, .n_values = n, .offsets = offsets, .values = rows}};
  assert_petsc_ok(TrsLookupCreate(compute, &f->table.shards, 1, &(TrsLookupFeature){.shard = 0}, &lookup));
  assert_petsc_ok(
      TrsLookupBackward(lookup, NULL, &kjt, NULL, TrsFloats(&grad[0][0], DIM), NULL, &f->table.args));
  assert_petsc_ok(TrsLookupDestroy(&lookup));
}

/* Lists of a file that a test reads back, with all rows on every rank. */
typedef struct {
  int64_t n;
  int32_t rows[ROWS];
  float weights[ROWS][DIM];
} Found;

static PetscErrorCode take_found(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                 const void *rows)
{
  Found *found = (Found *)context;

  PetscFunctionBegin;
  assert_int_equal(part, -1);
  if (dtype == TRS_INT32) {
    memcpy(found->rows + first, rows, (size_t)n * sizeof(int32_t));
    found->n = first + n;
  } else {
    memcpy(found->weights[first], rows, (size_t)n * sizeof(found->weights[0]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode count_none(void *context, int64_t *rows)
{
  PetscFunctionBegin;
  (void)context;
  (void)rows;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the tensors of a delta as a checkpoint, and read them. */
static void write_and_read(Fixture *f, TrsDType dtype, Found *found)
{
  const TrsCheckpointInfo info = {.step = 1};
  TrsState state = {.n = 0}, back = {.n = 0};
  TrsCheckpointInfo read;

  memset(found, 0, sizeof(*found));
  assert_petsc_ok(TrsChangesAddDelta(f->changes, dtype, &state));
  assert_petsc_ok(TrsChangesList(f->changes, 1u << TRS_CHANGES_OF_DELTAS));
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &state, &info));
  for (int k = 0; k < 2; k++) {
    TrsStateTensor *tensor;

    assert_petsc_ok(TrsStateAdd(&back, k ? "embedding/t/weight" : "embedding/t/delta/rows",
                                k ? TRS_FP32 : TRS_INT32, k ? 2 : 1, 0, k ? DIM : 1, &tensor));
    tensor->count = count_none;
    tensor->take = take_found;
    tensor->take_context = found;
    tensor->optional = PETSC_TRUE;
  }
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &back, &read));
  assert_petsc_ok(TrsCheckpointInfoFree(&read));
  assert_petsc_ok(TrsStateFree(&state));
  assert_petsc_ok(TrsStateFree(&back));
}

static void check_found(const Found *found, int n, const int64_t *rows)
{
  assert_int_equal(found->n, n);
  for (int i = 0; i < n; i++) {
    assert_int_equal(found->rows[i], rows[i]);
    for (int c = 0; c < DIM; c++) assert_true(found->weights[i][c] == (float)rows[i] + 0.1F * (float)c);
  }
}

/* Rows of updates, in ascending order, until they were written. A lookup alone marks none. */
static void test_rows(void **unused)
{
  const int64_t first[] = {199, 3, 64, 3, -1, 63, 0, 500}, rows[] = {0, 3, 63, 64, 199}, second[] = {100};

  (void)unused;
  for (int by_rows = 0; by_rows < 2; by_rows++) {
    Found found;
    Fixture f;

    set_up(&f, (PetscBool)by_rows);
    write_and_read(&f, TRS_N_DTYPES, &found);
    assert_int_equal(found.n, 0);
    update(&f, 8, first);
    write_and_read(&f, TRS_N_DTYPES, &found);
    check_found(&found, 5, rows);
    /* a delta that could not be written is written again */
    write_and_read(&f, TRS_N_DTYPES, &found);
    check_found(&found, 5, rows);
    TrsChangesWritten(f.changes, TRS_CHANGES_OF_DELTAS);
    update(&f, 1, second);
    write_and_read(&f, TRS_N_DTYPES, &found);
    check_found(&found, 1, second);
    tear_down(&f);
  }
}

/* A checkpoint's changed rows are those of the training that goes on from it, with any cut. */
static void test_resume(void **unused)
{
  const int64_t first[] = {7, 150, 149}, second[] = {20}, both[] = {7, 20, 149, 150};
  const TrsCheckpointInfo info = {.step = 1};

  (void)unused;
  for (int by_rows = 0; by_rows < 2; by_rows++)
    for (int resumed = 0; resumed < 2; resumed++) {
      TrsState state = {.n = 0};
      TrsCheckpointInfo read;
      PetscBool other;
      Found found;
      Fixture f;

      set_up(&f, (PetscBool)by_rows);
      update(&f, 3, first);
      assert_petsc_ok(TrsChangesAddState(f.changes, &state));
      assert_true(TrsChangesIsTensor(&state.tensor[0]));
      assert_petsc_ok(TrsChangesList(f.changes, 1u << TRS_CHANGES_OF_DELTAS));
      assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &state, &info));
      assert_petsc_ok(TrsStateFree(&state));
      tear_down(&f);
      set_up(&f, (PetscBool)!by_rows);
      assert_petsc_ok(TrsChangesAddState(f.changes, &state));
      assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &state, &read));
      assert_true(state.tensor[0].was_read);
      assert_petsc_ok(TrsChangesStart(f.changes, (PetscBool)resumed, path, &other));
      assert_false(other);
      update(&f, 1, second);
      write_and_read(&f, TRS_FP32, &found);
      check_found(&found, resumed ? 4 : 1, resumed ? both : second);
      assert_petsc_ok(TrsCheckpointInfoFree(&read));
      assert_petsc_ok(TrsStateFree(&state));
      tear_down(&f);
    }
}

/* Words of bits, and rows at their ends. */
static void test_bits(void **unused)
{
  uint64_t bits[2] = {0, 0};

  (void)unused;
  assert_int_equal(TrsChangedWords(0), 0);
  assert_int_equal(TrsChangedWords(64), 1);
  assert_int_equal(TrsChangedWords(65), 2);
  TrsChangedMark(bits, 63);
  TrsChangedMark(bits, 64);
  TrsChangedMark(bits, 64);
  assert_true(bits[0] == UINT64_C(1) << 63 && bits[1] == 1);
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_bits), cmocka_unit_test(test_rows),
                        cmocka_unit_test(test_resume))
