/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/table_config.h"

#define KERNEL_FACTS(KIND, word, home, lines, use) {#word, TRS_ROWS_##home, TRS_LINES_##lines, TRS_USE_##use},
static const struct {
  const char *word;
  TrsRowsHome home;
  TrsRowLines lines;
  TrsKernelUse use;
} kernels[TRS_N_KERNELS] = {TRS_COMPUTE_KERNELS(KERNEL_FACTS)};

const char *TrsPoolingName(TrsPooling pooling)
{
  static const char *const names[] = {"sum", "mean", "none"};

  return names[pooling];
}

const char *TrsIdMapName(TrsIdMapKind kind)
{
  static const char *const names[] = {"none", "modulo", "hash", "qr", "zch", "dynamic", "qr"};

  return names[kind];
}

const char *TrsShardingTypeName(TrsShardingType type)
{
  static const char *const names[TRS_N_SHARDINGS] = {"data_parallel", "table_wise",     "column_wise",
                                                     "row_wise",      "table_row_wise", "table_column_wise",
                                                     "grid_shard"};

  return names[type];
}

const char *TrsComputeKernelName(TrsComputeKernel kernel)
{
  return kernels[kernel].word;
}

const char *TrsModuleName(TrsModule module)
{
  static const char *const names[TRS_N_MODULES] = {"ebc", "weighted_ebc", "ec"};

  return names[module];
}

TrsRowsHome TrsKernelHome(TrsComputeKernel kernel)
{
  return kernels[kernel].home;
}

PetscBool TrsKernelIsCaching(TrsComputeKernel kernel)
{
  return (PetscBool)(kernels[kernel].lines != TRS_LINES_NONE);
}

PetscBool TrsKernelKeepsLines(TrsComputeKernel kernel)
{
  return (PetscBool)(kernels[kernel].lines == TRS_LINES_KEPT);
}

TrsKernelUse TrsKernelUseOf(TrsComputeKernel kernel)
{
  return kernels[kernel].use;
}

PetscBool TrsKernelIsQuantised(TrsComputeKernel kernel)
{
  return (PetscBool)(kernels[kernel].use == TRS_USE_QUANTISED);
}

unsigned TrsKernelsWhere(PetscBool (*holds)(TrsComputeKernel))
{
  unsigned set = 0;

  for (int k = 0; k < TRS_N_KERNELS; k++)
    if (holds((TrsComputeKernel)k)) set |= 1u << k;
  return set;
}

TrsModule TrsTableModule(const TrsTableConfig *table)
{
  if (table->pooling == TRS_POOLING_NONE) return TRS_MODULE_EC;
  return TrsTableHasWeights(table) ? TRS_MODULE_WEIGHTED_EBC : TRS_MODULE_EBC;
}

PetscBool TrsTableHasWeights(const TrsTableConfig *table)
{
  return (PetscBool)(table->is_weighted || table->max_feature_lengths);
}

const char *TrsTableOptionName(const TrsTableConfig *table)
{
  return table->whole ? table->whole : table->name;
}

TrsDType TrsTableOutputDType(const TrsTableConfig *table)
{
  return table->constraints.has_output_dtype ? table->constraints.output_dtype : TRS_FP32;
}

int TrsTableVectors(const TrsTableConfig *table)
{
  if (table->id_map.kind == TRS_ID_MAP_REMAINDER) return 0;
  return table->pooling == TRS_POOLING_NONE ? table->sequence_length : 1;
}

PetscBool TrsTableIsSequenceLayer(const TrsTableConfig *table)
{
  return (PetscBool)(table->pooling == TRS_POOLING_NONE &&
                     table->sequence_pooling > TRS_SEQUENCE_POOLING_CONCAT);
}

PetscBool TrsFeatureIsSequenceLayer(const TrsTableConfig *table, int k)
{
  return (PetscBool)(TrsTableIsSequenceLayer(table) &&
                     !(table->din_target && strcmp(table->features[k], table->din_target) == 0));
}

int TrsTableVectorDim(const TrsTableConfig *table)
{
  return TrsTableIsSequenceLayer(table) && table->gru_hidden_size ? table->gru_hidden_size
                                                                  : table->embedding_dim;
}

int64_t TrsTableColumns(const TrsTableConfig *table)
{
  return (int64_t)TrsTableVectorDim(table) * PetscMax(TrsTableVectors(table), 1);
}

PetscBool TrsTableKeepsIds(const TrsTableConfig *table)
{
  return (PetscBool)(TrsTableBuckets(table) > 0);
}

int64_t TrsTableKeysRowBytes(const TrsTableConfig *table)
{
  if (!TrsTableKeepsIds(table)) return 0;
  /* an entry, and cells of the index, which is up to 85 % full */
  if (table->id_map.kind == TRS_ID_MAP_DYNAMIC) return 24;
  /* an entry, times, and cells of the index; the count, and the last iteration */
  return 16 + 4 + 8 + (table->zch.policy != TRS_ZCH_LRU ? 8 : 0) + (table->zch.policy != TRS_ZCH_LFU ? 4 : 0);
}

int64_t TrsTableBuckets(const TrsTableConfig *table)
{
  return table->id_map.kind == TRS_ID_MAP_ZCH       ? table->zch.buckets
         : table->id_map.kind == TRS_ID_MAP_DYNAMIC ? table->dynamic.buckets
                                                    : 0;
}

int64_t TrsTableRowUnit(const TrsTableConfig *table)
{
  return TrsTableKeepsIds(table) ? table->num_embeddings / TrsTableBuckets(table) : 1;
}

PetscErrorCode TrsTableConfigFree(TrsTableConfig *table)
{
  TrsTableConstraints *constraints = &table->constraints;

  PetscFunctionBegin;
  PetscCall(PetscFree(table->name));
  PetscCall(PetscFree(table->whole));
  for (int i = 0; i < table->n_features; i++) PetscCall(PetscFree(table->features[i]));
  PetscCall(PetscFree(table->features));
  PetscCall(PetscFree(table->feature_keys));
  PetscCall(PetscFree(table->max_feature_lengths));
  PetscCall(PetscFree(table->din_target));
  PetscCall(PetscFree(table->din_arch));
  PetscCall(PetscFree(constraints->pooling_factors));
  PetscCall(PetscFree(constraints->num_poolings));
  PetscCall(PetscFree(constraints->batch_sizes));
  PetscCall(PetscFree(constraints->device_group));
  PetscCall(PetscFree(constraints->cache_stats_mrc_hist));
  *table = (TrsTableConfig){.name = NULL};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTableConfigsFree(TrsTableConfigs *tables)
{
  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) PetscCall(TrsTableConfigFree(&tables->table[t]));
  PetscCall(PetscFree(tables->table));
  tables->n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
