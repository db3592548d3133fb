/* SPDX-License-Identifier: BSD-3-Clause */
/*
  linear: y = activation(x W^T + bias), with the activation in the same kernel.
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

static PetscErrorCode forward(const TrsLayer *layer, TrsStream stream, int64_t n, const float *x,
                              int64_t x_stride)
{
  const TrsDenseParameter *param = layer->context->params->param;

  PetscFunctionBegin;
  PetscCall(layer->context->compute->linear_forward(stream, n, layer->filled, layer->out, x, x_stride,
                                                    param[layer->weight].value, param[layer->bias].value,
                                                    layer->activation, layer->y, layer->y_stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsLayer *layer, TrsStream stream, int64_t n, const float *x,
                               int64_t x_stride, float *dy, int64_t dy_stride, float *dx, int64_t dx_stride)
{
  const TrsDenseParameter *weight = &layer->context->params->param[layer->weight],
                          *bias = &layer->context->params->param[layer->bias];

  PetscFunctionBegin;
  PetscCall(layer->context->compute->linear_backward(
      stream, n, layer->filled, layer->out, x, x_stride, weight->value, layer->y, layer->y_stride,
      layer->activation, dy, dy_stride, weight->grad, bias->grad, dx, dx_stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsLayerOps trs_layer_linear = {.word = "linear",
                                      .declare = declare,
                                      .flops = flops,
                                      .bytes = TrsLayerBytes,
                                      .forward = forward,
                                      .backward = backward};
