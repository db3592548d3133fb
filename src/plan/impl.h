/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the two partitioners share. */
#pragma once

#include "plan/min_tree.h"
#include "plan/partitioner.h"

/* A device while it is filled. The struct is one cache line. */
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
  /* [W] The order that breaks ties is rank % local_world_size, then rank. */
  int *leaf_of, *rank_of;
  TrsMinTree devices, hosts; /* trees over leaves and over hosts */
  PetscBool devices_valid, hosts_valid;
  /* The largest total of a device so far. It is the rating except for the order of its sums. */
  double slowest;
  PetscBool *host_changed; /* [n_hosts] */
  int n_changed, *changed;
  int *refused;          /* [n_hosts] hosts tried without success */
  TrsGroupKey *host_key; /* [n_hosts] sorted by load */
  TrsDevice *saved;      /* [group] devices of a host on trial */
  /* [n] The proposal's options in order of placing.
     They are kept, because the next proposal differs little. */
  TrsGroupKey *group;
  int n_group;
  TrsPlacement placement, kept; /* kept: of memory_balanced */
  /* [W] Memory in use: that of the config, or with another hbm under memory_balanced. */
  TrsStorage *left;
  int64_t *uniform_hbm, *uniform_ddr; /* [W + 2] differences between neighbours */
  double *rank_sum;                   /* [W] sums for the rating */
  int *sum_of;                        /* [W] a rank's place in rank_sum */
};

/*
  Place by greedy_perf with p->left. Out: complete, whether each shard has its rank. Not collective.
*/
PetscErrorCode TrsPartitionGreedy(TrsPartitioner p, const TrsProposal *proposal, const TrsPartitionHint *hint,
                                  PetscBool sort_by_perf, PetscBool balance_modules, PetscBool *placed,
                                  PetscBool *complete);

/*
  The slowest device's ms, summed as TorchRec rates a plan. If the rating is above the limit, the
  result is only the next number above the limit. Not collective.
*/
double TrsRatePlacement(TrsPartitioner p, const TrsProposal *proposal, double limit);

PetscErrorCode TrsPartitionMemoryBalanced(TrsPartitioner p, const TrsProposal *proposal, PetscBool *placed,
                                          double *rating);
