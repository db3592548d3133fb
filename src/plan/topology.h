/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The machine to plan for: devices, their memory, and the bandwidths of the cost model
  (src/plan/RULES.md, section 2).
*/
#pragma once

#include "spec/table_config.h"

extern const TrsOptionGroup trs_topology_options;

/*
  What an id costs on a machine, as -bench_topology measures it for -plan_cost_model measured. An
  overhead is the number of bytes that would take an id's time if rows had no width.
*/
typedef struct {
  double read_bw, read_overhead;     /* of lookups: bytes/ms, bytes */
  double update_bw, update_overhead; /* of updates: bytes/ms, bytes */
  /* The time of an update of fp16 and bf16 rows over that of fp32 rows, without and with stochastic
     rounding. */
  double half_update, stochastic_update;
  /* Of ids that are cut by the ranks of their rows: bytes/ms, and bytes a bag. 0: unknown. */
  double cut_bw, cut_overhead;
  double stream_bw; /* bytes/ms of passes over matrices */
} TrsRowRates;

typedef struct {
  PetscBool is_cuda;
  int world_size, local_world_size, pod_size; /* of one copy of the tables */
  int replicas;                               /* copies of the tables, each on world_size ranks */
  int host_ranks;                             /* ranks of a host, of all copies together */
  int group;          /* ranks that count as one host for placing: pod_size * local_world_size */
  int64_t *hbm, *ddr; /* [world_size] bytes; hbm is 0 on cpu */
  PetscBool hbm_listed, ddr_listed; /* an option gave the memory of each rank */
  /* The compute device's own memory was given for each rank, so
     row_wise splits in proportion to it. */
  PetscBool uneven_own;
  double hbm_mem_bw, ddr_mem_bw, hbm_to_ddr_mem_bw, intra_host_bw, inter_host_bw; /* bytes/ms */
  double bwd_compute_multiplier, weighted_feature_bwd_compute_multiplier;
  TrsRowRates rows; /* 0: not measured */
} TrsTopology;

/* The world to use if the options do not give one. */
typedef struct {
  PetscBool is_cuda;
  /* A real run, in which another -topology_world_size is an error. */
  PetscBool is_fixed;
  int world_size, local_world_size;
  int64_t hbm_bytes, ddr_bytes; /* memory of a device, 0 if unknown */
  int replicas; /* copies of the tables; 0: as -plan_replicas says, 1 if it leaves the choice */
} TrsTopologyDefaults;

/*
  TrsTopologyFromOptions - Read -topology_ and check the result.

  Not collective.

  Out:    topology  free with TrsTopologyFree()
  Errors: OPTION for lists whose length is not the world's, and for hosts that do not fit a real run
  Source: TorchRec Topology
*/
PetscErrorCode TrsTopologyFromOptions(TrsOptions options, const TrsTopologyDefaults *defaults,
                                      TrsTopology *topology);
PetscErrorCode TrsTopologyFree(TrsTopology *topology);

/*
  TrsPlanReplicas - The number of copies of all tables that a run keeps (-plan_replicas).

  Each copy is on equally many consecutive ranks, and a plan is for one copy.

  Not collective.

  In:     world_size  ranks of all copies together
  Out:    replicas    1 for tasks that train and plan nothing; 0: the planner chooses
  Errors: OPTION if they do not divide the ranks
  Source: TorchRec DMPCollection with use_inter_host_allreduce
*/
PetscErrorCode TrsPlanReplicas(TrsOptions options, int64_t world_size, int *replicas);

/*
  The ranks of a host that a replica of `size` ranks counts: the most that are always on one host of
  local_world_size ranks, wherever the replica begins. Not collective.
*/
int TrsReplicaHost(int local_world_size, int size);

/*
  Bandwidth of a kernel's rows in bytes/ms, or 0 if the device does not have the kernel. Source:
  TorchRec kernel_bw_lookup.
*/
double TrsTopologyKernelBandwidth(const TrsTopology *topology, TrsComputeKernel kernel, double load_factor,
                                  PetscBool prefetch);
