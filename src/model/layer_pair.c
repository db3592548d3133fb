/* SPDX-License-Identifier: BSD-3-Clause */
/*
  pair: the dot product of a row's two halves, which is the score of a query and a candidate. The
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

static PetscErrorCode forward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x)
{
  PetscFunctionBegin;
  PetscCall(layer->context->compute->dot_forward(stream, n, 2, (int)(layer->in / 2), 0, 0,
                                                 TrsFloats((const float *)x.data, x.stride), layer->y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                               TrsMatrix dx)
{
  PetscFunctionBegin;
  PetscCall(layer->context->compute->dot_backward(stream, n, 2, (int)(layer->in / 2), 0,
                                                  TrsFloats((const float *)x.data, x.stride), dy,
                                                  TrsFloats((float *)dx.data, dx.stride)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsLayerOps trs_layer_pair = {
    .word = "pair", .flops = flops, .bytes = bytes, .forward = forward, .backward = backward};
