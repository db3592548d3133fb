/* SPDX-License-Identifier: BSD-3-Clause */
/*
  linear: y = activation(x W^T + bias). One kernel also applies the activation.
  Source: torch.nn.Linear; torchrec.modules.mlp.Perceptron
*/
#include "model/layer.h"

#include <math.h>

static PetscErrorCode declare(TrsLayer *layer, const char *module, int index)
{
  TrsParameters *params = layer->context->params;
  const float bound = (float)(1.0 / sqrt((double)layer->in)); /* as in torch.nn.Linear */

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

/* The masks of a layer that keeps none, for products that may make masks and sums. */
static const TrsReluMasks no_masks = {.y = {.data = NULL}};

/* The layer for n samples. If the layer has a copy of its input, the copy replaces x. */
static TrsLinear linear_of(const TrsLayer *layer, int64_t n, TrsMatrix x, const TrsReluMasks *masks)
{
  return (TrsLinear){.batch = n,
                     .x = layer->x.data ? layer->x : x,
                     .activation = layer->activation,
                     .y = layer->y,
                     .masks = masks};
}

/* Copy the input, if the layer has a copy of it. */
static PetscErrorCode copy_input(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x)
{
  PetscFunctionBegin;
  if (layer->x.data)
    PetscCall(layer->context->compute->convert_matrix(stream, n, layer->in, layer->filled, x, layer->x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLayerLinearPrepare(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x,
                                     TrsLinear *linear)
{
  PetscFunctionBegin;
  PetscCall(copy_input(layer, stream, n, x));
  *linear = linear_of(layer, n, x, &no_masks);
  TrsLayerLinearComplete(layer->context, layer->weight, layer->bias, linear);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x)
{
  const TrsReluMasks masks = {.y = layer->mask};

  PetscFunctionBegin;
  PetscCall(copy_input(layer, stream, n, x));
  PetscCall(TrsLayerLinearForward(layer->context, stream, layer->weight, layer->bias,
                                  linear_of(layer, n, x, &masks)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                               TrsMatrix dx)
{
  TrsReluMasks masks = {.y = layer->mask};

  PetscFunctionBegin;
  if (layer->below) masks.x = layer->below->mask;
  PetscCall(TrsLayerLinearBackward(layer->context, stream, layer->weight, layer->bias,
                                   linear_of(layer, n, x, &masks), dy, dx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsLayerOps trs_layer_linear = {.word = "linear",
                                      .declare = declare,
                                      .flops = flops,
                                      .bytes = TrsLayerBytes,
                                      .forward = forward,
                                      .backward = backward};
