/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/* A checkpoint that was written with one split is read with any other split, bit for bit. */
#include "checkpoint_fixture.h"
#include "core/events.h"

#include <math.h>

static void test_any_split_reads_any_other(void **state)
{
  (void)state;
  for (int from = 0; from < N_SPLITS; from++) {
    write_split((split)from, from + 1);
    for (int to = 0; to < N_SPLITS; to++) {
      TrsCheckpointInfo info;
      fixture f;

      add_tensor(&f, "embedding/user/weight", (split)to);
      assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &f.state, &info));
      assert_int_equal(info.step, 7);
      assert_int_equal(info.epoch, 2);
      assert_int_equal(info.samples_seen, 112);
      assert_int_equal(info.run_step, 9);
      assert_true(f.state.tensor[0].was_read);
      for (int p = 0; p < f.state.tensor[0].n_parts; p++) {
        const TrsStatePart *part = &f.state.tensor[0].part[p];

        for (int64_t r = 0; r < part->rows; r++)
          for (int64_t c = 0; c < part->cols; c++)
            assert_true(((float *)part->data)[r * part->stride + c] ==
                        element(from + 1, part->row_offset + r, part->col_offset + c));
      }
      free_fixture(&f);
    }
  }
}

/*
  Tensors of half and bfloat16 numbers keep their bits. fp16 is stored as h5py's float16 (golden
  file below).
*/
static void test_half_types(void **state)
{
  const TrsDType types[2] = {TRS_FP16, TRS_BF16};
  const TrsCheckpointInfo info = {.step = 1};
  uint16_t out[2][8], in[2][8] = {{0, 1, 0x3C00, 0xBC00, 0x7BFF, 0x8001, 0xFBFF, 0x03FF},
                                  {0, 1, 0x3F80, 0xBF80, 0x7F7F, 0x8001, 0xFF7F, 0x7F}};

  (void)state;
  for (int pass = 0; pass < 2; pass++) { /* first write, then read */
    TrsState s = {0};
    TrsCheckpointInfo found;

    for (int k = 0; k < 2; k++) {
      TrsStateTensor *tensor;

      assert_petsc_ok(TrsStateAdd(&s, k ? "a/bf16" : "a/fp16", types[k], 1, 8, 1, &tensor));
      tensor->replicated = PETSC_TRUE;
      assert_petsc_ok(TrsStateAddPart(tensor, 0, 0, 8, 1, pass ? out[k] : in[k], 1));
    }
    if (pass == 0) {
      assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &s, &info));
    } else {
      assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &s, &found));
    }
    assert_petsc_ok(TrsStateFree(&s));
  }
  assert_memory_equal(out, in, sizeof(in));
}

/* --- integers that callbacks supply and receive --- */

enum { MANY = 9000000 }; /* more than one piece of 64 MiB */

typedef struct {
  int64_t row; /* the index in the tensor of the part's first row */
  int64_t given, taken;
  int fails; /* 1 if the call must fail */
} integers;

/* A value that uses all 64 bits. */
static int64_t integer(int64_t row)
{
  return INT64_MIN + 3 * row;
}

