/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What is certain about a proposal before it is placed: sums and maxima, kept up to date in O(log tables) when one option changes.

  Most proposals of a large problem are certain to be placed and certain to be slower than the best so far; they are counted without
  placing them, and the plan and the counts stay TorchRec's.
*/
#pragma once

#include "plan/partitioner.h"

enum {
  TRS_N_SIZES = 2 * 4 * 64
}; /* sizes of options: quarters of powers of two of device bytes, or of host bytes where those are 0 */

typedef struct {
  double perf;      /* the slowest shard that is not uniform */
  int64_t hbm, ddr; /* the largest of them */
} TrsBoundNode;

typedef struct {
  int world_size, group;
  PetscBool largest_first;          /* the partitioner goes by size */
  TrsStorage least, most, on_first; /* left on the poorest, on the richest and on the first device */
  TrsInt128 sum_hbm, sum_ddr;       /* left on all devices; those with nothing left count 0 */

  int n, n_leaves, n_updates;
  const TrsPlanOption **option; /* [n] the proposal last seen */
  TrsBoundNode *node;           /* [2 * n_leaves] maxima, the root is 1 */
  TrsInt128 hbm, ddr;           /* of the whole proposal */
  struct {
    int64_t n, n_negative;
    double perf; /* of every device */
    TrsInt128 least_hbm, least_ddr, most_hbm, most_ddr, first_hbm,
        first_ddr; /* of any device; of the first one */
  } uniform;
  TrsPieces own; /* of options that are not uniform */
  double own_perf;
  TrsPieces *of_size; /* [TRS_N_SIZES] the same by size; empty outside of [smallest, largest] */
  int smallest, largest;
  uint64_t key[2]; /* of the proposal, for the cache */
} TrsProposalBounds;

PetscErrorCode TrsProposalBoundsCreate(const TrsPartitionerConfig *config, int max_tables,
                                       TrsProposalBounds *bounds);
PetscErrorCode TrsProposalBoundsFree(TrsProposalBounds *bounds);

/* Look at a proposal: at one changed option, or (changed < 0) at all. */
void TrsProposalBoundsUpdate(TrsProposalBounds *bounds, const TrsProposal *proposal, int changed);

/* Below the rating of any placement, allowing for rounding. */
double TrsProposalBoundsRating(const TrsProposalBounds *bounds);

/* Not above the rating of any placement, to the last bit. */
double TrsProposalBoundsSlowestShard(const TrsProposalBounds *bounds);

/* No placement exists: more memory than there is. */
PetscBool TrsProposalBoundsFails(const TrsProposalBounds *bounds);

/* The partitioner is certain to place it. */
PetscBool TrsProposalBoundsPlaced(const TrsProposalBounds *bounds);
