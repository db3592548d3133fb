/* SPDX-License-Identifier: BSD-3-Clause */
/*
  ShardingPlan: the ranks that hold each table's rectangles. The planner writes a plan and the
  runtime reads it; neither depends on the other.
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
  char *name;       /* the table's name */
  TrsModule module; /* tables of the same module and sharding type share an exchange */
  TrsShardingType sharding_type;
  TrsComputeKernel compute_kernel;
  PetscBool has_cache_load_factor;
  double cache_load_factor;
  TrsTableChoice choice[TRS_N_TABLE_CHOICES]; /* not set: the run's options decide */
  PetscBool only_ranks; /* just read from a file: the shards have ranks but no rectangles yet */
  int n_shards;
  TrsShard *shard; /* [n_shards] in the planner's order: by column block, then row block */
} TrsTablePlan;

typedef struct {
  int world_size, local_world_size;
  /* Hosts joined by the fast network; pod_size * local_world_size devices count as one host. */
  int pod_size;
  /* Storage and perf are set. If a plan's file lacks them, they are 0 until the planner sets them
     by its cost model. */
  PetscBool has_costs;
  int n_tables;
  TrsTablePlan *table; /* in the planner's order; TrsShardingPlanFind() finds a table by name */
  int n_devices;
  TrsStorage *device_storage; /* [n_devices] sums over the device's shards */
  TrsPerf *device_perf;
  TrsStorage *device_capacity;  /* [n_devices] the topology's memory; NULL if not known */
  TrsStorage *device_available; /* [n_devices] memory that the reservation leaves; or NULL */
  double critical_path;         /* ms */
  int64_t proposals, feasible, partitioned;
} TrsShardingPlan;

PetscErrorCode TrsShardingPlanFree(TrsShardingPlan *plan);

/*
  Find a table's plan by its name. The result is borrowed; NULL if there is none. Not collective.
*/
const TrsTablePlan *TrsShardingPlanFind(const TrsShardingPlan *plan, const char *table);

/*
  A table's column block: the shards that begin at the same column. They are consecutive in the
  plan, in row order.
*/
typedef struct {
  int index;           /* the block's number in the table, from 0 */
  int first, n_shards; /* the block's first shard in the table's plan, and number of shards */
} TrsColumnBlock;

/*
  TrsColumnBlockNext - Move to a table's next column block. Returns PETSC_FALSE after the last
    block.

  Not collective. To visit a table's blocks, write
    for (TrsColumnBlock block = {0}; TrsColumnBlockNext(plan, &block);)
  A data_parallel table has one block, whose shards are the replicas.

  InOut: block  {0} before the first call
*/
PetscBool TrsColumnBlockNext(const TrsTablePlan *plan, TrsColumnBlock *block);

/*
  The index, in the table's plan, of the block's shard on the rank; -1 if the rank holds none. Not
  collective.
*/
int TrsColumnBlockOn(const TrsTablePlan *plan, const TrsColumnBlock *block, int rank);

/*
  Write the plan as JSON text (format: input/FORMAT.md; numbers have 17 digits). The caller must
  free the text with PetscFree(). Not collective.
*/
PetscErrorCode TrsShardingPlanToJson(const TrsShardingPlan *plan, char **json);

/*
  TrsShardingPlanFromJson - Parse a plan file's text.

  Each table must have its name, sharding type, compute kernel and ranks. If the file lists no
  shards for a table, the table's shards get only ranks; world_size and local_world_size may be 0.
  TrsShardingPlanComplete() fills these gaps.

  Not collective.

  Errors: DATA naming `source` and the JSON path: not JSON, other format or version, wrong types,
          missing fields
*/
PetscErrorCode TrsShardingPlanFromJson(const char *json, const char *source, TrsShardingPlan *plan);

/* A run's world sizes, for plans that leave them out. */
typedef struct {
  int world_size, local_world_size, pod_size;
} TrsPlanWorld;

/*
  TrsShardingPlanComplete - Fill in the parts that a plan's file left out: the world's sizes, and
    the rectangles of tables that have only ranks.

  Rows are cut into blocks of ceil(rows / ranks), columns as evenly as possible. Not collective.

  In:     source  the file's name, for messages
  Errors: DATA if the number of ranks does not fit the sharding type, or a host's ranks overflow
*/
PetscErrorCode TrsShardingPlanComplete(const TrsTableConfigs *tables, const TrsPlanWorld *world,
                                       const char *source, TrsShardingPlan *plan);

/* Allocate the device arrays of a plan without costs, filled with zeros. Not collective. */
PetscErrorCode TrsShardingPlanNoCosts(TrsShardingPlan *plan);

/*
  TrsShardingPlanCheck - Check that the plan fits these tables and this world.

  Every table must occur once, and its shards must tile it exactly. Ranks must be in range: row_wise
  uses all ranks in order, table_row_wise the ranks of one host. The sharding type must allow the
  shards' widths.

  Not collective.

  In:     source  the file's name, for messages
  Errors: DATA with the reason
*/
PetscErrorCode TrsShardingPlanCheck(const TrsShardingPlan *plan, const TrsTableConfigs *tables,
                                    int world_size, const char *source);

/*
  TrsShardingPlanBroadcast - Send rank 0's plan, or its error, to all ranks.

  All ranks then check by a hash that their plans are equal.

  Collective on comm.

  In:     ierr  rank 0's result of making the plan (raised, caught); ignored on other ranks
  InOut:  plan  read on rank 0, filled on the other ranks
  Errors: rank 0's error, the same code on every rank
*/
PetscErrorCode TrsShardingPlanBroadcast(MPI_Comm comm, PetscErrorCode ierr, TrsShardingPlan *plan);

/* Print only the lines of tables, at most max_tables, on rank 0 of comm. Collective on comm. */
PetscErrorCode TrsShardingPlanViewTables(const TrsShardingPlan *plan, MPI_Comm comm, int max_tables);

/* Write a plan in one line: its tables, ranks and critical path. A size of 128 is enough. */
void TrsShardingPlanLine(const TrsShardingPlan *plan, char *line, size_t size);

/*
  Print one line per table for the banner: name, rows x dim, type, kernel, ranks. Rank 0 of comm
  prints at most max_tables lines. Collective on comm.
*/
PetscErrorCode TrsShardingPlanView(const TrsShardingPlan *plan, MPI_Comm comm, int max_tables);

/* Write a storage or a perf as a JSON object; other files use these too. Not collective. */
PetscErrorCode TrsTextJsonStorage(TrsText *text, const TrsStorage *storage);
PetscErrorCode TrsTextJsonPerf(TrsText *text, const TrsPerf *perf);
