/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ShardingPlan: which rank holds which rectangle of which table. The planner writes it, the runtime reads it; neither knows the other.
*/
#pragma once

#include "spec/table_config.h"
#include "spec/text.h"

typedef struct {
  int64_t hbm, ddr; /* bytes */
} TrsStorage;

typedef struct {
  double fwd_compute, fwd_comms, bwd_compute, bwd_comms, prefetch_compute; /* ms */
} TrsPerf;

typedef struct {
  int rank;
  int64_t row_offset, col_offset, rows, cols; /* rows or cols may be 0 */
  TrsStorage storage;
  TrsPerf perf;
} TrsShard;

typedef struct {
  char *name; /* the table's */
  TrsShardingType sharding_type;
  TrsComputeKernel compute_kernel;
  PetscBool has_cache_load_factor;
  double cache_load_factor;
  int n_shards;
  TrsShard *shard; /* [n_shards] in the planner's order: by column block, then row block */
} TrsTablePlan;

typedef struct {
  int world_size, local_world_size;
  int pod_size; /* hosts joined by the fast network: pod_size * local_world_size devices count as one host */
  int n_tables;
  TrsTablePlan *table; /* in the planner's order; find a table by name */
  int n_devices;
  TrsStorage *device_storage; /* [n_devices] sums over the device's shards */
  TrsPerf *device_perf;
  double critical_path; /* ms */
  int64_t proposals, feasible, partitioned;
} TrsShardingPlan;

PetscErrorCode TrsShardingPlanFree(TrsShardingPlan *plan);

/* The table's plan by name, or NULL. Borrowed. */
const TrsTablePlan *TrsShardingPlanFind(const TrsShardingPlan *plan, const char *table);

/* A column block of a table: the shards that begin at one column. They follow one another in the plan, in order of rows. */
typedef struct {
  int index;           /* of the block in its table, from 0 */
  int first, n_shards; /* the block's shards in the table's plan */
} TrsColumnBlock;

/*
  TrsColumnBlockNext - Go on to a table's next column block; to its first one from {0}. PETSC_FALSE: there is no more.

  Not collective. All walks over a table's plan are for (TrsColumnBlock block = {0}; TrsColumnBlockNext(plan, &block);). A data_parallel
  table has one block, whose shards are the replicas.
*/
PetscBool TrsColumnBlockNext(const TrsTablePlan *plan, TrsColumnBlock *block);

/* The shard of the block that the rank holds, by its number in the table's plan; -1: none. Not collective. */
int TrsColumnBlockOn(const TrsTablePlan *plan, const TrsColumnBlock *block, int rank);

/*
  Plan as JSON text (format: input/FORMAT.md, numbers with 17 digits). Free with PetscFree(). Not
  collective.
*/
PetscErrorCode TrsShardingPlanToJson(const TrsShardingPlan *plan, char **json);

/*
  TrsShardingPlanFromJson - Parse a plan file's text.

  Not collective.
  Errors: DATA naming `source` and the JSON path: not JSON, other format or version, wrong types, missing fields
*/
PetscErrorCode TrsShardingPlanFromJson(const char *json, const char *source, TrsShardingPlan *plan);

/*
  TrsShardingPlanCheck - Does the plan fit these tables and this world? Every table once, shards tile it exactly, ranks in range, row_wise
  over all ranks in order, table_row_wise within one host, widths that the sharding type allows.

  Not collective. Errors: DATA (source names the file) saying what is wrong
*/
PetscErrorCode TrsShardingPlanCheck(const TrsShardingPlan *plan, const TrsTableConfigs *tables,
                                    int world_size, const char *source);

/*
  TrsShardingPlanBroadcast - Rank 0's plan, or rank 0's error, reaches all ranks; all check that they hold the same (hash).

  Collective on comm.
  In:     ierr  rank 0's result of making the plan (raised, caught); ignored elsewhere
  InOut:  plan  read on rank 0, filled on the others
  Errors: rank 0's error, the same code on every rank
*/
PetscErrorCode TrsShardingPlanBroadcast(MPI_Comm comm, PetscErrorCode ierr, TrsShardingPlan *plan);

/* One line a table, for the banner: name, rows x dim, type, kernel, ranks. Prints on rank 0 of comm; at most max_tables lines. */
PetscErrorCode TrsShardingPlanView(const TrsShardingPlan *plan, MPI_Comm comm, int max_tables);

/* A storage's and a perf's JSON object, for other files that hold them. Not collective. */
PetscErrorCode TrsTextJsonStorage(TrsText *text, const TrsStorage *storage);
PetscErrorCode TrsTextJsonPerf(TrsText *text, const TrsPerf *perf);
