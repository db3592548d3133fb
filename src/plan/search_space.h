/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sharding options and the search space: every way to split every table, with its costs.

  An option with 16,384 shards takes no more memory than one with 4: the shards of an option are of a few classes (full block of rows, the
  rest, empty), and which class a shard has follows from its index.
*/
#pragma once

#include "plan/perf_estimator.h"
#include "plan/storage_estimator.h"
#include "plan/topology.h"

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
  double total; /* of perf */
} TrsShardClass;

typedef struct {
  int table; /* in the table configs */
  TrsModule module;
  TrsShardingType type;
  TrsComputeKernel kernel;
  TrsPartitionBy partition_by;
  PetscBool has_load_factor; /* the table's, or what embedding_offload_scaleup made of it */
  double load_factor;

  int n_shards, row_shards; /* row_shards: in one column block; 1 for data_parallel */
  int n_full; /* row shards before this one are of class 0, this one of class 1, those behind of class 2 */
  const int *class_of; /* [n_shards] instead, where the rows are split unevenly; borrowed, else NULL */
  int64_t width;       /* columns of every shard */
  int n_classes;
  TrsShardClass *shard_class; /* [n_classes] borrowed from the owner of the option */
  PetscBool same_perf;        /* of all classes: yes unless made by hand */

  TrsStorage total_storage;
  double total_perf, max_perf;                /* sum and maximum of the shards' totals */
  int64_t max_hbm, max_ddr, min_hbm, min_ddr; /* of one shard */
  uint64_t hash[2];                           /* of table, type, kernel, load factor */
} TrsPlanOption;

/* One table's options, which are contiguous. */
typedef struct {
  int table, first, n;
} TrsTableOptions;

typedef struct {
  int n_options;
  TrsPlanOption *option; /* [n_options] in enumeration order */
  int n_tables;
  TrsTableOptions *table; /* [n_tables] in enumeration order; tables of other device groups are not in it */
  PetscSegBuffer classes, class_of; /* memory of the options' shard_class and class_of */
} TrsSearchSpace;

static inline int TrsOptionShardClass(const TrsPlanOption *option, int shard)
{
  int row = shard % option->row_shards;

  if (option->class_of) return option->class_of[shard];
  return row < option->n_full ? 0 : (row == option->n_full ? 1 : 2);
}

static inline const TrsShardClass *TrsOptionShard(const TrsPlanOption *option, int shard)
{
  return &option->shard_class[TrsOptionShardClass(option, shard)];
}

/* How the cost of an option is found. All borrowed. */
typedef struct {
  const TrsTopology *topology;
  const TrsPlanSettings *settings;
  const TrsTableConfigs *tables;
} TrsCostModel;

/*
  TrsEnumerate - The search space.

  Not collective.
  Out:    space        free with TrsSearchSpaceFree()
          table_alone  a table that no option is left for, else -1; then space is empty
  Errors: OPTION when a size leaves 64 bits
  Source: TorchRec EmbeddingEnumerator
*/
PetscErrorCode TrsEnumerate(const TrsCostModel *model, TrsSearchSpace *space, int *table_alone);
PetscErrorCode TrsSearchSpaceFree(TrsSearchSpace *space);

/* Modules in the planner's order (last to first, or first to last with exact_enumerate_order), tables within them. Out: order[tables->n]. */
void TrsPlanTableOrder(const TrsCostModel *model, PetscBool first_to_last, int *order);

/* Costs of an option from its kernel and load factor; shards and class rows are set. Not collective. Errors: OPTION when bytes leave 64 bits. */
PetscErrorCode TrsCostOption(const TrsCostModel *model, TrsPlanOption *option);

/* Sums, maxima and hash from the shard classes. Not collective. Returns whether the sums fit 64 bits. */
PetscBool TrsOptionSummarise(TrsPlanOption *option);

/* The inputs of the estimators for an option, for the report. Not collective. */
void TrsCostStorageInput(const TrsCostModel *model, const TrsPlanOption *option, TrsStorageInput *in);

/* Entries of a table's pooling_factors (at least one): TorchRec's planner takes these for its features. */
int TrsPlanFeatures(const TrsTableConfig *table);
/* ids, poolings and batch size of entry f. */
void TrsPlanFeature(const TrsTableConfig *table, const TrsPlanSettings *settings, int f,
                    double *pooling_factor, double *num_poolings, int64_t *batch_size);

/* n times x added up one by one, without n steps. */
double TrsSumRepeated(double x, int n);

/* Offset and rows of the shards in order: start with shard 0 and *row = 0. */
typedef struct {
  int64_t row_offset, col_offset, rows, cols;
} TrsShardPlace;
void TrsOptionNextPlace(const TrsPlanOption *option, int shard, TrsShardPlace *place);

/* Add the search space as JSON. Not collective. Errors: MEMORY. */
PetscErrorCode TrsSearchSpaceToJson(const TrsSearchSpace *space, const TrsTableConfigs *tables,
                                    TrsText *text);

const char *TrsPartitionByName(TrsPartitionBy partition_by);
