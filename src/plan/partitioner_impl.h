/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two partitioners share. */
#pragma once

#include "plan/min_tree.h"
#include "plan/partitioner.h"

/* A device while it is filled: one cache line. */
typedef struct {
  TrsPerf perf;
  double total;     /* of perf */
  int64_t hbm, ddr; /* left */
} TrsDevice;

typedef struct {
  int64_t key[3]; /* compared in this order, descending */
  int position;   /* then by position, ascending */
} TrsGroupKey;

struct TrsPartitionerImpl {
  TrsPartitionerConfig config;
  int max_tables, n_hosts;
  TrsDevice *device;         /* [W] */
  int *leaf_of, *rank_of;    /* [W] order that breaks ties: rank % local_world_size, rank */
  TrsMinTree devices, hosts; /* over leaves; over hosts */
  PetscBool devices_valid, hosts_valid;
  double slowest; /* the largest total of a device so far: the rating but for the order of its sums */
  PetscBool *host_changed; /* [n_hosts] */
  int n_changed, *changed;
  int *refused;          /* [n_hosts] hosts tried in vain */
  TrsGroupKey *host_key; /* [n_hosts] sorted by load */
  TrsDevice *saved;      /* [group] of a host on trial */
  TrsGroupKey
      *group; /* [n] proposal's options in order of placing; kept, as the next proposal differs little */
  int n_group;
  TrsPlacement placement, kept;       /* kept: of memory_balanced */
  TrsStorage *left;                   /* [W] in use: config's, or with another hbm under memory_balanced */
  int64_t *uniform_hbm, *uniform_ddr; /* [W + 2] differences */
  double *rank_sum;                   /* [W] for the rating */
  int *rank_slot;                     /* [W] */
};

/* Place by greedy_perf with p->left. Out: complete, whether each shard has its rank. Not collective. */
PetscErrorCode TrsPartitionGreedy(TrsPartitioner p, const TrsProposal *proposal, const TrsPartitionHint *hint,
                                  PetscBool sort_by_perf, PetscBool balance_modules, PetscBool *placed,
                                  PetscBool *complete);

/* The slowest device's ms, summed as TorchRec rates a plan; only an upper neighbour of limit when above it. Not collective. */
double TrsRatePlacement(TrsPartitioner p, const TrsProposal *proposal, double limit);

PetscErrorCode TrsPartitionMemoryBalanced(TrsPartitioner p, const TrsProposal *proposal, PetscBool *placed,
                                          double *rating);
