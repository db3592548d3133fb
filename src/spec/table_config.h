/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The configuration of embedding tables. In TorchRec these settings are in EmbeddingBagConfig /
  EmbeddingConfig and in ParameterConstraints.
*/
#pragma once

#include "core/dtype.h"
#include "core/options/options.h"
#include "core/random/random.h"
#include "spec/vocabulary.h"

/*
  The weight decay modes of embedding tables' optimizers. The first modes have the order of
  TrsWeightDecayMode.
*/
#define TRS_SPARSE_DECAY_MODES "none,l2,decouple,counter,cowclip,decouple_global"

typedef enum {
  TRS_POOLING_SUM,
  TRS_POOLING_MEAN,
  TRS_POOLING_NONE
} TrsPooling; /* TRS_POOLING_NONE is for sequence embeddings */

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

/* Default for the number of lines of a cache, as a fraction of the table's rows. */
#define TRS_CACHE_LOAD_FACTOR 0.2

/* The kind of module that holds a table: pooled, pooled with weights, or sequence. */
typedef enum { TRS_MODULE_EBC, TRS_MODULE_WEIGHTED_EBC, TRS_MODULE_EC, TRS_N_MODULES } TrsModule;

typedef enum { TRS_BOUNDS_FATAL, TRS_BOUNDS_WARNING, TRS_BOUNDS_IGNORE, TRS_BOUNDS_NONE } TrsBoundsCheckMode;

/* The rule that maps a feature's ids to rows of its table. */
typedef struct {
  TrsIdMapKind kind;
  /* the modulus: number of rows of the table; for the two tables that id_map qr makes of one table
     in -tables, number of rows of the latter */
  int64_t rows;
  int64_t collisions;    /* id_map qr: the divisor whose quotient and remainder are rows */
  PetscBool is_unsigned; /* true if the modulo treats ids as uint64 */
} TrsIdMapRule;

/* The settings of a table with id_map zch (embed/zch.h). */
typedef struct {
  TrsZchPolicy policy;
  int64_t interval; /* number of training batches between evictions */
  float exponent;   /* exponent of the age in the scores of lru and distance_lfu */
  TrsZchFilter filter;
  double multiplier; /* multiplier of the filter dynamic */
  int64_t buckets;   /* number of buckets; each has num_embeddings / buckets rows */
  /*
    if not 0, each bucket has an equal part of the ids below this number; if 0, each bucket has an
    equal part of the hashes
  */
  int64_t range;
  PetscBool torchrec; /* true: behave as TorchRec does, even in its errors */
} TrsZchRule;

/* The settings of a table with id_map dynamic (embed/dynamic.h). */
typedef struct {
  const char *size_key; /* the key that set num_embeddings, for messages; NULL: num_embeddings */
  TrsDynamicPolicy policy;
  int64_t buckets; /* number of buckets; each has at most num_embeddings / buckets rows */
  /* number of training batches after which an unused id loses its row; 0 means never */
  int64_t ttl;
  int64_t admit_after;      /* number of occurrences after which an id gets a row */
  double admit_probability; /* probability that an occurrence of an id without a row is counted */
  /* number of ids per bucket whose occurrences are counted exactly before they get a row */
  int64_t candidates;
} TrsDynamicRule;

/*
  A choice of TRS_TABLE_CHOICES. Its value is the index of a word in its list, 0 or 1 for a flag, or
  a number of bytes.
*/
typedef struct {
  PetscBool set;
  int64_t value;
} TrsTableChoice;

