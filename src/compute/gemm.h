/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Matrices of the dense layers, and the product of two matrices as the backends' libraries compute
  it.
*/
#pragma once

#include "core/dtype.h"
#include "core/error.h"

#include <stdint.h>
#include <string.h>

/* A row-major matrix, of fp32 or bf16 elements. */
typedef struct {
  TrsDType type;
  int64_t stride; /* elements from one row to the next */
  void *data;
} TrsMatrix;

/*
  A matrix product C [m, n] = alpha op(A) op(B) + beta C. If trans_a or trans_b is set, op
  transposes A or B.
*/
typedef struct {
  PetscBool trans_a, trans_b;
  int64_t m, n, k;
  float alpha;
  TrsMatrix a, b;
  float beta;
  TrsMatrix c;
} TrsMatrixProduct;

/*
  One bit for each element of a matrix, which is set if the input of ReLU was positive. Column c of
  a row is bit c % 8 of byte c / 8. If data is NULL, there is no mask.
*/
typedef struct {
  int64_t row_bytes; /* bytes from one row to the next, a multiple of 16 */
  void *data;        /* aligned to 16 bytes */
} TrsReluMask;

/*
  Masks that the products of a linear layer may write or apply. A backward computes the gradient of
  the layer's input. This gradient must be masked by the ReLU of the previous layer, whose output is
  the input. Either the matrix product applies the mask, or the backward of the previous layer
  applies it when it computes its sums. So both backwards get the mask.
*/
typedef struct {
  /* written by a forward with ReLU; a backward applies it to dy, unless it is already applied */
  TrsReluMask y;
  TrsReluMask x; /* a backward may apply it to dx; if not, the previous layer applies it */
} TrsReluMasks;

/* Return a matrix without its first columns. */
static inline TrsMatrix TrsMatrixColumns(TrsMatrix matrix, int64_t first)
{
  matrix.data = (char *)matrix.data + first * TrsDTypeBytes(matrix.type);
  return matrix;
}

/*
  Return a matrix of floats. A function may write to the matrix only if the function's comment says
  so.
*/
static inline TrsMatrix TrsFloats(const float *data, int64_t stride)
{
  TrsMatrix matrix;

  matrix.type = TRS_FP32;
  matrix.stride = stride;
  memcpy(&matrix.data, &data, sizeof(data)); /* a cast instead would remove the const */
  return matrix;
}
