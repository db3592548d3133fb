/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The GPU's kernels number formats: slots of compute_ops.h that compute_cuda.c puts into the GPU's table. Internal to gpu/; what each does is
  documented at its slot, and the CPU's twin in src/compute is its specification.
*/
#pragma once

#if defined(__cplusplus)
  #include "gpu/cuda_language.h"
#else
  #include "compute/compute_ops.h"
#endif

/* codec_cuda.cu */
PETSC_EXTERN int64_t TrsCodecBytesCuda(const TrsCodec *codec, int64_t n);
PETSC_EXTERN PetscErrorCode TrsEncodeCuda(TrsStream stream, const TrsCodec *codec, int64_t n,
                                          const float *from, void *to);
PETSC_EXTERN PetscErrorCode TrsDecodeCuda(TrsStream stream, const TrsCodec *codec, int64_t n,
                                          const void *from, float *to);
PETSC_EXTERN PetscErrorCode TrsConvertCuda(TrsStream stream, int64_t n, TrsDType from_type, const void *from,
                                           TrsDType to_type, void *to);
PETSC_EXTERN PetscErrorCode TrsRoundMatrixCuda(TrsStream stream, int64_t rows, int64_t cols, TrsDType dtype,
                                               float *matrix, int64_t stride);
