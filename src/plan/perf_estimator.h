/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Estimates one shard's time in five parts. The order of operations is TorchRec's, bit for bit.

  Source: TorchRec EmbeddingPerfEstimator; src/plan/RULES.md, section 6
*/
#pragma once

#include "plan/topology.h"
#include "spec/sharding_plan.h"

typedef struct {
  TrsShardingType type;
  PetscBool is_pooled, is_weighted, is_inference;
  int world_size, local_world_size, group;
  double n_ids, n_rows; /* ids and pooled rows of a rank's batch */
  /* Bytes per element of the table and of messages. */
  double elem, a2a_fwd, a2a_bwd, sr_fwd, sr_bwd;
  double kernel_bw, hbm_to_ddr_bw, intra_host_bw, inter_host_bw; /* bytes/ms */
  double bwd_multiplier, weighted_multiplier;
  double missed_ids; /* miss rate * expected lookups of a prefetching cache; 0: no prefetch */
  /* Only TrsEstimateMeasured() reads the following fields. */
  const TrsRowRates *rates;
  double table_rows;
  /* A row's states have state_row + cols * state_element bytes. */
  double state_row, state_element;
  double update_factor; /* an update's time divided by an fp32 update's time */
  PetscBool in_place;   /* the model reads rows and leaves gradients in the exchange's buffers */
  PetscBool is_cuda;    /* one shard's rows also travel inside a host */
} TrsPerfInput;

/* The perf of a shard of rows x cols. Not collective. */
TrsPerf TrsEstimatePerf(const TrsPerfInput *in, int64_t rows, int64_t cols);

/*
  TrsEstimateMeasured - The perf of a shard of cols columns, from trshard's own work and the
    machine's measured rates (-plan_cost_model measured).

  All shards of an option have the same perf. Not collective.

  Source: src/plan/RULES.md, section 12
*/
TrsPerf TrsEstimateMeasured(const TrsPerfInput *in, int64_t cols);

/* The factor on a shard's compute time. Short rows leave part of a 128-thread block idle. */
double TrsBlockPenalty(int64_t cols);

/* The sum of the five parts, in TorchRec's order. */
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
