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
  int64_t key[3];     /* sort keys, compared in this order, descending */
  int position;       /* sort key that is compared last, ascending */
  uint8_t is_uniform; /* 1: the option at this position is uniform */
} TrsGroupKey;

/*
  The part of an option that the partitioner reads, in 128 bytes. The option and its classes are in
  six cache lines at several places, and a placement reads thousands of options.
*/
typedef struct {
  const TrsPlanOption *option; /* NULL: the record is empty */
  TrsShardClass first;         /* copy of the shard class 0 */
  TrsStorage total_storage;
  double total_perf;
  int n_shards;
  TrsModule module;
  TrsPartitionBy partition_by;
  TrsPieceKind piece; /* kind of the option's pieces, if it is not uniform */
  /* 0 or 1. one_class: all shards have class 0; is_negative: a shard has negative bytes; is_new:
     the option's key may be old */
  uint8_t is_uniform, same_perf, one_class, is_negative, is_new;
} TrsOptionRecord;

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
  /* [n_records] The options of the latest proposal. They are kept for the next proposal, which
     differs only a little. The group keys and the sums below belong to these options. */
  TrsOptionRecord *record;
  int n_records;
  /* [n_group] The options in placing order; n_group is 0 or n_records */
  TrsGroupKey *group;
  TrsGroupKey *moved; /* [max_tables] scratch: groups whose place changes */
  int n_group;
  PetscBool sorts_by_perf, balances_modules; /* the order of the groups */
  int64_t in_module[TRS_N_MODULES];          /* number of options */
  /* Numbers of options. By hand: shards differ in perf. Misfits: uniform, but without a shard for
     each device. */
  int n_by_hand, n_uniform, n_uniform_by_hand, n_misfits;
  TrsPlacement placement, kept; /* kept: the best placement of memory_balanced */
  /* [W] Memory that may be filled: the config's memory, or another hbm under memory_balanced. */
  TrsStorage *left;
  /* [W + 2] Memory of the uniform options, as differences between neighbouring devices. Options
     made by hand and misfits are left out. */
  int64_t *uniform_hbm, *uniform_ddr;
  double *rank_sum; /* [W] sums of times for the rating */
  int *sum_of;      /* [W] index of each rank's sum in rank_sum */
};

/*
  Let the records be those of a proposal's options. Not collective.

  In:  proposal  an option must not change as long as the partitioner exists
*/
void TrsPartitionerTake(TrsPartitioner p, const TrsProposal *proposal);

/* Sort the groups of the latest TrsPartitionerTake() into placing order. Not collective. */
void TrsPartitionerOrder(TrsPartitioner p, PetscBool sort_by_perf, PetscBool balance_modules);

/* Compare two TrsGroupKey for qsort(). */
int TrsGroupKeyCompare(const void *a, const void *b);

/* The shard class of a record's shard. */
static inline const TrsShardClass *TrsRecordShard(const TrsOptionRecord *record, int shard)
{
  return record->one_class ? &record->first : TrsOptionShard(record->option, shard);
}

/*
  Place a proposal by greedy_perf within p->left. *complete is set if every shard got a rank. Not
  collective.
*/
PetscErrorCode TrsPartitionGreedy(TrsPartitioner p, const TrsProposal *proposal, const TrsPartitionHint *hint,
                                  PetscBool sort_by_perf, PetscBool balance_modules, PetscBool *placed,
                                  PetscBool *complete);

/*
  The slowest device's time in ms for the latest placement of TrsPartitionGreedy(), summed in
  TorchRec's order. If the time is above the limit, the result is above the limit too, but otherwise
  arbitrary. Not collective.
*/
double TrsRatePlacement(TrsPartitioner p, double limit);

PetscErrorCode TrsPartitionMemoryBalanced(TrsPartitioner p, const TrsProposal *proposal, PetscBool *placed,
                                          double *rating);
