/* SPDX-License-Identifier: BSD-3-Clause */
/* A matrix product as the dense layers pass it to the backends' libraries. */
#pragma once

#include "core/error.h"

#include <stdint.h>

/*
  C [m, n] = alpha op(A) op(B) + beta C, row-major. op transposes if trans_a, trans_b is set. A and
  B are float, or bf16 if a backend rounded them.
*/
typedef struct {
  PetscBool trans_a, trans_b;
  int64_t m, n, k;
  float alpha;
  const void *a;
  int64_t lda;
  const void *b;
  int64_t ldb;
  float beta;
  float *c;
  int64_t ldc;
} TrsMatrixProduct;
