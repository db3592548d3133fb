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
  return (double)sizeof(float) * (double)(layer->filled + layer->out);
}
