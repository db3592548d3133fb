/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/report.h"

#include "core/names.h"
#include "plan/cost/shared_cache.h"
#include "plan/report_format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB 1073741824.0
#define MIB 1048576.0
enum { TRS_WIDTH = 118, TRS_N_PARTS = 5, TRS_N_CULPRITS = 5, TRS_N_TIERS = 5, TRS_MAX_SHOWN_RANKS = 8 };

static const char *const abbreviation[TRS_N_SHARDINGS] = {"DP", "TW", "CW", "RW", "TWRW", "TWCW", "GS"};
static const char *const part_name[TRS_N_PARTS + 1] = {"total perf",     "forward compute",
                                                       "forward comms",  "backward compute",
                                                       "backward comms", "prefetch compute"};

/* The data of the report's sections: sums for each rank. */
typedef struct {
  const TrsReportInput *in;
  const TrsTableConfig **config; /* [n_tables] configs of the plan's tables */
  int W, *count;                 /* number of ranks, and [W * TRS_N_SHARDINGS] number of shards */
  double *input_mb, *output_mb;  /* [W] */
  double *hbm, *ddr;             /* [W] bytes, including the dense layers and the batch's ids */
  double *perf[TRS_N_PARTS + 1]; /* [W] each: the total time, then its parts */
} TrsReport;

