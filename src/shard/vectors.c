/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/vectors.h"

TrsVectors TrsVectorsOf(const TrsTableConfig *table, int k, int f, const TrsKjt *batch,
                        const TrsPooledMatrix *pooled)
{
  const int64_t dim = table->embedding_dim;

  if (TrsFeatureIsSequenceLayer(table, k))
    return (TrsVectors){.n = batch->id_begin ? batch->id_begin[f + 1] - batch->id_begin[f]
                                             : batch->jagged.offsets[(f + 1) * batch->batch] -
                                                   batch->jagged.offsets[f * batch->batch],
                        .columns = dim,
                        .stride = dim,
                        .data = pooled->by_id[f]};
  return (TrsVectors){.n = batch->batch,
                      .columns = TrsTableColumns(table),
                      .stride = pooled->rows.stride,
                      .data = TrsPooledFloats(pooled, pooled->columns[f])};
}

PetscErrorCode TrsVectorsRound(const TrsComputeOps *compute, const TrsTableConfigs *tables,
                               const TrsKjt *batch, TrsStream stream, const TrsPooledMatrix *pooled)
{
  const float largest_fp16 = 65504.0F;

  PetscFunctionBegin;
  for (int t = 0, f = 0; t < tables->n; f += tables->table[t++].n_features) {
    const TrsTableConfig *table = &tables->table[t];
    const TrsDType dtype = TrsTableOutputDType(table);
    if (dtype == TRS_FP32 || dtype == pooled->rows.type) continue;
    for (int k = f; k < f + table->n_features; k++) {
      const TrsVectors vectors = TrsVectorsOf(table, k - f, k, batch, pooled);
      if (dtype == TRS_FP16)
        PetscCall(compute->clamp_matrix(stream, vectors.n, vectors.columns, largest_fp16, vectors.data,
                                        vectors.stride));
      PetscCall(
          compute->round_matrix(stream, vectors.n, vectors.columns, dtype, vectors.data, vectors.stride));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
