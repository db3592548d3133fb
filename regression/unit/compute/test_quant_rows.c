/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests properties of quantised rows: a slice of columns has the values of the whole row, sequences
  return decoded rows, and half-precision numbers are rounded. They hold on every instruction set.
*/
#include "compute/compute_ops.h"
#include "dequantise.h"
#include "trs_test.h"

#include <math.h>
#include <string.h>

enum { ROWS = 37 };
static const TrsDType types[] = {TRS_FP32, TRS_FP16, TRS_BF16, TRS_INT8, TRS_INT4, TRS_INT2};
static const char *const isas[] = {"portable", "avx2", "avx512"};
static const int dims[] = {1, 3, 4, 8, 20, 31, 64, 130};

/* Numbers whose offset and spread differ from row to row. Row 5 is constant. */
static float *make_numbers(int dim)
{
  float *x = calloc((size_t)ROWS * (size_t)dim, sizeof(*x));

  for (int r = 0; r < ROWS; r++)
    for (int d = 0; d < dim; d++)
      x[r * dim + d] = r == 5 ? 0.75f
                              : (float)(r - 10) * 0.3f +
                                    (float)((d * 7919 + r * 104729) % 1009) * 0.001f * (float)r;
  return x;
}

static uint8_t *quantised(TrsDType dtype, int dim, const float *x)
{
  uint8_t *rows = calloc((size_t)ROWS, (size_t)TrsQuantRowBytes(dtype, TRS_ROWS_TBE, dim));

  assert_petsc_ok(TrsQuantiseRows(dtype, TRS_ROWS_TBE, ROWS, dim, x, dim, rows));
  return rows;
}

static void check_slice(TrsDType dtype, int dim, int col, int cols, const uint8_t *rows, const float *whole)
{
  const int64_t bytes = TrsQuantRowBytes(dtype, TRS_ROWS_TBE, cols);
  const int used = (cols * TrsDTypeBits(dtype) + 7) / 8 + (TrsQuantIsPacked(dtype) ? 4 : 0);
  uint8_t *slice = malloc((size_t)(ROWS * bytes));
  float *back = calloc((size_t)ROWS * (size_t)cols, sizeof(*back));

  memset(slice, 0xff, (size_t)(ROWS * bytes));
  assert_petsc_ok(TrsQuantSliceRows(dtype, dim, col, cols, ROWS, rows, slice));
  dequantise_rows(dtype, TRS_ROWS_TBE, ROWS, cols, slice, back, cols);
  for (int r = 0; r < ROWS; r++) {
    assert_memory_equal(back + r * cols, whole + r * dim + col, (size_t)cols * sizeof(*back));
    for (int64_t b = used; b < bytes; b++) assert_int_equal(slice[r * bytes + b], 0);
    if (cols * TrsDTypeBits(dtype) %
        8) /* bits of the next columns are cleared, so that equal tables have equal bytes */
      assert_int_equal(slice[r * bytes + used - 1] >> cols * TrsDTypeBits(dtype) % 8, 0);
  }
  free(slice);
  free(back);
}

static void test_slices(void **state)
{
  (void)state;
  for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
      const int dim = dims[i], per_byte = 8 / (TrsDTypeBits(types[t]) < 8 ? TrsDTypeBits(types[t]) : 8);
      float *x = make_numbers(dim), *whole = calloc((size_t)ROWS * (size_t)dim, sizeof(*whole));
      uint8_t *rows = quantised(types[t], dim, x);

      dequantise_rows(types[t], TRS_ROWS_TBE, ROWS, dim, rows, whole, dim);
      for (int col = 0; col < dim; col += per_byte)
        for (int cols = 1; cols <= dim - col; cols += dim > 40 ? 13 : 1)
          check_slice(types[t], dim, col, cols, rows, whole);
      free(x);
      free(whole);
      free(rows);
    }
}

