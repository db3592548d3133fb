/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/cost/topology.h"

#include "core/names.h"

#include <inttypes.h>
#include <limits.h>

#define GIB (INT64_C(1) << 30)

/* Convert GiB/s to bytes/ms, the cost model's unit, with TorchRec's order of operations. */
#define GIB_PER_S(x) ((x) * (double)GIB / 1000.0)

static const TrsOptionSpec specs[] = {
    {"-topology_compute_device", TRS_OPTION_ENUM, NULL, NULL, TRS_CHOICES(TRS_DEVICES), NULL,
     "device that holds the tables (default: -device; cuda in a dry run without one)"},
    {"-topology_world_size", TRS_OPTION_INT, NULL, "[1,1048576]", NULL, "ranks",
     "devices to plan for (default: the run's)"},
    {"-topology_local_world_size", TRS_OPTION_INT, NULL, "[1,1048576]", NULL, "ranks",
     "devices of a host (default: the run's; in a dry run all of them)"},
    {"-topology_pod_size", TRS_OPTION_INT, "1", "[1,1048576]", NULL, "hosts",
     "hosts joined by a fast network, which count as one host for table_row_wise, table_column_wise and "
     "grid_shard"},
    {"-topology_hbm_cap", TRS_OPTION_BYTES, NULL, "[0,]", NULL, "bytes",
     "device memory of one device (default: found on the machine; dry run 32GiB)"},
    {"-topology_ddr_cap", TRS_OPTION_BYTES, NULL, "[0,]", NULL, "bytes",
     "host memory of one device (default: found on the machine, within the job's limit; dry run 128GiB)"},
    {"-topology_hbm_cap_per_rank", TRS_OPTION_BYTES_LIST, NULL, "[0,]", NULL, "bytes",
     "device memory of each device, one entry for each; row_wise then splits rows in proportion"},
    {"-topology_ddr_cap_per_rank", TRS_OPTION_BYTES_LIST, NULL, "[0,]", NULL, "bytes",
     "host memory of each device, one entry for each"},
    {"-topology_hbm_mem_bw", TRS_OPTION_BANDWIDTH, NULL, "(0,)", NULL, "bytes/ms, or as 3.35TB/s",
     "bandwidth of device memory (default: 897 GiB/s)"},
    {"-topology_ddr_mem_bw", TRS_OPTION_BANDWIDTH, NULL, "(0,)", NULL, "bytes/ms, or as 3.35TB/s",
     "bandwidth of host memory (default: 51 GiB/s)"},
    {"-topology_hbm_to_ddr_mem_bw", TRS_OPTION_BANDWIDTH, NULL, "(0,)", NULL, "bytes/ms, or as 3.35TB/s",
     "bandwidth between host and device (default: 32 GiB/s)"},
    {"-topology_intra_host_bw", TRS_OPTION_BANDWIDTH, NULL, "(0,)", NULL, "bytes/ms, or as 3.35TB/s",
     "network bandwidth of a device within a host (default: 600 GiB/s)"},
    {"-topology_inter_host_bw", TRS_OPTION_BANDWIDTH, NULL, "(0,)", NULL, "bytes/ms, or as 3.35TB/s",
     "network bandwidth of a device across hosts (default: 12.5 GiB/s)"},
    {"-topology_product_rate", TRS_OPTION_REAL, "0", "[0,]", NULL, "operations/ms",
     "rate of a device's matrix products in the dense layers, as -bench_topology measures it. Without it "
     "(0) the time of dense layers is not predicted"},
    {"-topology_stream_bw", TRS_OPTION_BANDWIDTH, "0", "[0,)", NULL, "bytes/ms, or as 3.35TB/s",
     "bandwidth of a device's passes over the dense layers' matrices and parameters; 0: unknown"},
    {"-topology_pair_rate", TRS_OPTION_REAL, "0", "[0,)", NULL, "operations/ms",
     "rate of the dot products of a sample's vectors (-interaction dot), as -bench_topology measures it. 0: "
     "that of matrix products"},
    {"-topology_pair_overhead", TRS_OPTION_REAL, "0", "[0,]", NULL, "operations",
     "additional time of a dot product, as the number of operations that would take this time"},
    {"-topology_pair_back_rate", TRS_OPTION_REAL, "0", "[0,)", NULL, "operations/ms",
     "rate of the gradients of these dot products; 0: that of matrix products"},
    {"-topology_pair_back_overhead", TRS_OPTION_REAL, "0", "[0,]", NULL, "operations",
     "additional time of these gradients, as the number of operations that would take this time"},
    {"-topology_row_read_bw", TRS_OPTION_BANDWIDTH, "0", "[0,)", NULL, "bytes/ms, or as 3.35TB/s",
     "-plan_cost_model measured: bandwidth of lookups, to which each id adds -topology_row_read_overhead; 0: "
     "unknown"},
    {"-topology_row_read_overhead", TRS_OPTION_REAL, "0", "[0,]", NULL, "bytes",
     "-plan_cost_model measured: additional time of an id, as the number of bytes that a lookup could "
     "read in this time"},
    {"-topology_row_update_bw", TRS_OPTION_BANDWIDTH, "0", "[0,)", NULL, "bytes/ms, or as 3.35TB/s",
     "-plan_cost_model measured: bandwidth at which updates read gradients, and read and write rows and "
     "states; 0: unknown"},
    {"-topology_row_update_overhead", TRS_OPTION_REAL, "0", "[0,]", NULL, "bytes",
     "-plan_cost_model measured: additional time of an id, as the number of bytes that an update could "
     "move in this time"},
    {"-topology_half_update", TRS_OPTION_REAL, "1", "(0,)", NULL, NULL,
     "-plan_cost_model measured: time of updates of fp16 and bf16 rows as a multiple of fp32's"},
    {"-topology_stochastic_update", TRS_OPTION_REAL, "1", "(0,)", NULL, NULL,
     "-plan_cost_model measured: time of updates of fp16 and bf16 rows with stochastic rounding as a "
     "multiple of fp32's"},
    {"-topology_cut_bw", TRS_OPTION_BANDWIDTH, "0", "[0,)", NULL, "bytes/ms, or as 3.35TB/s",
     "-plan_cost_model measured: bandwidth at which ids of row-wise tables are cut by the owners of rows. "
     "With 0, the cut takes no time"},
    {"-topology_cut_overhead", TRS_OPTION_REAL, "0", "[0,]", NULL, "bytes",
     "-plan_cost_model measured: additional time of a bag, as the number of bytes of ids that could be "
     "cut in this time"},
    {"-plan_replicas", TRS_OPTION_INT, "1", "[0,1000000]", NULL, "copies",
     "copies of all tables that a training keeps, each sharded over its part of the ranks (TorchRec: 2D "
     "parallelism). Plans, -topology_..._per_rank and reports are those of one copy. 0: the number that "
     "the cost model finds fastest, or that fits -plan_input"},
    {"-replica_sync", TRS_OPTION_ENUM, "average", NULL, TRS_CHOICES(TRS_REPLICA_SYNCS), NULL,
     "with -plan_replicas: how the copies stay equal. average: they take means of their weights and states "
     "every few steps (TorchRec). gradients: they exchange the ids and gradients of every step, and are the "
     "same as a single copy"},
    {"-replica_sync_every", TRS_OPTION_INT, "1", "[1,]", NULL, "steps",
     "with -plan_replicas: steps after which the copies of the tables take the mean of their weights and "
     "optimizer states. They also do so before evaluations and at the end. A checkpoint that is due "
     "between two means follows the next one. So does a requested stop, if that takes at most 10 "
     "seconds"},
    {"-topology_bwd_compute_multiplier", TRS_OPTION_REAL, "2", "[0,]", NULL, NULL,
     "compute time of the backward as a multiple of the forward's"},
    {"-topology_weighted_feature_bwd_compute_multiplier", TRS_OPTION_REAL, "1", "[0,]", NULL, NULL,
     "additional factor of the compute time of the backward for weighted features"},
    {"-topology_uneven_sharding_perf_multiplier", TRS_OPTION_REAL, "1", "[0,]", NULL, NULL,
     "accepted for compatibility with TorchRec, whose default estimator does not use it"},
};
const TrsOptionGroup trs_topology_options = TRS_OPTION_GROUP("Planner: topology", specs);

