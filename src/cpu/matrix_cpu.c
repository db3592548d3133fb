/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Copies and sums of pooled rows. These loops are limited by memory bandwidth, and the compiler
  vectorises them.
*/
#include "cpu/cpu_kernels.h"
#include "cpu/past_cache.h"

#include <string.h>

/* For fewer floats than this, a parallel region costs more time than it saves. */
enum { TRS_PARALLEL_FLOATS = 1 << 15, TRS_SUM_STRIP = 1 << 10 };

/* Distance at which a copy prefetches short rows that are not adjacent. */
enum { TRS_FETCH_FLOATS = 512 };

/*
  Number of rows that are copied for one group of columns before the next group: the lines of
  adjacent groups are on the same pages.
*/
enum { TRS_COPY_ROWS = 16 };

/* Copy rows [begin, end) of a group of columns. */
static void copy_strip(const TrsColumnCopy *run, int64_t begin, int64_t end, int past_cache)
{
  const int64_t cols = run->cols, from_stride = run->from.stride, to_stride = run->to.stride;
  const float *from = (const float *)run->from.data;
  float *to = (float *)run->to.data;
  const int64_t next = (cols < TRS_FETCH_FLOATS ? TRS_FETCH_FLOATS / PetscMax(cols, 1) : 1) * from_stride;

  if (cols == 0) return; /* the pointers may be NULL, which memcpy() forbids */
  if (!past_cache && from_stride == cols && to_stride == cols) {
    memcpy(to + begin * cols, from + begin * cols, (size_t)((end - begin) * cols) * sizeof(float));
    return;
  }
  for (int64_t r = begin; r < end; r++) {
    if (past_cache)
      TrsPastCacheCopy(cols, from + r * from_stride, next, to + r * to_stride);
    else
      memcpy(to + r * to_stride, from + r * from_stride, (size_t)cols * sizeof(float));
  }
}