static void test_slices_refused(void **state)
{
  uint8_t rows[64] = {0}, slice[64];

  (void)state;
  assert_petsc_error(TrsQuantSliceRows(TRS_INT4, 8, 1, 2, 1, rows, slice),
                     TRS_ERR_INTERNAL); /* the slice begins within a byte */
  assert_petsc_error(TrsQuantSliceRows(TRS_INT2, 8, 2, 2, 1, rows, slice), TRS_ERR_INTERNAL);
  assert_petsc_error(TrsQuantSliceRows(TRS_INT8, 8, 6, 3, 1, rows, slice),
                     TRS_ERR_INTERNAL); /* the slice ends after the last column */
  assert_petsc_error(TrsQuantSliceRows(TRS_INT8, 8, -1, 3, 1, rows, slice), TRS_ERR_INTERNAL);
}

/*
  A sequence's rows are the result of dequantise_rows(). Ids that are not rows of the table give
  zeros.
*/
static void check_sequence(const TrsComputeOps *compute, TrsDType dtype, int dim)
{
  enum { N = 5000 };
  const int64_t offsets[2] = {0, N};
  float *x = make_numbers(dim), *whole = calloc((size_t)ROWS * (size_t)dim, sizeof(*whole)),
        *out = calloc((size_t)N * (size_t)(dim + 2), sizeof(*out));
  int64_t *values = calloc(N, sizeof(*values));
  const int element = TrsQuantIsPacked(dtype) ? 1 : TrsDTypeBytes(dtype);
  TrsTbeTable table = {.rows = ROWS,
                       .dim = dim,
                       .dtype = dtype,
                       .stride = TrsQuantRowBytes(dtype, TRS_ROWS_TBE, dim) / element};
  const TrsTbeFeature feature = {0};
  TrsWorkspace workspace = NULL;

  table.weight = quantised(dtype, dim, x);
  dequantise_rows(dtype, TRS_ROWS_TBE, ROWS, dim, table.weight, whole, dim);
  for (int i = 0; i < N; i++) /* includes -1 and three ids after the table's end */
    values[i] = (i * 31 + i / 7) % (ROWS + 3) - 1;
  values[17] = INT64_MAX / 2;
  assert_petsc_ok(compute->workspace_create(&workspace));
  assert_petsc_ok(compute->tbe_forward_rows(
      NULL, workspace, &(TrsTbe){1, 1, &table, &feature},
      &(TrsTbeInput){.batch = 1, .offsets = offsets, .values = values, .n_values = N}, out, dim + 2));
  for (int i = 0; i < N; i++)
    for (int d = 0; d < dim; d++)
      assert_true(out[i * (dim + 2) + d] ==
                  (values[i] >= 0 && values[i] < ROWS ? whole[values[i] * dim + d] : 0.0f));
  assert_petsc_ok(compute->workspace_destroy(&workspace));
  free(table.weight);
  free(x);
  free(whole);
  free(out);
  free(values);
}

static void test_sequences(void **state)
{
  const TrsComputeOps *compute;

  (void)state;
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  for (int i = 0; i < 3; i++) {
    TrsComputeSetIsa(isas[i]);
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
      for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++) check_sequence(compute, types[t], dims[d]);
  }
}

