/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ShardingPlan: which rank holds which rectangle of which table. The planner writes a plan and the
  runtime reads it; neither knows the other.
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
  char *name;       /* the table's */
  TrsModule module; /* of the table: tables of one module and sharding type exchange together */
  TrsShardingType sharding_type;
  TrsComputeKernel compute_kernel;
  PetscBool has_cache_load_factor;
  double cache_load_factor;
  TrsTableChoice choice[TRS_N_TABLE_CHOICES]; /* not set: the run's options decide */
  PetscBool only_ranks; /* as read from a file: the shards have ranks and no rectangles yet */
  int n_shards;
  TrsShard *shard; /* [n_shards] in the planner's order: by column block, then row block */
} TrsTablePlan;

typedef struct {
  int world_size, local_world_size;
  /* hosts that the fast network joins; pod_size * local_world_size devices count as one host */
  int pod_size;
  /* Storage and perf are estimated. They are 0 in a file's plan without them, until the planner
     has set them by its cost model. */
  PetscBool has_costs;
  int n_tables;
  TrsTablePlan *table; /* in the planner's order; TrsShardingPlanFind() finds a table by name */
  int n_devices;
  TrsStorage *device_storage; /* [n_devices] sums over the device's shards */
  TrsPerf *device_perf;
  TrsStorage *device_capacity;  /* [n_devices] of the topology; NULL if not known */
  TrsStorage *device_available; /* [n_devices] room that the reservation leaves; or NULL */
  double critical_path;         /* ms */
  int64_t proposals, feasible, partitioned;
} TrsShardingPlan;

PetscErrorCode TrsShardingPlanFree(TrsShardingPlan *plan);

/*
  Find a table's plan by its name. The result is borrowed, and NULL if there is none. Not
  collective.
*/
const TrsTablePlan *TrsShardingPlanFind(const TrsShardingPlan *plan, const char *table);

/*
  A column block of a table: the shards that begin at one column. They are consecutive in the plan,
  in order of rows.
*/
typedef struct {
  int index;           /* number of the block in its table, from 0 */
  int first, n_shards; /* the block's shards in the table's plan */
} TrsColumnBlock;

/*
  TrsColumnBlockNext - Go on to a table's next column block. Returns PETSC_FALSE after the last one.

  Not collective. A walk over a table's plan is written as
    for (TrsColumnBlock block = {0}; TrsColumnBlockNext(plan, &block);)
  A data_parallel table has one block, whose shards are the replicas.

  InOut: block  {0} before the first call
*/
PetscBool TrsColumnBlockNext(const TrsTablePlan *plan, TrsColumnBlock *block);

/*
  The number, in the table's plan, of the block's shard that the rank holds; -1 if the rank holds
  none. Not collective.
*/
int TrsColumnBlockOn(const TrsTablePlan *plan, const TrsColumnBlock *block, int rank);

/*
  Write the plan as JSON text (format: input/FORMAT.md; numbers have 17 digits). The caller frees
  the text with PetscFree(). Not collective.
*/
PetscErrorCode TrsShardingPlanToJson(const TrsShardingPlan *plan, char **json);

/*
  TrsShardingPlanFromJson - Parse a plan file's text.

  A plan needs of each table the name, sharding type, compute kernel and ranks. Where a table has no
  shards, each has only its rank, and world_size and local_world_size may be 0:
  TrsShardingPlanComplete() sets them.

  Not collective.

  Errors: DATA naming `source` and the JSON path: not JSON, other format or version, wrong types,
          missing fields
*/
PetscErrorCode TrsShardingPlanFromJson(const char *json, const char *source, TrsShardingPlan *plan);

/* The sizes of a run's world, for plans that leave them out. */
typedef struct {
  int world_size, local_world_size, pod_size;
} TrsPlanWorld;

/*
  TrsShardingPlanComplete - Fill what a plan's file left out: the world's sizes, and the rectangles
  of tables that have only ranks. Rows are cut into blocks of ceil(rows / ranks), columns as evenly
  as they go.

  Not collective.

  In:     source  the file's name, for messages
  Errors: DATA if the number of ranks does not go with the sharding type, or a host's ranks overflow
*/
PetscErrorCode TrsShardingPlanComplete(const TrsTableConfigs *tables, const TrsPlanWorld *world,
                                       const char *source, TrsShardingPlan *plan);

/* Give a plan without costs its arrays over devices, of zeros. Not collective. */
PetscErrorCode TrsShardingPlanNoCosts(TrsShardingPlan *plan);

/*
  TrsShardingPlanCheck - Check that the plan fits these tables and this world.

  Every table occurs once and its shards tile it exactly. Ranks are in range: row_wise uses all
  ranks in order, table_row_wise the ranks of one host. Widths are those that the sharding type
  allows.

  Not collective.

  In:     source  the file's name, for messages
  Errors: DATA saying what is wrong
*/
PetscErrorCode TrsShardingPlanCheck(const TrsShardingPlan *plan, const TrsTableConfigs *tables,
                                    int world_size, const char *source);

/*
  TrsShardingPlanBroadcast - Give all ranks the plan of rank 0, or its error.

  All ranks then check by a hash that their plans are equal.

  Collective on comm.

  In:     ierr  rank 0's result of making the plan (raised, caught); ignored on other ranks
  InOut:  plan  read on rank 0, filled on the others
  Errors: rank 0's error, the same code on every rank
*/
PetscErrorCode TrsShardingPlanBroadcast(MPI_Comm comm, PetscErrorCode ierr, TrsShardingPlan *plan);

/* Print at most max_tables lines of tables alone, on rank 0 of comm. Collective on comm. */
PetscErrorCode TrsShardingPlanViewTables(const TrsShardingPlan *plan, MPI_Comm comm, int max_tables);

/* A plan in one line: its tables, ranks and critical path. size: 128 is enough. */
void TrsShardingPlanLine(const TrsShardingPlan *plan, char *line, size_t size);

/*
  Print one line a table for the banner: name, rows x dim, type, kernel, ranks. Rank 0 of comm
  prints at most max_tables lines. Collective on comm.
*/
PetscErrorCode TrsShardingPlanView(const TrsShardingPlan *plan, MPI_Comm comm, int max_tables);

/* Write a storage or a perf as a JSON object, for other files that hold them. Not collective. */
PetscErrorCode TrsTextJsonStorage(TrsText *text, const TrsStorage *storage);
PetscErrorCode TrsTextJsonPerf(TrsText *text, const TrsPerf *perf);
