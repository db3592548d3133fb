/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Embedding tables as configured: what TorchRec keeps in EmbeddingBagConfig / EmbeddingConfig and in
  ParameterConstraints.
*/
#pragma once

#include "core/dtype.h"
#include "core/options/options.h"
#include "core/random.h"
#include "spec/vocabulary.h"

/*
  Choices of the weight decay of the embedding tables' optimizer, the first in the order of
  TrsWeightDecayMode.
*/
#define TRS_SPARSE_DECAY_MODES "none,l2,decouple,counter,cowclip,decouple_global"

typedef enum {
  TRS_POOLING_SUM,
  TRS_POOLING_MEAN,
  TRS_POOLING_NONE
} TrsPooling; /* TRS_POOLING_NONE: sequence embeddings */

typedef enum {
  TRS_SHARDING_DATA_PARALLEL,
  TRS_SHARDING_TABLE_WISE,
  TRS_SHARDING_COLUMN_WISE,
  TRS_SHARDING_ROW_WISE,
  TRS_SHARDING_TABLE_ROW_WISE,
  TRS_SHARDING_TABLE_COLUMN_WISE,
  TRS_SHARDING_GRID_SHARD
} TrsShardingType;

enum { TRS_N_SHARDINGS = TRS_SHARDING_GRID_SHARD + 1 };

/* Default of a cache's lines, as a part of the table's rows. */
#define TRS_CACHE_LOAD_FACTOR 0.2

/* The module that holds a table: pooled, pooled with weights, or sequences. */
typedef enum { TRS_MODULE_EBC, TRS_MODULE_WEIGHTED_EBC, TRS_MODULE_EC, TRS_N_MODULES } TrsModule;

typedef enum { TRS_BOUNDS_FATAL, TRS_BOUNDS_WARNING, TRS_BOUNDS_IGNORE, TRS_BOUNDS_NONE } TrsBoundsCheckMode;

/* The rule that maps a feature's ids to rows of its table. */
typedef struct {
  TrsIdMapKind kind;
  int64_t rows;          /* R of the modulo: of the table, or of the one that it is a part of */
  int64_t collisions;    /* m of the parts of id_map qr */
  PetscBool is_unsigned; /* ids are uint64, of which the modulo is taken */
} TrsIdMapRule;

/* One of TRS_TABLE_CHOICES: a word's place in its list, 0 or 1 for a flag, or bytes. */
typedef struct {
  PetscBool set;
  int64_t value;
} TrsTableChoice;

/*
  Planner constraints of one table. A NULL list or an unset flag means "not given". The struct owns
  its lists.
*/
typedef struct {
  int n_sharding_types, n_compute_kernels;
  unsigned sharding_types, compute_kernels;             /* bit sets over the enums; 0: all */
  int64_t min_partition;                                /* columns; 0: not given */
  int n_pooling_factors, n_num_poolings, n_batch_sizes; /* one entry a feature; 0: not given */
  double *pooling_factors, *num_poolings;
  int64_t *batch_sizes;
  PetscBool has_enforce_hbm, enforce_hbm;
  PetscBool has_optimizer; /* the table has an optimizer of its own */
  TrsSparseOptimizerKind optimizer;
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
  /* the choices that options or the plan gave; the fields of their names hold them with defaults */
  TrsTableChoice choice[TRS_N_TABLE_CHOICES];
} TrsTableConstraints;

typedef struct {
  char *name;
  char *whole;            /* the table of -tables that id_map qr made this part of, or NULL */
  int64_t num_embeddings; /* rows R */
  int embedding_dim;      /* columns D */
  TrsPooling pooling;
  TrsSequencePoolingKind sequence_pooling; /* used with pooling none */
  int sequence_length;                     /* rows of a sample with concat, else 1 */
  int gru_hidden_size;                     /* width of the state with gru */
  /*
    With din: the name of the target, and its place among the model's vectors; sizes and activation
    of the layers that make a row's weight.
  */
  char *din_target;
  int din_vector;
  int n_din_arch;
  int64_t *din_arch; /* [n_din_arch] */
  TrsMlpActivation din_activation;
  PetscBool din_softmax;
  /* With transformer: encoder layers, their heads, and the width between their linear layers. */
  int64_t transformer_layers, transformer_heads, transformer_width;
  PetscBool transformer_causal;
  TrsDType data_type;
  PetscBool is_weighted;
  /* [n_features] sizes of the features' vectors of position weights; NULL without them */
  int *max_feature_lengths;
  PetscBool stochastic_rounding; /* for stores to fp16 and bf16 */
  TrsBoundsCheckMode bounds_check_mode;
  TrsIdMapRule id_map;
  PetscBool multiplied; /* part of id_map qr: the vectors are multiplied, otherwise added */
  TrsRandomLaw init;    /* of the initial weights */
  int n_features;
  char **features;   /* [n_features] names; the default of a dry run without a dataset is {name} */
  int *feature_keys; /* [n_features] index into the dataset's key order; NULL in a dry run */
  TrsTableConstraints constraints;
} TrsTableConfig;

