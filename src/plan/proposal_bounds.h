/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Facts about a proposal that are certain before it is placed. They are sums and maxima, updated in
  O(log tables) when one option changes.

  In a large problem most proposals can certainly be placed and are certainly slower than the best
  plan so far. The search counts them without placing them; the plan and the counts still equal
  TorchRec's.
*/
#pragma once

#include "plan/partitioner.h"

enum {
  /* Number of size classes of options: quarters of powers of two of device bytes, or of host bytes
     if an option has no device bytes. */
  TRS_N_SIZES = 2 * 4 * 64
};

typedef struct {
  double perf;      /* slowest non-uniform shard */
  int64_t hbm, ddr; /* largest non-uniform shard */
} TrsBoundNode;

typedef struct {
  int world_size, group;
  PetscBool largest_first; /* the partitioner places by size */
  /* Free memory of the device with the least, of the device with the most, and of the first. */
  TrsStorage least, most, on_first;
  /* Free memory of all devices. A device with negative free memory counts as 0. */
  TrsInt128 sum_hbm, sum_ddr;

  int n, n_leaves, n_updates;
  const TrsPlanOption **option; /* [n] the last proposal seen */
  TrsBoundNode *node;           /* [2 * n_leaves] maxima, the root is node 1 */
  TrsInt128 hbm, ddr;           /* memory of the whole proposal */
  struct {
    int64_t n, n_negative;
    double perf; /* every device's time */
    /* Lower and upper bounds for any device's bytes, and the first device's bytes. */
    TrsInt128 least_hbm, least_ddr, most_hbm, most_ddr, first_hbm, first_ddr;
  } uniform;
  TrsPieces own; /* pieces of the non-uniform options */
  double own_perf;
  TrsPieces *of_size; /* [TRS_N_SIZES] pieces by size class; empty outside [smallest, largest] */
  int smallest, largest;
  uint64_t key[2]; /* the proposal's cache key */
} TrsProposalBounds;

PetscErrorCode TrsProposalBoundsCreate(const TrsPartitionerConfig *config, int max_tables,
                                       TrsProposalBounds *bounds);
PetscErrorCode TrsProposalBoundsFree(TrsProposalBounds *bounds);

/* Update the bounds for a proposal with one changed option, or (changed < 0) for a new proposal. */
void TrsProposalBoundsUpdate(TrsProposalBounds *bounds, const TrsProposal *proposal, int changed);

/* A lower bound on the rating of any placement, with an allowance for rounding. */
double TrsProposalBoundsRating(const TrsProposalBounds *bounds);

/* A lower bound on the rating of any placement, exact to the last bit. */
double TrsProposalBoundsSlowestShard(const TrsProposalBounds *bounds);

/* True if there certainly is no placement, because the memory does not suffice. */
PetscBool TrsProposalBoundsFails(const TrsProposalBounds *bounds);

/* True if the partitioner certainly places the proposal. */
PetscBool TrsProposalBoundsPlaced(const TrsProposalBounds *bounds);
