/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrices of the dense layers, and a product of them as the backends' libraries get it. */
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
  A bit for each number of a matrix, set where ReLU let the number pass. Column c of a row is bit
  c % 8 of byte c / 8. A mask without data is none.
*/
typedef struct {
  int64_t row_bytes; /* from one row to the next: whole 16 bytes */
  void *data;        /* at whole 16 bytes */
} TrsReluMask;

/*
  What the products of a linear layer may do beside multiplying. A backward makes the gradient of
  the layer's input, which is masked by what the forward of the layer below kept: in the same
  product, or when the backward of the layer below sums it. So this backward is given the mask, too.
*/
typedef struct {
  TrsReluMask y; /* a forward with ReLU writes it; in a backward dy was masked by it, or now is */
  TrsReluMask x; /* in a backward dx is masked by it, or will be by the layer below */
} TrsReluMasks;

/* A matrix without its first columns. */
static inline TrsMatrix TrsMatrixColumns(TrsMatrix matrix, int64_t first)
{
  matrix.data = (char *)matrix.data + first * TrsDTypeBytes(matrix.type);
  return matrix;
}

/* A matrix of floats. It is written only where a function's comment says so. */
static inline TrsMatrix TrsFloats(const float *data, int64_t stride)
{
  TrsMatrix matrix;

  matrix.type = TRS_FP32;
  matrix.stride = stride;
  memcpy(&matrix.data, &data, sizeof(data)); /* not a cast, which would take a const away */
  return matrix;
}
