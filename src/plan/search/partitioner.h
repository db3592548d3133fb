/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A partitioner assigns a rank to every shard of a proposal.

  Source: TorchRec GreedyPerfPartitioner and MemoryBalancedPartitioner. Ranks and ratings agree with
          TorchRec bit for bit (src/plan/RULES.md, section 10).
*/
#pragma once

#include "plan/search/pieces.h"

/* One option for each table, in the proposer's order of tables. */
typedef struct {
  int n;
  const TrsPlanOption **option; /* [n] */
} TrsProposal;

/*
  The ranks of a proposal's shards. A uniform option has shard i on rank i, so its ranks are not
  listed.
*/
typedef struct {
  int n_ranks, capacity;
  int *rank;
  int *first; /* [n] index of the option's first rank; -1: the option is uniform */
} TrsPlacement;

typedef struct {
  int world_size, local_world_size, group;
  const TrsStorage *left; /* [world_size] memory that may be filled; borrowed */
  PetscBool memory_balanced, sort_by_perf, balance_modules;
  int64_t max_search_count;
  double tolerance;
} TrsPartitionerConfig;

/* Facts that are known before placing and that save work. */
typedef struct {
  double limit; /* a rating above the limit may be inexact */
  /* true: the caller only needs to know if the proposal can be placed. The partitioner also
     assumes this as soon as a device is above the limit. */
  PetscBool rating_is_moot;
  PetscBool only_below;    /* a placement with a rating above the limit counts as not placed */
  const TrsPieces *pieces; /* pieces of the non-uniform options, or NULL */
} TrsPartitionHint;

typedef struct TrsPartitionerImpl *TrsPartitioner;

/* Create a partitioner for proposals of at most max_tables tables. Not collective. */
PetscErrorCode TrsPartitionerCreate(const TrsPartitionerConfig *config, int max_tables,
                                    TrsPartitioner *partitioner);
PetscErrorCode TrsPartitionerDestroy(TrsPartitioner *partitioner);

/*
  TrsPartition - Place a proposal.

  Not collective.

  Out:    placement  borrowed until the next call; complete if the proposal was placed and its
                     rating is at most the limit
          placed     true if every shard found a device with enough memory
          rating     time of the slowest device in ms; exact if it is at most the hint's limit
*/
PetscErrorCode TrsPartition(TrsPartitioner partitioner, const TrsProposal *proposal,
                            const TrsPartitionHint *hint, const TrsPlacement **placement, PetscBool *placed,
                            double *rating);

/* The rank of a shard of the i-th option. */
static inline int TrsPlacementRank(const TrsPlacement *placement, int i, int shard)
{
  return placement->first[i] < 0 ? shard : placement->rank[placement->first[i] + shard];
}

PetscErrorCode TrsPlacementCopy(const TrsPlacement *from, int n, TrsPlacement *to);
PetscErrorCode TrsPlacementFree(TrsPlacement *placement);
