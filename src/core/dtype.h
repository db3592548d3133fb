/* SPDX-License-Identifier: BSD-3-Clause */
/* Element types of tables, tensors and messages. No PETSc, MPI or CUDA here: kernels and .cu files include this. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum {
  TRS_FP32,
  TRS_FP16,
  TRS_BF16,
  TRS_INT8, /* quantised rows: scale and bias beside the values */
  TRS_INT4,
  TRS_INT2,
  TRS_INT32,
  TRS_INT64,
  TRS_FP64,
  TRS_UINT8, /* bytes */
  TRS_N_DTYPES
} TrsDType;

/* Names as in options and files: fp32, fp16, bf16, int8, int4, int2, int32, int64, fp64, uint8. */
static inline const char *TrsDTypeName(TrsDType t)
{
  static const char *const names[TRS_N_DTYPES] = {"fp32", "fp16",  "bf16",  "int8", "int4",
                                                  "int2", "int32", "int64", "fp64", "uint8"};
  return names[t];
}

/* Bits an element takes. */
static inline int TrsDTypeBits(TrsDType t)
{
  static const int bits[TRS_N_DTYPES] = {32, 16, 16, 8, 4, 2, 32, 64, 64, 8};
  return bits[t];
}

/* Bytes an element takes; 0 for int4 and int2, which have none of their own. */
static inline int TrsDTypeBytes(TrsDType t)
{
  return TrsDTypeBits(t) / 8;
}
