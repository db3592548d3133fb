/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Estimates one shard's time in five parts. The order of operations is TorchRec's, so the results
  are equal bit for bit.

  Source: TorchRec EmbeddingPerfEstimator; src/plan/RULES.md, section 6
*/
#pragma once

#include "plan/cost/topology.h"
#include "spec/sharding_plan.h"

typedef struct {
  TrsShardingType type;
  PetscBool is_pooled, is_weighted, is_inference;
  int world_size, local_world_size, group;
  double n_ids, n_rows; /* number of ids and of pooled rows in a rank's batch */
  /* Bytes per element of the table and of each kind of message. */
  double elem, a2a_fwd, a2a_bwd, sr_fwd, sr_bwd;
  double kernel_bw, hbm_to_ddr_bw, intra_host_bw, inter_host_bw; /* bytes/ms */
  double bwd_multiplier, weighted_multiplier;
  /* miss rate times expected lookups, for a cache with prefetch; 0: no prefetch */
  double missed_ids;
  /* Only TrsEstimateMeasured() reads the following fields. */
  const TrsRowRates *rates;
  double table_rows;
  /* The optimizer's states of a row have state_row + cols * state_element bytes. */
  double state_row, state_element;
  double update_factor; /* time of an update divided by the time of an update in fp32 */
  /* true: the model reads rows in the exchange's buffers and leaves their gradients there */
  PetscBool in_place;
  PetscBool is_cuda; /* true: one shard's rows also travel inside a host */
} TrsPerfInput;

/* Estimate the time of a shard of rows x cols. Not collective. */
TrsPerf TrsEstimatePerf(const TrsPerfInput *in, int64_t rows, int64_t cols);

/*
  TrsEstimateMeasured - Estimate the time of a shard with `cols` columns, from trshard's own work
    and the machine's measured rates (-plan_cost_model measured).

  All shards of an option have the same time. Not collective.

  Source: src/plan/RULES.md, section 12
*/
TrsPerf TrsEstimateMeasured(const TrsPerfInput *in, int64_t cols);

/* The factor on a shard's compute time. A short row leaves part of a block of 128 threads idle. */
double TrsBlockPenalty(int64_t cols);

/* The sum of the five parts, added in TorchRec's order. */
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
