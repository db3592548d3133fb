/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products of the dense layers. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

extern "C" {
#include "compute/gemm.h"
}

/*
  C = activation(product + bias). A and B have the same type (compute/gemm.h); a bf16 result needs
  the precision bf16. bias [n] has the type of C; NULL means no bias and no activation. beta
  multiplies added, which has the type and stride of C, or C itself if added is NULL. A product may
  have a mask or sums, which cuBLASLt makes in the same kernel if it can. With the activation ReLU
  the mask is written. Otherwise C is set to 0 where the mask's bit is not set.
*/
struct TrsProduct : TrsMatrixProduct {
  const void *bias;
  TrsActivation activation;
  const void *added;
  TrsReluMask mask = {0, NULL};
  void *sums = NULL; /* [m] sums of the rows of op(A), with the type of C */
};

/*
  Compute the product, in the stream's order. The order of a sum depends only on the shape, so the
  bits are the same in every run on one kind of GPU.

  Out: fused  false: cuBLASLt cannot make the mask or the sums, and the product was made without
              them. May be NULL if the product has neither
*/
PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *product, bool *fused);
