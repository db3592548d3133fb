/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sharding options and the search space. The search space has every way to split every table, with
  its costs.

  An option with 16,384 shards takes no more memory than an option with 4. The shards belong to a
  few classes (full row block, rest, empty), and a shard's class follows from its index.
*/
#pragma once

#include "plan/cost/perf_estimator.h"
#include "plan/cost/storage_estimator.h"
#include "plan/cost/topology.h"

typedef enum {
  TRS_PARTITION_DEVICE,
  TRS_PARTITION_HOST,
  TRS_PARTITION_UNIFORM,
  TRS_PARTITION_MULTI_HOST
} TrsPartitionBy;

typedef struct {
  int64_t rows;
  TrsStorage storage;
  TrsPerf perf;
  double total; /* sum of the parts in perf */
} TrsShardClass;

typedef struct {
  int table; /* index among the table configs */
  TrsModule module;
  TrsShardingType type;
  TrsComputeKernel kernel;
  TrsPartitionBy partition_by;
  PetscBool has_load_factor; /* true: the table or embedding_offload_scaleup set it */
  double load_factor;

  /* number of shards in all, and in one column block (1 for data_parallel) */
  int n_shards, row_shards;
  /* A row shard with an index below n_full has class 0. The row shard n_full has class 1, and
     later row shards have class 2. */
  int n_full;
  /* [n_shards] The shards' classes if the rows are split unevenly, otherwise NULL. Borrowed. */
  const int *class_of;
  int64_t width; /* columns of every shard */
  int n_classes;
  TrsShardClass *shard_class; /* [n_classes] borrowed from the option's owner */
  /* true: all classes have the same perf; false only in options made by hand */
  PetscBool same_perf;

  TrsStorage total_storage;
  double total_perf, max_perf;                /* sum and maximum of the shards' total times */
  int64_t max_hbm, max_ddr, min_hbm, min_ddr; /* bytes of the largest and of the smallest shard */
  /* hash of table, sharding type, kernel and load factor */
  uint64_t hash[2];
} TrsPlanOption;

/* The options of one table. They are contiguous. */
typedef struct {
  int table, first, n;
} TrsTableOptions;

typedef struct {
  int n_options;
  TrsPlanOption *option; /* [n_options] in enumeration order */
  int n_tables;
  /* [n_tables] in enumeration order, without tables of other device groups */
  TrsTableOptions *table;
  PetscSegBuffer classes, class_of; /* memory of the options' shard_class and class_of */
} TrsSearchSpace;

static inline int TrsOptionShardClass(const TrsPlanOption *option, int shard)
{
  int row = shard % option->row_shards;

  if (option->class_of) return option->class_of[shard];
  return row < option->n_full ? 0 : (row == option->n_full ? 1 : 2);
}

/*
  The number of shards in a class. If the rows are split evenly, it is computed without a loop over
  shards.
*/
static inline int TrsOptionClassShards(const TrsPlanOption *option, int shard_class)
{
  const int full = option->n_full < option->row_shards ? option->n_full : option->row_shards;
  const int in_block[3] = {full, option->n_full < option->row_shards, option->row_shards - full - 1};
  int n = 0;

  if (!option->class_of && option->n_shards % option->row_shards == 0)
    return shard_class < 3 && in_block[shard_class] > 0
               ? in_block[shard_class] * (option->n_shards / option->row_shards)
               : 0;
  for (int s = 0; s < option->n_shards; s++) n += TrsOptionShardClass(option, s) == shard_class;
  return n;
}

static inline const TrsShardClass *TrsOptionShard(const TrsPlanOption *option, int shard)
{
  return &option->shard_class[TrsOptionShardClass(option, shard)];
}

/* The inputs of the cost model. All pointers are borrowed. */
typedef struct {
  const TrsTopology *topology;
  const TrsPlanSettings *settings;
  const TrsTableConfigs *tables;
  /* [tables->n] Miss rates of tables in their shared cache, at each table's configured load
     factor. NULL without -plan_cache_hit_rates. */
  const double *shared_miss;
} TrsCostModel;

/*
  TrsEnumerate - Make the search space.

  Not collective.

  Out:    space        free with TrsSearchSpaceFree()
          table_alone  index of a table that has no option, or -1; if there is one, `space` is empty
  Errors: OPTION if a size exceeds 64 bits
  Source: TorchRec EmbeddingEnumerator
*/
PetscErrorCode TrsEnumerate(const TrsCostModel *model, TrsSearchSpace *space, int *table_alone);
PetscErrorCode TrsSearchSpaceFree(TrsSearchSpace *space);

/* Return the number of sharding types that the sharder offers for a table; *types lists them. */
int TrsSharderTypes(const TrsCostModel *model, const TrsTableConfig *table, const TrsShardingType **types);

/*
  List the tables in the planner's order. Modules are sorted from last to first, or from first to
  last with exact_enumerate_order. The tables of a module are in their configured order. Out:
  order[tables->n].
*/
void TrsPlanTableOrder(const TrsCostModel *model, PetscBool first_to_last, int *order);

/*
  Compute an option's costs from its kernel and load factor. The caller must have set its shards,
  and the rows of each class. Not collective. Errors: OPTION if bytes exceed 64 bits.
*/
PetscErrorCode TrsCostOption(const TrsCostModel *model, TrsPlanOption *option);

/*
  The option that the plan uses for a table, without shards. `config` must be one of the model's
  configs. Not collective.
*/
TrsPlanOption TrsPlannedOption(const TrsCostModel *model, const TrsTableConfig *config,
                               const TrsTablePlan *plan);

/*
  Compute the costs of n shards with arbitrary rectangles. The option gives their table, sharding
  type, kernel and load factor. Not collective.
*/
void TrsCostShards(const TrsCostModel *model, const TrsPlanOption *option, int n, TrsShard *shard);

/*
  Compute the option's sums, maxima and hash from the shard classes. Returns false if a sum exceeds
  64 bits. Not collective.
*/
PetscBool TrsOptionSummarise(TrsPlanOption *option);

/* Set the inputs of the storage estimator for an option. Used by the report. Not collective. */
void TrsCostStorageInput(const TrsCostModel *model, const TrsPlanOption *option, TrsStorageInput *in);

/*
  The number of entries in a table's pooling_factors, at least 1. TorchRec's planner treats each
  entry as one feature of the table.
*/
int TrsPlanFeatures(const TrsTableConfig *table);
/* Get the pooling factor, the number of poolings and the batch size of entry f. */
void TrsPlanFeature(const TrsTableConfig *table, const TrsPlanSettings *settings, int f,
                    double *pooling_factor, double *num_poolings, int64_t *batch_size);

/* The sum of n times x, exactly as if added one by one, but without n additions. */
double TrsSumRepeated(double x, int n);

/*
  A shard's offset and size. To iterate, start with shard 0 and a struct of zeros, and visit the
  shards in order.
*/
typedef struct {
  int64_t row_offset, col_offset, rows, cols;
} TrsShardPlace;
void TrsOptionNextPlace(const TrsPlanOption *option, int shard, TrsShardPlace *place);

/* Add the search space as JSON. Not collective. Errors: MEMORY. */
PetscErrorCode TrsSearchSpaceToJson(const TrsSearchSpace *space, const TrsTableConfigs *tables,
                                    TrsText *text);

const char *TrsPartitionByName(TrsPartitionBy partition_by);

/*
  True if a plan may have this option. A caching kernel must have 0 < load factor < 1, and no memory
  may be negative. Not collective.
*/
PetscBool TrsOptionIsValid(const TrsPlanOption *option);
