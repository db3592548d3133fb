/* SPDX-License-Identifier: BSD-3-Clause */
/*
  pair: the product of the two halves of a row, which is the score of a query and a candidate. The
  layer has no parameters.
  Source: TorchRec's retrieval example (TwoTowerTrainTask); src/RULES.md, section 20
*/
#include "model/layer.h"

static double flops(const TrsLayer *layer)
{
  return (double)layer->in;
}

static double bytes(const TrsLayer *layer)
{
  return (double)sizeof(float) * (double)(layer->in + 1);
}

static PetscErrorCode forward(const TrsLayer *layer, TrsStream stream, int64_t n, const float *x,
                              int64_t x_stride)
{
  PetscFunctionBegin;
  PetscCall(layer->context->compute->dot_forward(stream, n, 2, (int)(layer->in / 2), 0, 0, x, x_stride,
                                                 layer->y, layer->y_stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsLayer *layer, TrsStream stream, int64_t n, const float *x,
                               int64_t x_stride, float *dy, int64_t dy_stride, float *dx, int64_t dx_stride)
{
  PetscFunctionBegin;
  PetscCall(layer->context->compute->dot_backward(stream, n, 2, (int)(layer->in / 2), 0, x, x_stride, dy,
                                                  dy_stride, dx, dx_stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsLayerOps trs_layer_pair = {
    .word = "pair", .flops = flops, .bytes = bytes, .forward = forward, .backward = backward};