PetscErrorCode TrsCopyColumnsCpu(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy)
{
  int64_t cols = 0;

  PetscFunctionBegin;
  (void)stream;
  for (int i = 0; i < n; i++) {
    PetscCall(TrsCheckFloats(copy[i].from.type));
    PetscCall(TrsCheckFloats(copy[i].to.type));
    cols += copy[i].cols;
  }
#pragma omp parallel if (rows * cols > TRS_PARALLEL_FLOATS)
  {
#pragma omp for schedule(static) nowait
    for (int64_t begin = 0; begin < rows; begin += TRS_COPY_ROWS)
      for (int i = 0; i < n; i++)
        copy_strip(&copy[i], begin, PetscMin(begin + TRS_COPY_ROWS, rows),
                   TrsPastCacheMatrix(rows, copy[i].cols, (const float *)copy[i].to.data, copy[i].to.stride));
    TrsPastCacheEnd();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCopyRowsCpu(TrsStream stream, TrsWorkspace workspace, int n, const TrsRowsCopy *copy)
{
  PetscFunctionBegin;
  (void)stream;
  (void)workspace;
  for (int k = 0; k < n; k++) {
    const TrsRowsCopy c = copy[k];

    if (c.row_bytes == 0) continue; /* the pointers may be NULL */
#pragma omp parallel for schedule(static) if (c.n * c.row_bytes > \
                                              TRS_PARALLEL_FLOATS * (int64_t)sizeof(float))
    for (int64_t i = 0; i < c.n; i++)
      memcpy((char *)c.to + (c.to_index ? c.to_index[i] : i) * c.to_stride,
             (const char *)c.from + (c.from_index ? c.from_index[i] : i) * c.from_stride,
             (size_t)c.row_bytes);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Sum columns [begin, end) of one row over the parts, in order. The sum is computed in memory of its
  own, because `to` may be one of the parts.
*/
static void sum_strip(int n_parts, const float *const *from, int64_t offset, int64_t begin, int64_t end,
                      float *to)
{
  float sum[TRS_SUM_STRIP];
  const int64_t n = end - begin;

  memcpy(sum, from[0] + offset + begin, (size_t)n * sizeof(*sum));
  for (int p = 1; p < n_parts; p++) {
    const float *restrict part = from[p] + offset + begin;
    for (int64_t c = 0; c < n; c++) sum[c] += part[c];
  }
  memcpy(to + begin, sum, (size_t)n * sizeof(*sum));
}

PetscErrorCode TrsSumMatricesCpu(TrsStream stream, int n_parts, const float *const *from, int64_t from_stride,
                                 int64_t rows, int64_t cols, float *to, int64_t to_stride)
{
  PetscFunctionBegin;
  (void)stream;
  /* the matrix is processed as one long row, in strips that stay in the cache */
  if (from_stride == cols && to_stride == cols) {
    cols *= rows;
    rows = cols > 0;
  }
#pragma omp parallel for schedule(static) collapse(2) if (rows * cols > TRS_PARALLEL_FLOATS)
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c += TRS_SUM_STRIP)
      sum_strip(n_parts, from, r * from_stride, c, c + TRS_SUM_STRIP < cols ? c + TRS_SUM_STRIP : cols,
                to + r * to_stride);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDivideColumnsCpu(TrsStream stream, int64_t rows, int n, const TrsMeanColumns *mean)
{
  PetscFunctionBegin;
  (void)stream;
  for (int i = 0; i < n; i++) {
    const int64_t cols = mean[i].cols, stride = mean[i].columns.stride;
    float *data = (float *)mean[i].columns.data;

    PetscCall(TrsCheckFloats(mean[i].columns.type));
#pragma omp parallel for schedule(static) if (rows * cols > TRS_PARALLEL_FLOATS)
    for (int64_t r = 0; r < rows; r++) {
      const int32_t length = mean[i].lengths[r];
      float *restrict row = data + r * stride;

      if (length > 1)
        for (int64_t c = 0; c < cols; c++) row[c] /= (float)length;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsClampMatrixCpu(TrsStream stream, int64_t rows, int64_t cols, float limit, float *matrix,
                                 int64_t stride)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static) if (rows * cols > TRS_PARALLEL_FLOATS)
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      const float x = matrix[r * stride + c];
      matrix[r * stride + c] = x > limit ? limit : x < -limit ? -limit : x;
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsScaleMatrixCpu(TrsStream stream, int64_t rows, int64_t cols, float factor, float *matrix,
                                 int64_t stride)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static) if (rows * cols > TRS_PARALLEL_FLOATS)
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) matrix[r * stride + c] *= factor;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsJoinForwardCpu(TrsStream stream, int64_t rows, int64_t cols, PetscBool product, TrsMatrix a,
                                 TrsMatrix b, TrsMatrix x)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static) if (rows * cols > TRS_PARALLEL_FLOATS)
  for (int64_t r = 0; r < rows; r++) {
    const float *left = (const float *)a.data + r * a.stride, *right = (const float *)b.data + r * b.stride;
    float *joined = (float *)x.data + r * x.stride;

    if (product)
      for (int64_t c = 0; c < cols; c++) joined[c] = left[c] * right[c];
    else
      for (int64_t c = 0; c < cols; c++) joined[c] = left[c] + right[c];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsJoinBackwardCpu(TrsStream stream, int64_t rows, int64_t cols, PetscBool product,
                                  const float *dx, int64_t dx_stride, float *a, float *b, int64_t stride)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static) if (rows * cols > TRS_PARALLEL_FLOATS)
  for (int64_t r = 0; r < rows; r++) {
    const float *restrict grad = dx + r * dx_stride;
    float *restrict left = a + r * stride, *restrict right = b + r * stride;

    for (int64_t c = 0; c < cols; c++) {
      const float of_left = product ? grad[c] * right[c] : grad[c];

      right[c] = product ? grad[c] * left[c] : grad[c];
      left[c] = of_left;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsConvertMatrixCpu(TrsStream stream, int64_t rows, int64_t cols, int64_t filled,
                                   TrsMatrix from, TrsMatrix to)
{
  const int64_t from_bytes = TrsDTypeBytes(from.type), to_bytes = TrsDTypeBytes(to.type);

  PetscFunctionBegin;
  for (int64_t r = 0; r < rows; r++) {
    char *row = (char *)to.data + r * to.stride * to_bytes;

    PetscCall(TrsConvertCpu(stream, cols, from.type, (const char *)from.data + r * from.stride * from_bytes,
                            to.type, row));
    memset(row + cols * to_bytes, 0, (size_t)((filled - cols) * to_bytes));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