/*
  The planner constraints of a table. A NULL list or an unset flag means that the constraint is not
  given. The struct owns its lists.
*/
typedef struct {
  int n_sharding_types, n_compute_kernels;
  unsigned sharding_types, compute_kernels; /* bit sets over the enums; 0 allows all */
  int64_t min_partition;                    /* number of columns; 0 if not given */
  /* length of the lists, which have one entry per feature; 0 if not given */
  int n_pooling_factors, n_num_poolings, n_batch_sizes;
  double *pooling_factors, *num_poolings;
  int64_t *batch_sizes;
  PetscBool has_enforce_hbm, enforce_hbm;
  PetscBool has_optimizer; /* true if the table has its own optimizer */
  TrsSparseOptimizerKind optimizer;
  PetscBool has_output_dtype;
  TrsDType output_dtype;
  char *device_group; /* NULL allows any group */
  PetscBool has_cache_load_factor, has_cache_prefetch_pipeline, cache_prefetch_pipeline, has_cache_stats,
      cache_lfu;
  double cache_load_factor;
  int64_t cache_multipass_prefetch_num_passes; /* 0 if not given */
  double cache_stats_cacheability, cache_stats_expected_lookups;
  int n_cache_stats_mrc_hist;
  double *cache_stats_mrc_hist;
  /*
    Choices set by options or by the plan. Fields with the same names elsewhere also contain
    defaults.
  */
  TrsTableChoice choice[TRS_N_TABLE_CHOICES];
} TrsTableConstraints;

typedef struct {
  char *name;
  /* for a part that id_map qr made: the name of its table in -tables; NULL for other tables */
  char *whole;
  int64_t num_embeddings; /* number of rows R */
  int embedding_dim;      /* number of columns D */
  TrsPooling pooling;
  TrsSequencePoolingKind sequence_pooling; /* used if pooling is none */
  /* for concat the number of rows per sample, otherwise 1 */
  int sequence_length;
  int gru_hidden_size; /* for gru the width of the state */
  /*
    For din: the target's name, and the target's index among the model's vectors. Then the sizes and
    the activation of the layers that compute a row's weight.
  */
  char *din_target;
  int din_vector;
  int n_din_arch;
  int64_t *din_arch; /* [n_din_arch] */
  TrsMlpActivation din_activation;
  PetscBool din_softmax;
  /*
    For transformer: the number of encoder layers, the number of heads, and the width between the
    linear layers.
  */
  int64_t transformer_layers, transformer_heads, transformer_width;
  PetscBool transformer_causal;
  TrsDType data_type;
  PetscBool is_weighted;
  /*
    [n_features] number of position weights of each feature; NULL if there are no position weights
  */
  int *max_feature_lengths;
  PetscBool stochastic_rounding; /* true if stores to fp16 and bf16 are rounded stochastically */
  TrsBoundsCheckMode bounds_check_mode;
  TrsIdMapRule id_map;
  TrsZchRule zch;         /* used with id_map zch */
  TrsDynamicRule dynamic; /* used with id_map dynamic */
  TrsUnknownRow unknown;  /* used with id_map zch and dynamic */
  /*
    for a part of id_map qr: true if the two parts' vectors are multiplied, false if they are added
  */
  PetscBool multiplied;
  TrsRandomLaw init; /* distribution of the initial weights */
  int n_features;
  /* [n_features] names; in a dry run without a dataset the default is the table's name */
  char **features;
  /* [n_features] index of each feature in the dataset's key order; NULL in a dry run */
  int *feature_keys;
  TrsTableConstraints constraints;
} TrsTableConfig;

typedef struct {
  int n;
  TrsTableConfig *table; /* [n] in the order of -tables; the two parts of id_map qr are adjacent */
} TrsTableConfigs;

/* Facts about a dataset's features. All fields are NULL or 0 in a dry run. */
typedef struct {
  int n_features;
  const char *const *names; /* [n_features] in key order */
  /* [n_features] bound of each feature's ids; 0 if ids have no bound */
  const int64_t *num_embeddings;
  const double *mean_lengths; /* [n_features] mean number of ids per sample */
  PetscBool has_weights, has_unsigned_ids;
  /*
    True if features may declare more rows than their table has. bounds_check_mode decides how ids
    outside of the table are treated. A training refuses such tables.
  */
  PetscBool may_exceed;
} TrsDatasetFeatures;

extern const TrsOptionGroup trs_table_options;
extern const TrsOptionGroup trs_tables_options;

