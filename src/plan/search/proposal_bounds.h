/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Facts about a proposal that are certain before the proposal is placed. They are sums and maxima.
  If one option changes, they are updated in O(log tables) time.

  In a large problem, most proposals can certainly be placed and are certainly slower than the best
  plan so far. The search counts such a proposal without placing it. The plan and the counts still
  equal TorchRec's.
*/
#pragma once

#include "plan/search/partitioner.h"

enum {
  /* Number of size classes of options. There are four classes per power of two of device bytes.
     Options without device bytes are classed by host bytes. */
  TRS_N_SIZES = 2 * 4 * 64
};

typedef struct {
  double perf;      /* time of the slowest non-uniform shard */
  int64_t hbm, ddr; /* bytes of the largest non-uniform shard */
} TrsBoundNode;

typedef struct {
  int world_size, group;
  PetscBool largest_first; /* true: the partitioner places by size */
  /*
    The smallest free hbm and the smallest free ddr of all devices, the largest of each, and the
    free memory of device 0. The two minima may belong to different devices, like the two maxima.
  */
  TrsStorage least, most, on_first;
  /* Free memory of all devices. A device with negative free memory counts as 0. */
  TrsInt128 sum_hbm, sum_ddr;

  int n, n_leaves, n_updates;
  const TrsPlanOption **option; /* [n] the options of the last proposal */
  TrsBoundNode *node;           /* [2 * n_leaves] tree of maxima; the root is node 1 */
  TrsInt128 hbm, ddr;           /* memory that the whole proposal needs */
  struct {
    int64_t n, n_negative;
    double perf; /* the time on every device */
    /* Lower and upper bounds on the bytes of any device, and the bytes of the first device. */
    TrsInt128 least_hbm, least_ddr, most_hbm, most_ddr, first_hbm, first_ddr;
  } uniform;
  TrsPieces own; /* pieces of the non-uniform options */
  double own_perf;
  /* [TRS_N_SIZES] pieces by size class; no pieces outside of [smallest, largest] */
  TrsPieces *of_size;
  int smallest, largest;
  uint64_t key[2]; /* the proposal's key in the cache of proposals */
} TrsProposalBounds;

PetscErrorCode TrsProposalBoundsCreate(const TrsPartitionerConfig *config, int max_tables,
                                       TrsProposalBounds *bounds);
PetscErrorCode TrsProposalBoundsFree(TrsProposalBounds *bounds);

/*
  Update the bounds for a proposal in which the option with index `changed` changed. If `changed` is
  negative, compute them for a new proposal.
*/
void TrsProposalBoundsUpdate(TrsProposalBounds *bounds, const TrsProposal *proposal, int changed);

/* A lower bound on the rating of any placement. It allows for rounding errors. */
double TrsProposalBoundsRating(const TrsProposalBounds *bounds);

/* A lower bound on the rating of any placement, without rounding errors. */
double TrsProposalBoundsSlowestShard(const TrsProposalBounds *bounds);

/* True if there is certainly no placement, because the memory does not suffice. */
PetscBool TrsProposalBoundsFails(const TrsProposalBounds *bounds);

/* True if the partitioner certainly places the proposal. */
PetscBool TrsProposalBoundsPlaced(const TrsProposalBounds *bounds);
