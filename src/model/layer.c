/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/layer.h"

#include "core/function_table.h"

PetscErrorCode TrsLayerCheck(const TrsLayerOps *ops)
{
  const TrsTableEntry entries[] = {TRS_TABLE_ENTRY(ops, word), TRS_TABLE_ENTRY(ops, flops),
                                   TRS_TABLE_ENTRY(ops, bytes), TRS_TABLE_ENTRY(ops, forward),
                                   TRS_TABLE_ENTRY(ops, backward)};

  PetscFunctionBegin;
  PetscCall(TrsFunctionTableCheck("layer", ops->word, entries, (int)(sizeof(entries) / sizeof(entries[0]))));
  PetscFunctionReturn(PETSC_SUCCESS);
}

double TrsLayerBytes(const TrsLayer *layer)
{
  const int operand = TrsDTypeBytes(layer->x.type), size = (int)sizeof(float);
  /* A copy for matrix multiplications is written and read, in addition to the input. */
  const int x_bytes = layer->ops != &trs_layer_linear ? size : layer->x.stride ? size + 2 * operand : operand;

  return (double)x_bytes * (double)layer->filled + (double)TrsDTypeBytes(layer->y.type) * (double)layer->out;
}

PetscErrorCode TrsLayerMultiply(const TrsLayerContext *context, TrsStream stream, PetscBool trans_a,
                                PetscBool trans_b, TrsMatrixProduct product)
{
  PetscFunctionBegin;
  product.trans_a = trans_a;
  product.trans_b = trans_b;
  product.alpha = 1.0F;
  PetscCall(context->compute->multiply(stream, &product));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsLayerLinearComplete(const TrsLayerContext *context, int weight, int bias, TrsLinear *linear)
{
  const TrsDenseParameter *W = &context->params->param[weight];

  linear->in = W->stride;
  linear->out = W->rows;
  linear->weight = TrsParametersMatrix(context->params, weight);
  linear->bias = TrsParametersVector(context->params, bias, linear->y.type);
  if (!context->fused) linear->masks = NULL;
}

PetscErrorCode TrsLayerLinearForward(const TrsLayerContext *context, TrsStream stream, int weight, int bias,
                                     TrsLinear linear)
{
  PetscFunctionBegin;
  TrsLayerLinearComplete(context, weight, bias, &linear);
  PetscCall(context->compute->linear_forward(stream, &linear));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLayerLinearBackward(const TrsLayerContext *context, TrsStream stream, int weight, int bias,
                                      TrsLinear linear, TrsMatrix dy, TrsMatrix dx)
{
  const TrsDenseParameter *param = context->params->param;
  const TrsLinearGradients gradients = {
      .dy = dy, .grad_weight = param[weight].grad, .grad_bias = param[bias].grad, .dx = dx};

  PetscFunctionBegin;
  TrsLayerLinearComplete(context, weight, bias, &linear);
  PetscCall(context->compute->linear_backward(stream, &linear, &gradients));
  PetscFunctionReturn(PETSC_SUCCESS);
}
