/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/state.h"

#include <inttypes.h>
#include <string.h>

PetscErrorCode TrsStateAdd(TrsState *state, const char *path, TrsDType dtype, int ndim, int64_t rows,
                           int64_t cols, TrsStateTensor **tensor)
{
  PetscFunctionBegin;
  PetscCheck(ndim >= 1 && ndim <= 2 && rows >= 0 && cols >= 0 && (ndim == 2 || cols == 1), PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "%s: %d dimensions, %" PRId64 " rows, %" PRId64 " columns", path, ndim, rows,
             cols);
  PetscCheck(TrsStateIsNumber(dtype) || dtype == TRS_UINT8 || dtype == TRS_INT32 || dtype == TRS_INT64,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s: checkpoints hold no %s", path, TrsDTypeName(dtype));
  if (state->n == state->capacity) {
    int capacity = state->capacity ? 2 * state->capacity : 16;

    PetscCall(PetscRealloc((size_t)capacity * sizeof(*state->tensor), &state->tensor));
    state->capacity = capacity;
  }
  *tensor = &state->tensor[state->n];
  **tensor = (TrsStateTensor){.dtype = dtype, .ndim = ndim, .rows = rows, .cols = cols};
  PetscCall(PetscStrallocpy(path, &(*tensor)->path));
  state->n++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStateCopy(const TrsStateTensor *from, TrsState *state, TrsStateTensor **tensor)
{
  char *path;

  PetscFunctionBegin;
  PetscCall(TrsStateAdd(state, from->path, from->dtype, from->ndim, from->rows, from->cols, tensor));
  path = (*tensor)->path;
  **tensor = *from;
  (*tensor)->path = path;
  PetscCall(PetscMalloc1((size_t)from->n_parts, &(*tensor)->part));
  PetscCall(PetscArraycpy((*tensor)->part, from->part, (size_t)from->n_parts));
  if (from->mean_path)
    PetscCall(TrsStateSetColumns(*tensor, from->mean_path, from->n_columns, from->column_offsets,
                                 from->mean_weights));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStateAddPart(TrsStateTensor *tensor, int64_t row_offset, int64_t col_offset, int64_t rows,
                               int64_t cols, void *data, int64_t stride)
{
  PetscFunctionBegin;
  PetscCheck(row_offset >= 0 && col_offset >= 0 && rows >= 0 && cols >= 0 &&
                 rows <= tensor->rows - row_offset && cols <= tensor->cols - col_offset,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "%s [%" PRId64 ", %" PRId64 "]: part at [%" PRId64 ", %" PRId64 "] of [%" PRId64 ", %" PRId64
             "]",
             tensor->path, tensor->rows, tensor->cols, row_offset, col_offset, rows, cols);
  PetscCall(PetscRealloc((size_t)(tensor->n_parts + 1) * sizeof(*tensor->part), &tensor->part));
  tensor->part[tensor->n_parts++] = (TrsStatePart){.row_offset = row_offset,
                                                   .col_offset = col_offset,
                                                   .rows = rows,
                                                   .cols = cols,
                                                   .data = data,
                                                   .stride = stride};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStateSetColumns(TrsStateTensor *tensor, const char *mean_path, int n_columns,
                                  const int64_t *column_offsets, const double *mean_weights)
{
  PetscFunctionBegin;
  PetscCheck(n_columns >= 1 && n_columns == tensor->cols && tensor->ndim == 2 && tensor->dtype == TRS_FP32,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s: %d columns for a tensor of %" PRId64, tensor->path,
             n_columns, tensor->cols);
  PetscCall(PetscStrallocpy(mean_path, &tensor->mean_path));
  PetscCall(PetscMalloc1(n_columns, &tensor->column_offsets));
  PetscCall(PetscMalloc1(n_columns, &tensor->mean_weights));
  memcpy(tensor->column_offsets, column_offsets, (size_t)n_columns * sizeof(*column_offsets));
  memcpy(tensor->mean_weights, mean_weights, (size_t)n_columns * sizeof(*mean_weights));
  tensor->n_columns = n_columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStateFree(TrsState *state)
{
  PetscFunctionBegin;
  for (int i = 0; i < state->n; i++) {
    TrsStateTensor *tensor = &state->tensor[i];

    PetscCall(PetscFree(tensor->path));
    PetscCall(PetscFree(tensor->part));
    PetscCall(PetscFree(tensor->column_offsets));
    PetscCall(PetscFree(tensor->mean_weights));
    PetscCall(PetscFree(tensor->mean_path));
  }
  PetscCall(PetscFree(state->tensor));
  memset(state, 0, sizeof(*state));
  PetscFunctionReturn(PETSC_SUCCESS);
}
