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
  /* A copy for products is written and read, in addition to the input. */
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
