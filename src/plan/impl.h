/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations for the code of both partitioners. */
#pragma once

#include "plan/search/min_tree.h"
#include "plan/search/partitioner.h"

/* A device's state during placement. It fills one cache line. */
typedef struct {
  TrsPerf perf;
  double total;     /* sum of perf */
  int64_t hbm, ddr; /* free bytes */
} TrsDevice;

typedef struct {
  int64_t key[3]; /* sort keys, compared in this order, descending */
  int position;   /* sort key that is compared last, ascending */
} TrsGroupKey;

struct TrsPartitionerImpl {
  TrsPartitionerConfig config;
  int max_tables, n_hosts;
  TrsDevice *device; /* [W] */
  /* [W] A device's leaf in the tree, and a leaf's device. Ties go to the smaller rank %
     local_world_size, then to the smaller rank. */
  int *leaf_of, *rank_of;
  TrsMinTree devices, hosts; /* trees of devices (in the order of leaves) and of hosts */
  PetscBool devices_valid, hosts_valid;
  /* The largest total of any device so far. It equals the rating, except that the sums were made
     in another order. */
  double slowest;
  PetscBool *host_changed; /* [n_hosts] */
  int n_changed, *changed;
  int *refused;          /* [n_hosts] hosts on which the current option did not fit */
  TrsGroupKey *host_key; /* [n_hosts] sorted by load */
  TrsDevice *saved;      /* [group] copies of a host's devices, made before a trial */
  /* [n] The proposal's options in placing order. They are kept for the next proposal, which
     differs only a little. */
  TrsGroupKey *group;
  int n_group;
  TrsPlacement placement, kept; /* kept: the best placement of memory_balanced */
  /* [W] Memory that may be filled: the config's memory, or another hbm under memory_balanced. */
  TrsStorage *left;
  int64_t *uniform_hbm, *uniform_ddr; /* [W + 2] differences between neighbouring devices */
  double *rank_sum;                   /* [W] sums of times for the rating */
  int *sum_of;                        /* [W] index of each rank's sum in rank_sum */
};

/*
  Place a proposal by greedy_perf within p->left. *complete is set if every shard got a rank. Not
  collective.
*/
PetscErrorCode TrsPartitionGreedy(TrsPartitioner p, const TrsProposal *proposal, const TrsPartitionHint *hint,
                                  PetscBool sort_by_perf, PetscBool balance_modules, PetscBool *placed,
                                  PetscBool *complete);

/*
  The slowest device's time in ms, summed in TorchRec's order. If the time is above the limit, the
  result is above the limit too, but otherwise arbitrary. Not collective.
*/
double TrsRatePlacement(TrsPartitioner p, const TrsProposal *proposal, double limit);

PetscErrorCode TrsPartitionMemoryBalanced(TrsPartitioner p, const TrsProposal *proposal, PetscBool *placed,
                                          double *rating);
