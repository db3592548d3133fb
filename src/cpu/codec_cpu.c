/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/cpu_kernels.h"
#include "cpu/isa/codec_kernels.h"

#include <inttypes.h>
#include <string.h>

enum { TRS_VALUES_A_PART = 16384 }; /* smallest number of values that a thread converts */

const TrsCodecKernels *TrsCodecKernelsGet(void)
{
  return TRS_KERNELS_OF_ISA(trs_codec_kernels);
}

/* Return the number of values that are encoded together as a row. */
static int64_t row_values(const TrsCodec *codec)
{
  const PetscBool in_rows = (PetscBool)(codec->kind == TRS_CODEC_INT8 || codec->kind == TRS_CODEC_FP8);

  return in_rows && codec->row_dim > 0 ? codec->row_dim : 1;
}

int64_t TrsCodecBytesCpu(const TrsCodec *codec, int64_t n)
{
  const int64_t row = row_values(codec), n_rows = (n + row - 1) / row;

  switch (codec->kind) {
  case TRS_CODEC_FP32: return 4 * n;
  case TRS_CODEC_FP16:
  case TRS_CODEC_BF16: return 2 * n;
  case TRS_CODEC_FP8: return codec->row_dim > 0 ? n_rows * ((row + 3) / 4 * 4 + 8) : n;
  case TRS_CODEC_INT8: return n_rows * (row + 8);
  }
  return 0;
}

/* Return the number of values in a part: whole rows, and enough of them for a thread. */
static int64_t values_a_part(int64_t row)
{
  return (TRS_VALUES_A_PART + row - 1) / row * row;
}

PetscErrorCode TrsEncodeCpu(TrsStream stream, const TrsCodec *codec, int64_t n, const float *from, void *to)
{
  const TrsCodecKernels *kernels = TrsCodecKernelsGet();
  const int64_t row = row_values(codec), part = values_a_part(row);

  PetscFunctionBegin;
  (void)stream;
  PetscCheck(n % row == 0, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "%" PRId64 " values are not whole rows of %" PRId64, n, row);
#pragma omp parallel for schedule(static) if (n > part)
  for (int64_t i = 0; i < n; i += part)
    kernels->encode(codec, n - i < part ? n - i : part, from + i, (uint8_t *)to + TrsCodecBytesCpu(codec, i));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDecodeCpu(TrsStream stream, const TrsCodec *codec, int64_t n, const void *from, float *to)
{
  const TrsCodecKernels *kernels = TrsCodecKernelsGet();
  const int64_t row = row_values(codec), part = values_a_part(row);

  PetscFunctionBegin;
  (void)stream;
  PetscCheck(n % row == 0, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "%" PRId64 " values are not whole rows of %" PRId64, n, row);
#pragma omp parallel for schedule(static) if (n > part)
  for (int64_t i = 0; i < n; i += part)
    kernels->decode(codec, n - i < part ? n - i : part, (const uint8_t *)from + TrsCodecBytesCpu(codec, i),
                    to + i);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsConvertCpu(TrsStream stream, int64_t n, TrsDType from_type, const void *from,
                             TrsDType to_type, void *to)
{
  const TrsCodecKernels *kernels = TrsCodecKernelsGet();
  const int from_half = from_type == TRS_FP16 || from_type == TRS_BF16;
  const int to_half = to_type == TRS_FP16 || to_type == TRS_BF16;

  PetscFunctionBegin;
  (void)stream;
  PetscCheck(from_type == to_type || (from_type == TRS_FP32 && to_half) || (from_half && to_type == TRS_FP32),
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "no conversion from %s to %s", TrsDTypeName(from_type),
             TrsDTypeName(to_type));
  if (from_type == to_type) {
    memcpy(to, from, (size_t)(n * TrsDTypeBytes(to_type)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
#pragma omp parallel for schedule(static) if (n > TRS_VALUES_A_PART)
  for (int64_t i = 0; i < n; i += TRS_VALUES_A_PART) {
    const int64_t here = n - i < TRS_VALUES_A_PART ? n - i : TRS_VALUES_A_PART;

    if (to_half)
      kernels->narrow(to_type == TRS_FP16, here, (const float *)from + i, (uint16_t *)to + i);
    else
      kernels->widen(from_type == TRS_FP16, here, (const uint16_t *)from + i, (float *)to + i);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRoundMatrixCpu(TrsStream stream, int64_t rows, int64_t cols, TrsDType dtype, float *matrix,
                                 int64_t stride)
{
  enum { TRS_STRIP = 512 };
  const TrsCodecKernels *kernels = TrsCodecKernelsGet();

  PetscFunctionBegin;
  (void)stream;
  PetscCheck(dtype == TRS_FP16 || dtype == TRS_BF16, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "no rounding to %s",
             TrsDTypeName(dtype));
#pragma omp parallel for schedule(static) if (rows * cols > TRS_VALUES_A_PART)
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c += TRS_STRIP) {
      const int64_t n = cols - c < TRS_STRIP ? cols - c : TRS_STRIP;
      uint16_t half[TRS_STRIP];

      kernels->narrow(dtype == TRS_FP16, n, matrix + r * stride + c, half);
      kernels->widen(dtype == TRS_FP16, n, half, matrix + r * stride + c);
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}
