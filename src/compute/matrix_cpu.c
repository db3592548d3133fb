/* SPDX-License-Identifier: BSD-3-Clause */
/* Moving and adding pooled rows: memory-bound loops that the compiler vectorises as they stand. */
#include "compute/cpu_kernels.h"
#include "compute/past_cache.h"

#include <string.h>

/* Below this many floats a parallel region costs more than it saves. */
enum { TRS_PARALLEL_FLOATS = 1 << 15, TRS_SUM_STRIP = 1 << 10 };

/* How far ahead of a copy short rows that lie apart are fetched */
enum { TRS_FETCH_FLOATS = 512 };

PetscErrorCode TrsCopyMatrixCpu(TrsStream stream, int64_t rows, int64_t cols, const float *from,
                                int64_t from_stride, float *to, int64_t to_stride)
{
  const int past_cache = TrsPastCacheMatrix(rows, cols, to, to_stride);
  const int64_t next = (cols < TRS_FETCH_FLOATS ? TRS_FETCH_FLOATS / PetscMax(cols, 1) : 1) * from_stride;

  PetscFunctionBegin;
  (void)stream;
  if (rows == 0) PetscFunctionReturn(PETSC_SUCCESS); /* NULL pointers, which memcpy must not be given */
  if (from_stride == cols && to_stride == cols) {
    memcpy(to, from, (size_t)(rows * cols) * sizeof(float));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
#pragma omp parallel if (rows * cols > TRS_PARALLEL_FLOATS)
  {
#pragma omp for schedule(static) nowait
    for (int64_t r = 0; r < rows; r++) {
      if (past_cache)
        TrsPastCacheCopy(cols, from + r * from_stride, next, to + r * to_stride);
      else
        memcpy(to + r * to_stride, from + r * from_stride, (size_t)cols * sizeof(float));
    }
    if (past_cache) TrsPastCacheEnd();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCopyBlocksCpu(TrsStream stream, TrsWorkspace workspace, int n, const TrsBlockCopy *block,
                                const float *from, float *to)
{
  PetscFunctionBegin;
  (void)workspace;
  for (int i = 0; i < n; i++)
    PetscCall(TrsCopyMatrixCpu(stream, block[i].rows, block[i].cols, from + block[i].from,
                               block[i].from_stride, to + block[i].to, block[i].to_stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NOLINTNEXTLINE(readability-function-size): the slot's parameters */
PetscErrorCode TrsMoveRowsCpu(TrsStream stream, int64_t n, int64_t row_bytes, const void *from,
                              int64_t from_stride, const int64_t *from_index, void *to, int64_t to_stride,
                              const int64_t *to_index)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static) if (n * row_bytes > TRS_PARALLEL_FLOATS * (int64_t)sizeof(float))
  for (int64_t i = 0; i < n; i++)
    memcpy((char *)to + (to_index ? to_index[i] : i) * to_stride,
           (const char *)from + (from_index ? from_index[i] : i) * from_stride, (size_t)row_bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Columns [begin, end) of one row: the sum of the parts, in order. Added in a place of its own, as `to` may be one of the parts. */
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
  if (from_stride == cols && to_stride == cols) { /* one long row, cut into strips that stay in cache */
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

PetscErrorCode TrsDivideRowsCpu(TrsStream stream, int64_t rows, int64_t cols, const int32_t *lengths,
                                float *matrix, int64_t stride)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static) if (rows * cols > TRS_PARALLEL_FLOATS)
  for (int64_t r = 0; r < rows; r++) {
    const float length = (float)lengths[r];
    if (lengths[r] > 1)
      for (int64_t c = 0; c < cols; c++) matrix[r * stride + c] /= length;
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
