/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The CPU's dense layers: slots of compute_ops.h that compute.c puts into the CPU's table. Internal to compute/; what each does is
  documented at its slot. Streams run inline on a CPU, so the argument is unused.

  The bits of every result are independent of the number of OpenMP threads: sums over samples run over fixed blocks of samples, which are then
  added in order. Inside a matrix product the order is OpenBLAS's own (see gemm_cpu.c).
*/
#pragma once

#include "compute/compute_ops.h"

/* gemm_cpu.c */
PetscErrorCode TrsDensePrecisionCpu(TrsDensePrecision wanted);
PetscErrorCode TrsGemmCpu(TrsStream stream, PetscBool trans_a, PetscBool trans_b, int64_t m, int64_t n,
                          int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                          float beta, float *c, int64_t ldc);

/* dense_cpu.c */
PetscErrorCode TrsLinearForwardCpu(TrsStream stream, int64_t batch, int64_t in, int64_t out, const float *x,
                                   int64_t x_stride, const float *weight, const float *bias,
                                   TrsActivation activation, float *y, int64_t y_stride);
PetscErrorCode TrsLinearBackwardCpu(TrsStream stream, int64_t batch, int64_t in, int64_t out, const float *x,
                                    int64_t x_stride, const float *weight, const float *y, int64_t y_stride,
                                    TrsActivation activation, float *dy, int64_t dy_stride,
                                    float *grad_weight, float *grad_bias, float *dx, int64_t dx_stride);
PetscErrorCode TrsCrossForwardCpu(TrsStream stream, int64_t batch, int64_t n, const float *x0, const float *u,
                                  const float *bias, const float *x, float *y);
PetscErrorCode TrsCrossBackwardCpu(TrsStream stream, int64_t batch, int64_t n, int place,
                                   const TrsCrossBackward *layer);
PetscErrorCode TrsCrossInputCpu(TrsStream stream, int64_t batch, int64_t n, int64_t rank, const float *q,
                                const float *V, float *g, const float *dx0, float *dx);
PetscErrorCode TrsBceCpu(TrsStream stream, int64_t batch, int64_t stride, const float *z, const float *y,
                         const float *w, float scale, double *loss, float *dz, float *p);
PetscErrorCode TrsSumOfSquaresCpu(TrsStream stream, int64_t n, const float *x, double *sum);
PetscErrorCode TrsDenseUpdateCpu(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                 const float *grad, float *weight, float *state1, float *state2);

/* interact_cpu.c */
PetscErrorCode TrsDotForwardCpu(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                const float *x, int64_t x_stride, float *out, int64_t out_stride);
PetscErrorCode TrsDotBackwardCpu(TrsStream stream, int64_t batch, int n, int D, int copied, const float *x,
                                 int64_t x_stride, const float *dout, int64_t dout_stride, float *dx,
                                 int64_t dx_stride);
