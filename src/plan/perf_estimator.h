/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Time of one shard, in five parts. The order of operations is TorchRec's, bit for bit.

  Source: TorchRec EmbeddingPerfEstimator; src/plan/RULES.md, section 6
*/
#pragma once

#include "plan/topology.h"
#include "spec/sharding_plan.h"

typedef struct {
  TrsShardingType type;
  PetscBool is_pooled, is_weighted, is_inference;
  int world_size, local_world_size, group;
  double n_ids, n_rows; /* a rank's batch: ids in, pooled rows out */
  /* Bytes of an element: of the table, of messages. */
  double elem, a2a_fwd, a2a_bwd, sr_fwd, sr_bwd;
  double kernel_bw, hbm_to_ddr_bw, intra_host_bw, inter_host_bw; /* bytes/ms */
  double bwd_multiplier, weighted_multiplier;
  double missed_ids; /* miss rate * expected lookups of a prefetching cache; 0: no prefetch */
  /* The next fields are for TrsEstimateMeasured() alone. */
  const TrsRowRates *rates;
  double table_rows;
  /* Bytes of a row's states: state_row + cols * state_element. */
  double state_row, state_element;
  double update_factor; /* time of an update over that of fp32 rows */
  PetscBool in_place;   /* rows are read, and gradients left, where they have arrived */
  PetscBool is_cuda;    /* rows of one shard travel inside a host, too */
} TrsPerfInput;

/* Perf of a shard of rows x cols. Not collective. */
TrsPerf TrsEstimatePerf(const TrsPerfInput *in, int64_t rows, int64_t cols);

/*
  TrsEstimateMeasured - Perf of a shard of cols columns by what trshard does and the machine's
    measured rates (-plan_cost_model measured).

  All shards of an option have the same perf. Not collective.

  Source: src/plan/RULES.md, section 12
*/
TrsPerf TrsEstimateMeasured(const TrsPerfInput *in, int64_t cols);

/*
  Factor on the compute time of a shard of cols columns.
  Short rows make bad use of a block of 128 threads.
*/
double TrsBlockPenalty(int64_t cols);

/* Sum of the five parts, in TorchRec's order. */
static inline double TrsPerfTotal(const TrsPerf *p)
{
  return (((p->fwd_compute + p->bwd_compute) + p->fwd_comms) + p->bwd_comms) + p->prefetch_compute;
}

static inline void TrsPerfAdd(TrsPerf *sum, const TrsPerf *p)
{
  sum->fwd_compute += p->fwd_compute;
  sum->fwd_comms += p->fwd_comms;
  sum->bwd_compute += p->bwd_compute;
  sum->bwd_comms += p->bwd_comms;
  sum->prefetch_compute += p->prefetch_compute;
}
