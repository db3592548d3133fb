/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/cpu_kernels.h"
#include "cpu/isa/dense_kernels.h"

#include <omp.h>
#include <string.h>

/* smallest number of columns that a thread sums over all samples: one cache line */
#define COLUMNS_A_PART 16
#define ROWS_A_PART    64 /* number of samples to which a thread adds biases at a time */

const TrsDenseKernels *TrsDenseKernelsGet(void)
{
  return TRS_KERNELS_OF_ISA(trs_dense_kernels);
}

static inline int64_t min_int64(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

/*
  Return the number of columns for each thread: whole cache lines, and so few that all threads have
  work. It does not change the sums over samples.
*/
static int64_t columns_a_part(int64_t cols)
{
  const int64_t share = (cols + omp_get_max_threads() - 1) / omp_get_max_threads();

  return (share + COLUMNS_A_PART - 1) / COLUMNS_A_PART * COLUMNS_A_PART;
}

PetscErrorCode TrsLinearForwardCpu(TrsStream stream, const TrsLinear *linear)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();
  const TrsLinear l = *linear;
  const TrsMatrixProduct product = {.trans_b = PETSC_TRUE,
                                    .m = l.batch,
                                    .n = l.out,
                                    .k = l.in,
                                    .alpha = 1.0F,
                                    .a = l.x,
                                    .b = l.weight,
                                    .c = l.y};

  PetscFunctionBegin;
  PetscCall(TrsMultiplyCpu(stream, &product));
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < l.batch; b += ROWS_A_PART) {
    const int64_t rows = min_int64(ROWS_A_PART, l.batch - b);
    float *to = (float *)l.y.data + b * l.y.stride;

    kernels->add_bias(rows, l.out, (const float *)l.bias, l.activation == TRS_ACTIVATION_RELU, to,
                      l.y.stride);
    if (l.masks && l.masks->y.data)
      kernels->relu_bits(rows, l.out, to, l.y.stride,
                         (unsigned char *)l.masks->y.data + b * l.masks->y.row_bytes, l.masks->y.row_bytes);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If there is a mask, apply it to columns [c, c + cols) of dy. Then sum these columns. The mask of x
  is not applied by this layer: the previous layer applies it here, where it sums the columns
  anyway.
*/
static void mask_and_sum(const TrsLinear *l, int64_t c, int64_t cols, TrsMatrix dy, float *sums)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  if (l->masks && l->masks->y.data)
    kernels->mask_by_bits_and_sum(l->batch, cols, (const unsigned char *)l->masks->y.data + c / 8,
                                  l->masks->y.row_bytes, (float *)dy.data + c, dy.stride, sums + c);
  else
    kernels->mask_and_sum(l->batch, cols,
                          l->activation == TRS_ACTIVATION_RELU ? (const float *)l->y.data + c : NULL,
                          l->y.stride, (float *)dy.data + c, dy.stride, sums + c);
}

PetscErrorCode TrsLinearBackwardCpu(TrsStream stream, const TrsLinear *l, const TrsLinearGradients *gradients)
{
  const int64_t part = columns_a_part(l->out);
  const TrsMatrix dy = gradients->dy;
  const TrsMatrixProduct to_weight = {.trans_a = PETSC_TRUE,
                                      .m = l->out,
                                      .n = l->in,
                                      .k = l->batch,
                                      .alpha = 1.0F,
                                      .a = dy,
                                      .b = l->x,
                                      .c = TrsFloats(gradients->grad_weight, l->in)};
  const TrsMatrixProduct to_input = {
      .m = l->batch, .n = l->in, .k = l->out, .alpha = 1.0F, .a = dy, .b = l->weight, .c = gradients->dx};

  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t c = 0; c < l->out; c += part)
    mask_and_sum(l, c, min_int64(part, l->out - c), dy, gradients->grad_bias);
  PetscCall(TrsMultiplyCpu(stream, &to_weight));
  if (gradients->dx.data) PetscCall(TrsMultiplyCpu(stream, &to_input));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsReluMaskBytesCpu(int64_t out)
{
  return (out + 127) / 128 * 16;
}

PetscErrorCode TrsCrossForwardCpu(TrsStream stream, int64_t batch, int64_t n, TrsDType type, const void *x0,
                                  const void *u, const float *bias, const void *x, void *y)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();
  const float *first = (const float *)x0, *product = (const float *)u, *from = (const float *)x;
  float *to = (float *)y;

  (void)stream;
  PetscFunctionBegin;
  PetscCall(TrsCheckFloats(type));
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < batch; b++)
    kernels->cross_forward(n, first + b * n, product + b * n, bias, from + b * n, to + b * n);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCrossProductCpu(TrsStream stream, const TrsCrossProduct *layer)
{
  const TrsMatrixProduct *p = &layer->product;

  PetscFunctionBegin;
  PetscCall(TrsMultiplyCpu(stream, p));
  PetscCall(TrsCrossForwardCpu(stream, p->m, p->n, p->c.type, layer->x0, p->c.data, layer->bias, layer->x,
                               layer->y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCrossBackwardCpu(TrsStream stream, int64_t batch, int64_t n, int place,
                                   const TrsCrossBackward *layer)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();
  const float *x0 = (const float *)layer->x0, *u = (const float *)layer->u, *g = (const float *)layer->g;
  const int64_t part = columns_a_part(n);
  float *h = (float *)layer->h;

  (void)stream;
  PetscFunctionBegin;
  PetscCall(TrsCheckFloats(layer->type));
  if (place & TRS_CROSS_FIRST) memset(layer->dx0, 0, (size_t)(batch * n) * sizeof(float));
#pragma omp parallel for schedule(static)
  for (int64_t c = 0; c < n; c += part)
    kernels->cross_backward(batch, min_int64(part, n - c), n, x0 + c, u + c, layer->bias + c, g + c,
                            layer->dx0 + c, h + c, layer->grad_bias + c);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* cross_backward has not added g to dx0. So g becomes g + q V, and then dx = g + dx0. */
PetscErrorCode TrsCrossInputCpu(TrsStream stream, int64_t batch, int64_t n, int64_t rank, TrsMatrix q,
                                TrsMatrix V, TrsMatrix g, const float *dx0, TrsMatrix dx)
{
  const TrsMatrixProduct product = {
      .m = batch, .n = n, .k = rank, .alpha = 1.0F, .a = q, .b = V, .beta = 1.0F, .c = g};
  const float *parts[2] = {(const float *)g.data, dx0};

  PetscFunctionBegin;
  PetscCall(TrsCheckFloats(dx.type));
  PetscCall(TrsMultiplyCpu(stream, &product));
  PetscCall(TrsSumMatricesCpu(stream, 2, parts, n, batch, n, (float *)dx.data, dx.stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}
