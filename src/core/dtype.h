/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Element types of tables, tensors and messages. This header uses no PETSc, MPI or CUDA, because
  kernels and .cu files include it.
*/
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum {
  TRS_FP32,
  TRS_FP16,
  TRS_BF16,
  /* rows of this type and the next two are quantised, with a scale and a bias beside the values */
  TRS_INT8,
  TRS_INT4,
  TRS_INT2,
  TRS_INT32,
  TRS_INT64,
  TRS_FP64,
  TRS_UINT8,
  TRS_N_DTYPES
} TrsDType;

/* Return the name of a type in options and files. */
static inline const char *TrsDTypeName(TrsDType t)
{
  static const char *const names[TRS_N_DTYPES] = {"fp32", "fp16",  "bf16",  "int8", "int4",
                                                  "int2", "int32", "int64", "fp64", "uint8"};
  return names[t];
}

/* Return the number of bits of an element. */
static inline int TrsDTypeBits(TrsDType t)
{
  static const int bits[TRS_N_DTYPES] = {32, 16, 16, 8, 4, 2, 32, 64, 64, 8};
  return bits[t];
}

/*
  Return the number of bytes of an element. For int4 and int2 the result is 0, because their
  elements are smaller than a byte.
*/
static inline int TrsDTypeBytes(TrsDType t)
{
  return TrsDTypeBits(t) / 8;
}
