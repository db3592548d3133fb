/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Facts that are certain about a proposal before it is placed. They are sums and maxima, updated in
  O(log tables) when one option changes.

  Most proposals of a large problem are certain to be placed and certain to be slower than the best
  so far. They are counted without being placed, and the plan and the counts stay TorchRec's.
*/
#pragma once

#include "plan/partitioner.h"

enum {
  /* Size classes of options: quarters of powers of two of device bytes, or of host bytes if the
     device bytes are 0. */
  TRS_N_SIZES = 2 * 4 * 64
};

typedef struct {
  double perf;      /* the slowest shard that is not uniform */
  int64_t hbm, ddr; /* the largest shard that is not uniform */
} TrsBoundNode;

typedef struct {
  int world_size, group;
  PetscBool largest_first; /* the partitioner goes by size */
  /* Memory left on the poorest, the richest and the first device. */
  TrsStorage least, most, on_first;
  /* Memory left on all devices. Devices with nothing left count 0. */
  TrsInt128 sum_hbm, sum_ddr;

  int n, n_leaves, n_updates;
  const TrsPlanOption **option; /* [n] the last proposal seen */
  TrsBoundNode *node;           /* [2 * n_leaves] maxima, the root is node 1 */
  TrsInt128 hbm, ddr;           /* memory of the whole proposal */
  struct {
    int64_t n, n_negative;
    double perf; /* of every device */
    /* Bytes of any device, at least and at most, and of the first device. */
    TrsInt128 least_hbm, least_ddr, most_hbm, most_ddr, first_hbm, first_ddr;
  } uniform;
  TrsPieces own; /* pieces of options that are not uniform */
  double own_perf;
  TrsPieces *of_size; /* [TRS_N_SIZES] the pieces by size; empty outside of [smallest, largest] */
  int smallest, largest;
  uint64_t key[2]; /* key of the proposal in the cache */
} TrsProposalBounds;

PetscErrorCode TrsProposalBoundsCreate(const TrsPartitionerConfig *config, int max_tables,
                                       TrsProposalBounds *bounds);
PetscErrorCode TrsProposalBoundsFree(TrsProposalBounds *bounds);

/* Update the bounds for a proposal with one changed option, or (changed < 0) for a new proposal. */
void TrsProposalBoundsUpdate(TrsProposalBounds *bounds, const TrsProposal *proposal, int changed);

/* A lower bound of the rating of any placement, with an allowance for rounding. */
double TrsProposalBoundsRating(const TrsProposalBounds *bounds);

/* A lower bound of the rating of any placement, exact to the last bit. */
double TrsProposalBoundsSlowestShard(const TrsProposalBounds *bounds);

/* Tell whether no placement exists, because more memory is needed than there is. */
PetscBool TrsProposalBoundsFails(const TrsProposalBounds *bounds);

/* Tell whether the partitioner is certain to place the proposal. */
PetscBool TrsProposalBoundsPlaced(const TrsProposalBounds *bounds);
