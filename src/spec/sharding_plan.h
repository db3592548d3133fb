/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A ShardingPlan lists which rank holds which rectangle (shard) of each table. The planner makes a
  plan and the runtime reads it. Neither depends on the other.
*/
#pragma once

#include "spec/table_config.h"
#include "spec/text.h"

typedef struct {
  int64_t hbm, ddr; /* in bytes */
} TrsStorage;

typedef struct {
  double fwd_compute, fwd_comms, bwd_compute, bwd_comms, prefetch_compute; /* in ms */
} TrsPerf;

typedef struct {
  int rank;
  int64_t row_offset, col_offset, rows, cols; /* rows or cols may be 0 */
  TrsStorage storage;
  TrsPerf perf;
} TrsShard;

typedef struct {
  char *name;       /* the table's name */
  TrsModule module; /* tables with the same module and sharding type share an exchange */
  TrsShardingType sharding_type;
  TrsComputeKernel compute_kernel;
  PetscBool has_cache_load_factor;
  double cache_load_factor;
  /* choices of this table; if a choice is not set, the run's options decide */
  TrsTableChoice choice[TRS_N_TABLE_CHOICES];
  /* true for a plan just read from a file: its shards have ranks, but no rectangles yet */
  PetscBool only_ranks;
  int n_shards;
  TrsShard *shard; /* [n_shards] sorted by column block, then by row block */
} TrsTablePlan;

typedef struct {
  int world_size, local_world_size;
  /*
    Number of hosts that the fast network joins. Their pod_size * local_world_size devices count as
    one host.
  */
  int pod_size;
  /*
    True if storage and perf are set. If a plan's file does not have them, they are 0 until the
    planner computes them with its cost model.
  */
  PetscBool has_costs;
  int n_tables;
  TrsTablePlan *table; /* sorted by the planner; TrsShardingPlanFind() finds a table by name */
  int n_devices;
  TrsStorage *device_storage; /* [n_devices] storage of each device: the sum over its shards */
  TrsPerf *device_perf;
  /* [n_devices] memory of each device as in the topology; NULL if not known */
  TrsStorage *device_capacity;
  /* [n_devices] memory that the planner's reservation leaves on each device, or NULL */
  TrsStorage *device_available;
  double critical_path; /* in ms */
  int64_t proposals, feasible, partitioned;
} TrsShardingPlan;

PetscErrorCode TrsShardingPlanFree(TrsShardingPlan *plan);

/*
  Find a table's plan by the table's name. Returns NULL if there is none. The result is borrowed.
  Not collective.
*/
const TrsTablePlan *TrsShardingPlanFind(const TrsShardingPlan *plan, const char *table);

/*
  TrsShardingPlanFindNext - Find a table's plan like TrsShardingPlanFind(), for a loop over tables.

  Not collective. The search begins behind the last result and goes round. A plan mostly has the
  tables in the order of their configs, so a loop over all tables is then linear.

  InOut: at  index where the search begins; 0 before the loop
*/
const TrsTablePlan *TrsShardingPlanFindNext(const TrsShardingPlan *plan, const char *table, int *at);

/*
  A column block of a table: all shards that begin at the same column. In the plan they follow one
  another in row order.
*/
typedef struct {
  int index; /* index of the block in the table, from 0 */
  /* index in the table's plan of the block's first shard; number of its shards */
  int first, n_shards;
} TrsColumnBlock;

/*
  TrsColumnBlockNext - Go to the next column block of a table. Returns PETSC_FALSE after the last
    block.

  Not collective. To visit a table's blocks, write
    for (TrsColumnBlock block = {0}; TrsColumnBlockNext(plan, &block);)
  A data_parallel table has one block, whose shards are the replicas.

  InOut: block  {0} before the first call
*/
PetscBool TrsColumnBlockNext(const TrsTablePlan *plan, TrsColumnBlock *block);

/*
  The index in the table's plan of the block's shard on the given rank. It is -1 if the rank has no
  shard of the block. Not collective.
*/
int TrsColumnBlockOn(const TrsTablePlan *plan, const TrsColumnBlock *block, int rank);

/*
  Write the plan as JSON text (format: input/FORMAT.md; numbers have 17 digits). The caller must
  free the text with PetscFree(). Not collective.
*/
PetscErrorCode TrsShardingPlanToJson(const TrsShardingPlan *plan, char **json);

/*
  TrsShardingPlanFromJson - Parse a plan file's text.

  The file must have the name, sharding type, compute kernel and ranks of each table. If it lists no
  shards for a table, the table's shards get only ranks. world_size and local_world_size may be 0.
  TrsShardingPlanComplete() fills these gaps.

  Not collective.

  Errors: DATA with `source` and the JSON path, for a text that is not JSON, another format or
          version, a wrong type, or a missing field
*/
PetscErrorCode TrsShardingPlanFromJson(const char *json, const char *source, TrsShardingPlan *plan);

/* The sizes of a run's world, for plans that do not have them. */
typedef struct {
  int world_size, local_world_size, pod_size;
} TrsPlanWorld;

/*
  TrsShardingPlanComplete - Add what a plan's file does not have: the world's sizes, and the
    rectangles of shards for which it has only ranks.

  Rows are cut into blocks of ceil(rows / ranks), columns as evenly as possible. Not collective.

  In:     source  the file's name, for messages
  Errors: DATA if the number of ranks does not fit the sharding type, a table has fewer columns than
          column shards, or pod_size * local_world_size overflows
*/
PetscErrorCode TrsShardingPlanComplete(const TrsTableConfigs *tables, const TrsPlanWorld *world,
                                       const char *source, TrsShardingPlan *plan);

/*
  Allocate a plan's arrays over devices, filled with zeros, for a plan without costs. Not
  collective.
*/
PetscErrorCode TrsShardingPlanNoCosts(TrsShardingPlan *plan);

/*
  TrsShardingPlanCheck - Check that the plan fits these tables and this world.

  Every table must occur once, and its shards must tile it exactly. Ranks must be in range. row_wise
  must use all ranks in order, and table_row_wise the ranks of one host. The widths of shards must
  be allowed for the sharding type.

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

  In:     ierr  error code with which rank 0 made the plan; ignored on other ranks
  InOut:  plan  read on rank 0, filled on the other ranks
  Errors: rank 0's error, the same code on every rank
*/
PetscErrorCode TrsShardingPlanBroadcast(MPI_Comm comm, PetscErrorCode ierr, TrsShardingPlan *plan);

/*
  On rank 0 of comm, print only the lines of TrsShardingPlanView() for tables, at most max_tables.
  Collective on comm.
*/
PetscErrorCode TrsShardingPlanViewTables(const TrsShardingPlan *plan, MPI_Comm comm, int max_tables);

/* Write a line about the plan: its tables, ranks and critical path. A size of 128 is enough. */
void TrsShardingPlanLine(const TrsShardingPlan *plan, char *line, size_t size);

/*
  Print one line per table for the banner: name, rows x dim, type, kernel, ranks. Rank 0 of comm
  prints at most max_tables lines. Collective on comm.
*/
PetscErrorCode TrsShardingPlanView(const TrsShardingPlan *plan, MPI_Comm comm, int max_tables);

/*
  Write a storage or a perf as a JSON object. Other modules use these functions for their own files.
  Not collective.
*/
PetscErrorCode TrsTextJsonStorage(TrsText *text, const TrsStorage *storage);
PetscErrorCode TrsTextJsonPerf(TrsText *text, const TrsPerf *perf);
