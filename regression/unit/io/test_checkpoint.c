/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests checkpoints. A file that was written with one split is read with any other split, bit for
  bit. Golden files can be read. Damage is found.
*/
#include "core/buffer.h"
#include "core/events.h"
#include "io/checkpoint/checkpoint.h"
#include "scratch_folder.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 61, COLS = 12, N_COLUMNS = 3 };

/* Element (r, c) of tensor k. Any law is suitable in which all elements differ. */
static float element(int k, int64_t r, int64_t c)
{
  return (float)(1000 * k + 13 * (int)r) + 0.25f * (float)c;
}

typedef enum { SPLIT_ROWS, SPLIT_COLUMNS, SPLIT_ONE, SPLIT_REPLICATED, SPLIT_GRID, N_SPLITS } split;

/* Find the rectangle of [rows, cols] that rank r of w ranks has. Columns are cut in steps of 4. */
static void my_part(split how, int64_t rows, int64_t cols, int r, int w, int64_t rect[4])
{
  int64_t block = (rows + w - 1) / w, row = r * block < rows ? r * block : rows;

  rect[0] = rect[1] = 0;
  rect[2] = rows;
  rect[3] = cols;
  if (how == SPLIT_ROWS) {
    rect[0] = row;
    rect[2] = rows - row < block ? rows - row : block;
  } else if (how == SPLIT_ONE) {
    if (r != w - 1) rect[2] = rect[3] = 0;
  } else if (how == SPLIT_COLUMNS) {
    /* each of the first ranks has one block of 4 columns, and the last rank has the rest */
    rect[1] = 4 * r < cols ? 4 * r : cols;
    rect[3] = r == w - 1 || rect[1] + 4 > cols ? cols - rect[1] : 4;
  } else if (how == SPLIT_GRID) {
    /* rank 0 has the upper left part; the caller adds the two rectangles of the last rank */
    rect[2] = r == 0 ? 20 : 0;
    rect[3] = r == 0 ? 8 : 0;
  }
}

typedef struct {
  TrsState state;
  float *data; /* [ROWS, COLS + 1]: a gap follows each row */
  int64_t rect[4];
} fixture;

static void add_tensor(fixture *f, const char *name, split how)
{
  TrsStateTensor *tensor;
  int r = trs_rank(), w = trs_size();

  memset(f, 0, sizeof(*f));
  assert_petsc_ok(TrsAlloc(ROWS * (COLS + 1), sizeof(float), &f->data));
  assert_petsc_ok(TrsStateAdd(&f->state, name, TRS_FP32, 2, ROWS, COLS, &tensor));
  tensor->replicated = how == SPLIT_REPLICATED ? PETSC_TRUE : PETSC_FALSE;
  my_part(how, ROWS, COLS, r, w, f->rect);
  assert_petsc_ok(TrsStateAddPart(tensor, f->rect[0], f->rect[1], f->rect[2], f->rect[3],
                                  f->data + f->rect[0] * (COLS + 1) + f->rect[1], COLS + 1));
  if (how == SPLIT_GRID && r == w - 1) {
    assert_petsc_ok(TrsStateAddPart(tensor, 0, 8, 20, 4, f->data + 8, COLS + 1));
    assert_petsc_ok(TrsStateAddPart(tensor, 20, 0, ROWS - 20, COLS, f->data + 20 * (COLS + 1), COLS + 1));
  }
}

static void fill(fixture *f, int k)
{
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t c = 0; c < COLS; c++) f->data[r * (COLS + 1) + c] = element(k, r, c);
}

static void free_fixture(fixture *f)
{
  assert_petsc_ok(TrsFree(&f->data));
  assert_petsc_ok(TrsStateFree(&f->state));
}

static void write_split(split how, int k)
{
  const TrsCheckpointInfo info = {
      .step = 7, .epoch = 2, .samples_seen = 112, .run_step = 9, .options = "-steps 9", .plan = "{}"};
  fixture f;

  add_tensor(&f, "embedding/user/weight", how);
  fill(&f, k);
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &f.state, &info));
  free_fixture(&f);
}

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

/* --- damage --- */

static char *read_bytes(const char *name, long *n)
{
  FILE *file = fopen(name, "rb");
  char *bytes;

  assert_non_null(file);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  *n = ftell(file);
  rewind(file);
  bytes = malloc((size_t)*n);
  assert_int_equal(fread(bytes, 1, (size_t)*n, file), *n);
  fclose(file);
  return bytes;
}

static void write_bytes(const char *name, const char *bytes, long n)
{
  FILE *file = fopen(name, "wb");

  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, (size_t)n, file), n);
  assert_int_equal(fclose(file), 0);
}

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

/* --- folders --- */

static void write_step(const char *where, int64_t step, int keep)
{
  const TrsCheckpointInfo info = {.step = step, .run_id = "0123456789abcdef"};
  const TrsRunWait no_wait = {.seconds = 0};
  TrsCheckpointFolder open;
  fixture f;

  add_tensor(&f, "embedding/user/weight", SPLIT_ROWS);
  fill(&f, (int)step);
  assert_petsc_ok(TrsCheckpointFolderOpen(MPI_COMM_WORLD, where, keep, &no_wait, &open));
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
  assert_petsc_error(TrsCheckpointFolderOpen(MPI_COMM_WORLD, path, 2, &no_wait, &open), TRS_ERR_CANT_CREATE);
  assert_null(open);
  snprintf(where, sizeof(where), "%s/none.h5", folder);
  assert_petsc_error(TrsCheckpointRead(MPI_COMM_WORLD, where, &s, &(TrsCheckpointInfo){0}), TRS_ERR_NO_INPUT);
  assert_petsc_error(TrsCheckpointRead(MPI_COMM_WORLD, folder, &s, &(TrsCheckpointInfo){0}),
                     TRS_ERR_NO_INPUT);
  TrsErrorClear();
}

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

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_any_split_reads_any_other), cmocka_unit_test(test_half_types),
                        cmocka_unit_test(test_integers), cmocka_unit_test(test_not_finite),
                        cmocka_unit_test(test_signs_of_life), cmocka_unit_test(test_split_rowwise_state),
                        cmocka_unit_test(test_golden_files), cmocka_unit_test(test_other_model_is_refused),
                        cmocka_unit_test(test_folder), cmocka_unit_test(test_held),
                        cmocka_unit_test(test_unwritable), cmocka_unit_test(test_wanted),
                        cmocka_unit_test(test_wanted_fewer_rows), cmocka_unit_test(test_truncation),
                        cmocka_unit_test(test_bit_flips), cmocka_unit_test(test_flips_of_large_attributes))
