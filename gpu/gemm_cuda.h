/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products of the dense layers, and the scratch that the dense kernels share. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

extern "C" {
#include "compute/gemm.h"
}

/* C = activation(product + bias); floats all; bias [n] or NULL. */
struct TrsProduct : TrsMatrixProduct {
  const float *bias;
  TrsActivation activation;
};

/* Ordered on the stream. Sums run in an order that depends on the shape alone: the same bits run after run on one kind of GPU. */
PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *product);

/* Scratch of what is on the stream: the last user is done when the next one runs. Grows, then stays, for the life of the process. */
PetscErrorCode TrsDenseScratch(TrsStream stream, int64_t bytes, void **scratch);
