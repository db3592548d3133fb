/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The GPU's kernels dense layers: slots of compute_ops.h that compute_cuda.c puts into the GPU's table. Internal to gpu/; what each does is
  documented at its slot, and the CPU's twin in src/compute is its specification.
*/
#pragma once

#if defined(__cplusplus)
  #include "gpu/cuda_language.h"
#else
  #include "compute/compute_ops.h"
#endif

/* gemm_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsDensePrecisionCuda(TrsDensePrecision precision);
PETSC_EXTERN const char *TrsProductLibraryCuda(void);
PETSC_EXTERN PetscErrorCode TrsGemmCuda(TrsStream stream, PetscBool trans_a, PetscBool trans_b, int64_t m,
                                        int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                                        const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* dense_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsLinearForwardCuda(TrsStream stream, int64_t batch, int64_t in, int64_t out,
                                                 const float *x, int64_t x_stride, const float *weight,
                                                 const float *bias, TrsActivation activation, float *y,
                                                 int64_t y_stride);
PETSC_EXTERN PetscErrorCode TrsLinearBackwardCuda(TrsStream stream, int64_t batch, int64_t in, int64_t out,
                                                  const float *x, int64_t x_stride, const float *weight,
                                                  const float *y, int64_t y_stride, TrsActivation activation,
                                                  float *dy, int64_t dy_stride, float *grad_weight,
                                                  float *grad_bias, float *dx, int64_t dx_stride);
PETSC_EXTERN PetscErrorCode TrsCrossForwardCuda(TrsStream stream, int64_t batch, int64_t n, const float *x0,
                                                const float *u, const float *bias, const float *x, float *y);
PETSC_EXTERN PetscErrorCode TrsCrossBackwardCuda(TrsStream stream, int64_t batch, int64_t n, int place,
                                                 const TrsCrossBackward *layer);
PETSC_EXTERN PetscErrorCode TrsCrossInputCuda(TrsStream stream, int64_t batch, int64_t n, int64_t rank,
                                              const float *q, const float *V, float *g, const float *dx0,
                                              float *dx);
PETSC_EXTERN PetscErrorCode TrsBceCuda(TrsStream stream, int64_t batch, int64_t stride, const float *z,
                                       const float *y, const float *w, float scale, double *loss, float *dz,
                                       float *p);
PETSC_EXTERN PetscErrorCode TrsSumOfSquaresCuda(TrsStream stream, int64_t n, const float *x, double *sum);
PETSC_EXTERN PetscErrorCode TrsDenseUpdateCuda(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                               const float *grad, float *weight, float *state1,
                                               float *state2);

/* interact_cuda.cu */
PETSC_EXTERN PetscErrorCode TrsDotForwardCuda(TrsStream stream, int64_t batch, int n, int D, int copied,
                                              int n_zeros, const float *x, int64_t x_stride, float *out,
                                              int64_t out_stride);
PETSC_EXTERN PetscErrorCode TrsDotBackwardCuda(TrsStream stream, int64_t batch, int n, int D, int copied,
                                               const float *x, int64_t x_stride, const float *dout,
                                               int64_t dout_stride, float *dx, int64_t dx_stride);
