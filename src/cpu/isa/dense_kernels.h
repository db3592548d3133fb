/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Inner loops of the CPU's dense layers, compiled once for each instruction set. The files
  dense_kernels_<isa>.c include dense_kernels_template.h and are compiled with different flags. Each
  call runs on one thread; dense_cpu.c, optimizer_cpu.c and interact_cpu.c divide the work. Internal
  to cpu/.
*/
#pragma once

#include "compute/compute_ops.h"

/*
  One bag of a TrsAttention (compute/sequence_layers.h), with pointers to the bag's rows in each
  array.
*/
typedef struct {
  int64_t n, dim, heads;
  PetscBool causal;
  const float *qkv;
  float *out, *log_sums, *scratch;
  const float *dout;
  float *dqkv;
} TrsAttentionBag;

typedef struct {
  /* Compute y [rows, cols] = y + bias. If relu is set, then also max(y, 0). */
  void (*add_bias)(int64_t rows, int64_t cols, const float *bias, int relu, float *y, int64_t y_stride);
  /*
    Process columns [0, cols) of `rows` samples. If y is not NULL, dy *= (y > 0). Then sum [cols] =
    sum of dy over the rows, in order.
  */
  void (*mask_and_sum)(int64_t rows, int64_t cols, const float *y, int64_t y_stride, float *dy,
                       int64_t dy_stride, float *sum);
  /* For each row, set bit c % 8 of byte c / 8 if y > 0 or y is NaN, and clear all other bits. */
  void (*relu_bits)(int64_t rows, int64_t cols, const float *y, int64_t y_stride, unsigned char *bits,
                    int64_t row_bytes);
  /* Do mask_and_sum() with the bits of relu_bits(). cols must be a multiple of 8, except for the
     last columns of a row. */
  void (*mask_by_bits_and_sum)(int64_t rows, int64_t cols, const unsigned char *bits, int64_t row_bytes,
                               float *dy, int64_t dy_stride, float *sum);
  /* Compute y [n] = activation(y), or dy [n] *= activation'(y), where y is the activation's
     result. */
  void (*activate)(int64_t n, TrsActivation activation, float *y);
  void (*activate_backward)(int64_t n, TrsActivation activation, const float *y, float *dy);
  /* Compute x [n] = TrsExp(x). */
  void (*exponentials)(int64_t n, float *x);
  /* Compute one row of a cross layer: y = x0 * (u + bias) + x. */
  void (*cross_forward)(int64_t n, const float *x0, const float *u, const float *bias, const float *x,
                        float *y);
  /*
    Process columns [0, cols) of `rows` samples with row stride n: dx0 += g * (u + bias); h = g *
    x0; sum [cols] = sum of h over the rows, in order.
  */
  void (*cross_backward)(int64_t rows, int64_t cols, int64_t n, const float *x0, const float *u,
                         const float *bias, const float *g, float *dx0, float *h, float *sum);
  /* Copy a sample's vectors [n, D] to one array, and prefetch the next sample's vectors. */
  void (*collect)(int n, int D, const TrsVectorPlace *places, int64_t sample, float *to);
  /* Compute the dot interaction of one sample: x [n, D], products [n * (n-1) / 2]. */
  void (*dot_forward)(int n, int D, const float *x, float *products);
  /*
    Compute dx [n, D], the gradient of one sample's vectors, from the gradients of the products. If
    `copy` is not NULL, it is the gradient [D] of the first vector's copy in the output, and is
    added. If past_cache is set, dx is written past the caches; D must then be a multiple of 16, and
    dx must begin at a cache line. If dx is NULL, the gradient of vector v is written to the
    sample's row at places[v], and no next sample follows x.
  */
  void (*dot_backward)(int n, int D, const float *x, const float *copy, const float *dproducts,
                       int past_cache, float *dx, const TrsVectorPlace *places, int64_t sample);
  /* Compute the self-attention of a bag's rows: out and log_sums in a forward, dqkv in a
     backward. */
  void (*attend)(const TrsAttentionBag *bag);
  void (*attend_backward)(const TrsAttentionBag *bag);
  /* Update n elements. bias_correction1 = 1 - beta1^t, bias_correction2 = 1 - beta2^t. */
  void (*update)(int64_t n, const TrsDenseOptimizerArgs *args, float bias_correction1, float bias_correction2,
                 const float *grad, float *weight, float *state1, float *state2);
} TrsDenseKernels;

extern const TrsDenseKernels trs_dense_kernels_portable;
#if defined(__x86_64__)
extern const TrsDenseKernels trs_dense_kernels_avx2;
extern const TrsDenseKernels trs_dense_kernels_avx512;
#endif

/* Return the kernels for TrsComputeIsa(). Not collective. */
const TrsDenseKernels *TrsDenseKernelsGet(void);
