/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/quant.h"

#include "cpu/isa/codec_kernels.h"

#include <string.h>

PetscBool TrsQuantIsPacked(TrsDType dtype)
{
  return (PetscBool)(dtype == TRS_INT8 || dtype == TRS_INT4 || dtype == TRS_INT2);
}

int64_t TrsQuantRowBytes(TrsDType dtype, TrsRowLayout layout, int dim)
{
  const int64_t values = ((int64_t)dim * TrsDTypeBits(dtype) + 7) / 8,
                parameters = TrsQuantIsPacked(dtype) ? TRS_TBE_PARAMETER_BYTES : 0;

  if (layout == TRS_ROWS_FUSED) return values + (dtype == TRS_INT8 ? 8 : parameters);
  return (values + parameters + TRS_TBE_ROW_ALIGNMENT - 1) / TRS_TBE_ROW_ALIGNMENT * TRS_TBE_ROW_ALIGNMENT;
}

static PetscErrorCode check_format(TrsDType dtype, TrsRowLayout layout)
{
  const PetscBool is_float = (PetscBool)(dtype == TRS_FP32 || dtype == TRS_FP16 || dtype == TRS_BF16);

  PetscFunctionBegin;
  PetscCheck(TrsQuantIsPacked(dtype) || (layout == TRS_ROWS_TBE && is_float), PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "rows cannot be quantised to %s", TrsDTypeName(dtype));
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
    else if (dtype == TRS_FP16 || dtype == TRS_BF16)
      kernels->narrow(dtype == TRS_FP16, dim, from + r * from_stride, (uint16_t *)(void *)row);
    else
      kernels->quantise_row(dtype, layout, dim, from + r * from_stride, row);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsQuantSliceRows(TrsDType dtype, int dim, int col, int cols, int64_t n_rows, const void *from,
                                 void *to)
{
  const int bits = TrsDTypeBits(dtype), parameters = TrsQuantIsPacked(dtype) ? TRS_TBE_PARAMETER_BYTES : 0;
  const int64_t from_bytes = TrsQuantRowBytes(dtype, TRS_ROWS_TBE, dim),
                to_bytes = TrsQuantRowBytes(dtype, TRS_ROWS_TBE, cols),
                value_bytes = ((int64_t)cols * bits + 7) / 8;
  const int used_bits = cols * bits % 8; /* number of bits of the last byte that are in use */

  PetscFunctionBegin;
  PetscCall(check_format(dtype, TRS_ROWS_TBE));
  PetscCheck(col >= 0 && cols > 0 && col <= dim - cols && (int64_t)col * bits % 8 == 0, PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "columns %d + %d of %d of %s", col, cols, dim, TrsDTypeName(dtype));
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < n_rows; r++) {
    const uint8_t *whole = (const uint8_t *)from + r * from_bytes;
    uint8_t *slice = (uint8_t *)to + r * to_bytes;

    memset(slice, 0, (size_t)to_bytes);
    memcpy(slice, whole, (size_t)parameters);
    memcpy(slice + parameters, whole + parameters + (int64_t)col * bits / 8, (size_t)value_bytes);
    if (used_bits) slice[parameters + value_bytes - 1] &= (uint8_t)((1 << used_bits) - 1);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
