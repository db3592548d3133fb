/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrices of the dense layers, and their product as passed to the backends' libraries. */
#pragma once

#include "core/dtype.h"
#include "core/error.h"

#include <stdint.h>
#include <string.h>

/* A row-major matrix of fp32, or of bf16. */
typedef struct {
  TrsDType type;
  int64_t stride; /* elements from one row to the next */
  void *data;
} TrsMatrix;

/* C [m, n] = alpha op(A) op(B) + beta C. op transposes if trans_a, trans_b is set. */
typedef struct {
  PetscBool trans_a, trans_b;
  int64_t m, n, k;
  float alpha;
  TrsMatrix a, b;
  float beta;
  TrsMatrix c;
} TrsMatrixProduct;

/*
  One bit for each element of a matrix, set if ReLU passed the element on. Column c of a row is bit
  c % 8 of byte c / 8. If data is NULL, there is no mask.
*/
typedef struct {
  int64_t row_bytes; /* from one row to the next: whole 16 bytes */
  void *data;        /* at whole 16 bytes */
} TrsReluMask;

/*
  Masks that the products of a linear layer may write or apply. A backward computes the gradient of
  the layer's input, which must be masked by the ReLU of the layer below. The product itself may
  apply that mask, or the backward of the layer below applies it when it sums. So both backwards get
  the mask.
*/
typedef struct {
  /* a forward with ReLU writes it; a backward applies it to dy if it is not applied yet */
  TrsReluMask y;
  TrsReluMask x; /* a backward may apply it to dx, else the layer below does */
} TrsReluMasks;

/* A matrix without its first columns. */
static inline TrsMatrix TrsMatrixColumns(TrsMatrix matrix, int64_t first)
{
  matrix.data = (char *)matrix.data + first * TrsDTypeBytes(matrix.type);
  return matrix;
}

/* A matrix of floats. A function may write it only if its comment says so. */
static inline TrsMatrix TrsFloats(const float *data, int64_t stride)
{
  TrsMatrix matrix;

  matrix.type = TRS_FP32;
  matrix.stride = stride;
  memcpy(&matrix.data, &data, sizeof(data)); /* a cast would drop the const */
  return matrix;
}
