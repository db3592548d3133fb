/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/* A model starts from the checkpoint of another model. */
#include "checkpoint_fixture.h"

/*
  Add a tensor with rows on each rank, all set to `value`. Its elements are in data, which is large
  enough for all of them.
*/
static TrsStateTensor *add_rows(TrsState *s, const char *name, int ndim, int64_t rows, int64_t cols,
                                float *data, float value)
{
  TrsStateTensor *tensor;
  int64_t rect[4];

  my_part(SPLIT_ROWS, rows, cols, trs_rank(), trs_size(), rect);
  for (int64_t i = 0; i < rows * cols; i++) data[i] = value;
  assert_petsc_ok(TrsStateAdd(s, name, TRS_FP32, ndim, rows, cols, &tensor));
  assert_petsc_ok(TrsStateAddPart(tensor, rect[0], 0, rect[2], cols, data + rect[0] * cols, cols));
  return tensor;
}

enum { MORE = ROWS + 9, N_WANTED = 7 };

/*
  A model that starts from the file of another model. Table user has more rows, item is unchanged,
  tag is new, and the layer has a new shape.
*/
static void add_model(TrsState *s, float data[N_WANTED][MORE * COLS])
{
  const char *optimizer = "adagrad";

  add_rows(s, "embedding/user/weight", 2, MORE, COLS, data[0], -1);
  add_rows(s, "embedding/user/momentum1", 1, MORE, 1, data[1], 0);
  s->tensor[1].optional = PETSC_TRUE;
  s->tensor[1].optimizer = optimizer;
  add_rows(s, "embedding/item/weight", 2, 5, 4, data[2], -1);
  add_rows(s, "embedding/tag/weight", 2, 6, 4, data[3], -1);
  add_rows(s, "dense/over_arch/0/weight", 2, 3, 5, data[4], -1);
  add_rows(s, "dense/over_arch/0/bias", 1, 3, 1, data[5], -1);
  add_rows(s, "dense_optimizer/over_arch/0/weight/sum", 2, 3, 5, data[6], 0);
  s->tensor[6].optional = PETSC_TRUE;
}

/*
  Check this rank's rows of tensor k: up to row n they must have the file's `value`, and after it
  their initial value.
*/
static void expect_rows(const TrsState *s, int k, int64_t n, float value, float initial)
{
  const TrsStatePart *part = &s->tensor[k].part[0];

  for (int64_t r = 0; r < part->rows; r++)
    for (int64_t c = 0; c < part->cols; c++)
      assert_true(((const float *)part->data)[r * part->stride + c] ==
                  (part->row_offset + r < n ? value : initial));
}

static void write_old_model(void)
{
  static float data[7][ROWS * COLS];
  TrsState s = {0};

  add_rows(&s, "embedding/user/weight", 2, ROWS, COLS, data[0], 1);
  add_rows(&s, "embedding/user/momentum1", 1, ROWS, 1, data[1], 2)->optimizer = "adagrad";
  add_rows(&s, "embedding/item/weight", 2, 5, 4, data[2], 3);
  add_rows(&s, "embedding/old/weight", 2, 5, 4, data[3], 4);
  add_rows(&s, "dense/over_arch/0/weight", 2, 3, 4, data[4], 5);
  add_rows(&s, "dense/over_arch/0/bias", 1, 3, 1, data[5], 6);
  /* a state of the new shape, which is not read because its weights are not read */
  add_rows(&s, "dense_optimizer/over_arch/0/weight/sum", 2, 3, 5, data[6], 7);
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &s, &(TrsCheckpointInfo){.step = 3}));
  assert_petsc_ok(TrsStateFree(&s));
}

/* Read the parts of the old model that `wanted` selects into the new model. */
static PetscErrorCode read_wanted(const TrsCheckpointWanted *wanted, TrsState *s, TrsCheckpointInfo *info)
{
  static float data[N_WANTED][MORE * COLS];

  *s = (TrsState){0};
  add_model(s, data);
  return TrsCheckpointReadWanted(MPI_COMM_WORLD, path, s, wanted, info);
}

