/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products of the dense layers. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

extern "C" {
#include "compute/gemm.h"
}

/*
  C = activation(product + bias), all in floats. bias [n] or NULL; NULL means no activation. added
  (or NULL: C itself) is the matrix that beta is a factor of, with the stride of C.
*/
struct TrsProduct : TrsMatrixProduct {
  const float *bias;
  TrsActivation activation;
  const float *added;
};

/*
  Make the product, in the stream's order. Sums run in an order that depends on the shape alone, so
  the bits are the same in every run on one kind of GPU.
*/
PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *product);
