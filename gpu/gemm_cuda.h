/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products of the dense layers. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

extern "C" {
#include "compute/gemm.h"
}

/* C = activation(product + bias); floats all; bias [n] or NULL, then without activation. added (or NULL: C itself) is what beta is a factor of, strided as C. */
struct TrsProduct : TrsMatrixProduct {
  const float *bias;
  TrsActivation activation;
  const float *added;
};

/* Ordered on the stream. Sums run in an order that depends on the shape alone: the same bits run after run on one kind of GPU. */
PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *product);
