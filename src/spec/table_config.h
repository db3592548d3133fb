/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Embedding tables as configured: what TorchRec keeps in EmbeddingBagConfig / EmbeddingConfig and in ParameterConstraints.
*/
#pragma once

#include "core/dtype.h"
#include "core/options.h"

/* Choices of the embedding tables' optimizer and of its weight decay, in the order of TrsSparseOptimizerKind and TrsWeightDecayMode. */
#define TRS_SPARSE_OPTIMIZERS \
  "none,sgd,adagrad,rowwise_adagrad,adam,partial_rowwise_adam,lamb,partial_rowwise_lamb,lars_sgd,lion," \
  "shampoo"
#define TRS_SPARSE_DECAY_MODES "none,l2,decouple,counter,cowclip,decouple_global"

typedef enum {
  TRS_POOLING_SUM,
  TRS_POOLING_MEAN,
  TRS_POOLING_NONE
} TrsPooling; /* none: sequence embeddings */

/* What the model sees of a sequence feature: its rows' mean, their maximum, or the first sequence_length of them. */
typedef enum {
  TRS_SEQUENCE_POOLING_MEAN,
  TRS_SEQUENCE_POOLING_MAX,
  TRS_SEQUENCE_POOLING_CONCAT
} TrsSequencePoolingKind;

typedef enum {
  TRS_SHARDING_DATA_PARALLEL,
  TRS_SHARDING_TABLE_WISE,
  TRS_SHARDING_COLUMN_WISE,
  TRS_SHARDING_ROW_WISE,
  TRS_SHARDING_TABLE_ROW_WISE,
  TRS_SHARDING_TABLE_COLUMN_WISE,
  TRS_SHARDING_GRID_SHARD,
  TRS_N_SHARDINGS
} TrsShardingType;

typedef enum {
  TRS_KERNEL_DENSE,
  TRS_KERNEL_FUSED,
  TRS_KERNEL_FUSED_UVM,
  TRS_KERNEL_FUSED_UVM_CACHING,
  TRS_KERNEL_QUANT,
  TRS_KERNEL_QUANT_UVM,
  TRS_KERNEL_QUANT_UVM_CACHING,
  TRS_N_KERNELS
} TrsComputeKernel;

/* Part of the rows that a cache takes where nothing is given. */
#define TRS_CACHE_LOAD_FACTOR 0.2

/* The module that holds a table: pooled, pooled and weighted, or of sequences. */
typedef enum { TRS_MODULE_EBC, TRS_MODULE_WEIGHTED_EBC, TRS_MODULE_EC, TRS_N_MODULES } TrsModule;

typedef enum { TRS_BOUNDS_FATAL, TRS_BOUNDS_WARNING, TRS_BOUNDS_IGNORE, TRS_BOUNDS_NONE } TrsBoundsCheckMode;

/* Planner constraints of one table; a NULL list or an unset flag means "not given". Lists are owned. */
typedef struct {
  int n_sharding_types, n_compute_kernels;
  unsigned sharding_types, compute_kernels;             /* bit sets over the enums; 0: all */
  int64_t min_partition;                                /* columns; 0: not given */
  int n_pooling_factors, n_num_poolings, n_batch_sizes; /* one entry a feature; 0: not given */
  double *pooling_factors, *num_poolings;
  int64_t *batch_sizes;
  PetscBool has_enforce_hbm, enforce_hbm;
  PetscBool has_optimizer; /* of its own: */
  int optimizer;           /* place among -embedding_optimizer's choices */
  PetscBool has_output_dtype;
  TrsDType output_dtype;
  char *device_group; /* NULL: any */
  PetscBool has_cache_load_factor, has_cache_prefetch_pipeline, cache_prefetch_pipeline, has_cache_stats,
      cache_lfu;
  double cache_load_factor;
  int64_t cache_multipass_prefetch_num_passes; /* 0: not given */
  double cache_stats_cacheability, cache_stats_expected_lookups;
  int n_cache_stats_mrc_hist;
  double *cache_stats_mrc_hist;
} TrsTableConstraints;

typedef struct {
  char *name;
  int64_t num_embeddings; /* rows R */
  int embedding_dim;      /* columns D */
  TrsPooling pooling;
  TrsSequencePoolingKind sequence_pooling; /* of pooling none */
  int sequence_length;                     /* with concat: rows of a sample; else 1 */
  TrsDType data_type;
  PetscBool is_weighted;
  int *
      max_feature_lengths; /* [n_features] position-weighted: entries of each feature's vector of weights; else NULL */
  PetscBool stochastic_rounding; /* of fp16 and bf16 stores */
  TrsBoundsCheckMode bounds_check_mode;
  float init_min, init_max;
  int n_features;
  char **features;   /* [n_features] names; in a dry run without dataset default {name} */
  int *feature_keys; /* [n_features] index into the dataset's key order; NULL in a dry run */
  TrsTableConstraints constraints;
} TrsTableConfig;

typedef struct {
  int n;
  TrsTableConfig *table; /* [n] in -tables order */
} TrsTableConfigs;

/* What a dataset says about its features; all NULL / 0 in a dry run. */
typedef struct {
  int n_features;
  const char *const *names;      /* [n_features], key order */
  const int64_t *num_embeddings; /* [n_features] */
  const double *mean_lengths;    /* [n_features] ids a sample */
  PetscBool has_weights;
} TrsDatasetFeatures;

extern const TrsOptionGroup
    trs_table_options; /* keys of -tables_<key>, -table_<name>_<key>; and -tables itself */
extern const TrsOptionGroup trs_tables_options;

/*
  TrsTableConfigsFromOptions - Read -tables and every table's keys, and check them.

  Not collective (same result everywhere).

  In:     options
          dataset  NULL or empty in a dry run
  Out:    tables   free with TrsTableConfigsFree()
  Errors: OPTION: unknown feature, a feature in two tables, a table listed twice, weighted mean, ids that exceed num_embeddings of the
          dataset (dataset's range larger than the table), zero or overflowing sizes, lists of unequal length, ...
  Source: TorchRec EmbeddingBagConfig, ParameterConstraints
*/
PetscErrorCode TrsTableConfigsFromOptions(TrsOptions options, const TrsDatasetFeatures *dataset,
                                          TrsTableConfigs *tables);
PetscErrorCode TrsTableConfigsFree(TrsTableConfigs *tables);

/* The module a table belongs to: ec when pooling is none, weighted_ebc when its ids have weights, else ebc. */
TrsModule TrsTableModule(const TrsTableConfig *table);

/* Do ids have weights, the data's or those of their positions? */
PetscBool TrsTableHasWeights(const TrsTableConfig *table);

/* Vectors of embedding_dim that a feature of the table brings into the interaction. */
int TrsTableVectors(const TrsTableConfig *table);

const char *TrsPoolingName(TrsPooling pooling);
const char *TrsShardingTypeName(TrsShardingType type);
const char *TrsComputeKernelName(TrsComputeKernel kernel);
const char *TrsModuleName(TrsModule module);

PetscBool TrsKernelIsUvm(TrsComputeKernel kernel);     /* rows live in host memory */
PetscBool TrsKernelIsCaching(TrsComputeKernel kernel); /* and a part of them in device memory */
