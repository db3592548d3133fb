/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The machine to plan for: devices, their memory, and the bandwidths of the cost model
  (src/plan/RULES.md, section 2).
*/
#pragma once

#include "spec/table_config.h"

typedef struct {
  PetscBool is_cuda;
  int world_size, local_world_size, pod_size;
  int group;          /* ranks that count as one host for placing: pod_size * local_world_size */
  int64_t *hbm, *ddr; /* [world_size] bytes; hbm is 0 on cpu */
  PetscBool
      uneven_own; /* the compute device's own memory was given per rank: row_wise splits in proportion */
  double hbm_mem_bw, ddr_mem_bw, hbm_to_ddr_mem_bw, intra_host_bw, inter_host_bw; /* bytes/ms */
  double bwd_compute_multiplier, weighted_feature_bwd_compute_multiplier;
} TrsTopology;

/* The world to use where the options do not name one. */
typedef struct {
  PetscBool is_cuda;
  PetscBool is_fixed; /* a real run: another -topology_world_size is an error */
  int world_size, local_world_size;
  int64_t hbm_bytes, ddr_bytes; /* a device's; 0: unknown */
} TrsTopologyDefaults;

/*
  TrsTopologyFromOptions - Read -topology_ and check it.

  Not collective.
  Out:    topology  free with TrsTopologyFree()
  Errors: OPTION for lists of another length than the world, hosts that do not fit a real run
  Source: TorchRec Topology
*/
PetscErrorCode TrsTopologyFromOptions(TrsOptions options, const TrsTopologyDefaults *defaults,
                                      TrsTopology *topology);
PetscErrorCode TrsTopologyFree(TrsTopology *topology);

/* Bandwidth of a kernel's rows in bytes/ms, 0 where the device does not have the kernel. Source: TorchRec kernel_bw_lookup */
double TrsTopologyKernelBandwidth(const TrsTopology *topology, TrsComputeKernel kernel, double load_factor,
                                  PetscBool prefetch);