typedef struct {
  int n;
  TrsTableConfig *table; /* [n] in -tables order; the parts of id_map qr follow one another */
} TrsTableConfigs;

/* A dataset's facts about its features; all fields are NULL or 0 in a dry run. */
typedef struct {
  int n_features;
  const char *const *names;      /* [n_features] in key order */
  const int64_t *num_embeddings; /* [n_features] 0: not bounded */
  const double *mean_lengths;    /* [n_features] ids a sample */
  PetscBool has_weights, has_unsigned_ids;
} TrsDatasetFeatures;

extern const TrsOptionGroup trs_table_options;
extern const TrsOptionGroup trs_tables_options;

/*
  TrsTableConfigsFromOptions - Read -tables and every table's keys, and check them.

  Not collective; the result is the same on all ranks.

  In:     options
          dataset  NULL or empty in a dry run
  Out:    tables   free with TrsTableConfigsFree()
  Errors: OPTION: unknown feature, a feature in two tables, a table listed twice, weighted mean, a
          table smaller than the dataset's range of ids, zero or overflowing sizes, lists of unequal
          length, ...
  Source: TorchRec EmbeddingBagConfig, ParameterConstraints
*/
PetscErrorCode TrsTableConfigsFromOptions(TrsOptions options, const TrsDatasetFeatures *dataset,
                                          TrsTableConfigs *tables);
PetscErrorCode TrsTableConfigsFree(TrsTableConfigs *tables);
PetscErrorCode TrsTableConfigFree(TrsTableConfig *table);

/*
  The module a table belongs to: ec if pooling is none, weighted_ebc if its ids have weights, else
  ebc.
*/
TrsModule TrsTableModule(const TrsTableConfig *table);

/* Do the table's ids have weights, from the data or from their positions? */
PetscBool TrsTableHasWeights(const TrsTableConfig *table);

/*
  The name in the table's options, -table_<name>_<key>. The two parts of id_map qr share their
  whole's.
*/
const char *TrsTableOptionName(const TrsTableConfig *table);

/* The type that a run rounds the table's pooled output to: output_dtype, or fp32 without it. */
TrsDType TrsTableOutputDType(const TrsTableConfig *table);

/*
  Number of vectors that a feature of the table brings into the interaction. The
  parts of id_map qr bring one together, which is the first part's.
*/
int TrsTableVectors(const TrsTableConfig *table);

/* Is the table's sequence_pooling a layer of the model, with parameters? */
PetscBool TrsTableIsSequenceLayer(const TrsTableConfig *table);

/*
  Does such a layer pool the table's k-th feature? din's target may be a feature of the table that
  has the sequence. Its vector is then the mean of its rows, and no layer's.
*/
PetscBool TrsFeatureIsSequenceLayer(const TrsTableConfig *table, int k);

/* Columns of each of these vectors: embedding_dim, unless a layer makes another width. */
int TrsTableVectorDim(const TrsTableConfig *table);

/*
  Columns that a feature of the table takes in a matrix of pooled rows. A remainder's vectors have
  columns there too, though they bring the model none of their own.
*/
int64_t TrsTableColumns(const TrsTableConfig *table);

const char *TrsPoolingName(TrsPooling pooling);
const char *TrsShardingTypeName(TrsShardingType type);
const char *TrsComputeKernelName(TrsComputeKernel kernel);
const char *TrsModuleName(TrsModule module);

/* Facts of a compute kernel, from its line of TRS_COMPUTE_KERNELS. */
TrsRowsHome TrsKernelHome(TrsComputeKernel kernel);
PetscBool TrsKernelIsCaching(TrsComputeKernel kernel);  /* the planner counts lines for rows */
PetscBool TrsKernelKeepsLines(TrsComputeKernel kernel); /* a run keeps lines for rows, too */
TrsKernelUse TrsKernelUseOf(TrsComputeKernel kernel);
PetscBool TrsKernelIsQuantised(TrsComputeKernel kernel);

/* The bit set of the kernels for which a function above holds. */
unsigned TrsKernelsWhere(PetscBool (*holds)(TrsComputeKernel));
