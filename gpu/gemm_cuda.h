/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products of the dense layers, and the scratch that the dense kernels share. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

/* C [m, n] = activation(alpha op(A) op(B) + beta C + bias), row-major; op is transposition where asked; bias [n] or NULL. */
struct TrsProduct {
  PetscBool trans_a, trans_b;
  int64_t m, n, k;
  float alpha;
  const float *a;
  int64_t lda;
  const float *b;
  int64_t ldb;
  float beta;
  float *c;
  int64_t ldc;
  const float *bias;
  TrsActivation activation;
};

/* Ordered on the stream. Sums run in an order that depends on the shape alone: the same bits run after run on one kind of GPU. */
PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *product);

/* Scratch of what is on the stream: the last user is done when the next one runs. Grows, then stays, for the life of the process. */
PetscErrorCode TrsDenseScratch(TrsStream stream, int64_t bytes, void **scratch);
