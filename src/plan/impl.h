/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the two partitioners share. */
#pragma once

#include "plan/min_tree.h"
#include "plan/partitioner.h"

/* A device's state during placement. The struct is one cache line. */
typedef struct {
  TrsPerf perf;
  double total;     /* sum of perf */
  int64_t hbm, ddr; /* memory left */
} TrsDevice;

typedef struct {
  int64_t key[3]; /* compared in this order, descending */
  int position;   /* compared last, ascending */
} TrsGroupKey;

struct TrsPartitionerImpl {
  TrsPartitionerConfig config;
  int max_tables, n_hosts;
  TrsDevice *device; /* [W] */
  /* [W] Ties are broken by rank % local_world_size, then by rank. */
  int *leaf_of, *rank_of;
  TrsMinTree devices, hosts; /* trees over leaves and over hosts */
  PetscBool devices_valid, hosts_valid;
  /* The largest total of any device so far. It equals the rating except for the order of sums. */
  double slowest;
  PetscBool *host_changed; /* [n_hosts] */
  int n_changed, *changed;
  int *refused;          /* [n_hosts] hosts tried in vain */
  TrsGroupKey *host_key; /* [n_hosts] sorted by load */
  TrsDevice *saved;      /* [group] a host's devices before a trial */
  /* [n] The proposal's options in placing order. They are kept because the next proposal differs
     little. */
  TrsGroupKey *group;
  int n_group;
  TrsPlacement placement, kept; /* kept: of memory_balanced */
  /* [W] Memory that may be filled: the config's, or with memory_balanced another hbm. */
  TrsStorage *left;
  int64_t *uniform_hbm, *uniform_ddr; /* [W + 2] differences between neighbours */
  double *rank_sum;                   /* [W] sums for the rating */
  int *sum_of;                        /* [W] a rank's index in rank_sum */
};

/*
  Place by greedy_perf within p->left. *complete is set if every shard has its rank. Not collective.
*/
PetscErrorCode TrsPartitionGreedy(TrsPartitioner p, const TrsProposal *proposal, const TrsPartitionHint *hint,
                                  PetscBool sort_by_perf, PetscBool balance_modules, PetscBool *placed,
                                  PetscBool *complete);

/*
  The slowest device's ms, summed in TorchRec's order. If the rating is above the limit, the result
  is only some number above the limit. Not collective.
*/
double TrsRatePlacement(TrsPartitioner p, const TrsProposal *proposal, double limit);

PetscErrorCode TrsPartitionMemoryBalanced(TrsPartitioner p, const TrsProposal *proposal, PetscBool *placed,
                                          double *rating);
