/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/model_inputs.h"

#include "model/two_tower.h"

/* Add the features' position weights as dense parameters of the model. */
static PetscErrorCode add_position_weights(TrsDlrm dlrm, const TrsTableConfigs *tables)
{
  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    for (int k = 0; table->max_feature_lengths && k < table->n_features; k++)
      PetscCall(TrsDlrmAddPositionWeights(dlrm, table->features[k], table->max_feature_lengths[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the layers that pool sequences. */
static PetscErrorCode add_sequences(TrsDlrm dlrm, const TrsTableConfigs *tables)
{
  PetscFunctionBegin;
  for (int t = 0, v = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];

    for (int k = 0; k < table->n_features; k++)
      if (TrsFeatureIsSequenceLayer(table, k))
        PetscCall(TrsDlrmAddSequence(dlrm, table, k, v + k, table->din_target ? table->din_vector : -1));
    v += table->n_features * TrsTableVectors(table);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* List the widths of the model's vectors per sample. */
static PetscErrorCode list_vectors(const TrsTableConfigs *tables, int *n, int **dims)
{
  PetscFunctionBegin;
  *n = 0;
  for (int t = 0; t < tables->n; t++) *n += tables->table[t].n_features * TrsTableVectors(&tables->table[t]);
  PetscCall(PetscMalloc1((size_t)*n, dims));
  for (int t = 0, v = 0; t < tables->n; t++)
    for (int k = 0; k < tables->table[t].n_features * TrsTableVectors(&tables->table[t]); k++)
      (*dims)[v++] = TrsTableVectorDim(&tables->table[t]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Assign each of the model's vectors to a tower. */
static PetscErrorCode set_sides(TrsDlrm dlrm, TrsOptions options, const TrsTableConfigs *tables, int n)
{
  int *side;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)n, &side));
  PetscCall(TrsTwoTowerSides(options, tables, side));
  PetscCall(TrsDlrmSetSides(dlrm, n, side));
  PetscCall(PetscFree(side));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelInputs(TrsDlrm dlrm, TrsOptions options, const TrsTableConfigs *tables, int *n,
                              int **dims)
{
  PetscFunctionBegin;
  PetscCall(list_vectors(tables, n, dims));
  PetscCall(set_sides(dlrm, options, tables, *n));
  PetscCall(add_position_weights(dlrm, tables));
  PetscCall(add_sequences(dlrm, tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelFeatures(TrsDlrm dlrm, const TrsTableConfigs *tables, int64_t *columns,
                                TrsPositionWeight *position)
{
  const int64_t *of_vectors;
  int n_positions = 0;
  TrsMatrix x;

  PetscFunctionBegin;
  PetscCall(TrsDlrmEmbeddings(dlrm, &x, &of_vectors));
  for (int t = 0, f = 0, v = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    for (int k = 0; k < table->n_features; k++, f++, v += TrsTableVectors(table)) {
      /* The features of a remainder table have the vectors of its quotient table. */
      columns[f] = of_vectors[TrsTableVectors(table) ? v : v - table->n_features + k];
      position[f] = (TrsPositionWeight){0};
      if (!table->max_feature_lengths) continue;
      position[f].length = table->max_feature_lengths[k];
      PetscCall(TrsDlrmPositionWeights(dlrm, n_positions++, &position[f].weight, &position[f].grad));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