static void expect_not_wanted(const TrsCheckpointWanted *wanted, const char *message)
{
  TrsCheckpointInfo info;
  TrsState s;

  assert_petsc_error(read_wanted(wanted, &s, &info), TRS_ERR_DATA);
  if (!strstr(TrsErrorMessage(), message)) print_error("message: %s\n", TrsErrorMessage());
  assert_non_null(strstr(TrsErrorMessage(), message));
  assert_petsc_ok(TrsStateFree(&s));
  TrsErrorClear();
}

/*
  Start a changed model. Check which tensors are read, which are left unchanged, and which are
  listed.
*/
static void test_wanted(void **state)
{
  const char *const item[] = {"item"}, *const tag[] = {"tag"}, *const user[] = {"user"};
  TrsCheckpointInfo info;
  TrsState s;

  (void)state;
  write_old_model();
  assert_petsc_ok(read_wanted(&(TrsCheckpointWanted){.initial = PETSC_TRUE, .grow = PETSC_TRUE}, &s, &info));
  assert_int_equal(info.step, 3);
  expect_rows(&s, 0, ROWS, 1, -1);
  expect_rows(&s, 1, ROWS, 2, 0);
  expect_rows(&s, 2, 5, 3, -1);
  expect_rows(&s, 3, 0, 0, -1);
  expect_rows(&s, 4, 0, 0, -1);
  expect_rows(&s, 5, 3, 6, -1);
  expect_rows(&s, 6, 0, 0, 0);
  assert_true(s.tensor[0].was_read && s.tensor[0].rows_read == ROWS);
  assert_true(!s.tensor[3].was_read && !s.tensor[3].other_shape[0]);
  assert_true(!s.tensor[4].was_read);
  assert_string_equal(s.tensor[4].other_shape, "float32 [3, 4]");
  assert_true(s.tensor[6].unwanted);
  assert_int_equal(info.n_unexpected, trs_rank() == 0 ? 1 : 0);
  if (trs_rank() == 0) assert_string_equal(info.unexpected[0], "embedding/old");
  assert_petsc_ok(TrsCheckpointInfoFree(&info));
  assert_petsc_ok(TrsStateFree(&s));

  assert_petsc_ok(read_wanted(&(TrsCheckpointWanted){.n_tables = 1, .table = item}, &s, &info));
  expect_rows(&s, 0, 0, 0, -1);
  expect_rows(&s, 2, 5, 3, -1);
  expect_rows(&s, 5, 0, 0, -1);
  for (int k = 0; k < s.n; k++) assert_true(s.tensor[k].was_read == (k == 2));
  assert_petsc_ok(TrsCheckpointInfoFree(&info));
  assert_petsc_ok(TrsStateFree(&s));

  expect_not_wanted(&(TrsCheckpointWanted){.n_tables = 1, .table = tag}, "no dataset /embedding/tag/weight");
  expect_not_wanted(&(TrsCheckpointWanted){.n_tables = 1, .table = user}, "; -init_from_rows grow");
  expect_not_wanted(&(TrsCheckpointWanted){.initial = PETSC_TRUE},
                    "/embedding/user/weight is float32 [61, 12]");
  expect_not_wanted(&(TrsCheckpointWanted){.grow = PETSC_TRUE}, "; -init_from_missing initial");
  expect_not_wanted(NULL, "/embedding/user/weight is float32 [61, 12], the model wants float32 [70, 12]");
}

/* A table must not lose rows. */
static void test_wanted_fewer_rows(void **state)
{
  static float data[ROWS * COLS];
  TrsCheckpointInfo info;
  TrsState s = {0};

  (void)state;
  write_old_model();
  add_rows(&s, "embedding/user/weight", 2, ROWS - 1, COLS, data, -1);
  assert_petsc_error(
      TrsCheckpointReadWanted(MPI_COMM_WORLD, path, &s,
                              &(TrsCheckpointWanted){.initial = PETSC_TRUE, .grow = PETSC_TRUE}, &info),
      TRS_ERR_DATA);
  assert_petsc_ok(TrsStateFree(&s));
  TrsErrorClear();
}

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_wanted), cmocka_unit_test(test_wanted_fewer_rows))
