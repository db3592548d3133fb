/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products of the dense layers. Internal to gpu/. */
#pragma once

#include "gpu/cuda_language.h"

extern "C" {
#include "compute/gemm.h"
}

/*
  C = activation(product + bias). A and B have the same type (compute/gemm.h); a bf16 result needs
  the precision bf16. bias [n] has the type of C. If bias is NULL, there is no bias and no
  activation. The matrix `added`, multiplied by beta, is added to the product. It has the type and
  stride of C; if it is NULL, C itself is used.

  A product may have a mask or sums, which cuBLASLt makes in the same kernel if it can. With the
  activation ReLU the mask is written. Without it the mask is read, and C is set to 0 where the
  mask's bit is 0.
*/
struct TrsProduct : TrsMatrixProduct {
  const void *bias;
  TrsActivation activation;
  const void *added;
  TrsReluMask mask = {0, NULL};
  void *sums = NULL; /* [m] sums of the rows of op(A), with the type of C */
};

/* Compute the sums of the columns of dy [rows, cols] (dense_cuda.cu). */
PetscErrorCode TrsColumnSumsCuda(TrsStream stream, int64_t rows, int64_t cols, const TrsMatrix *dy,
                                 float *sums);

/*
  Enqueue the product on the stream. The order of a sum depends only on the shape, so the bits are
  the same in every run on one kind of GPU.

  Out: fused  false: cuBLASLt cannot make the mask or the sums, so the product was computed without
              them. May be NULL if the product has no mask and no sums
*/
PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *product, bool *fused);
