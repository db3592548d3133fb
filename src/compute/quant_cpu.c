/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/quant.h"

#include "compute/codec_kernels.h"

#include <string.h>

enum { TRS_TBE_ROW_ALIGNMENT = 16 };

static PetscBool is_packed(TrsDType dtype)
{
  return (PetscBool)(dtype == TRS_INT8 || dtype == TRS_INT4 || dtype == TRS_INT2);
}

int64_t TrsQuantRowBytes(TrsDType dtype, TrsRowLayout layout, int dim)
{
  const int64_t values = ((int64_t)dim * TrsDTypeBits(dtype) + 7) / 8, parameters = is_packed(dtype) ? 4 : 0;

  if (layout == TRS_ROWS_FUSED) return values + (dtype == TRS_INT8 ? 8 : parameters);
  return (values + parameters + TRS_TBE_ROW_ALIGNMENT - 1) / TRS_TBE_ROW_ALIGNMENT * TRS_TBE_ROW_ALIGNMENT;
}

static PetscErrorCode check_format(TrsDType dtype, TrsRowLayout layout)
{
  PetscFunctionBegin;
  PetscCheck(is_packed(dtype) || (layout == TRS_ROWS_TBE && (dtype == TRS_FP32 || dtype == TRS_FP16)),
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "rows cannot be quantised to %s", TrsDTypeName(dtype));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsQuantiseRows(TrsDType dtype, TrsRowLayout layout, int64_t n_rows, int dim,
                               const float *from, int64_t from_stride, void *to)
{
  const TrsCodecKernels *kernels = TrsCodecKernelsGet();
  const int64_t bytes = TrsQuantRowBytes(dtype, layout, dim);

  PetscFunctionBegin;
  PetscCall(check_format(dtype, layout));
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < n_rows; r++) {
    uint8_t *row = (uint8_t *)to + r * bytes;

    memset(row, 0, (size_t)bytes);
    if (dtype == TRS_FP32)
      memcpy(row, from + r * from_stride, (size_t)dim * sizeof(*from));
    else if (dtype == TRS_FP16)
      kernels->narrow(1, dim, from + r * from_stride, (uint16_t *)(void *)row);
    else
      kernels->quantise_row(dtype, layout, dim, from + r * from_stride, row);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDequantiseRows(TrsDType dtype, TrsRowLayout layout, int64_t n_rows, int dim,
                                 const void *from, float *to, int64_t to_stride)
{
  const TrsCodecKernels *kernels = TrsCodecKernelsGet();
  const int64_t bytes = TrsQuantRowBytes(dtype, layout, dim);

  PetscFunctionBegin;
  PetscCall(check_format(dtype, layout));
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < n_rows; r++) {
    const uint8_t *row = (const uint8_t *)from + r * bytes;

    if (dtype == TRS_FP32)
      memcpy(to + r * to_stride, row, (size_t)dim * sizeof(*to));
    else if (dtype == TRS_FP16)
      kernels->widen(1, dim, (const uint16_t *)(const void *)row, to + r * to_stride);
    else
      kernels->dequantise_row(dtype, layout, dim, row, to + r * to_stride);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
