/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/cost/perf_estimator.h"

#include <math.h>

#define ID_BYTES            8.0
#define WEIGHTED_KERNEL     1.1
#define BATCHED_COPY        2.455
#define ELEMENTWISE_KERNELS 9.22

double TrsBlockPenalty(int64_t cols)
{
  if (cols < 64) return 1.75;
  return cols < 128 ? 1.15 : 1.0;
}

static double collective_bw(const TrsPerfInput *in, int local, int world)
{
  return world <= local ? in->intra_host_bw : in->inter_host_bw;
}

/* Bytes that the kernel reads and writes, before any penalty. The `write` bytes are also sent. */
typedef struct {
  double read, lookup, write, write_bwd;
} TrsTraffic;

static TrsTraffic shard_traffic(const TrsPerfInput *in, int64_t cols)
{
  double W = in->world_size, n, c = (double)cols;
  TrsTraffic t = {0};

  switch (in->type) {
  case TRS_SHARDING_DATA_PARALLEL:
    t.read = ceil(in->n_ids * ID_BYTES);
    t.lookup = (in->n_ids * c) * in->elem;
    t.write = (in->n_rows * c) * in->elem;
    break;
  case TRS_SHARDING_TABLE_WISE:
  case TRS_SHARDING_COLUMN_WISE:
  case TRS_SHARDING_TABLE_COLUMN_WISE:
    t.read = ceil((in->n_ids * W) * ID_BYTES);
    t.lookup = ((in->n_ids * W) * (double)PetscMax(cols, 32)) * in->elem;
    t.write = ((in->n_rows * W) * c) * in->a2a_fwd;
    t.write_bwd = ((in->n_rows * W) * c) * in->a2a_bwd;
    break;
  case TRS_SHARDING_ROW_WISE:
  case TRS_SHARDING_TABLE_ROW_WISE:
  case TRS_SHARDING_GRID_SHARD: /* the rows are split over all ranks, or over one host's ranks */
    n = in->type == TRS_SHARDING_ROW_WISE ? W : (double)in->group;
    t.read = ceil(((in->n_ids / n) * W) * ID_BYTES);
    t.lookup = (((in->n_ids / n) * W) * c) * in->elem;
    if (in->is_pooled) {
      t.write = ((in->n_rows * W) * c) * in->sr_fwd;
      t.write_bwd = ((in->n_rows * W) * c) * in->sr_bwd;
    } else {
      PetscBool by_a2a = (PetscBool)(in->type == TRS_SHARDING_ROW_WISE);

      t.write = (((in->n_rows / n) * W) * c) * (by_a2a ? in->a2a_fwd : in->sr_fwd);
      t.write_bwd = (((in->n_rows / n) * W) * c) * (by_a2a ? in->a2a_bwd : in->sr_bwd);
    }
  }
  if (in->is_weighted) t.read = t.read * 2;
  return t;
}

/* The time of the all-reduce of a replicated table's gradient, and of its optimizer's kernels. */
static double data_parallel_comms(const TrsPerfInput *in, int64_t rows, int64_t cols)
{
  double table = ((double)(rows * cols)) * in->elem;
  double n = PetscMin((double)in->world_size / (double)in->local_world_size, 2.0);
  double all_reduce = ((table * (2 * n - 1)) / n) / (in->inter_host_bw * (double)in->local_world_size);

  if (in->world_size > 2 * in->local_world_size) all_reduce = all_reduce * 2;
  return all_reduce + (table * ELEMENTWISE_KERNELS) / in->kernel_bw;
}

/*
  The time of a reduce-scatter within each group of ranks, then an all-to-all between the groups.
*/
static void group_comms(const TrsPerfInput *in, const TrsTraffic *t, int64_t cols, TrsPerf *perf)
{
  int groups = PetscMax(1, in->world_size / in->group);
  double intra_bw = collective_bw(in, PetscMin(in->group, in->local_world_size), in->group);
  double inter_fwd = 0, inter_bwd = 0;

  if (groups > 1) {
    double n = (in->n_rows * (double)groups) * (double)cols;

    inter_fwd = (n * in->a2a_fwd) / in->inter_host_bw;
    inter_bwd = (n * in->a2a_bwd) / in->inter_host_bw;
  }
  perf->fwd_comms = t->write / intra_bw + inter_fwd;
  perf->bwd_comms = (inter_bwd + t->write_bwd / intra_bw) + (t->write_bwd * BATCHED_COPY) / in->kernel_bw;
}

TrsPerf TrsEstimatePerf(const TrsPerfInput *in, int64_t rows, int64_t cols)
{
  TrsTraffic t = shard_traffic(in, cols);
  double bw = collective_bw(in, in->local_world_size, in->world_size), penalty = 1.0, divisor = 1.0;
  TrsPerf perf = {0};

  switch (in->type) {
  case TRS_SHARDING_DATA_PARALLEL: perf.bwd_comms = data_parallel_comms(in, rows, cols); break;
  case TRS_SHARDING_TABLE_WISE:
  case TRS_SHARDING_COLUMN_WISE:
  case TRS_SHARDING_TABLE_COLUMN_WISE:
    penalty = TrsBlockPenalty(cols);
    perf.fwd_comms = t.write / bw;
    perf.bwd_comms = t.write_bwd / bw;
    break;
  case TRS_SHARDING_ROW_WISE:
    divisor = in->world_size;
    perf.fwd_comms = t.write / bw;
    perf.bwd_comms = t.write_bwd / bw + (t.write_bwd * BATCHED_COPY) / in->kernel_bw;
    break;
  case TRS_SHARDING_TABLE_ROW_WISE:
  case TRS_SHARDING_GRID_SHARD: divisor = in->group; group_comms(in, &t, cols, &perf);
  }
  perf.fwd_compute = (((t.read + t.lookup) + t.write) * penalty) / in->kernel_bw;
  perf.bwd_compute = perf.fwd_compute * in->bwd_multiplier;
  if (in->is_weighted)
    perf.bwd_compute = perf.bwd_compute * in->weighted_multiplier + perf.fwd_compute * WEIGHTED_KERNEL;
  if (in->missed_ids > 0 && in->type != TRS_SHARDING_DATA_PARALLEL)
    perf.prefetch_compute = (((in->missed_ids / divisor) * (double)cols) * in->elem) / in->hbm_to_ddr_bw;
  if (in->is_inference) perf.bwd_compute = perf.bwd_comms = 0;
  return perf;
}
