/* SPDX-License-Identifier: BSD-3-Clause */
/* A tensor that the tests of checkpoints write with one split and read with another. */
#pragma once

#include "core/buffer.h"
#include "io/checkpoint/checkpoint.h"
#include "scratch_folder.h"

#include <string.h>

enum { ROWS = 61, COLS = 12, N_COLUMNS = 3 };

/* Element (r, c) of tensor k. Any law is suitable in which all elements differ. */
static inline float element(int k, int64_t r, int64_t c)
{
  return (float)(1000 * k + 13 * (int)r) + 0.25f * (float)c;
}

typedef enum { SPLIT_ROWS, SPLIT_COLUMNS, SPLIT_ONE, SPLIT_REPLICATED, SPLIT_GRID, N_SPLITS } split;

/* Find the rectangle of [rows, cols] that rank r of w ranks has. Columns are cut in steps of 4. */
static inline void my_part(split how, int64_t rows, int64_t cols, int r, int w, int64_t rect[4])
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

static inline void add_tensor(fixture *f, const char *name, split how)
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

static inline void fill(fixture *f, int k)
{
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t c = 0; c < COLS; c++) f->data[r * (COLS + 1) + c] = element(k, r, c);
}

static inline void free_fixture(fixture *f)
{
  assert_petsc_ok(TrsFree(&f->data));
  assert_petsc_ok(TrsStateFree(&f->state));
}

static inline void write_split(split how, int k)
{
  const TrsCheckpointInfo info = {
      .step = 7, .epoch = 2, .samples_seen = 112, .run_step = 9, .options = "-steps 9", .plan = "{}"};
  fixture f;

  add_tensor(&f, "embedding/user/weight", how);
  fill(&f, k);
  assert_petsc_ok(TrsCheckpointWrite(MPI_COMM_WORLD, path, &f.state, &info));
  free_fixture(&f);
}

static inline char *read_bytes(const char *name, long *n)
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

static inline void write_bytes(const char *name, const char *bytes, long n)
{
  FILE *file = fopen(name, "wb");

  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, (size_t)n, file), n);
  assert_int_equal(fclose(file), 0);
}
