/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/table_config.h"

const char *TrsPoolingName(TrsPooling pooling)
{
  static const char *const names[] = {"sum", "mean", "none"};

  return names[pooling];
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
  static const char *const names[TRS_N_KERNELS] = {
      "dense", "fused", "fused_uvm", "fused_uvm_caching", "quant", "quant_uvm", "quant_uvm_caching"};

  return names[kernel];
}

const char *TrsModuleName(TrsModule module)
{
  static const char *const names[TRS_N_MODULES] = {"ebc", "weighted_ebc", "ec"};

  return names[module];
}

PetscBool TrsKernelIsCaching(TrsComputeKernel kernel)
{
  return (PetscBool)(kernel == TRS_KERNEL_FUSED_UVM_CACHING || kernel == TRS_KERNEL_QUANT_UVM_CACHING);
}

PetscBool TrsKernelIsUvm(TrsComputeKernel kernel)
{
  return (PetscBool)(TrsKernelIsCaching(kernel) || kernel == TRS_KERNEL_FUSED_UVM ||
                     kernel == TRS_KERNEL_QUANT_UVM);
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
