/* SPDX-License-Identifier: BSD-3-Clause */
/*
  layer_norm: z = (x - mean) / sqrt(variance + eps) * weight + bias, with mean and variance over a
  sample's numbers. swish_layernorm: x * sigmoid(z).
  Source: torch.nn.LayerNorm; torchrec.modules.activation.SwishLayerNorm
*/
#include "model/layer.h"

#define EPS 1e-5F /* as in torch.nn.LayerNorm */

static PetscErrorCode declare(TrsLayer *layer, const char *module, int index)
{
  TrsParameters *params = layer->context->params;
  const PetscBool swish = (PetscBool)(layer->ops == &trs_layer_swish_layernorm);

  PetscFunctionBegin;
  PetscCall(TrsParametersAdd(params, module, index, swish ? "swish_weight" : "norm_weight", layer->out, 0,
                             TRS_INIT_ONE, 0.0F, &layer->weight));
  PetscCall(TrsParametersAdd(params, module, index, swish ? "swish_bias" : "norm_bias", layer->out, 0,
                             TRS_INIT_ZERO, 0.0F, &layer->bias));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double flops(const TrsLayer *layer)
{
  return (layer->ops == &trs_layer_swish_layernorm ? 10.0 : 8.0) * (double)layer->out;
}

static TrsLayerNorm norm_of(const TrsLayer *layer)
{
  const TrsDenseParameter *param = layer->context->params->param;

  return (TrsLayerNorm){.weight = param[layer->weight].value,
                        .bias = param[layer->bias].value,
                        .eps = EPS,
                        .swish = (PetscBool)(layer->ops == &trs_layer_swish_layernorm),
                        .rows = layer->kept,
                        .grad_weight = param[layer->weight].grad,
                        .grad_bias = param[layer->bias].grad};
}

static PetscErrorCode forward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x)
{
  const TrsLayerNorm norm = norm_of(layer);

  PetscFunctionBegin;
  PetscCall(layer->context->compute->layer_norm_forward(stream, n, layer->out, &norm, (const float *)x.data,
                                                        x.stride, (float *)layer->y.data, layer->y.stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                               TrsMatrix dx)
{
  const TrsLayerNorm norm = norm_of(layer);

  PetscFunctionBegin;
  (void)dx; /* dx and dy are the same matrix */
  PetscCall(layer->context->compute->layer_norm_backward(stream, n, layer->out, &norm, (const float *)x.data,
                                                         x.stride, (float *)dy.data, dy.stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define NORM_TABLE(name) \
  const TrsLayerOps trs_layer_##name = {.word = #name, \
                                        .same_width = PETSC_TRUE, \
                                        .kept = 2, \
                                        .declare = declare, \
                                        .flops = flops, \
                                        .bytes = TrsLayerBytes, \
                                        .forward = forward, \
                                        .backward = backward};
NORM_TABLE(layer_norm)
NORM_TABLE(swish_layernorm)