static PetscErrorCode give_integers(void *context, int part, int64_t first, int64_t n, void *rows)
{
  integers *i = (integers *)context + part;

  PetscFunctionBegin;
  PetscCheck(!i->fails, PETSC_COMM_SELF, TRS_ERR_IO, "the rows are gone");
  assert_in_range(n, 1, (64 << 20) / 8);
  for (int64_t r = 0; r < n; r++) ((int64_t *)rows)[r] = integer(i->row + first + r);
  i->given += n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_integers(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                    const void *rows)
{
  integers *i = (integers *)context + part;

  PetscFunctionBegin;
  assert_int_equal(dtype, TRS_INT64);
  for (int64_t r = 0; r < n; r++) assert_true(((const int64_t *)rows)[r] == integer(i->row + first + r));
  i->taken += n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add a tensor. Rank r has rows bounds[r] to bounds[r + 1] - 1, in two parts. */
static void add_integers(TrsState *s, const int64_t *bounds, integers *i)
{
  const int64_t begin = bounds[trs_rank()], end = bounds[trs_rank() + 1], middle = begin + (end - begin) / 3;
  TrsStateTensor *tensor;

  assert_petsc_ok(TrsStateAdd(s, "embedding/user/keys", TRS_INT64, 1, MANY, 1, &tensor));
  tensor->give = give_integers;
  tensor->take = take_integers;
  tensor->give_context = tensor->take_context = i;
  i[0] = (integers){.row = begin};
  i[1] = (integers){.row = middle};
  assert_petsc_ok(TrsStateAddPart(tensor, begin, 0, middle - begin, 1, NULL, 1));
  assert_petsc_ok(TrsStateAddPart(tensor, middle, 0, end - middle, 1, NULL, 1));
}

static void test_integers(void **state)
{
  const TrsCheckpointInfo info = {.step = 1}, later = {.step = 2};
  int64_t evenly[5] = {0}, all_on_last[5] = {0}, few[5];
  TrsCheckpointInfo found;
  TrsState s = {0};
  TrsStateTensor *tensor;
  integers i[2];

  (void)state;
  for (int r = 0; r <= trs_size(); r++) evenly[r] = (int64_t)MANY * r / trs_size();
  all_on_last[trs_size()] = MANY;
  add_integers(&s, evenly, i);
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &s, &info));
  assert_int_equal(i[0].given + i[1].given, evenly[trs_rank() + 1] - evenly[trs_rank()]);
  if (trs_rank() == trs_size() - 1) i[1].fails = 1;
  assert_petsc_error(TrsCheckpointWrite(MPI_COMM_WORLD, path, &s, &later), TRS_ERR_IO);
  assert_non_null(strstr(TrsErrorMessage(), "the rows are gone"));
  TrsErrorClear();
  assert_petsc_ok(TrsStateFree(&s));
  add_integers(&s, all_on_last, i);
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &s, &found));
  assert_int_equal(found.step, 1);
  assert_int_equal(i[0].taken + i[1].taken, trs_rank() == trs_size() - 1 ? MANY : 0);
  assert_petsc_ok(TrsStateFree(&s));
  /* Read the integers into memory. Reading them as floats is refused. */
  assert_petsc_ok(TrsStateAdd(&s, "embedding/user/keys", TRS_INT64, 1, MANY, 1, &tensor));
  assert_petsc_ok(TrsStateAddPart(tensor, 7, 0, 5, 1, few, 1));
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &s, &found));
  for (int r = 0; r < 5; r++) assert_true(few[r] == integer(7 + r));
  tensor->dtype = TRS_FP32;
  assert_petsc_error(TrsCheckpointRead(MPI_COMM_WORLD, path, &s, &found), TRS_ERR_DATA);
  assert_non_null(strstr(TrsErrorMessage(), "/embedding/user/keys is int64"));
  TrsErrorClear();
  assert_petsc_ok(TrsStateFree(&s));
}

/*
  If a number is not finite, on any rank and in any type, nothing is written, and the existing file
  stays.
*/
static void test_not_finite(void **state)
{
  static const uint32_t bits[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u};
  static const uint16_t halves[2][3] = {{0x7C00, 0xFC00, 0x7E01}, {0x7F80, 0xFF80, 0x7F81}};
  const TrsCheckpointInfo info = {.step = 8};
  TrsCheckpointInfo found;

  (void)state;
  write_split(SPLIT_ROWS, 1);
  for (int i = 0; i < 4 * trs_size(); i++) {
    fixture f;

    add_tensor(&f, "embedding/user/weight", SPLIT_ROWS);
    fill(&f, 2);
    memcpy(f.data + (ROWS - 1) * i / (4 * trs_size()) * (COLS + 1) + i % COLS, &bits[i % 4], sizeof(float));
    assert_petsc_error(TrsCheckpointWrite(MPI_COMM_WORLD, path, &f.state, &info), TRS_ERR_NOT_FINITE);
    fill(&f, 3);
    assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &f.state, &found));
    assert_int_equal(found.step, 7);
    free_fixture(&f);
  }
  for (int k = 0; k < 6; k++) {
    uint16_t values[8] = {0};
    TrsState s = {0};
    TrsStateTensor *tensor;

    values[k] = halves[k / 3][k % 3];
    assert_petsc_ok(TrsStateAdd(&s, "a/half", k < 3 ? TRS_FP16 : TRS_BF16, 1, 8, 1, &tensor));
    tensor->replicated = PETSC_TRUE;
    assert_petsc_ok(TrsStateAddPart(tensor, 0, 0, 8, 1, values, 1));
    assert_petsc_error(TrsCheckpointWrite(MPI_COMM_WORLD, path, &s, &info), TRS_ERR_NOT_FINITE);
    assert_petsc_ok(TrsStateFree(&s));
  }
  TrsErrorClear();
}

