/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/search/partitioner.h"

#include "plan/impl.h"

#include <math.h>
#include <string.h>

/*
  Relative allowance for rounding errors. Sums of the same numbers in two orders differ by far less.
*/
#define ROUNDING 1e-9

PetscErrorCode TrsPartitionerCreate(const TrsPartitionerConfig *config, int max_tables,
                                    TrsPartitioner *partitioner)
{
  TrsPartitioner p;
  int W = config->world_size, n = 0;

  PetscFunctionBegin;
  PetscCall(PetscNew(&p));
  p->config = *config;
  p->max_tables = max_tables;
  p->n_hosts = W / config->group;
  PetscCall(PetscMalloc1(W, &p->device));
  PetscCall(PetscMalloc1(W, &p->leaf_of));
  PetscCall(PetscMalloc1(W, &p->rank_of));
  for (int local = 0; local < config->local_world_size; local++) {
    for (int r = local; r < W; r += config->local_world_size) p->rank_of[n++] = r;
  }
  for (int leaf = 0; leaf < W; leaf++) p->leaf_of[p->rank_of[leaf]] = leaf;
  PetscCall(TrsMinTreeCreate(W, &p->devices));
  PetscCall(TrsMinTreeCreate(PetscMax(1, p->n_hosts), &p->hosts));
  p->hosts.node[p->hosts.n_leaves] = (TrsMinNode){.load = HUGE_VAL, .hbm = INT64_MIN, .ddr = INT64_MIN};
  TrsMinTreeBuild(&p->hosts); /* this tree stays empty if no host is complete */
  PetscCall(PetscCalloc1(p->n_hosts, &p->host_changed));
  PetscCall(PetscMalloc1(p->n_hosts, &p->changed));
  PetscCall(PetscMalloc1(p->n_hosts, &p->refused));
  PetscCall(PetscMalloc1(p->n_hosts, &p->host_key));
  PetscCall(PetscMalloc1(PetscMin(W, config->group), &p->saved));
  PetscCall(PetscCalloc1(max_tables, &p->record));
  PetscCall(PetscMalloc1(max_tables, &p->group));
  PetscCall(PetscMalloc1(max_tables, &p->moved));
  PetscCall(PetscMalloc1(max_tables, &p->placement.first));
  PetscCall(PetscMalloc1(W, &p->left));
  memcpy(p->left, config->left, (size_t)W * sizeof(*p->left));
  PetscCall(PetscCalloc1(W + 2, &p->uniform_hbm));
  PetscCall(PetscCalloc1(W + 2, &p->uniform_ddr));
  PetscCall(PetscMalloc1(W + 1, &p->rank_sum));
  PetscCall(PetscMalloc1(W, &p->sum_of));
  *partitioner = p;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPartitionerDestroy(TrsPartitioner *partitioner)
{
  TrsPartitioner p = *partitioner;

  PetscFunctionBegin;
  if (!p) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscFree(p->device));
  PetscCall(PetscFree(p->leaf_of));
  PetscCall(PetscFree(p->rank_of));
  PetscCall(TrsMinTreeFree(&p->devices));
  PetscCall(TrsMinTreeFree(&p->hosts));
  PetscCall(PetscFree(p->host_changed));
  PetscCall(PetscFree(p->changed));
  PetscCall(PetscFree(p->refused));
  PetscCall(PetscFree(p->host_key));
  PetscCall(PetscFree(p->saved));
  PetscCall(PetscFree(p->record));
  PetscCall(PetscFree(p->group));
  PetscCall(PetscFree(p->moved));
  PetscCall(TrsPlacementFree(&p->placement));
  PetscCall(TrsPlacementFree(&p->kept));
  PetscCall(PetscFree(p->left));
  PetscCall(PetscFree(p->uniform_hbm));
  PetscCall(PetscFree(p->uniform_ddr));
  PetscCall(PetscFree(p->rank_sum));
  PetscCall(PetscFree(p->sum_of));
  PetscCall(PetscFree(*partitioner));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlacementCopy(const TrsPlacement *from, int n, TrsPlacement *to)
{
  PetscFunctionBegin;
  if (to->capacity < from->n_ranks) {
    PetscCall(PetscFree(to->rank));
    PetscCall(PetscMalloc1(from->n_ranks, &to->rank));
    to->capacity = from->n_ranks;
  }
  if (!to->first) PetscCall(PetscMalloc1(n, &to->first));
  if (from->n_ranks) memcpy(to->rank, from->rank, (size_t)from->n_ranks * sizeof(*to->rank));
  memcpy(to->first, from->first, (size_t)n * sizeof(*to->first));
  to->n_ranks = from->n_ranks;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlacementFree(TrsPlacement *placement)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(placement->rank));
  PetscCall(PetscFree(placement->first));
  *placement = (TrsPlacement){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the devices whose totals are summed again. The rating adds shard totals in proposal order,
  but the devices' totals were added part by part in placing order. Only devices that may be the
  slowest, given rounding errors, are summed again. All devices that have only uniform shards have
  the same sum, so one sum serves all of them.
*/
static int choose_sums(TrsPartitioner p, double slowest)
{
  /* Sum 0 is the sum of devices that have only uniform shards. */
  int W = p->config.world_size, n_sums = 1;

  for (int r = 0; r < W; r++) p->sum_of[r] = p->n_by_hand > 0 ? 1 : 0;
  for (int k = 0; k < p->placement.n_ranks; k++) p->sum_of[p->placement.rank[k]] = 1;
  for (int r = 0; r < W; r++) {
    if (p->device[r].total < slowest * (1 - ROUNDING)) {
      p->sum_of[r] = -1;
    } else if (p->sum_of[r] == 1) {
      p->sum_of[r] = n_sums++;
    }
  }
  return n_sums;
}

double TrsRatePlacement(TrsPartitioner p, double limit)
{
  double slowest = p->slowest, rating = 0;
  int n_sums;

  if (slowest * (1 - ROUNDING) > limit) return slowest;
  n_sums = choose_sums(p, slowest);
  memset(p->rank_sum, 0, (size_t)n_sums * sizeof(*p->rank_sum));
  for (int i = 0; i < p->n_records; i++) {
    const TrsOptionRecord *record = &p->record[i];

    if (record->is_uniform && record->same_perf) {
      for (int k = 0; k < n_sums; k++) p->rank_sum[k] += record->first.total;
      continue;
    }
    for (int s = 0; s < record->n_shards; s++) {
      int sum = p->sum_of[TrsPlacementRank(&p->placement, i, s)];

      if (sum >= 0) p->rank_sum[sum] += TrsRecordShard(record, s)->total;
    }
  }
  for (int k = 0; k < n_sums; k++) rating = PetscMax(rating, p->rank_sum[k]);
  return rating;
}

PetscErrorCode TrsPartition(TrsPartitioner partitioner, const TrsProposal *proposal,
                            const TrsPartitionHint *hint, const TrsPlacement **placement, PetscBool *placed,
                            double *rating)
{
  TrsPartitioner p = partitioner;
  PetscBool complete;

  PetscFunctionBegin;
  if (p->config.memory_balanced) {
    PetscCall(TrsPartitionMemoryBalanced(p, proposal, placed, rating));
    *placement = &p->kept;
  } else {
    PetscCall(TrsPartitionGreedy(p, proposal, hint, p->config.sort_by_perf, p->config.balance_modules, placed,
                                 &complete));
    if (*placed) *rating = complete && !hint->rating_is_moot ? TrsRatePlacement(p, hint->limit) : HUGE_VAL;
    *placement = &p->placement;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
