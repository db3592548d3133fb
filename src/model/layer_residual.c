/* SPDX-License-Identifier: BSD-3-Clause */
/*
  residual: adds the perceptron's input to the output of its other layers. The stack keeps the
  gradient of the sum and adds it to the gradient of the perceptron's input.
  Source: He et al. 2016, Deep residual learning for image recognition
*/
#include "model/layer.h"

static double flops(const TrsLayer *layer)
{
  return (double)layer->out;
}

static PetscErrorCode forward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x)
{
  PetscFunctionBegin;
  PetscCall(layer->context->compute->join_forward(
      stream, n, layer->out, PETSC_FALSE, TrsFloats((const float *)x.data, x.stride),
      TrsFloats((const float *)layer->skipped.data, layer->skipped.stride),
      TrsFloats((float *)layer->y.data, layer->y.stride)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                               TrsMatrix dx)
{
  PetscFunctionBegin;
  /* dx and dy are the same matrix */
  (void)layer, (void)stream, (void)n, (void)x, (void)dy, (void)dx;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsLayerOps trs_layer_residual = {.word = "residual",
                                        .same_width = PETSC_TRUE,
                                        .flops = flops,
                                        .bytes = TrsLayerBytes,
                                        .forward = forward,
                                        .backward = backward};
