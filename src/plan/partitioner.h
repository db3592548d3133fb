/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Partitioners: give every shard of a proposal a rank.

  Source: TorchRec GreedyPerfPartitioner and MemoryBalancedPartitioner; the same ranks, bit for bit.
*/
#pragma once

#include "plan/search_space.h"

/* One option a table, in the proposer's order of tables. */
typedef struct {
  int n;
  const TrsPlanOption **option; /* [n] */
} TrsProposal;

/* Ranks of a proposal's shards. Uniform options have shard i on rank i and are not listed. */
typedef struct {
  int n_ranks, capacity;
  int *rank;
  int *first; /* [n] where the option's ranks begin; -1: uniform */
} TrsPlacement;

typedef struct {
  int world_size, local_world_size, group;
  const TrsStorage *left; /* [world_size] borrowed */
  PetscBool memory_balanced, sort_by_perf, balance_modules;
  int64_t max_search_count;
  double tolerance;
} TrsPartitionerConfig;

typedef struct TrsPartitionerImpl *TrsPartitioner;

/* Not collective. max_tables: of any proposal. */
PetscErrorCode TrsPartitionerCreate(const TrsPartitionerConfig *config, int max_tables,
                                    TrsPartitioner *partitioner);
PetscErrorCode TrsPartitionerDestroy(TrsPartitioner *partitioner);

/*
  TrsPartition - Place a proposal.

  Not collective.
  In:     limit      a rating that need not be exact when it is above this: the placement is then only known to be no better
  Out:    placement  borrowed until the next call; valid when placed
          placed     whether every shard found a device with room
          rating     ms of the slowest device; exact when at most limit
*/
PetscErrorCode TrsPartition(TrsPartitioner partitioner, const TrsProposal *proposal, double limit,
                            const TrsPlacement **placement, PetscBool *placed, double *rating);

/* Rank of a shard of the i-th option. */
static inline int TrsPlacementRank(const TrsPlacement *placement, int i, int shard)
{
  return placement->first[i] < 0 ? shard : placement->rank[placement->first[i] + shard];
}

PetscErrorCode TrsPlacementCopy(const TrsPlacement *from, int n, TrsPlacement *to);
PetscErrorCode TrsPlacementFree(TrsPlacement *placement);