PetscErrorCode TrsPlanReplicas(TrsOptions options, int64_t world_size, int *replicas)
{
  int task = TRS_TASK_TRAIN;
  int64_t n;

  PetscFunctionBegin;
  *replicas = 1;
  PetscCall(TrsOptionsGetInt(options, "-plan_replicas", &n, NULL));
  if (n == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsGetEnum(options, "-task", &task, NULL));
  if (task != TRS_TASK_TRAIN && task != TRS_TASK_PLAN) PetscFunctionReturn(PETSC_SUCCESS);
  if (n > 0 && world_size % n != 0)
    PetscCall(TrsOptionError(options, "-plan_replicas",
                             "%" PRId64 " copies of the tables do not divide the %" PRId64 " rank%s", n,
                             world_size, TrsPlural(world_size, "s")));
  *replicas = (int)n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsReplicaHost(int local_world_size, int size)
{
  int a = local_world_size, b = size;

  while (b) {
    const int rest = a % b;

    a = b;
    b = rest;
  }
  return a;
}

/* Reduce the world to the ranks of one copy of the tables. */
static PetscErrorCode take_replica(TrsOptions options, int64_t pod, int replicas, int64_t *world,
                                   int64_t *local)
{
  PetscFunctionBegin;
  if (replicas == 1) PetscFunctionReturn(PETSC_SUCCESS);
  if (pod > 1)
    PetscCall(
        TrsOptionError(options, "-plan_replicas", "does not go with -topology_pod_size: leave one out"));
  *world /= replicas;
  *local = TrsReplicaHost((int)*local, (int)*world);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_world(TrsOptions options, const TrsTopologyDefaults *defaults,
                                 TrsTopology *topology)
{
  int device = defaults->is_cuda ? 1 : 0;
  int64_t world = defaults->world_size, local, pod;
  PetscBool set;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-topology_compute_device", &device, NULL));
  topology->is_cuda = (PetscBool)(device == 1);
  PetscCall(TrsOptionsGetInt(options, "-topology_world_size", &world, NULL));
  if (defaults->is_fixed && world != defaults->world_size)
    PetscCall(TrsOptionError(options, "-topology_world_size",
                             "%" PRId64
                             " is not the run's %d rank%s; another world can only be planned with -task plan",
                             world, defaults->world_size, TrsPlural(defaults->world_size, "s")));
  local = defaults->local_world_size > 0 ? defaults->local_world_size : world;
  PetscCall(TrsOptionsGetInt(options, "-topology_local_world_size", &local, &set));
  if (defaults->is_fixed && world % local != 0)
    PetscCall(TrsOptionError(options, "-topology_local_world_size",
                             "%" PRId64 " ranks a host do not divide the run's %" PRId64 " rank%s", local,
                             world, TrsPlural(world, "s")));
  PetscCall(TrsOptionsGetInt(options, "-topology_pod_size", &pod, NULL));
  if (pod > INT_MAX / local)
    PetscCall(TrsOptionError(options, "-topology_pod_size", "%" PRId64 " hosts of %" PRId64 " ranks overflow",
                             pod, local));
  topology->host_ranks = (int)local;
  topology->replicas = defaults->replicas;
  if (topology->replicas == 0) PetscCall(TrsPlanReplicas(options, world, &topology->replicas));
  topology->replicas = PetscMax(topology->replicas, 1);
  PetscCall(take_replica(options, pod, topology->replicas, &world, &local));
  topology->world_size = (int)world;
  topology->local_world_size = (int)local;
  topology->pod_size = (int)pod;
  topology->group = (int)(pod * local);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_caps(TrsOptions options, const char *one, const char *list, int64_t standard,
                                int world_size, int64_t *caps, PetscBool *is_list)
{
  int n = 0;
  const int64_t *entries = NULL;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, one, &standard, NULL));
  PetscCall(TrsOptionsGetInts(options, list, &n, &entries, is_list));
  if (n && n != world_size)
    PetscCall(TrsOptionError(options, list, "%d entr%s for %d device%s", n, n == 1 ? "y" : "ies", world_size,
                             TrsPlural(world_size, "s")));
  for (int r = 0; r < world_size; r++) caps[r] = n ? entries[r] : standard;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_rows(TrsOptions options, TrsRowRates *rows)
{
  PetscFunctionBegin;
  PetscCall(TrsOptionsGetReal(options, "-topology_row_read_bw", &rows->read_bw, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_row_read_overhead", &rows->read_overhead, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_row_update_bw", &rows->update_bw, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_row_update_overhead", &rows->update_overhead, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_half_update", &rows->half_update, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_stochastic_update", &rows->stochastic_update, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_cut_bw", &rows->cut_bw, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_cut_overhead", &rows->cut_overhead, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_stream_bw", &rows->stream_bw, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTopologyFromOptions(TrsOptions options, const TrsTopologyDefaults *defaults,
                                      TrsTopology *topology)
{
  PetscFunctionBegin;
  *topology = (TrsTopology){.hbm_mem_bw = GIB_PER_S(897),
                            .ddr_mem_bw = GIB_PER_S(51),
                            .hbm_to_ddr_mem_bw = GIB_PER_S(32),
                            .intra_host_bw = GIB_PER_S(600),
                            .inter_host_bw = GIB_PER_S(12.5)};
  PetscCall(read_world(options, defaults, topology));
  PetscCall(PetscMalloc1(topology->world_size, &topology->hbm));
  PetscCall(PetscMalloc1(topology->world_size, &topology->ddr));
  PetscCall(read_caps(options, "-topology_hbm_cap", "-topology_hbm_cap_per_rank",
                      defaults->hbm_bytes ? defaults->hbm_bytes : 32 * GIB, topology->world_size,
                      topology->hbm, &topology->hbm_listed));
  PetscCall(read_caps(options, "-topology_ddr_cap", "-topology_ddr_cap_per_rank",
                      defaults->ddr_bytes ? defaults->ddr_bytes : 128 * GIB, topology->world_size,
                      topology->ddr, &topology->ddr_listed));
  topology->uneven_own = topology->is_cuda ? topology->hbm_listed : topology->ddr_listed;
  if (!topology->is_cuda) {
    for (int r = 0; r < topology->world_size; r++) topology->hbm[r] = 0;
  }
  PetscCall(TrsOptionsGetReal(options, "-topology_hbm_mem_bw", &topology->hbm_mem_bw, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_ddr_mem_bw", &topology->ddr_mem_bw, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_hbm_to_ddr_mem_bw", &topology->hbm_to_ddr_mem_bw, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_intra_host_bw", &topology->intra_host_bw, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_inter_host_bw", &topology->inter_host_bw, NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_bwd_compute_multiplier", &topology->bwd_compute_multiplier,
                              NULL));
  PetscCall(TrsOptionsGetReal(options, "-topology_weighted_feature_bwd_compute_multiplier",
                              &topology->weighted_feature_bwd_compute_multiplier, NULL));
  PetscCall(read_rows(options, &topology->rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTopologyFree(TrsTopology *topology)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(topology->hbm));
  PetscCall(PetscFree(topology->ddr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

double TrsTopologyKernelBandwidth(const TrsTopology *topology, TrsComputeKernel kernel, double load_factor,
                                  PetscBool prefetch)
{
  double own = topology->is_cuda ? topology->hbm_mem_bw : topology->ddr_mem_bw;

  switch (kernel) {
  case TRS_KERNEL_DENSE: return 0.5 * own;
  case TRS_KERNEL_FUSED:
  case TRS_KERNEL_QUANT: return 1 * own;
  case TRS_KERNEL_FUSED_UVM:
  case TRS_KERNEL_QUANT_UVM: return topology->is_cuda ? topology->hbm_to_ddr_mem_bw / 10 : 0.0;
  case TRS_KERNEL_FUSED_UVM_CACHING:
    if (topology->is_cuda && prefetch) return own;
    break;
  case TRS_KERNEL_QUANT_UVM_CACHING: break;
  }
  if (!topology->is_cuda) return 0.0;
  return (load_factor * topology->hbm_mem_bw + (1 - load_factor) * topology->hbm_to_ddr_mem_bw) / 10;
}
