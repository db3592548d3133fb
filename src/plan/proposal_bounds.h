/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What is certain about a proposal before it is placed: sums and maxima, kept up to date in O(log tables) when one option changes.

  Most proposals of a large problem are certain to be placed and certain to be slower than the best so far; they are counted without
  placing them, and the plan and the counts stay TorchRec's.
*/
#pragma once

#include "plan/partitioner.h"

typedef struct {
  double perf; /* the slowest shard that is not uniform */
  int64_t hbm,
      ddr; /* the largest piece that must fit on one device: a shard, or a table_column_wise option as a whole */
} TrsBoundNode;

typedef struct {
  int world_size, group;
  TrsStorage least, most;     /* left on the poorest and on the richest device */
  TrsInt128 sum_hbm, sum_ddr; /* left on all devices; those with nothing left count 0 */

  int n, n_leaves, n_updates;
  const TrsPlanOption **option;       /* [n] the proposal last seen */
  TrsBoundNode *node;                 /* [2 * n_leaves] maxima, the root is 1 */
  TrsInt128 hbm, ddr;                 /* of the whole proposal */
  TrsInt128 own_hbm, own_ddr;         /* of options that are not uniform */
  TrsInt128 uniform_hbm, uniform_ddr; /* upper bound of a device's uniform shards */
  double uniform_perf, own_perf;      /* of a device's uniform shards; sum over all others' */
  int n_uniform, n_host, n_grid;
  uint64_t key[2]; /* of the proposal, for the cache */
} TrsProposalBounds;

PetscErrorCode TrsProposalBoundsCreate(int world_size, int group, const TrsStorage *left, int max_tables,
                                       TrsProposalBounds *bounds);
PetscErrorCode TrsProposalBoundsFree(TrsProposalBounds *bounds);

/* Look at a proposal: at one changed option, or (changed < 0) at all. */
void TrsProposalBoundsUpdate(TrsProposalBounds *bounds, const TrsProposal *proposal, int changed);

/* Below the rating of any placement, allowing for rounding. */
double TrsProposalBoundsRating(const TrsProposalBounds *bounds);

/* What the partitioner may know. */
TrsPartitionHint TrsProposalBoundsHint(const TrsProposalBounds *bounds, double limit);

/* No placement exists: more memory than there is. */
PetscBool TrsProposalBoundsFails(const TrsProposalBounds *bounds);

/* The partitioner is certain to place it. */
PetscBool TrsProposalBoundsPlaced(const TrsProposalBounds *bounds);