/*
  TrsTableConfigsFromOptions - Read -tables and every table's keys, and check them.

  Not collective; the result is the same on all ranks.

  In:     dataset  NULL or empty in a dry run
  Out:    tables   free with TrsTableConfigsFree()
  Errors: OPTION, for example for an unknown feature, a feature in two tables, a table listed twice,
          a weighted mean, a table smaller than the dataset's range of ids, sizes that are zero or
          overflow, or lists of unequal length.
  Source: TorchRec EmbeddingBagConfig, ParameterConstraints
*/
PetscErrorCode TrsTableConfigsFromOptions(TrsOptions options, const TrsDatasetFeatures *dataset,
                                          TrsTableConfigs *tables);
PetscErrorCode TrsTableConfigsFree(TrsTableConfigs *tables);
PetscErrorCode TrsTableConfigFree(TrsTableConfig *table);

/*
  The module of the table: ec if pooling is none, weighted_ebc if ids have weights, ebc in all other
  cases.
*/
TrsModule TrsTableModule(const TrsTableConfig *table);

/* True if the table's ids have weights. The weights can come from the data or from positions. */
PetscBool TrsTableHasWeights(const TrsTableConfig *table);

/*
  The table's name in its options -table_<name>_<key>. Both parts of id_map qr use the name of the
  whole table.
*/
const char *TrsTableOptionName(const TrsTableConfig *table);

/*
  The type to which a run rounds the table's pooled output. It is output_dtype, whose default is
  fp32.
*/
TrsDType TrsTableOutputDType(const TrsTableConfig *table);

/*
  The number of vectors that each feature of the table contributes to the interaction. The two parts
  of id_map qr together contribute one vector, which is counted for the first part.
*/
int TrsTableVectors(const TrsTableConfig *table);

/* True if the table's sequence_pooling is a layer of the model, with parameters. */
PetscBool TrsTableIsSequenceLayer(const TrsTableConfig *table);

/*
  True if a layer of the model (TrsTableIsSequenceLayer()) pools the table's k-th feature. It is
  false for din's target if this is a feature of the same table as the sequence: the target's vector
  is the mean of the target's rows, without a layer.
*/
PetscBool TrsFeatureIsSequenceLayer(const TrsTableConfig *table, int k);

/*
  Number of columns of each vector that the table contributes. It is embedding_dim, unless a layer
  changes the width.
*/
int TrsTableVectorDim(const TrsTableConfig *table);

/*
  Number of columns that each feature of the table has in a matrix of pooled rows. The second part
  of id_map qr also has columns there, although it contributes no vector to the model.
*/
int64_t TrsTableColumns(const TrsTableConfig *table);

/*
  True if ids are sent unchanged to their owner, which gives rows to them (embed/placement.h). Then
  an id of any sign is valid, so no id means "no row".
*/
PetscBool TrsTableKeepsIds(const TrsTableConfig *table);

/* Number of buckets of a table that keeps ids (embed/directory.h). It is 0 for other tables. */
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
const char *TrsIdMapName(TrsIdMapKind kind); /* the word of id_map, "qr" for both of its parts */
const char *TrsShardingTypeName(TrsShardingType type);
const char *TrsComputeKernelName(TrsComputeKernel kernel);
const char *TrsModuleName(TrsModule module);

/* Facts about a compute kernel, from its line in TRS_COMPUTE_KERNELS. */
TrsRowsHome TrsKernelHome(TrsComputeKernel kernel);
/* true if the planner counts cache lines for the kernel */
PetscBool TrsKernelIsCaching(TrsComputeKernel kernel);
PetscBool TrsKernelKeepsLines(TrsComputeKernel kernel); /* true if a run also keeps cache lines */
TrsKernelUse TrsKernelUseOf(TrsComputeKernel kernel);
PetscBool TrsKernelIsQuantised(TrsComputeKernel kernel);

/* The bit set of all kernels for which one of the functions above returns true. */
unsigned TrsKernelsWhere(PetscBool (*holds)(TrsComputeKernel));