/*
  The mean of a bag, and its sum with and without weights, are computed from the rows that
  dequantise_rows() returns, for any width.
*/
static void check_pooled(const TrsComputeOps *compute, TrsDType dtype, int dim, int mean, int weighted)
{
  enum { BAGS = 60, N = 400 };
  float *x = make_numbers(dim), *whole = calloc((size_t)ROWS * (size_t)dim, sizeof(*whole)),
        *out = calloc((size_t)BAGS * (size_t)(dim + 3), sizeof(*out)), weights[N];
  int64_t offsets[BAGS + 1] = {0}, values[N];
  const int element = TrsQuantIsPacked(dtype) ? 1 : TrsDTypeBytes(dtype);
  TrsTbeTable table = {.rows = ROWS,
                       .dim = dim,
                       .dtype = dtype,
                       .stride = TrsQuantRowBytes(dtype, TRS_ROWS_TBE, dim) / element};
  const TrsTbeFeature feature = {.mean = mean, .out_column = 2};
  TrsWorkspace workspace = NULL;

  table.weight = quantised(dtype, dim, x);
  dequantise_rows(dtype, TRS_ROWS_TBE, ROWS, dim, table.weight, whole, dim);
  for (int b = 0; b < BAGS; b++) offsets[b + 1] = b == BAGS - 1 ? N : offsets[b] + b % 12;
  for (int i = 0; i < N; i++) {
    values[i] = (i * 17 + i / 5) % (ROWS + 1) - 1;
    weights[i] = (float)(i % 9) * 0.25f - 0.5f;
  }
  assert_petsc_ok(compute->workspace_create(&workspace));
  assert_petsc_ok(compute->tbe_forward(NULL, workspace, &(TrsTbe){1, 1, &table, &feature},
                                       &(TrsTbeInput){.batch = BAGS,
                                                      .offsets = offsets,
                                                      .values = values,
                                                      .weights = weighted ? weights : NULL,
                                                      .n_values = N},
                                       TrsFloats(out, dim + 3)));
  for (int b = 0; b < BAGS; b++)
    for (int d = 0; d < dim; d++) {
      const int64_t n = offsets[b + 1] - offsets[b];
      double sum = 0, size = 0;

      for (int64_t i = offsets[b]; i < offsets[b + 1]; i++) {
        const double w = weighted ? (double)weights[i] : 1.0;
        if (values[i] < 0) continue;
        sum += w * (double)whole[values[i] * dim + d];
        size += fabs(w * (double)whole[values[i] * dim + d]);
      }
      if (mean && n) sum /= (double)n;
      assert_close(out[b * (dim + 3) + 2 + d], sum, 1e-6 * size, 1e-6);
    }
  for (int b = 0; b < BAGS; b++) /* the memory beside the columns must not change */
    assert_true(out[b * (dim + 3)] == 0.0f && out[b * (dim + 3) + 1] == 0.0f &&
                out[b * (dim + 3) + 2 + dim] == 0.0f);
  assert_petsc_ok(compute->workspace_destroy(&workspace));
  free(table.weight);
  free(x);
  free(whole);
  free(out);
}

static void test_pooled(void **state)
{
  const TrsComputeOps *compute;

  (void)state;
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  for (int i = 0; i < 3; i++) {
    TrsComputeSetIsa(isas[i]);
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
      for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
        for (int how = 0; how < 3; how++) check_pooled(compute, types[t], dims[d], how == 1, how == 2);
  }
}

/*
  Rounding a strided matrix gives the same numbers as convert() to the type and back. The columns
  beside the matrix stay unchanged.
*/
static void test_round_matrix(void **state)
{
  enum { R = 5, C = 700, STRIDE = 703 };
  const TrsComputeOps *compute;
  static float x[R * STRIDE], found[R * STRIDE], back[C];
  static uint16_t half[C];

  (void)state;
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  for (int i = 0; i < R * STRIDE; i++) x[i] = ldexpf((float)(i % 997 - 498) + 0.137f, i % 37 - 20);
  for (int i = 0; i < 3; i++)
    for (int t = 1; t <= 2; t++) { /* fp16, bf16 */
      TrsComputeSetIsa(isas[i]);
      memcpy(found, x, sizeof(x));
      assert_petsc_ok(compute->round_matrix(NULL, R, C, types[t], found, STRIDE));
      for (int r = 0; r < R; r++) {
        assert_petsc_ok(compute->convert(NULL, C, TRS_FP32, x + r * STRIDE, types[t], half));
        assert_petsc_ok(compute->convert(NULL, C, types[t], half, TRS_FP32, back));
        assert_memory_equal(found + r * STRIDE, back, sizeof(back));
        assert_memory_equal(found + r * STRIDE + C, x + r * STRIDE + C, (STRIDE - C) * sizeof(*x));
      }
    }
  assert_petsc_error(compute->round_matrix(NULL, R, C, TRS_INT8, found, STRIDE), TRS_ERR_INTERNAL);
}

TRS_TEST_MAIN(cmocka_unit_test(test_slices), cmocka_unit_test(test_slices_refused),
              cmocka_unit_test(test_sequences), cmocka_unit_test(test_pooled),
              cmocka_unit_test(test_round_matrix))
