/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Embedding tables as configured. In TorchRec these settings are in EmbeddingBagConfig /
  EmbeddingConfig and in ParameterConstraints.
*/
#pragma once

#include "core/dtype.h"
#include "core/options/options.h"
#include "core/random.h"
#include "spec/vocabulary.h"

/* The table optimizers' weight decay modes; the first are in the order of TrsWeightDecayMode. */
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

/* Default number of a cache's lines, as a share of the table's rows. */
#define TRS_CACHE_LOAD_FACTOR 0.2

/* The module that holds a table: pooled, pooled with weights, or sequence. */
typedef enum { TRS_MODULE_EBC, TRS_MODULE_WEIGHTED_EBC, TRS_MODULE_EC, TRS_N_MODULES } TrsModule;

typedef enum { TRS_BOUNDS_FATAL, TRS_BOUNDS_WARNING, TRS_BOUNDS_IGNORE, TRS_BOUNDS_NONE } TrsBoundsCheckMode;

/* The rule that maps a feature's ids to rows of its table. */
typedef struct {
  TrsIdMapKind kind;
  int64_t rows;          /* R of the modulo: rows of the table, or of the table it is a part of */
  int64_t collisions;    /* m of id_map qr's parts */
  PetscBool is_unsigned; /* the modulo treats ids as uint64 */
} TrsIdMapRule;

/* The rules of a table with id_map zch (embed/zch.h). */
typedef struct {
  TrsZchPolicy policy;
  int64_t interval; /* training batches between evictions */
  float exponent;   /* of the age, in scores of lru and distance_lfu */
  TrsZchFilter filter;
  double multiplier;  /* of filter dynamic */
  int64_t buckets;    /* B; each has num_embeddings / B rows */
  int64_t range;      /* buckets are equal parts of the ids below it; 0: of hashes */
  PetscBool torchrec; /* as TorchRec, also where it errs */
} TrsZchRule;

/* The rules of a table with id_map dynamic (embed/dynamic.h). */
typedef struct {
  TrsDynamicPolicy policy;
  int64_t buckets;          /* B; each has num_embeddings / B rows at most */
  int64_t ttl;              /* training batches after which an unused id loses its row; 0: never */
  int64_t admit_after;      /* occurrences after which an id gets a row */
  double admit_probability; /* that an occurrence of an id without a row counts */
  int64_t candidates;       /* ids of a bucket that are counted exactly until they get a row */
} TrsDynamicRule;

/* One of TRS_TABLE_CHOICES: a word's index in its list, 0 or 1 for a flag, or bytes. */
typedef struct {
  PetscBool set;
  int64_t value;
} TrsTableChoice;

/*
  A table's planner constraints. A NULL list or an unset flag means "not given". The struct owns its
  lists.
*/
typedef struct {
  int n_sharding_types, n_compute_kernels;
  unsigned sharding_types, compute_kernels;             /* bit sets over the enums; 0: all */
  int64_t min_partition;                                /* columns; 0: not given */
  int n_pooling_factors, n_num_poolings, n_batch_sizes; /* one entry per feature; 0: not given */
  double *pooling_factors, *num_poolings;
  int64_t *batch_sizes;
  PetscBool has_enforce_hbm, enforce_hbm;
  PetscBool has_optimizer; /* the table has its own optimizer */
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
  /* Choices set by options or the plan. The fields of the same names also include the defaults. */
  TrsTableChoice choice[TRS_N_TABLE_CHOICES];
} TrsTableConstraints;

typedef struct {
  char *name;
  char *whole;            /* the table in -tables that id_map qr split into this part, or NULL */
  int64_t num_embeddings; /* rows R */
  int embedding_dim;      /* columns D */
  TrsPooling pooling;
  TrsSequencePoolingKind sequence_pooling; /* used with pooling none */
  int sequence_length;                     /* concat: rows per sample; else 1 */
  int gru_hidden_size;                     /* gru: width of the state */
  /*
    din: the target's name, and its index among the model's vectors; sizes and activation of the
    layers that compute a row's weight.
  */
  char *din_target;
  int din_vector;
  int n_din_arch;
  int64_t *din_arch; /* [n_din_arch] */
  TrsMlpActivation din_activation;
  PetscBool din_softmax;
  /* transformer: encoder layers, their heads, and the width between their linear layers. */
  int64_t transformer_layers, transformer_heads, transformer_width;
  PetscBool transformer_causal;
  TrsDType data_type;
  PetscBool is_weighted;
  /* [n_features] lengths of the features' position weights; NULL: no position weights */
  int *max_feature_lengths;
  PetscBool stochastic_rounding; /* for stores to fp16 and bf16 */
  TrsBoundsCheckMode bounds_check_mode;
  TrsIdMapRule id_map;
  TrsZchRule zch;         /* with id_map zch */
  TrsDynamicRule dynamic; /* with id_map dynamic */
  TrsUnknownRow unknown;  /* with id_map zch and dynamic */
  PetscBool multiplied;   /* part of id_map qr: vectors are multiplied; otherwise added */
  TrsRandomLaw init;      /* distribution of the initial weights */
  int n_features;
  char **features;   /* [n_features] names; default in a dry run without a dataset: {name} */
  int *feature_keys; /* [n_features] index into the dataset's key order; NULL in a dry run */
  TrsTableConstraints constraints;
} TrsTableConfig;