static PetscErrorCode rule(TrsText *text, const char *title)
{
  int n = (int)strlen(title);

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(text, n ? "\n## %s " : "##%s", title));
  for (int i = n ? n + 4 : 2; i < TRS_WIDTH; i++) PetscCall(TrsTextAppend(text, "#", 1));
  PetscCall(TrsTextPrintf(text, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Add the input and output bytes of a step for table t. As in TorchRec, the output has the table's
  element type.
*/
static PetscErrorCode add_io(TrsReport *r, int t)
{
  const TrsCostModel *model = r->in->model;
  const TrsTablePlan *table = &r->in->plan->table[t];
  TrsPlanOption option = {.table = (int)(r->config[t] - model->tables->table),
                          .type = table->sharding_type,
                          .kernel = table->compute_kernel};
  TrsStorageInput storage;
  int64_t input, output;

  PetscFunctionBegin;
  TrsCostStorageInput(model, &option, &storage);
  storage.out_bytes = model->settings->is_quant ? 1 : (r->config[t]->data_type == TRS_FP32 ? 4 : 2);
  for (int s = 0; s < table->n_shards; s++) {
    const TrsShard *shard = &table->shard[s];

    TrsEstimateIo(&storage, shard->rows, shard->cols, &input, &output);
    r->input_mb[shard->rank] += (double)input / MIB;
    r->output_mb[shard->rank] += (double)output / MIB;
    r->count[shard->rank * TRS_N_SHARDINGS + (int)table->sharding_type]++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode gather(const TrsReportInput *in, TrsReport *r)
{
  const TrsShardingPlan *plan = in->plan;
  const TrsReservation *reserved = in->reservation;

  PetscFunctionBegin;
  *r = (TrsReport){.in = in, .W = plan->world_size};
  PetscCall(PetscMalloc1(plan->n_tables, &r->config));
  PetscCall(TrsPlanTables(in->model->tables, plan, r->config));
  PetscCall(PetscCalloc1(r->W * TRS_N_SHARDINGS, &r->count));
  PetscCall(PetscCalloc4(r->W, &r->input_mb, r->W, &r->output_mb, r->W, &r->hbm, r->W, &r->ddr));
  for (int p = 0; p <= TRS_N_PARTS; p++) PetscCall(PetscCalloc1(r->W, &r->perf[p]));
  for (int d = 0; d < r->W; d++) {
    const TrsPerf *perf = &plan->device_perf[d];

    r->hbm[d] = (double)(plan->device_storage[d].hbm + reserved->dense.hbm + reserved->kjt.hbm);
    r->ddr[d] = (double)(plan->device_storage[d].ddr + reserved->dense.ddr + reserved->kjt.ddr);
    r->perf[0][d] = TrsPerfTotal(perf);
    r->perf[1][d] = perf->fwd_compute;
    r->perf[2][d] = perf->fwd_comms;
    r->perf[3][d] = perf->bwd_compute;
    r->perf[4][d] = perf->bwd_comms;
    r->perf[5][d] = perf->prefetch_compute;
  }
  for (int t = 0; t < plan->n_tables; t++) PetscCall(add_io(r, t));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsReport *r)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(r->config));
  PetscCall(PetscFree(r->count));
  PetscCall(PetscFree4(r->input_mb, r->output_mb, r->hbm, r->ddr));
  for (int p = 0; p <= TRS_N_PARTS; p++) PetscCall(PetscFree(r->perf[p]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_head(const TrsReport *r, TrsText *text)
{
  const TrsReportInput *in = r->in;
  const TrsPlanSearch *search = in->search;

  PetscFunctionBegin;
  PetscCall(rule(text, ""));
  PetscCall(TrsTextPrintf(text, "Planner statistics: %d table%s on %d device%s (%d a host)\n",
                          in->plan->n_tables, TrsPlural(in->plan->n_tables, "s"), r->W, TrsPlural(r->W, "s"),
                          in->plan->local_world_size));
  PetscCall(TrsTextPrintf(text,
                          "Evaluated %" PRId64 " proposal(s), found %" PRId64
                          " possible plan(s), ran for %.4f s (%.4f s of a core)\n",
                          in->plan->partitioned, in->plan->feasible, search->seconds, search->cpu_seconds));
  if (search->best.found)
    PetscCall(TrsTextPrintf(text, "The winner is from proposer %s, one of %" PRId64 " proposal%s made\n",
                            TrsProposerKindName(search->best.proposer), in->plan->proposals,
                            TrsPlural(in->plan->proposals, "s")));
  if (in->optimum->bound_ms > 0) {
    PetscCall(
        TrsTextPrintf(text, "Lower bound of the critical path: %.6g ms; this plan is at most %.2f%% above it",
                      in->optimum->bound_ms, 100 * (in->plan->critical_path / in->optimum->bound_ms - 1)));
    if (in->default_path_ms > 0)
      PetscCall(TrsTextPrintf(text, " (TorchRec's proposers: %.6g ms, %.2f%%)", in->default_path_ms,
                              100 * (in->default_path_ms / in->optimum->bound_ms - 1)));
    PetscCall(TrsTextPrintf(text, "%s\n",
                            in->optimum->by_time
                                ? "\nThe time limit ended the search: a faster machine may find another plan"
                                : ""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_used(double used, double cap, TrsText *text)
{
  char gb[32];

  PetscFunctionBegin;
  TrsRoundedText(used / GIB, 3, gb, sizeof(gb));
  PetscCall(TrsTextPrintf(text, " %9s (%3.0f%%) %9.3f", gb, cap > 0 ? 100 * used / cap : 0.0,
                          PetscMax(0, cap - used) / GIB));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_ranks(const TrsReport *r, TrsText *text)
{
  const TrsReportInput *in = r->in;
  const TrsTopology *topology = in->model->topology;
  char perf[128];

  PetscFunctionBegin;
  PetscCall(rule(text, "Ranks"));
  PetscCall(TrsTextPrintf(text, "%5s %16s %9s %16s %9s %36s %9s %10s  %s\n", "Rank", "HBM GiB (used)", "free",
                          "DDR GiB (used)", "free", "Perf ms", "Input MiB", "Output MiB", "Shards"));
  for (int d = 0; d < r->W; d++) {
    PetscCall(TrsTextPrintf(text, "%5d", d));
    PetscCall(write_used(r->hbm[d], (1 - in->reservation->percentage) * (double)topology->hbm[d], text));
    PetscCall(write_used(r->ddr[d], (double)topology->ddr[d], text));
    TrsPerfText(&in->plan->device_perf[d], perf, sizeof(perf));
    PetscCall(TrsTextPrintf(text, " %36s %9.2f %10.2f ", perf, r->input_mb[d], r->output_mb[d]));
    for (int k = 0; k < TRS_N_SHARDINGS; k++) {
      if (r->count[d * TRS_N_SHARDINGS + k])
        PetscCall(TrsTextPrintf(text, " %s:%d", abbreviation[k], r->count[d * TRS_N_SHARDINGS + k]));
    }
    PetscCall(TrsTextPrintf(text, "\n"));
  }
  PetscCall(TrsTextPrintf(
      text, "Perf: total (forward compute, forward comms, backward compute, backward comms, prefetch)\n"
            "HBM, DDR: estimated peak for shards, dense tensors and features; free: of what the "
            "reservation leaves\nInput, Output: an iteration's; Shards: by sharding type\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode table_ranks(const TrsTablePlan *table, TrsText *text)
{
  int *ranks;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(table->n_shards, &ranks));
  for (int s = 0; s < table->n_shards; s++) ranks[s] = table->shard[s].rank;
  PetscCall(TrsRanksText(table->n_shards, ranks, text));
  PetscCall(PetscFree(ranks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_table(const TrsReport *r, int t, TrsText *text)
{
  const TrsTablePlan *table = &r->in->plan->table[t];
  const TrsTableConfig *config = r->config[t];
  double poolings = 0, factors = 0, ids = 0, l, n;
  int64_t b;
  TrsStorage storage = {0, 0};
  TrsPerf perf = {0};
  char cost[128], gb[2][32], width[24] = "", load[16] = "-";
  const char *module = TrsModuleName(TrsTableModule(config));

  PetscFunctionBegin;
  for (int s = 0; s < table->n_shards; s++) {
    storage.hbm += table->shard[s].storage.hbm;
    storage.ddr += table->shard[s].storage.ddr;
    TrsPerfAdd(&perf, &table->shard[s].perf);
  }
  for (int f = 0; f < TrsPlanFeatures(config); f++) {
    TrsPlanFeature(config, r->in->model->settings, f, &l, &n, &b);
    factors += l;
    poolings += n;
    ids += l * n;
  }
  TrsPerfText(&perf, cost, sizeof(cost));
  TrsRoundedText((double)storage.hbm / GIB, 3, gb[0], sizeof(gb[0]));
  TrsRoundedText((double)storage.ddr / GIB, 3, gb[1], sizeof(gb[1]));
  if (table->n_shards && table->shard[0].cols != config->embedding_dim)
    snprintf(width, sizeof(width), "[%" PRId64 "]", table->shard[0].cols);
  if (TrsKernelKeepsLines(table->compute_kernel) && table->has_cache_load_factor)
    snprintf(load, sizeof(load), "%.3g", table->cache_load_factor);
  PetscCall(TrsTextPrintf(
      text, "%s.%-*s %-4s %-17s %34s %8s %8s %6s %7.4g %5.3g %8.5g %-8s %-3s %2d %5d%-7s %12" PRId64 "  ",
      module, TrsNameWidth(table->name, 23 - (int)strlen(module)), table->name,
      abbreviation[table->sharding_type], TrsComputeKernelName(table->compute_kernel), cost, gb[0], gb[1],
      load, factors, poolings, ids, config->pooling == TRS_POOLING_NONE ? "sequence" : "pooled",
      TrsTableHasWeights(config) ? "yes" : "no", config->n_features, config->embedding_dim, width,
      config->num_embeddings));
  PetscCall(table_ranks(table, text));
  if (config->constraints.n_batch_sizes) {
    PetscCall(TrsTextPrintf(text, "  batch "));
    PetscCall(TrsReduceIntsText(config->constraints.n_batch_sizes, config->constraints.batch_sizes, text));
  }
  PetscCall(TrsTextPrintf(text, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_tables(const TrsReport *r, TrsText *text)
{
  PetscFunctionBegin;
  PetscCall(rule(text, "Tables"));
  PetscCall(
      TrsTextPrintf(text, "%-24s %-4s %-17s %34s %8s %8s %6s %7s %5s %8s %-8s %-3s %2s %5s%-7s %12s  %s\n",
                    "Table", "Type", "Kernel", "Perf ms, sum over shards", "HBM GiB", "DDR GiB", "Cache",
                    "Pooling", "Num", "Indices", "Output", "Wei", "F", "Dim", "[shard]", "Rows", "Ranks"));
  for (int t = 0; t < r->in->plan->n_tables; t++) PetscCall(write_table(r, t, text));
  PetscCall(TrsKeysWrite(r->in->plan->n_tables, r->config, text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* For each kernel, write the bytes of its tables: the weights, and the whole estimate. */
static PetscErrorCode write_kernels(const TrsReport *r, TrsText *text)
{
  const TrsReportInput *in = r->in;
  int n_forced = 0;

  PetscFunctionBegin;
  PetscCall(rule(text, "Compute kernels"));
  PetscCall(TrsTextPrintf(text, "Batch size: %" PRId64 "\n", in->model->settings->batch_size));
  for (int k = 0; k < TRS_N_KERNELS; k++) {
    int n = 0, n_named = 0;
    double weights = 0, state = 0, hbm = 0, ddr = 0;

    for (int t = 0; t < in->plan->n_tables; t++) {
      const TrsTablePlan *table = &in->plan->table[t];
      TrsPlanOption option = {.table = (int)(r->config[t] - in->model->tables->table),
                              .type = table->sharding_type,
                              .kernel = table->compute_kernel};
      TrsStorageInput storage;
      double copies = table->sharding_type == TRS_SHARDING_DATA_PARALLEL ? table->n_shards : 1, bytes;

      if ((int)table->compute_kernel != k) continue;
      TrsCostStorageInput(in->model, &option, &storage);
      bytes = copies * (double)storage.table_bytes;
      n++;
      if (r->config[t]->constraints.compute_kernels) n_named++;
      weights += bytes;
      state += bytes *
               (storage.optimizer_state == TRS_STATE_ROWWISE
                    ? 1.0 / (double)storage.n_cols
                    : (double)storage.optimizer_state - (storage.optimizer_state > TRS_STATE_ROWWISE));
      for (int s = 0; s < table->n_shards; s++) {
        hbm += (double)table->shard[s].storage.hbm;
        ddr += (double)table->shard[s].storage.ddr;
      }
    }
    n_forced += n_named;
    if (n)
      PetscCall(
          TrsTextPrintf(text,
                        "%-17s %5d table%s (%d by constraint): weights %.3f GiB, optimizer state %.3f GiB, "
                        "in all HBM %.3f GiB, DDR %.3f GiB\n",
                        TrsComputeKernelName((TrsComputeKernel)k), n, TrsPlural(n, "s"), n_named,
                        weights / GIB, state / GIB, hbm / GIB, ddr / GIB));
  }
  PetscCall(TrsTextPrintf(text, "Kernel constraints: %d table%s; chosen freely: %d\n", n_forced,
                          TrsPlural(n_forced, "s"), in->plan->n_tables - n_forced));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double sum_of(int n, const double *x)
{
  double sum = 0;

  for (int i = 0; i < n; i++) sum += x[i];
  return sum;
}

static PetscErrorCode write_imbalance(const TrsReport *r, const char *what, const double *x, TrsText *text)
{
  double sum = sum_of(r->W, x), *share;
  TrsImbalance i;

  PetscFunctionBegin;
  if (!(sum > 0)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1(r->W, &share));
  for (int d = 0; d < r->W; d++) share[d] = x[d] / sum;
  TrsMeasureImbalance(r->W, share, &i);
  PetscCall(PetscFree(share));
  PetscCall(TrsTextPrintf(
      text, "%-12s total variation %.3f, total distance %.3f, chi divergence %.3f, KL divergence %.3f\n",
      what, i.total_variation, i.total_distance, i.chi, i.kl));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write "on ranks 0-7", with the ranks whose x is within `tolerance` of the value. */
static PetscErrorCode write_where(const TrsReport *r, const double *x, double value, double tolerance,
                                  TrsText *text)
{
  int *ranks, n = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(r->W, &ranks));
  for (int d = 0; d < r->W; d++) {
    if (fabs(x[d] - value) <= tolerance) ranks[n++] = d;
  }
  PetscCall(TrsTextPrintf(text, " on rank%s ", TrsPlural(n, "s")));
  if (n <= TRS_MAX_SHOWN_RANKS || (n && ranks[n - 1] - ranks[0] == n - 1)) {
    PetscCall(TrsRanksText(n, ranks, text));
  } else {
    PetscCall(TrsTextPrintf(text, "%d, %d, ... (%d ranks)", ranks[0], ranks[1], n));
  }
  PetscCall(TrsTextPrintf(text, "\n"));
  PetscCall(PetscFree(ranks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double maximum(int n, const double *x)
{
  double most = x[0];

  for (int i = 1; i < n; i++) most = PetscMax(most, x[i]);
  return most;
}

static PetscErrorCode write_maxima(const TrsReport *r, TrsText *text)
{
  double mean = sum_of(r->W, r->perf[0]) / r->W, sum_of_maxima = 0, comms_ms, compute_ms;

  PetscFunctionBegin;
  PetscCall(rule(text, "Time"));
  for (int p = 0; p <= TRS_N_PARTS; p++) {
    double most = maximum(r->W, r->perf[p]);

    if (p) sum_of_maxima += most;
    PetscCall(TrsTextPrintf(text, "Maximum of %-17s %.4g ms", part_name[p], most));
    PetscCall(write_where(r, r->perf[p], most, 0, text));
  }
  PetscCall(TrsTextPrintf(text, "Sum of maxima %.4g ms; mean total %.4g ms", sum_of_maxima, mean));
  if (mean > 0)
    PetscCall(TrsTextPrintf(text, ", the maximum is %.3g%% above it",
                            100 * (maximum(r->W, r->perf[0]) / mean - 1)));
  PetscCall(TrsPlanCriticalPath(r->in->model->tables, r->in->plan, &comms_ms, &compute_ms));
  PetscCall(TrsTextPrintf(text, "\nCritical path: comms %.4g ms + compute %.4g ms = %.4g ms\n", comms_ms,
                          compute_ms, comms_ms + compute_ms));
  PetscCall(write_imbalance(r, "Imbalance:", r->perf[0], text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int compare_doubles(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;

  return x < y ? -1 : x > y;
}

static PetscErrorCode write_memory(const TrsReport *r, TrsText *text)
{
  const TrsReservation *reserved = r->in->reservation;
  const TrsTopology *topology = r->in->model->topology;
  double *sorted, kept = (double)(reserved->dense.hbm + reserved->kjt.hbm),
                  mean = sum_of(r->W, r->hbm) / r->W;
  double last = HUGE_VAL;
  int tier = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(r->W, &sorted));
  memcpy(sorted, r->hbm, (size_t)r->W * sizeof(*sorted));
  qsort(sorted, (size_t)r->W, sizeof(*sorted), compare_doubles);
  PetscCall(rule(text, "Memory"));
  PetscCall(TrsTextPrintf(text, "Sparse only: max %.3f GiB, min %.3f GiB of HBM\nMax HBM    %.3f GiB",
                          (sorted[r->W - 1] - kept) / GIB, (sorted[0] - kept) / GIB, sorted[r->W - 1] / GIB));
  PetscCall(write_where(r, r->hbm, sorted[r->W - 1], MIB, text));
  PetscCall(TrsTextPrintf(text, "Min HBM    %.3f GiB", sorted[0] / GIB));
  PetscCall(write_where(r, r->hbm, sorted[0], MIB, text));
  PetscCall(TrsTextPrintf(text, "Median HBM %.3f GiB (low), %.3f GiB (high); mean %.3f GiB",
                          sorted[(r->W - 1) / 2] / GIB, sorted[r->W / 2] / GIB, mean / GIB));
  if (mean > 0)
    PetscCall(TrsTextPrintf(text, ", the maximum is %.3g%% above it", 100 * (sorted[r->W - 1] / mean - 1)));
  PetscCall(TrsTextPrintf(text, "\n"));
  for (int d = r->W - 1; d >= 0 && tier < TRS_N_TIERS; d--) {
    if (last - sorted[d] <= MIB) continue;
    last = sorted[d];
    PetscCall(TrsTextPrintf(text, "Tier %d of HBM pressure: %.3f GiB", ++tier, last / GIB));
    PetscCall(write_where(r, r->hbm, last, MIB, text));
  }
  PetscCall(write_imbalance(r, "HBM:", r->hbm, text));
  PetscCall(write_imbalance(r, "DDR:", r->ddr, text));
  PetscCall(TrsTextPrintf(
      text,
      "Reserved on rank 0: HBM %.3f GiB (%.0f%% and terms); left for planning: HBM %.3f GiB, DDR %.3f GiB\n",
      (double)(topology->hbm[0] - reserved->left[0].hbm) / GIB, 100 * reserved->percentage,
      (double)reserved->left[0].hbm / GIB, (double)reserved->left[0].ddr / GIB));
  PetscCall(TrsTextPrintf(
      text, "Dense storage a rank: HBM %.3f GiB, DDR %.3f GiB; features (KJT): HBM %.3f GiB, DDR %.3f GiB\n",
      (double)reserved->dense.hbm / GIB, (double)reserved->dense.ddr / GIB, (double)reserved->kjt.hbm / GIB,
      (double)reserved->kjt.ddr / GIB));
  PetscCall(PetscFree(sorted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write the names of the tables that cause the maximum of x: those with a shard on every rank that
  reaches the maximum. Tables that are split over all ranks are left out. The tables are sorted by
  the size of their first shard, largest first.
*/
static PetscErrorCode write_culprits(const TrsReport *r, const char *what, const double *x, PetscBool by_perf,
                                     TrsText *text)
{
  const TrsShardingPlan *plan = r->in->plan;
  double most = maximum(r->W, x), size[TRS_N_CULPRITS];
  int n = 0, n_maximal = 0, found[TRS_N_CULPRITS];

  PetscFunctionBegin;
  if (!(most > 0)) PetscFunctionReturn(PETSC_SUCCESS);
  for (int d = 0; d < r->W; d++) n_maximal += x[d] == most;
  for (int t = 0; t < plan->n_tables; t++) {
    const TrsTablePlan *table = &plan->table[t];
    int covered = 0, i;
    double mine;

    if (table->sharding_type == TRS_SHARDING_DATA_PARALLEL || table->sharding_type == TRS_SHARDING_ROW_WISE ||
        table->n_shards == 0)
      continue;
    for (int d = 0; d < r->W; d++) {
      int on = 0;

      for (int s = 0; x[d] == most && s < table->n_shards && !on; s++) on = table->shard[s].rank == d;
      covered += on;
    }
    if (covered < n_maximal) continue;
    mine = by_perf ? TrsPerfTotal(&table->shard[0].perf) : (double)table->shard[0].storage.hbm;
    if (n == TRS_N_CULPRITS && mine <= size[n - 1]) continue;
    if (n < TRS_N_CULPRITS) n++;
    for (i = n - 1; i > 0 && size[i - 1] < mine; i--) {
      size[i] = size[i - 1];
      found[i] = found[i - 1];
    }
    size[i] = mine;
    found[i] = t;
  }
  for (int i = 0; i < n; i++)
    PetscCall(TrsTextPrintf(text, "%s%s", i ? ", " : what, plan->table[found[i]].name));
  if (n) PetscCall(TrsTextPrintf(text, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportWrite(const TrsReportInput *in, TrsText *text)
{
  TrsReport r;

  PetscFunctionBegin;
  PetscCall(gather(in, &r));
  PetscCall(write_head(&r, text));
  PetscCall(write_ranks(&r, text));
  PetscCall(write_tables(&r, text));
  PetscCall(write_kernels(&r, text));
  PetscCall(TrsSharedCachesWrite(in->model, in->plan, text));
  PetscCall(write_maxima(&r, text));
  PetscCall(write_culprits(&r, "Tables behind the maximum: ", r.perf[0], PETSC_TRUE, text));
  PetscCall(write_memory(&r, text));
  PetscCall(write_culprits(&r, "Tables behind the maximum of HBM: ", r.hbm, PETSC_FALSE, text));
  PetscCall(rule(text, ""));
  PetscCall(release(&r));
  PetscFunctionReturn(PETSC_SUCCESS);
}