/*
  More than trs_part_bytes are written in rounds. In each round every rank reports progress, even if
  it has nothing to write.
*/
static void test_signs_of_life(void **state)
{
  const int64_t rows = (int64_t)200 << 18; /* 200 MiB in fp32 */
  const int64_t before = TrsStageSwitches();
  const TrsCheckpointInfo info = {.step = 1};
  TrsState s = {0};
  TrsStateTensor *tensor;
  float *values = NULL;

  (void)state;
  assert_petsc_ok(TrsStateAdd(&s, "large", TRS_FP32, 1, rows, 1, &tensor));
  if (trs_rank() == 0) {
    assert_petsc_ok(TrsAlloc(rows, sizeof(float), &values));
    assert_petsc_ok(TrsStateAddPart(tensor, 0, 0, rows, 1, values, 1));
  }
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &s, &info));
  assert_true(TrsStageSwitches() - before >= 3);
  assert_petsc_ok(TrsStateFree(&s));
  assert_petsc_ok(TrsFree(&values));
}

/* Add a split row-wise state. Column c is on rank c mod W, with offset 4c. */
static void add_columns(TrsState *s, float *values, const int64_t *offsets, int n_columns)
{
  const double weights[4] = {0.5, 0.25, 0.125, 0.125};
  TrsStateTensor *tensor;

  assert_petsc_ok(TrsStateAdd(s, "embedding/user/momentum1_columns", TRS_FP32, 2, ROWS, n_columns, &tensor));
  assert_petsc_ok(TrsStateSetColumns(tensor, "embedding/user/momentum1", n_columns, offsets, weights));
  for (int c = trs_rank(); c < n_columns; c += trs_size())
    assert_petsc_ok(TrsStateAddPart(tensor, 0, c, ROWS, 1, values + (int64_t)c * ROWS, 1));
}

static void test_split_rowwise_state(void **state)
{
  const int64_t offsets[2][4] = {{0, 4, 8, 10}, {0, 2, 8, 10}};
  const TrsCheckpointInfo info = {.step = 1};
  TrsCheckpointInfo found;
  TrsState s = {0};
  TrsStateTensor *tensor;
  float values[4 * ROWS], plain[ROWS];

  (void)state;
  for (int c = 0; c < N_COLUMNS; c++)
    for (int r = 0; r < ROWS; r++) values[c * ROWS + r] = element(c + 1, r, 0);
  add_columns(&s, values, offsets[0], N_COLUMNS);
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &s, &info));
  assert_petsc_ok(TrsStateFree(&s));

  memset(values, 0, sizeof(values)); /* with the same split, each rank reads its own columns */
  add_columns(&s, values, offsets[0], N_COLUMNS);
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &s, &found));
  for (int c = trs_rank(); c < N_COLUMNS; c += trs_size())
    for (int r = 0; r < ROWS; r++) assert_true(values[c * ROWS + r] == element(c + 1, r, 0));
  assert_petsc_ok(TrsStateFree(&s));

  /* with other offsets or another number of columns, each column gets the mean */
  for (int other = 0; other < 2; other++) {
    add_columns(&s, values, offsets[1], other ? 4 : N_COLUMNS);
    assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &s, &found));
    for (int c = trs_rank(); c < (other ? 4 : N_COLUMNS); c += trs_size())
      /* 0.5, 0.25 and 0.125 times the columns, which is exact in fp32 */
      for (int r = 0; r < ROWS; r++)
        assert_true(values[c * ROWS + r] ==
                    0.5f * element(1, r, 0) + 0.25f * element(2, r, 0) + 0.125f * element(3, r, 0));
    assert_petsc_ok(TrsStateFree(&s));
  }
  /* an unsplit state gets the mean */
  assert_petsc_ok(TrsStateAdd(&s, "embedding/user/momentum1", TRS_FP32, 1, ROWS, 1, &tensor));
  assert_petsc_ok(TrsStateAddPart(tensor, 0, 0, ROWS, 1, plain, 1));
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &s, &found));
  for (int r = 0; r < ROWS; r++)
    assert_true(plain[r] == 0.5f * element(1, r, 0) + 0.25f * element(2, r, 0) + 0.125f * element(3, r, 0));
  assert_petsc_ok(TrsStateFree(&s));
}

