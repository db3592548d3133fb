/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The machine to plan for: devices, their memory, and the bandwidths of the cost model
  (src/plan/RULES.md, section 2).
*/
#pragma once

#include "spec/table_config.h"

extern const TrsOptionGroup trs_topology_options;

/*
  An id's cost on a machine, measured by -bench_topology for -plan_cost_model measured. An overhead
  is the fixed time for an id, expressed in bytes at the given bandwidth.
*/
typedef struct {
  double read_bw, read_overhead;     /* lookups: bytes/ms, bytes */
  double update_bw, update_overhead; /* updates: bytes/ms, bytes */
  /* The time for an update of fp16 or bf16 rows divided by the time for fp32 rows, without and with
     stochastic rounding. */
  double half_update, stochastic_update;
  /* Sorting ids by the ranks of their rows: bytes/ms, and bytes per bag. 0: unknown. */
  double cut_bw, cut_overhead;
  double stream_bw; /* passes over matrices: bytes/ms */
} TrsRowRates;

typedef struct {
  PetscBool is_cuda;
  int world_size, local_world_size, pod_size; /* for one copy of the tables */
  int replicas;                               /* copies of the tables, each on world_size ranks */
  int host_ranks;                             /* ranks per host, all copies together */
  /* Ranks that placing treats as one host: pod_size * local_world_size. */
  int group;
  int64_t *hbm, *ddr;               /* [world_size] bytes; hbm is 0 on cpu */
  PetscBool hbm_listed, ddr_listed; /* an option gave each rank's memory */
  /* The compute device's memory was given for each rank; row_wise splits in proportion to it. */
  PetscBool uneven_own;
  double hbm_mem_bw, ddr_mem_bw, hbm_to_ddr_mem_bw, intra_host_bw, inter_host_bw; /* bytes/ms */
  double bwd_compute_multiplier, weighted_feature_bwd_compute_multiplier;
  TrsRowRates rows; /* 0: not measured */
} TrsTopology;

/* The world to use if the options do not give one. */
typedef struct {
  PetscBool is_cuda;
  /* In a real run, any other -topology_world_size is an error. */
  PetscBool is_fixed;
  int world_size, local_world_size;
  int64_t hbm_bytes, ddr_bytes; /* memory per device; 0: unknown */
  /* Copies of the tables; 0: use -plan_replicas, or 1 if the planner chooses. */
  int replicas;
} TrsTopologyDefaults;

/*
  TrsTopologyFromOptions - Read -topology_ and check the result.

  Not collective.

  Out:    topology  free with TrsTopologyFree()
  Errors: OPTION if a list's length is not the world size, and for hosts that do not fit a real run
  Source: TorchRec Topology
*/
PetscErrorCode TrsTopologyFromOptions(TrsOptions options, const TrsTopologyDefaults *defaults,
                                      TrsTopology *topology);
PetscErrorCode TrsTopologyFree(TrsTopology *topology);

/*
  TrsPlanReplicas - Get the number of copies of all tables in a run (-plan_replicas).

  All copies have the same number of consecutive ranks. A plan describes one copy.

  Not collective.

  In:     world_size  ranks of all copies together
  Out:    replicas    1 for tasks that neither train nor plan; 0: the planner chooses
  Errors: OPTION if the number of copies does not divide the number of ranks
  Source: TorchRec DMPCollection with use_inter_host_allreduce
*/
PetscErrorCode TrsPlanReplicas(TrsOptions options, int64_t world_size, int *replicas);

/*
  The ranks per host for a replica of `size` ranks: the largest number of its ranks that are always
  on one host of local_world_size ranks, wherever the replica begins. Not collective.
*/
int TrsReplicaHost(int local_world_size, int size);

/*
  The bandwidth in bytes/ms at which a kernel reads rows; 0 if the device lacks the kernel.

  Source: TorchRec kernel_bw_lookup
*/
double TrsTopologyKernelBandwidth(const TrsTopology *topology, TrsComputeKernel kernel, double load_factor,
                                  PetscBool prefetch);