typedef struct {
  int n;
  TrsTableConfig *table; /* [n] in -tables order; the two parts of id_map qr are adjacent */
} TrsTableConfigs;

/* A dataset's facts about its features; all fields are NULL or 0 in a dry run. */
typedef struct {
  int n_features;
  const char *const *names;      /* [n_features] in key order */
  const int64_t *num_embeddings; /* [n_features] 0: not bounded */
  const double *mean_lengths;    /* [n_features] ids per sample */
  PetscBool has_weights, has_unsigned_ids;
  /* The features may declare more rows than their table has: bounds_check_mode says what an id
     outside of it does. A training refuses such tables. */
  PetscBool may_exceed;
} TrsDatasetFeatures;

extern const TrsOptionGroup trs_table_options;
extern const TrsOptionGroup trs_tables_options;

/*
  TrsTableConfigsFromOptions - Read -tables and every table's keys, and check them.

  Not collective; the result is the same on all ranks.

  In:     dataset  NULL or empty in a dry run
  Out:    tables   free with TrsTableConfigsFree()
  Errors: OPTION for an unknown feature, a feature in two tables, a table listed twice, a weighted
          mean, a table smaller than the dataset's range of ids, zero or overflowing sizes, lists of
          unequal length, ...
  Source: TorchRec EmbeddingBagConfig, ParameterConstraints
*/
PetscErrorCode TrsTableConfigsFromOptions(TrsOptions options, const TrsDatasetFeatures *dataset,
                                          TrsTableConfigs *tables);
PetscErrorCode TrsTableConfigsFree(TrsTableConfigs *tables);
PetscErrorCode TrsTableConfigFree(TrsTableConfig *table);

/*
  The table's module: ec if pooling is none, weighted_ebc if its ids have weights, else ebc.
*/
TrsModule TrsTableModule(const TrsTableConfig *table);

/* True if the table's ids have weights, from the data or from their positions. */
PetscBool TrsTableHasWeights(const TrsTableConfig *table);

/*
  The name in the table's options, -table_<name>_<key>. Both parts of id_map qr use the whole
  table's name.
*/
const char *TrsTableOptionName(const TrsTableConfig *table);

/* The type to which a run rounds the table's pooled output: output_dtype, by default fp32. */
TrsDType TrsTableOutputDType(const TrsTableConfig *table);

/*
  The number of vectors that each of the table's features contributes to the interaction. The two
  parts of id_map qr contribute one vector together, counted for the first part.
*/
int TrsTableVectors(const TrsTableConfig *table);

/* True if the table's sequence_pooling is a layer of the model, with parameters. */
PetscBool TrsTableIsSequenceLayer(const TrsTableConfig *table);

/*
  True if such a layer pools the table's k-th feature. din's target may be a feature of the
  sequence's own table. The target's vector is then the mean of its rows, without a layer.
*/
PetscBool TrsFeatureIsSequenceLayer(const TrsTableConfig *table, int k);

/* Columns of each of these vectors: embedding_dim, unless a layer changes the width. */
int TrsTableVectorDim(const TrsTableConfig *table);

/*
  Columns of each of the table's features in a matrix of pooled rows. A remainder has columns there
  too, although it contributes no vector of its own to the model.
*/
int64_t TrsTableColumns(const TrsTableConfig *table);

/*
  True if ids travel as they are, and their owner gives rows to them (embed/placement.h). No id then
  means "no row", whatever its sign.
*/
PetscBool TrsTableKeepsIds(const TrsTableConfig *table);

/* The id_map of a table that keeps ids, zch or dynamic; its own keys begin with this word. */
const char *TrsTableKeysWord(const TrsTableConfig *table);

/*
  Buckets of a table that keeps ids (embed/directory.h), otherwise 0.
*/
int64_t TrsTableBuckets(const TrsTableConfig *table);

/*
  Bytes of host memory that a directory takes for each row (embed/directory.h), beside weights and
  states; 0 if the table does not keep ids. A dynamic table takes them for rows in use. Not counted
  are ids that have no row: the history of zch, and the candidates of dynamic.
*/
int64_t TrsTableKeysRowBytes(const TrsTableConfig *table);

/*
  Shards begin and end at multiples of this number of rows: the rows of a bucket if the table keeps
  ids, otherwise 1.
*/
int64_t TrsTableRowUnit(const TrsTableConfig *table);

const char *TrsPoolingName(TrsPooling pooling);
const char *TrsShardingTypeName(TrsShardingType type);
const char *TrsComputeKernelName(TrsComputeKernel kernel);
const char *TrsModuleName(TrsModule module);

/* A compute kernel's facts, from its line in TRS_COMPUTE_KERNELS. */
TrsRowsHome TrsKernelHome(TrsComputeKernel kernel);
PetscBool TrsKernelIsCaching(TrsComputeKernel kernel);  /* the planner counts cache lines */
PetscBool TrsKernelKeepsLines(TrsComputeKernel kernel); /* a run also keeps cache lines */
TrsKernelUse TrsKernelUseOf(TrsComputeKernel kernel);
PetscBool TrsKernelIsQuantised(TrsComputeKernel kernel);

/* The bit set of the kernels for which one of the functions above returns true. */
unsigned TrsKernelsWhere(PetscBool (*holds)(TrsComputeKernel));
