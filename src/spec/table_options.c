/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads and checks -tables, -tables_<key> and -table_<name>_<key>. The dataset gives defaults. */
#include "core/names.h"
#include "core/options/option_list.h"
#include "spec/table_choices.h"
#include "spec/table_ids.h"
#include "spec/table_init.h"
#include "spec/table_keys.h"
#include "spec/table_names.h"
#include "spec/table_sequence.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPES      "data_parallel,table_wise,column_wise,row_wise,table_row_wise,table_column_wise,grid_shard"
#define KERNELS    TRS_CHOICES(TRS_COMPUTE_KERNELS)
#define DATA_TYPES TRS_CHOICES(TRS_DATA_TYPES)

static const TrsOptionSpec tables_options[] = {
    {"-tables", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "names of the embedding tables (default: one per dataset feature, of the same name)"},
    {"-bounds_check_mode", TRS_OPTION_ENUM, "warning", NULL, TRS_CHOICES(TRS_BOUNDS_CHECK_MODES), NULL,
     "what an id outside [0, num_embeddings) of its table does, also if evaluated or predicted data "
     "declares more rows. fatal: it ends the run. warning: it becomes 0, and the run counts it. ignore: it "
     "becomes 0. none: nothing is checked, and its result is not defined"},
};
const TrsOptionGroup trs_tables_options = TRS_OPTION_GROUP_OF_MODEL("Tables", NULL, tables_options, "-tables",
                                                                    NULL);

