/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products of the dense layers. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

extern "C" {
#include "compute/gemm.h"
}

/*
  C = activation(product + bias). A and B are of one type or the other (compute/gemm.h); a bf16
  result needs the precision bf16. bias [n], of the type of C, or NULL; NULL means no activation.
  added (or NULL: C itself) is the matrix that beta is a factor of, with the type and stride of C.

  A product may have a mask or sums, which cuBLASLt makes in the same kernel, if it can. The mask is
  written where there is an activation, ReLU. Else C is 0 where the mask's bit is not set.
*/
struct TrsProduct : TrsMatrixProduct {
  const void *bias;
  TrsActivation activation;
  const void *added;
  TrsReluMask mask = {0, NULL};
  void *sums = NULL; /* [m] sums of the rows of op(A), of the type of C */
};

/*
  Make the product, in the stream's order. Sums run in an order that depends on the shape alone, so
  the bits are the same in every run on one kind of GPU.

  Out: fused  false: cuBLASLt cannot make the mask or the sums, and the product was made without
              them. NULL where the product has neither
*/
PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *product, bool *fused);