/* Expected numbers of the files in regression/golden/runtime, as h5py reads them. */
static void test_golden_files(void **state)
{
  TrsState s = {0};
  TrsStateTensor *tensor;
  TrsCheckpointInfo info;
  uint16_t weight[80 * 8];
  float columns[13 * 2];

  (void)state;
  assert_petsc_ok(TrsStateAdd(&s, "embedding/h/weight", TRS_FP16, 2, 80, 8, &tensor));
  assert_petsc_ok(TrsStateAddPart(tensor, 0, 0, 80, 8, weight, 8));
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, trs_golden("fp16_rowwise_adagrad/final.h5"), &s, &info));
  assert_int_equal(info.step, 20);
  assert_int_equal(info.samples_seen, 320);
  assert_int_equal(weight[0], 0x2656); /* 0.02475 */
  assert_petsc_ok(TrsStateFree(&s));

  assert_petsc_ok(TrsStateAdd(&s, "embedding/cat/exp_avg_sq_columns", TRS_FP32, 2, 13, 2, &tensor));
  assert_petsc_ok(TrsStateSetColumns(tensor, "embedding/cat/exp_avg_sq", 2, (const int64_t[]){0, 4},
                                     (const double[]){0.5, 0.5}));
  assert_petsc_ok(TrsStateAddPart(tensor, 0, 0, 13, 2, columns, 2));
  assert_petsc_ok(
      TrsCheckpointRead(MPI_COMM_WORLD, trs_golden("partial_rowwise_adam/final_cw2.h5"), &s, &info));
  assert_close(columns[3], 3.263511e-09, 0, 1e-6);
  assert_petsc_ok(TrsStateFree(&s));
}

static void expect_refused(const char *name, TrsDType dtype, int ndim, int64_t rows, int64_t cols,
                           const char *message)
{
  TrsState s = {0};
  TrsStateTensor *tensor;
  TrsCheckpointInfo info;

  assert_petsc_ok(TrsStateAdd(&s, name, dtype, ndim, rows, cols, &tensor));
  assert_petsc_error(TrsCheckpointRead(MPI_COMM_WORLD, path, &s, &info), TRS_ERR_DATA);
  if (!strstr(TrsErrorMessage(), message)) print_error("message: %s\n", TrsErrorMessage());
  assert_non_null(strstr(TrsErrorMessage(), message));
  assert_petsc_ok(TrsStateFree(&s));
}

static void test_other_model_is_refused(void **state)
{
  TrsState s = {0};
  TrsStateTensor *tensor;
  TrsCheckpointInfo info;

  (void)state;
  write_split(SPLIT_ROWS, 1);
  expect_refused("embedding/user/weight", TRS_FP32, 2, ROWS, 16,
                 "/embedding/user/weight is float32 [61, 12], the model wants float32 [61, 16]");
  expect_refused("embedding/user/weight", TRS_FP16, 2, ROWS, COLS, "the model wants float16 [61, 12]");
  expect_refused("embedding/user/weight", TRS_FP32, 1, ROWS, 1, "the model wants float32 [61]");
  expect_refused("embedding/item/weight", TRS_FP32, 2, ROWS, COLS, "has no dataset /embedding/item/weight");
  assert_petsc_ok(TrsStateAdd(&s, "embedding/item/weight", TRS_FP32, 2, ROWS, COLS, &tensor));
  tensor->optional = PETSC_TRUE;
  assert_petsc_ok(TrsCheckpointRead(MPI_COMM_WORLD, path, &s, &info));
  assert_false(s.tensor[0].was_read);
  assert_petsc_ok(TrsStateFree(&s));
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_any_split_reads_any_other), cmocka_unit_test(test_half_types),
                        cmocka_unit_test(test_integers), cmocka_unit_test(test_not_finite),
                        cmocka_unit_test(test_signs_of_life), cmocka_unit_test(test_split_rowwise_state),
                        cmocka_unit_test(test_golden_files), cmocka_unit_test(test_other_model_is_refused))