static const TrsOptionSpec table_options[] = {
    {"num_embeddings", TRS_OPTION_INT, NULL, "[1,]", NULL, "rows",
     "size of the table (default: the id range of its features in the dataset)"},
    {"embedding_dim", TRS_OPTION_INT, NULL, "[1,2147483647]", NULL, "columns",
     "width of a row; must be given"},
    {"features", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL,
     "sparse features looked up in the table (default: one, named as the table)"},
    {"pooling", TRS_OPTION_ENUM, "sum", NULL, "sum,mean,none", NULL,
     "how a sample's rows become one; none: sequence embeddings"},
    {"sequence_pooling", TRS_OPTION_ENUM, "mean", NULL, TRS_CHOICES(TRS_SEQUENCE_POOLINGS), NULL,
     "with pooling none: how the model uses a sample's rows. mean, max: the mean or the maximum of the "
     "rows. concat: the first sequence_length rows, each as a separate embedding, with zeros if there are "
     "fewer. gru: the last state of torch.nn.GRU, with a layer for each feature. din: the sum of the "
     "rows, with weights that layers of each feature compute by comparing the rows with din_target. "
     "transformer: the mean of the outputs of encoder layers, which each feature has"},
#define SEQUENCE_OF_TABLE(word, type, fallback, range, choices, unit, KIND, help) \
  {#word, TRS_OPTION_##type, fallback, range, choices, unit, help},
    TRS_SEQUENCE_KEYS(SEQUENCE_OF_TABLE){
        "data_type", TRS_OPTION_ENUM, "fp32", NULL, DATA_TYPES, NULL,
        "element type of the weights; int8, int4, int2: for -task predict, which by default takes the "
        "checkpoint's"},
    {"is_weighted", TRS_OPTION_BOOL, "false", NULL, NULL, NULL, "ids carry weights (sum pooling)"},
    {"position_weighted", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "an id's weight depends on its place in the sample. Each feature has a vector of weights, which "
     "begin at 1 and are trained by the dense optimizer (sum pooling)"},
    {"max_feature_lengths", TRS_OPTION_INTS, NULL, "[1,16777216]", NULL, "ids",
     "with position_weighted: the most ids of a sample, one per feature, or one for all"},
#define INIT_OF_TABLE(word, type, fallback, range, choices, functions, help) \
  {#word, TRS_OPTION_##type, fallback, range, choices, NULL, help},
    TRS_INIT_KEYS(INIT_OF_TABLE){
        "stochastic_rounding", TRS_OPTION_BOOL, NULL, NULL, NULL, NULL,
        "fp16 and bf16 stores round stochastically (default: -embedding_stochastic_rounding)"},
    {"bounds_check_mode", TRS_OPTION_ENUM, NULL, NULL, TRS_CHOICES(TRS_BOUNDS_CHECK_MODES), NULL,
     "as -bounds_check_mode, which is its default"},
    {"id_map", TRS_OPTION_ENUM, "none", NULL, TRS_ID_MAP_WORDS, NULL,
     "how a 64-bit id becomes a row. none: ids are rows. modulo: the remainder of the id by "
     "num_embeddings. hash: the remainder of a hash of the id (FBGEMM's zero_collision_hash, max_probe "
     "1). qr: two small tables, NAME_quotient and NAME_remainder, replace a table NAME, and the row of "
     "modulo, divided by qr_collisions, gives a row in each. zch: rows are given to ids and taken back, "
     "as TorchRec's managed collision does. dynamic: the table grows with its ids"},
    {"id_unsigned", TRS_OPTION_BOOL, NULL, NULL, NULL, NULL,
     "with id_map modulo or qr: ids are unsigned, which matters from 2^63 on (default: as the training data "
     "has them; in the library, whose ids are int64: false)"},
    {"qr_operation", TRS_OPTION_ENUM, "mult", NULL, "add,mult", NULL,
     "with id_map qr: operation that joins the pooled vectors of both tables, number by number"},
    {"qr_collisions", TRS_OPTION_INT, NULL, "[1,]", NULL, "rows",
     "with id_map qr: rows of NAME_remainder, at most num_embeddings. NAME_quotient has num_embeddings "
     "divided by this number, rounded up (default: the square root of num_embeddings, rounded up)"},
#define ID_KEY_OF_TABLE(word, type, fallback, range, choices, unit, help) \
  {#word, TRS_OPTION_##type, fallback, range, choices, unit, help},
    TRS_ID_KEYS(ID_KEY_OF_TABLE){"optimizer", TRS_OPTION_ENUM, NULL, NULL,
                                 TRS_CHOICES(TRS_EMBEDDING_OPTIMIZERS), NULL,
                                 "optimizer of this table's rows (default: -embedding_optimizer)"},
#define NUMBER_OF_TABLE(word, fallback, range, help) \
  {#word, TRS_OPTION_REAL, NULL, range, NULL, NULL, "as -embedding_" #word},
    TRS_OPTIMIZER_NUMBERS(NUMBER_OF_TABLE){"weight_decay_mode", TRS_OPTION_ENUM, NULL, NULL,
                                           TRS_SPARSE_DECAY_MODES, NULL, "as -embedding_weight_decay_mode"},
    {"max_gradient", TRS_OPTION_REAL, NULL, "(0,]", NULL, NULL, "as -embedding_max_gradient"},
    {"sharding_types", TRS_OPTION_ENUMS, NULL, NULL, TYPES, NULL,
     "ways to split that the planner may choose from (default: all; grid_shard only if named). In a "
     "training on a cpu, it uses row_wise and table_row_wise for pooled tables only if they are named"},
    {"compute_kernels", TRS_OPTION_ENUMS, NULL, NULL, KERNELS, NULL,
     "places of the rows that the planner may choose from. On a cpu, it takes those in host memory only "
     "if they are named (default: all that the sharder has). fused: on the device. fused_uvm: in host "
     "memory. fused_uvm_caching: in host memory with a cache on the device"},
    {"min_partition", TRS_OPTION_INT, NULL, "[0,]", NULL, "columns",
     "least width of a column shard (default: 128)"},
    {"pooling_factors", TRS_OPTION_REALS, NULL, "[0,]", NULL, "ids/sample",
     "mean number of ids, one per feature. The planner counts one feature for each number, as TorchRec's "
     "planner does (default: the dataset's means; one 1 in a dry run)"},
    {"num_poolings", TRS_OPTION_REALS, NULL, "[0,]", NULL, NULL,
     "poolings per sample, one number per feature (default: 1)"},
    {"batch_sizes", TRS_OPTION_INTS, NULL, "[1,]", NULL, "samples",
     "batch size of a rank, one per feature (default: -plan_batch_size)"},
    {"enforce_hbm", TRS_OPTION_BOOL, NULL, NULL, NULL, NULL,
     "keep element-wise optimizer states of fused_uvm and fused_uvm_caching in device memory, not with "
     "the rows; row-wise states are always in device memory"},
    {"output_dtype", TRS_OPTION_ENUM, NULL, NULL, DATA_TYPES, NULL,
     "element type of the pooled output. A run rounds to fp16 or bf16, forward and gradient, and sends "
     "them in 2 bytes (default: fp32). The planner counts its storage (default: data_type)"},
    {"device_group", TRS_OPTION_ENUM, NULL, NULL, TRS_CHOICES(TRS_DEVICES), NULL,
     "-task plan: plan the table only for this compute device, and list it as left out for another device "
     "(default: any). A run has all its tables on one kind of device"},
    {"cache_load_factor", TRS_OPTION_REAL, NULL, "[0,]", NULL, NULL,
     "part of the rows that a caching kernel keeps in device memory; below 1 (default: 0.2)"},
    {"cache_algorithm", TRS_OPTION_ENUM, "lru", NULL, TRS_CHOICES(TRS_CACHE_ALGORITHMS), NULL,
     "the row that a full set of 32 rows gives up. lru: the row that was used longest ago; -pipeline "
     "prefetch_sparse_dist fills such caches one batch ahead. lfu: the row that was requested least often"},
    {"cache_reserved_memory", TRS_OPTION_BYTES, NULL, "[0,]", NULL, "bytes",
     "device memory that the table's cache must leave free. If the cache is too large for this, it gets "
     "fewer lines (default: 0, not checked)"},
    {"cache_precision", TRS_OPTION_ENUM, NULL, NULL, DATA_TYPES, NULL,
     "element type of the cache's lines (default: data_type). A run refuses any other type"},
    {"cache_prefetch_pipeline", TRS_OPTION_BOOL, NULL, NULL, NULL, NULL,
     "the plan counts memory for a cache filled one batch ahead, as -pipeline prefetch_sparse_dist does "
     "(default: -plan_prefetch_pipeline)"},
    {"cache_multipass_prefetch_num_passes", TRS_OPTION_INT, NULL, "[1,]", NULL, NULL,
     "passes of a prefetch that the plan counts memory for (default: 1; a run does one)"},
    {"cache_stats_cacheability", TRS_OPTION_REAL, NULL, NULL, NULL, NULL,
     "area under the miss-rate curve: 0 is easy to cache; with the two other cache_stats_ keys"},
    {"cache_stats_expected_lookups", TRS_OPTION_REAL, NULL, "[0,]", NULL, "ids/batch",
     "distinct ids of a global batch"},
    {"cache_stats_mrc_hist", TRS_OPTION_REALS, NULL, "[0,]", NULL, NULL,
     "histogram of reuse distances over equal parts of the rows"},
};
#define SEQUENCE_KEY(word, ...) "," #word
#define DYNAMIC_KEY(word, ...)  "," #word
const TrsOptionGroup trs_table_options = TRS_OPTION_GROUP_OF_MODEL(
    "Tables: -tables_<key> for all, -table_<name>_<key> for one", "table", table_options,
    "num_embeddings,embedding_dim" TRS_SEQUENCE_KEYS(
        SEQUENCE_KEY) ",position_weighted,max_feature_lengths,"
                      "id_map,id_unsigned,qr_operation,qr_collisions,"
                      "zch_policy,zch_buckets,zch_input_hash_size",
    "features,pooling,sequence_pooling,is_weighted,data_type,unknown_row" TRS_DYNAMIC_KEYS(DYNAMIC_KEY));

/* Record a value that the run determined for a table's key, for the checkpoints of this model. */
static PetscErrorCode settle(TrsOptions options, const TrsTableConfig *table, const char *key,
                             const char *value)
{
  const char *full_name;

  PetscFunctionBegin;
  PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), key, &full_name));
  PetscCall(TrsOptionsSettle(options, full_name, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int find_feature(const TrsDatasetFeatures *dataset, const char *name)
{
  for (int f = 0; f < dataset->n_features; f++) {
    if (!strcmp(dataset->names[f], name)) return f;
  }
  return -1;
}

static PetscErrorCode read_features(TrsOptions options, const TrsDatasetFeatures *dataset,
                                    TrsTableConfig *table)
{
  int n = 0;
  const char *const *names = NULL;
  const char *own_name = table->name;
  char *list;

  PetscFunctionBegin;
  GET(Strings, "features", &n, &names, NULL);
  if (n == 0) {
    n = 1;
    names = &own_name;
    PetscCall(TrsOptionListJoin(1, &own_name, &list));
    PetscCall(settle(options, table, "features", list));
    PetscCall(PetscFree(list));
  }
  PetscCall(PetscCalloc1(n, &table->features));
  table->n_features = n;
  for (int i = 0; i < n; i++) PetscCall(PetscStrallocpy(names[i], &table->features[i]));
  if (!dataset || dataset->n_features == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1(n, &table->feature_keys));
  for (int i = 0; i < n; i++) {
    table->feature_keys[i] = find_feature(dataset, names[i]);
    if (table->feature_keys[i] < 0)
      FAIL("features", "the dataset has no feature \"%s\" for table \"%s\"", names[i], table->name);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read if a modulo treats ids as unsigned. The model's checkpoints keep this setting, because the
  rows of ids depend on it.
*/
static PetscErrorCode read_sign(TrsOptions options, const TrsDatasetFeatures *dataset, TrsTableConfig *table)
{
  TrsIdMapRule *rule = &table->id_map;
  PetscBool given;

  PetscFunctionBegin;
  rule->is_unsigned = (PetscBool)(dataset && dataset->has_unsigned_ids);
  GET(Bool, "id_unsigned", &rule->is_unsigned, &given);
  if (!given && (rule->kind == TRS_ID_MAP_MODULO || rule->kind == TRS_ID_MAP_QUOTIENT))
    PetscCall(settle(options, table, "id_unsigned", rule->is_unsigned ? "true" : "false"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_size(TrsOptions options, const TrsDatasetFeatures *dataset, TrsTableConfig *table)
{
  PetscBool has_rows, has_dim;
  int64_t rows = 0, range = 0, dim = 0;
  char text[32];
  int map;

  PetscFunctionBegin;
  if (table->feature_keys) {
    for (int i = 0; i < table->n_features; i++)
      range = PetscMax(range, dataset->num_embeddings[table->feature_keys[i]]);
  }
  GET(Enum, "id_map", &map, NULL);
  table->id_map.kind = (TrsIdMapKind)map;
  PetscCall(read_sign(options, dataset, table));
  rows = table->id_map.kind == TRS_ID_MAP_QUOTIENT ? range : 0;
  /* Every id is mapped to a row, so the range of ids is no limit. */
  if (table->id_map.kind != TRS_ID_MAP_NONE) range = 0;
  rows = PetscMax(rows, range);
  GET(Int, "num_embeddings", &rows, &has_rows);
  GET(Int, "embedding_dim", &dim, &has_dim);
  table->embedding_dim = (int)dim;
  if (has_dim) PetscCall(TrsTableIdsSize(options, table, &rows));
  (void)snprintf(text, sizeof(text), "%" PRId64, rows);
  if (!has_rows) PetscCall(settle(options, table, "num_embeddings", text));
  if (rows < 1 && table->id_map.kind == TRS_ID_MAP_DYNAMIC)
    FAIL("dynamic_cap", "table \"%s\" has no size: give the most rows that it may have", table->name);
  if (rows < 1) FAIL("num_embeddings", "table \"%s\" has no size: give its number of rows", table->name);
  if (rows < range && !dataset->may_exceed)
    FAIL("num_embeddings",
         "table \"%s\" has %" PRId64 " rows, but the dataset's ids of its features range to %" PRId64
         "; id_map modulo, hash, qr, zch or dynamic makes rows of larger ids",
         table->name, rows, range);
  if (!has_dim) FAIL("embedding_dim", "table \"%s\" has no width: give its embedding_dim", table->name);
  /*
    The factor 64 leaves a margin for the bytes of an element, the optimizer's states and alignment.
  */
  if (rows > (INT64_MAX >> 6) / dim)
    FAIL(TrsTableIdsSizeKey(table),
         "table \"%s\" of %" PRId64 " x %" PRId64 " elements overflows 64-bit sizes", table->name, rows, dim);
  table->num_embeddings = table->id_map.rows = rows;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_content(TrsOptions options, const TrsDatasetFeatures *dataset,
                                   TrsTableConfig *table)
{
  int pooling, data_type, bounds;
  PetscBool set;

  PetscFunctionBegin;
  GET(Enum, "pooling", &pooling, NULL);
  GET(Enum, "data_type", &data_type, NULL);
  GET(Bool, "is_weighted", &table->is_weighted, NULL);
  table->pooling = (TrsPooling)pooling;
  table->data_type = (TrsDType)data_type;
  /* A dry run without a dataset only counts bytes, so it accepts this. */
  if (dataset && table->is_weighted && table->pooling == TRS_POOLING_MEAN)
    FAIL("pooling", "table \"%s\" is weighted, and weights have no meaning with mean: use sum", table->name);
  if (dataset && table->is_weighted && table->pooling == TRS_POOLING_NONE)
    FAIL("is_weighted", "table \"%s\" is a sequence table (pooling none), which takes no weights",
         table->name);
  GET(Bool, "stochastic_rounding", &table->stochastic_rounding, &set);
  if (!set)
    PetscCall(
        TrsOptionsGetBool(options, "-embedding_stochastic_rounding", &table->stochastic_rounding, NULL));
  GET(Enum, "bounds_check_mode", &bounds, &set);
  if (!set) PetscCall(TrsOptionsGetEnum(options, "-bounds_check_mode", &bounds, NULL));
  table->bounds_check_mode = (TrsBoundsCheckMode)bounds;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTableKeyIsOwn(TrsOptions options, const TrsTableConfig *table, const char *key,
                                PetscBool *own)
{
  const char *name;

  PetscFunctionBegin;
  PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), key, &name));
  *own = (PetscBool)(strncmp(name, "-tables_", strlen("-tables_")) != 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_positions(TrsOptions options, TrsTableConfig *table)
{
  PetscBool positions, has_lengths, own = PETSC_FALSE;
  int n = 0;
  const int64_t *lengths = NULL;

  PetscFunctionBegin;
  GET(Bool, "position_weighted", &positions, NULL);
  GET(Ints, "max_feature_lengths", &n, &lengths, &has_lengths);
  PetscCall(TrsTableKeyIsOwn(options, table, "max_feature_lengths", &own));
  if (!positions) {
    if (has_lengths && own) FAIL("max_feature_lengths", "table \"%s\" is not position_weighted", table->name);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (table->is_weighted)
    FAIL("position_weighted", "table \"%s\" is weighted: its ids have weights already", table->name);
  if (table->pooling != TRS_POOLING_SUM)
    FAIL("position_weighted", "table \"%s\" has pooling %s; weights need sum", table->name,
         TrsPoolingName(table->pooling));
  if (n != 1 && n != table->n_features)
    FAIL("max_feature_lengths",
         "table \"%s\" has %d entries for its %d feature%s: give one per feature, or one", table->name, n,
         table->n_features, TrsPlural(table->n_features, "s"));
  PetscCall(PetscMalloc1(table->n_features, &table->max_feature_lengths));
  for (int f = 0; f < table->n_features; f++) table->max_feature_lengths[f] = (int)lengths[n == 1 ? 0 : f];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_reals(int n, const double *from, int *n_to, double **to)
{
  PetscFunctionBegin;
  *n_to = n;
  *to = NULL;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1(n, to));
  memcpy(*to, from, (size_t)n * sizeof(**to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read pooling_factors, num_poolings and batch_sizes. Each list has one entry per feature. The
  default of pooling_factors is the mean length of each feature in the dataset.
*/
static PetscErrorCode read_lists(TrsOptions options, const TrsDatasetFeatures *dataset, TrsTableConfig *table)
{
  TrsTableConstraints *constraints = &table->constraints;
  int n = 0, n_ints = 0, n_expected;
  const double *reals = NULL;
  const int64_t *ints = NULL;

  PetscFunctionBegin;
  GET(Reals, "pooling_factors", &n, &reals, NULL);
  PetscCall(copy_reals(n, reals, &constraints->n_pooling_factors, &constraints->pooling_factors));
  if (n == 0 && table->feature_keys && dataset->mean_lengths) {
    PetscCall(PetscMalloc1(table->n_features, &constraints->pooling_factors));
    constraints->n_pooling_factors = table->n_features;
    for (int i = 0; i < table->n_features; i++)
      constraints->pooling_factors[i] = dataset->mean_lengths[table->feature_keys[i]];
  }
  n = 0;
  GET(Reals, "num_poolings", &n, &reals, NULL);
  PetscCall(copy_reals(n, reals, &constraints->n_num_poolings, &constraints->num_poolings));
  GET(Ints, "batch_sizes", &n_ints, &ints, NULL);
  if (n_ints > 0) {
    PetscCall(PetscMalloc1(n_ints, &constraints->batch_sizes));
    memcpy(constraints->batch_sizes, ints, (size_t)n_ints * sizeof(*ints));
    constraints->n_batch_sizes = n_ints;
  }
  n_expected = PetscMax(1, constraints->n_pooling_factors);
  if (n && n != n_expected)
    FAIL("num_poolings",
         "table \"%s\" has %d num_poolings but %d pooling_factors; give one of each per feature", table->name,
         n, n_expected);
  if (n_ints && n_ints != n_expected)
    FAIL("batch_sizes",
         "table \"%s\" has %d batch_sizes but %d pooling_factors; give one of each per feature", table->name,
         n_ints, n_expected);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_cache(TrsOptions options, TrsTableConfig *table)
{
  TrsTableConstraints *constraints = &table->constraints;
  PetscBool has_cacheability, has_lookups, has_hist;
  int n = 0, algorithm;
  const double *hist = NULL;

  PetscFunctionBegin;
  GET(Real, "cache_load_factor", &constraints->cache_load_factor, &constraints->has_cache_load_factor);
  GET(Enum, "cache_algorithm", &algorithm, NULL);
  constraints->cache_lfu = (PetscBool)(algorithm == 1);
  GET(Bool, "cache_prefetch_pipeline", &constraints->cache_prefetch_pipeline,
      &constraints->has_cache_prefetch_pipeline);
  GET(Int, "cache_multipass_prefetch_num_passes", &constraints->cache_multipass_prefetch_num_passes, NULL);
  GET(Real, "cache_stats_cacheability", &constraints->cache_stats_cacheability, &has_cacheability);
  GET(Real, "cache_stats_expected_lookups", &constraints->cache_stats_expected_lookups, &has_lookups);
  GET(Reals, "cache_stats_mrc_hist", &n, &hist, &has_hist);
  if (has_cacheability != has_lookups || has_cacheability != has_hist)
    FAIL(!has_cacheability ? "cache_stats_cacheability"
                           : (!has_lookups ? "cache_stats_expected_lookups" : "cache_stats_mrc_hist"),
         "table \"%s\" has only a part of its cache statistics: give cacheability, expected_lookups and "
         "mrc_hist",
         table->name);
  constraints->has_cache_stats = has_cacheability;
  PetscCall(copy_reals(n, hist, &constraints->n_cache_stats_mrc_hist, &constraints->cache_stats_mrc_hist));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_constraints(TrsOptions options, const TrsDatasetFeatures *dataset,
                                       TrsTableConfig *table)
{
  static const char *const groups[] = {TRS_DEVICES(TRS_WORD_TEXT)};
  TrsTableConstraints *constraints = &table->constraints;
  const int *index = NULL;
  int choice = 0;
  PetscBool set;

  PetscFunctionBegin;
  GET(Enums, "sharding_types", &constraints->n_sharding_types, &index, NULL);
  for (int i = 0; i < constraints->n_sharding_types; i++) constraints->sharding_types |= 1u << index[i];
  GET(Enums, "compute_kernels", &constraints->n_compute_kernels, &index, NULL);
  for (int i = 0; i < constraints->n_compute_kernels; i++) constraints->compute_kernels |= 1u << index[i];
  GET(Int, "min_partition", &constraints->min_partition, NULL);
  PetscCall(read_lists(options, dataset, table));
  GET(Bool, "enforce_hbm", &constraints->enforce_hbm, &constraints->has_enforce_hbm);
  GET(Enum, "optimizer", &choice, &constraints->has_optimizer);
  constraints->optimizer = (TrsSparseOptimizerKind)choice;
  GET(Enum, "output_dtype", &choice, &constraints->has_output_dtype);
  constraints->output_dtype = (TrsDType)choice;
  GET(Enum, "device_group", &choice, &set);
  if (set) PetscCall(PetscStrallocpy(groups[choice], &constraints->device_group));
  PetscCall(read_cache(options, table));
  PetscCall(TrsTableChoicesRead(options, table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read the settings that the two parts of a split table have separately. used is described at
  TrsTableInitRead().
*/
static PetscErrorCode read_rest(TrsOptions options, const TrsDatasetFeatures *dataset, unsigned *used,
                                TrsTableConfig *table)
{
  PetscFunctionBegin;
  PetscCall(read_content(options, dataset, table));
  PetscCall(TrsTableInitRead(options, table, used));
  PetscCall(TrsTableSequenceRead(options, table));
  PetscCall(read_positions(options, table));
  PetscCall(read_constraints(options, dataset, table));
  PetscCall(TrsTableIdsRead(options, table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the settings for id_map qr, which splits the table. */
static PetscErrorCode read_split(TrsOptions options, TrsTableConfig *table)
{
  int64_t collisions = (int64_t)ceil(sqrt((double)table->num_embeddings));
  PetscBool has_operation, has_collisions, own_operation = PETSC_FALSE, own_collisions = PETSC_FALSE;
  char text[32];
  int operation;

  PetscFunctionBegin;
  GET(Enum, "qr_operation", &operation, &has_operation);
  GET(Int, "qr_collisions", &collisions, &has_collisions);
  PetscCall(TrsTableKeyIsOwn(options, table, "qr_operation", &own_operation));
  PetscCall(TrsTableKeyIsOwn(options, table, "qr_collisions", &own_collisions));
  if (table->id_map.kind != TRS_ID_MAP_QUOTIENT) {
    if ((has_operation && own_operation) || (has_collisions && own_collisions))
      FAIL(has_operation && own_operation ? "qr_operation" : "qr_collisions",
           "table \"%s\" is not split: give id_map qr too, or leave this out", table->name);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  collisions = PetscMin(collisions, table->num_embeddings);
  (void)snprintf(text, sizeof(text), "%" PRId64, collisions);
  if (!has_collisions) PetscCall(settle(options, table, "qr_collisions", text));
  table->id_map.collisions = collisions;
  table->multiplied = (PetscBool)(operation == 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Make one part of a table that id_map qr splits. The part has the features of the whole table and
  its own number of rows.
*/
static PetscErrorCode make_part(const TrsTableConfig *whole, TrsIdMapKind kind, const char *suffix,
                                TrsTableConfig *part)
{
  const size_t size = strlen(whole->name) + strlen(suffix) + 1;
  const int64_t rows = whole->num_embeddings, m = whole->id_map.collisions;

  PetscFunctionBegin;
  *part = (TrsTableConfig){.num_embeddings = kind == TRS_ID_MAP_QUOTIENT ? (rows + m - 1) / m : m,
                           .embedding_dim = whole->embedding_dim,
                           .id_map = whole->id_map,
                           .multiplied = whole->multiplied,
                           .n_features = whole->n_features};
  part->id_map.kind = kind;
  PetscCall(PetscMalloc1(size, &part->name));
  (void)snprintf(part->name, size, "%s%s", whole->name, suffix);
  PetscCall(PetscStrallocpy(whole->name, &part->whole));
  PetscCall(PetscCalloc1(whole->n_features, &part->features));
  for (int i = 0; i < whole->n_features; i++)
    PetscCall(PetscStrallocpy(whole->features[i], &part->features[i]));
  if (!whole->feature_keys) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1(whole->n_features, &part->feature_keys));
  PetscCall(PetscArraycpy(part->feature_keys, whole->feature_keys, whole->n_features));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check the pooling of a part. The model combines pooled vectors of the two parts, so each bag must
  have one vector.
*/
static PetscErrorCode check_part(TrsOptions options, const TrsTableConfig *table)
{
  PetscFunctionBegin;
  if (table->pooling == TRS_POOLING_NONE)
    FAIL("id_map",
         "table \"%s\" is a sequence table (pooling none): qr joins pooled vectors, use sum or mean",
         TrsTableOptionName(table));
  if (table->max_feature_lengths)
    FAIL("id_map", "table \"%s\" is position_weighted, which does not go with qr", TrsTableOptionName(table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read a table into table[0]. If id_map qr splits the table, read its two parts into table[0] and
  table[1]. used is described at TrsTableInitRead().
*/
static PetscErrorCode read_table(TrsOptions options, const TrsDatasetFeatures *dataset, const char *name,
                                 unsigned *used, TrsTableConfig *table, int *n)
{
  TrsTableConfig whole = {.name = NULL};

  PetscFunctionBegin;
  PetscCall(PetscStrallocpy(name, &whole.name));
  PetscCall(read_features(options, dataset, &whole));
  PetscCall(read_size(options, dataset, &whole));
  PetscCall(read_split(options, &whole));
  *n = whole.id_map.kind == TRS_ID_MAP_QUOTIENT ? 2 : 1;
  if (*n == 1) {
    *table = whole;
    PetscCall(read_rest(options, dataset, used, table));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(make_part(&whole, TRS_ID_MAP_QUOTIENT, "_quotient", &table[0]));
  PetscCall(make_part(&whole, TRS_ID_MAP_REMAINDER, "_remainder", &table[1]));
  PetscCall(TrsTableConfigFree(&whole));
  for (int i = 0; i < *n; i++) {
    PetscCall(read_rest(options, dataset, used, &table[i]));
    PetscCall(check_part(options, &table[i]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_features(TrsOptions options, const TrsTableConfigs *tables)
{
  const char **names, *twice;
  int n = 0, i = 0;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) n += tables->table[t].n_features;
  PetscCall(PetscMalloc1(n, &names));
  for (int t = 0; t < tables->n; t++) {
    /* The second part of id_map qr has the same features as the first. */
    if (tables->table[t].id_map.kind == TRS_ID_MAP_REMAINDER) continue;
    for (int f = 0; f < tables->table[t].n_features; f++) names[i++] = tables->table[t].features[f];
  }
  PetscCall(TrsNamesFindTwice(i, names, &twice));
  PetscCall(PetscFree(names));
  if (twice)
    PetscCall(TrsOptionError(
        options, "-tables",
        "feature \"%s\" is looked up twice; give it to one table (-table_<name>_features)", twice));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check that no part of a split table has the name of another table. */
static PetscErrorCode check_parts(TrsOptions options, const TrsTableConfigs *tables)
{
  const char **names, *twice;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(tables->n, &names));
  for (int t = 0; t < tables->n; t++) names[t] = tables->table[t].name;
  PetscCall(TrsNamesFindTwice(tables->n, names, &twice));
  PetscCall(PetscFree(names));
  if (twice)
    PetscCall(TrsOptionError(options, "-tables",
                             "table \"%s\" is there beside the part of this name that id_map qr makes of "
                             "another table: give one of them another name",
                             twice));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check the widths of sequence tables. They are all in one EmbeddingCollection, so they must have
  the same width.
*/
static PetscErrorCode check_sequence_dims(TrsOptions options, const TrsTableConfigs *tables)
{
  const TrsTableConfig *first = NULL;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];

    if (table->pooling != TRS_POOLING_NONE) continue;
    if (!first) first = table;
    if (table->embedding_dim != first->embedding_dim)
      FAIL("embedding_dim",
           "sequence tables (pooling none) need one embedding_dim, but \"%s\" has %d and \"%s\" has %d",
           first->name, first->embedding_dim, table->name, table->embedding_dim);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Record the dataset's names as the names of the model's tables. */
static PetscErrorCode settle_names(TrsOptions options, int n, const char *const *names)
{
  char *text;

  PetscFunctionBegin;
  PetscCall(TrsOptionListJoin(n, names, &text));
  PetscCall(TrsOptionsSettle(options, "-tables", text));
  PetscCall(PetscFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTableConfigsFromOptions(TrsOptions options, const TrsDatasetFeatures *dataset,
                                          TrsTableConfigs *tables)
{
  int n = 0;
  unsigned used = 0;
  const char *const *names = NULL;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetStrings(options, "-tables", &n, &names, NULL));
  if (n == 0 && dataset && dataset->n_features) {
    n = dataset->n_features;
    names = dataset->names;
    PetscCall(settle_names(options, n, names));
  }
  if (n == 0)
    PetscCall(TrsOptionError(options, "-tables", "there are no tables: name them, or give a dataset"));
  PetscCall(TrsTableNamesCheck(options, n, names));
  PetscCall(TrsOptionsCheckObjects(options, "table", n, names));
  PetscCall(PetscCalloc1(2 * (size_t)n, &tables->table));
  tables->n = 0;
  for (int t = 0; t < n; t++) {
    int n_parts = 0;

    PetscCall(read_table(options, dataset, names[t], &used, &tables->table[tables->n], &n_parts));
    tables->n += n_parts;
  }
  PetscCall(TrsTableInitCheckUsed(options, used));
  PetscCall(check_parts(options, tables));
  PetscCall(check_features(options, tables));
  PetscCall(check_sequence_dims(options, tables));
  PetscCall(TrsTableSequenceTargets(options, tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}
