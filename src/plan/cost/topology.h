/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The machine for which a plan is made: devices, their memory, and the bandwidths of the cost model
  (src/plan/RULES.md, section 2).
*/
#pragma once

#include "spec/table_config.h"

extern const TrsOptionGroup trs_topology_options;

/*
  The cost of an id on a machine, measured by -bench_topology for -plan_cost_model measured. An
  overhead is the fixed time per id. It is expressed as the number of bytes that take this time at
  the given bandwidth.
*/
typedef struct {
  double read_bw, read_overhead;     /* lookups: bytes/ms, bytes */
  double update_bw, update_overhead; /* updates: bytes/ms, bytes */
  /* The time to update fp16 or bf16 rows, divided by the time to update fp32 rows: without and
     with stochastic rounding. */
  double half_update, stochastic_update;
  /* For sorting ids by the ranks of their rows: bandwidth in bytes/ms, and overhead in bytes per
     bag. 0: unknown. */
  double cut_bw, cut_overhead;
  double stream_bw; /* passes over matrices: bytes/ms */
} TrsRowRates;

typedef struct {
  PetscBool is_cuda;
  int world_size, local_world_size, pod_size; /* the ranks of one copy of the tables */
  /* number of copies of the tables, each on world_size ranks */
  int replicas;
  int host_ranks; /* number of ranks per host, over all copies */
  /* Number of ranks that the placement treats as one host: pod_size * local_world_size. */
  int group;
  int64_t *hbm, *ddr;               /* [world_size] bytes; hbm is 0 on cpu */
  PetscBool hbm_listed, ddr_listed; /* true: an option gave each rank's memory */
  /* true: an option gave the compute device's memory for each rank, so row_wise splits rows in
     proportion to it. */
  PetscBool uneven_own;
  double hbm_mem_bw, ddr_mem_bw, hbm_to_ddr_mem_bw, intra_host_bw, inter_host_bw; /* bytes/ms */
  double bwd_compute_multiplier, weighted_feature_bwd_compute_multiplier;
  TrsRowRates rows; /* 0: not measured */
} TrsTopology;

/* The world that is used if the options do not give one. */
typedef struct {
  PetscBool is_cuda;
  /* true: a real run, in which another -topology_world_size is an error. */
  PetscBool is_fixed;
  int world_size, local_world_size;
  int64_t hbm_bytes, ddr_bytes; /* memory per device; 0: unknown */
  /* Number of copies of the tables. 0: -plan_replicas, or 1 if the planner chooses. */
  int replicas;
} TrsTopologyDefaults;

/*
  TrsTopologyFromOptions - Read the -topology_ options and check the result.

  Not collective.

  Out:    topology  free with TrsTopologyFree()
  Errors: OPTION if a list's length is not the world size, and for hosts that contradict a real run
  Source: TorchRec Topology
*/
PetscErrorCode TrsTopologyFromOptions(TrsOptions options, const TrsTopologyDefaults *defaults,
                                      TrsTopology *topology);
PetscErrorCode TrsTopologyFree(TrsTopology *topology);

/*
  TrsPlanReplicas - Get the number of copies of the tables in a run (-plan_replicas).

  All copies have the same number of consecutive ranks. A plan describes one copy.

  Not collective.

  In:     world_size  number of ranks, over all copies
  Out:    replicas    1 for tasks that neither train nor plan; 0: the planner chooses
  Errors: OPTION if the number of copies does not divide the number of ranks
  Source: TorchRec DMPCollection with use_inter_host_allreduce
*/
PetscErrorCode TrsPlanReplicas(TrsOptions options, int64_t world_size, int *replicas);

/*
  The ranks per host for a copy of `size` consecutive ranks. It is the largest number of ranks that
  are on the same host, of local_world_size ranks, wherever the copy begins. Not collective.
*/
int TrsReplicaHost(int local_world_size, int size);

/*
  The bandwidth in bytes/ms at which a kernel reads rows. 0 if the device lacks the kernel.

  Source: TorchRec kernel_bw_lookup
*/
double TrsTopologyKernelBandwidth(const TrsTopology *topology, TrsComputeKernel kernel, double load_factor,
                                  PetscBool prefetch);
