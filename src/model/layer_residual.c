/* SPDX-License-Identifier: BSD-3-Clause */
/*
  residual: the perceptron's input is added to the output of its other layers. The stack keeps the
  gradient of the sum, and adds it to the gradient of the perceptron's input.
  Source: He et al. 2016, Deep residual learning for image recognition
*/
#include "model/layer.h"

static double flops(const TrsLayer *layer)
{
  return (double)layer->out;
}

static PetscErrorCode forward(const TrsLayer *layer, TrsStream stream, int64_t n, const float *x,
                              int64_t x_stride)
{
  PetscFunctionBegin;
  PetscCall(layer->context->compute->join_forward(stream, n, layer->out, PETSC_FALSE, x, x_stride,
                                                  layer->skipped, layer->skipped_stride, layer->y,
                                                  layer->y_stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsLayer *layer, TrsStream stream, int64_t n, const float *x,
                               int64_t x_stride,
                               float *dy, /* NOLINT(readability-non-const-parameter): dx is dy */
                               int64_t dy_stride,
                               float *dx, /* NOLINT(readability-non-const-parameter): dx is dy */
                               int64_t dx_stride)
{
  PetscFunctionBegin;
  (void)layer, (void)stream, (void)n, (void)x, (void)x_stride, (void)dy_stride;
  (void)dy, (void)dx, (void)dx_stride; /* dx is dy */
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsLayerOps trs_layer_residual = {.word = "residual",
                                        .same_width = PETSC_TRUE,
                                        .flops = flops,
                                        .bytes = TrsLayerBytes,
                                        .forward = forward,
                                        .backward = backward};
