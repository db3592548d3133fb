/* SPDX-License-Identifier: BSD-3-Clause */
/*
  relu, sigmoid, tanh: functions of single numbers. The output overwrites the input.
  Source: torch.relu, torch.sigmoid, torch.tanh
*/
#include "model/layer.h"

static double flops(const TrsLayer *layer)
{
  return (double)layer->out;
}

static PetscErrorCode forward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x)
{
  PetscFunctionBegin;
  (void)x; /* y and x are the same matrix */
  PetscCall(layer->context->compute->activate(stream, n, layer->out, layer->ops->activation, layer->y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                               TrsMatrix dx)
{
  PetscFunctionBegin;
  (void)x, (void)dx; /* dx and dy are the same matrix */
  PetscCall(layer->context->compute->activate_backward(stream, n, layer->out, layer->ops->activation,
                                                       layer->y, dy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define ACTIVATION_TABLE(KIND, name) \
  const TrsLayerOps trs_layer_##name = {.word = #name, \
                                        .same_width = PETSC_TRUE, \
                                        .in_place = PETSC_TRUE, \
                                        .activation = TRS_ACTIVATION_##KIND, \
                                        .flops = flops, \
                                        .bytes = TrsLayerBytes, \
                                        .forward = forward, \
                                        .backward = backward};
ACTIVATION_TABLE(RELU, relu)
ACTIVATION_TABLE(SIGMOID, sigmoid)
ACTIVATION_TABLE(TANH, tanh)
