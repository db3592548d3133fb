/* SPDX-License-Identifier: BSD-3-Clause */
/*
  linear: y = activation(x W^T + bias). The activation runs in the same kernel.
  Source: torch.nn.Linear; torchrec.modules.mlp.Perceptron
*/
#include "model/layer.h"

#include <math.h>

static PetscErrorCode declare(TrsLayer *layer, const char *module, int index)
{
  TrsParameters *params = layer->context->params;
  const float bound = (float)(1.0 / sqrt((double)layer->in)); /* as torch.nn.Linear */

  PetscFunctionBegin;
  PetscCall(TrsParametersAdd(params, module, index, "weight", layer->out, layer->in, TRS_INIT_UNIFORM, bound,
                             &layer->weight));
  TrsParametersFillUp(params, layer->filled);
  PetscCall(
      TrsParametersAdd(params, module, index, "bias", layer->out, 0, TRS_INIT_UNIFORM, bound, &layer->bias));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double flops(const TrsLayer *layer)
{
  return 2.0 * (double)layer->filled * (double)layer->out;
}

static PetscErrorCode forward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x)
{
  const TrsParameters *params = layer->context->params;
  const TrsComputeOps *compute = layer->context->compute;
  const TrsReluMasks masks = {.y = layer->mask};

  PetscFunctionBegin;
  if (layer->x.data) {
    PetscCall(compute->convert_matrix(stream, n, layer->in, layer->filled, x, layer->x));
    x = layer->x;
  }
  PetscCall(compute->linear_forward(stream, n, layer->filled, layer->out, x,
                                    TrsParametersMatrix(params, layer->weight),
                                    TrsParametersVector(params, layer->bias, layer->y.type),
                                    layer->activation, layer->y, layer->context->fused ? &masks : NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                               TrsMatrix dx)
{
  const TrsParameters *params = layer->context->params;
  TrsReluMasks masks = {.y = layer->mask};

  PetscFunctionBegin;
  if (layer->below) masks.x = layer->below->mask;
  PetscCall(layer->context->compute->linear_backward(
      stream, n, layer->filled, layer->out, layer->x.data ? layer->x : x,
      TrsParametersMatrix(params, layer->weight), layer->y, layer->activation, dy,
      params->param[layer->weight].grad, params->param[layer->bias].grad, dx,
      layer->context->fused ? &masks : NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsLayerOps trs_layer_linear = {.word = "linear",
                                      .declare = declare,
                                      .flops = flops,
                                      .bytes = TrsLayerBytes,
                                      .forward = forward,
                                      .backward = backward};
