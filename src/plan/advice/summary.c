/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/advice/summary.h"

#include "core/names.h"
#include "plan/report_format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define NEARLY 0.01 /* times that differ by at most this share count as equal */

/* The rank with the least free memory of one kind. */
typedef struct {
  int rank;
  double used;   /* bytes of tables, dense layers and a batch's inputs */
  double tables; /* bytes of tables only */
  double cap;    /* capacity in bytes */
  double kept;   /* bytes that are free but reserved */
  double mean;   /* mean of `used` over ranks */
} TrsFullest;

static double over(double a, double b)
{
  return b > 0 ? a / b : 0;
}

/* Sum over the shards, because a plan from a file may lack device sums. */
static PetscErrorCode sum_ranks(const TrsShardingPlan *plan, TrsStorage **storage, double **ms)
{
  PetscFunctionBegin;
  PetscCall(PetscCalloc1(plan->world_size, storage));
  PetscCall(PetscCalloc1(plan->world_size, ms));
  for (int t = 0; t < plan->n_tables; t++) {
    for (int s = 0; s < plan->table[t].n_shards; s++) {
      const TrsShard *shard = &plan->table[t].shard[s];

      (*storage)[shard->rank].hbm += shard->storage.hbm;
      (*storage)[shard->rank].ddr += shard->storage.ddr;
      (*ms)[shard->rank] += TrsPerfTotal(&shard->perf);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsFullest find_fullest(const TrsReportInput *in, const TrsStorage *storage, PetscBool of_device)
{
  const TrsTopology *topology = in->model->topology;
  const TrsReservation *reserved = in->reservation;
  TrsFullest fullest = {.rank = 0, .used = -1};
  double least = HUGE_VAL, sum = 0;

  for (int r = 0; r < in->plan->world_size; r++) {
    const double cap = (double)(of_device ? topology->hbm[r] : topology->ddr[r]);
    const double left = (double)(of_device ? reserved->left[r].hbm : reserved->left[r].ddr);
    const double tables = (double)(of_device ? storage[r].hbm : storage[r].ddr);
    const double fixed = (double)(of_device ? reserved->dense.hbm + reserved->kjt.hbm
                                            : reserved->dense.ddr + reserved->kjt.ddr);

    sum += tables + fixed;
    if (left - tables >= least) continue;
    least = left - tables;
    fullest = (TrsFullest){r, tables + fixed, tables, cap, PetscMax(0, cap - left - fixed), 0};
  }
  fullest.mean = sum / in->plan->world_size;
  return fullest;
}

/*
  Write a line such as "fits       rank 3 is fullest: 27.2 of 32 GiB of device memory (85%), ...".
*/
static PetscErrorCode say_memory(const TrsReportInput *in, const TrsStorage *storage, PetscBool of_device,
                                 TrsText *text)
{
  const TrsFullest f = find_fullest(in, storage, of_device);
  const double room = f.cap - f.kept - f.used;
  const char *what = of_device ? "device" : "host";
  char used[32], tables[32], cap[32], kept[32], mean[32], other[32];

  PetscFunctionBegin;
  TrsGibText(f.used, used, sizeof(used));
  TrsGibText(f.tables, tables, sizeof(tables));
  TrsGibText(f.cap, cap, sizeof(cap));
  TrsGibText(f.kept, kept, sizeof(kept));
  TrsGibText(f.mean, mean, sizeof(mean));
  TrsGibText(fabs(room), other, sizeof(other));
  PetscCall(TrsTextPrintf(text, "  %-10s %s memory: the fullest rank is %d with %s of %s GiB (%.0f%%)",
                          room >= 0 ? "fits" : "too large", what, f.rank, used, cap,
                          100 * over(f.used, f.cap)));
  if (f.tables < f.used) PetscCall(TrsTextPrintf(text, ", %s GiB of it for tables", tables));
  if (f.kept > 0) PetscCall(TrsTextPrintf(text, ", %s GiB are kept free by the reservation", kept));
  if (room < 0) PetscCall(TrsTextPrintf(text, ": short by %s GiB", other));
  PetscCall(TrsTextPrintf(text, "; mean %s GiB\n", mean));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The time that a table takes on a rank. */
static double time_on(const TrsTablePlan *table, int rank)
{
  double ms = 0;

  for (int s = 0; s < table->n_shards; s++) {
    if (table->shard[s].rank == rank) ms += TrsPerfTotal(&table->shard[s].perf);
  }
  return ms;
}

/* Name the tables that take most of a rank's time, most expensive first. */
static PetscErrorCode say_behind(const TrsShardingPlan *plan, int rank, double total_ms, TrsText *text)
{
  TrsLargest behind = {0};
  int n_there = 0;

  PetscFunctionBegin;
  for (int t = 0; t < plan->n_tables; t++) {
    const double mine = time_on(&plan->table[t], rank);

    if (mine <= 0) continue;
    n_there++;
    TrsLargestAdd(&behind, t, mine);
  }
  for (int i = 0; i < behind.n; i++) {
    const TrsTablePlan *table = &plan->table[behind.index[i]];

    PetscCall(TrsTextPrintf(text, "%s %s (%s) %.0f%%", i ? "," : ":", table->name,
                            TrsShardingTypeName(table->sharding_type),
                            100 * over(behind.value[i], total_ms)));
  }
  if (n_there > behind.n) PetscCall(TrsTextPrintf(text, ", and %d more", n_there - behind.n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the critical path and the rank with the largest total. */
static PetscErrorCode say_path(const TrsReportInput *in, const double *ms, TrsText *text)
{
  const TrsShardingPlan *plan = in->plan;
  const int W = plan->world_size;
  double comms, compute, sum = 0;
  int slowest = 0, n_near = 0;

  PetscFunctionBegin;
  PetscCall(TrsPlanCriticalPath(in->model->tables, plan, &comms, &compute));
  for (int r = 0; r < W; r++) {
    sum += ms[r];
    if (ms[r] > ms[slowest]) slowest = r;
  }
  for (int r = 0; r < W; r++) n_near += ms[r] >= ms[slowest] * (1 - NEARLY);
  PetscCall(TrsTextPrintf(text,
                          "  %-10s %.4g ms = %.4g compute + %.4g exchanges, of the slowest rank in each\n"
                          "  %-10s rank %d with %.4g ms, mean %.4g",
                          "path", comms + compute, compute, comms, "slowest", slowest, ms[slowest], sum / W));
  if (n_near > 1) PetscCall(TrsTextPrintf(text, ", %d ranks within %.0f%%", n_near, 100 * NEARLY));
  PetscCall(say_behind(plan, slowest, ms[slowest], text));
  PetscCall(TrsTextPrintf(text, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the proven lower bound, and the time that a better plan would save or has saved. */
static PetscErrorCode say_better(const TrsReportInput *in, TrsText *text)
{
  const TrsOptimum *alternative = in->alternative;
  const double path = in->plan->critical_path, bound = PetscMax(in->optimum->bound_ms, alternative->bound_ms);
  const double saved = 1 - over(alternative->path_ms, path);

  PetscFunctionBegin;
  if (!(path > 0)) PetscFunctionReturn(PETSC_SUCCESS);
  if (bound > 0) {
    const double above = 100 * PetscMax(0, path / bound - 1);

    PetscCall(TrsTextPrintf(text, "  %-10s no plan is below %.4g ms; this one is at most %.*f%% above\n",
                            "bound", bound, above < 10 ? 1 : 0, above));
  }
  if (alternative->path_ms > 0 && saved >= NEARLY) {
    PetscCall(TrsTextPrintf(
        text, "  %-10s -%.0f%%: -plan_proposers optimal (%.4g ms, found in %.2g s; more may find more)\n",
        "better", 100 * saved, alternative->path_ms, alternative->cpu_s));
  } else if (alternative->path_ms > 0) {
    PetscCall(TrsTextPrintf(text, "  %-10s -plan_proposers optimal %s in %.2g s%s\n", "better",
                            alternative->by_time ? "found nothing" : "saves less than 1%", alternative->cpu_s,
                            alternative->by_time ? ", which was too short (-plan_advice_seconds)" : ""));
  } else if (in->default_path_ms > path) {
    PetscCall(TrsTextPrintf(text,
                            "  %-10s -%.0f%%: the plan from which the optimal proposer started has %.4g ms\n",
                            "saved", 100 * (1 - path / in->default_path_ms), in->default_path_ms));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_machine(const TrsCostModel *model, TrsText *text)
{
  const TrsTopology *t = model->topology;
  char own[32], host[32], link[32], intra[32], inter[32];

  PetscFunctionBegin;
  TrsBandwidthText(t->hbm_mem_bw, own, sizeof(own));
  TrsBandwidthText(t->ddr_mem_bw, host, sizeof(host));
  TrsBandwidthText(t->hbm_to_ddr_mem_bw, link, sizeof(link));
  TrsBandwidthText(t->intra_host_bw, intra, sizeof(intra));
  TrsBandwidthText(t->inter_host_bw, inter, sizeof(inter));
  PetscCall(TrsTextPrintf(text, "  %-10s %d %s%s, %d a host", "devices", t->world_size,
                          t->is_cuda ? "GPU" : "CPU rank", TrsPlural(t->world_size, "s"),
                          t->local_world_size));
  if (t->is_cuda)
    PetscCall(TrsTextPrintf(text, "; memory %s, host's %s, between %s", own, host, link));
  else
    PetscCall(TrsTextPrintf(text, "; memory %s", host));
  PetscCall(TrsTextPrintf(text, "; network %s in a host, %s across\n", intra, inter));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the number of tables of each sharding type: "20 table_wise, 6 row_wise". */
static PetscErrorCode say_types(const TrsReportInput *in, TrsText *text)
{
  const TrsShardingPlan *plan = in->plan;
  const char *between = "";

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(text, "  %-10s ", "tables"));
  for (int type = 0; type < TRS_N_SHARDINGS; type++) {
    int n = 0;

    for (int t = 0; t < plan->n_tables; t++) n += (int)plan->table[t].sharding_type == type;
    if (n == 0) continue;
    PetscCall(TrsTextPrintf(text, "%s%d %s", between, n, TrsShardingTypeName((TrsShardingType)type)));
    between = ", ";
  }
  if (!in->model->settings->list_tables && plan->n_tables > TRS_PLAN_LISTED_TABLES)
    PetscCall(TrsTextPrintf(text, " (-plan_list_tables shows each, -plan_report all numbers)"));
  PetscCall(TrsTextPrintf(text, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSummaryWrite(const TrsReportInput *in, TrsText *text)
{
  const TrsShardingPlan *plan = in->plan;
  PetscBool in_host = PETSC_FALSE;
  TrsStorage *storage;
  char line[128];
  double *ms;

  PetscFunctionBegin;
  TrsShardingPlanLine(plan, line, sizeof(line));
  PetscCall(TrsTextPrintf(text, "%s\n", line));
  if (plan->n_tables == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(sum_ranks(plan, &storage, &ms));
  for (int r = 0; r < plan->world_size; r++) in_host = (PetscBool)(in_host || storage[r].ddr > 0);
  if (in->model->topology->is_cuda) PetscCall(say_memory(in, storage, PETSC_TRUE, text));
  if (in_host) PetscCall(say_memory(in, storage, PETSC_FALSE, text));
  PetscCall(say_path(in, ms, text));
  PetscCall(say_better(in, text));
  PetscCall(say_machine(in->model, text));
  PetscCall(say_types(in, text));
  PetscCall(PetscFree(storage));
  PetscCall(PetscFree(ms));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A table's bytes with its smallest option, in the memory that counts. */
static double least_bytes(const TrsCostModel *model, const TrsSearchSpace *space, int t)
{
  const TrsTableOptions *mine = &space->table[t];
  double least = HUGE_VAL;

  for (int i = mine->first; i < mine->first + mine->n; i++) {
    const TrsStorage *storage = &space->option[i].total_storage;

    least = PetscMin(least, (double)(model->topology->is_cuda ? storage->hbm : storage->ddr));
  }
  return least;
}

/* Write that the reservation exceeds a device's memory. */
static PetscErrorCode say_reserved(const TrsCostModel *model, const TrsReservation *reservation,
                                   TrsText *text)
{
  char cap[32], dense[32], kjt[32];

  PetscFunctionBegin;
  TrsGibText((double)model->topology->hbm[0], cap, sizeof(cap));
  TrsGibText((double)reservation->dense.hbm, dense, sizeof(dense));
  TrsGibText((double)reservation->kjt.hbm, kjt, sizeof(kjt));
  PetscCall(TrsTextPrintf(text,
                          "  %-10s nothing is left for tables of %s GiB a device: the dense layers take %s "
                          "GiB, the inputs of a batch %s GiB, %.3g%% are kept free\n",
                          "needs", cap, dense, kjt, 100 * reservation->percentage));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the tables' need, the memory that is left, and the largest tables. */
static PetscErrorCode say_need(const TrsCostModel *model, const TrsReservation *reservation,
                               const TrsSearchSpace *space, TrsText *text)
{
  const PetscBool is_cuda = model->topology->is_cuda;
  double need = 0, left = 0;
  TrsLargest largest = {0};
  const int64_t *cap = is_cuda ? model->topology->hbm : model->topology->ddr;
  int64_t low = cap[0], high = cap[0];
  char a[32], b[32], c[32], d[32];

  PetscFunctionBegin;
  for (int r = 0; r < model->topology->world_size; r++) {
    left += (double)PetscMax(0, is_cuda ? reservation->left[r].hbm : reservation->left[r].ddr);
    low = PetscMin(low, cap[r]);
    high = PetscMax(high, cap[r]);
  }
  for (int t = 0; t < space->n_tables; t++) {
    const double mine = least_bytes(model, space, t);

    need += mine;
    TrsLargestAdd(&largest, space->table[t].table, mine);
  }
  TrsGibText(need, a, sizeof(a));
  TrsGibText(left, b, sizeof(b));
  TrsGibText((double)low, c, sizeof(c));
  TrsGibText((double)high, d, sizeof(d));
  PetscCall(TrsTextPrintf(text,
                          "  %-10s at least %s GiB of %s memory; there are %s GiB, after the reservation, on "
                          "%d rank%s of %s%s%s GiB\n",
                          "needs", a, is_cuda ? "device" : "host", b, model->topology->world_size,
                          TrsPlural(model->topology->world_size, "s"), low < high ? c : "",
                          low < high ? " to " : "", d));
  for (int i = 0; i < largest.n; i++) {
    TrsGibText(largest.value[i], a, sizeof(a));
    PetscCall(TrsTextPrintf(text, i ? ", %s %s GiB" : "  largest    %s %s GiB",
                            model->tables->table[largest.index[i]].name, a));
  }
  PetscCall(TrsTextPrintf(text, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSummaryWriteNoPlan(const TrsProblem *problem, const TrsSolution *solution,
                                     const TrsText *changes, TrsText *text)
{
  const TrsCostModel *model = &problem->model;
  const TrsPlanSearch *search = &solution->search;
  const PetscBool too_little = solution->reservation.too_little;
  const char *verdict = search->timed_out ? "was found in -plan_timeout_seconds" : "fits";

  PetscFunctionBegin;
  if (search->proposals == 0 && !too_little) verdict = "was tried";
  PetscCall(TrsTextPrintf(text, "plan: none: %d table%s on %d rank%s, no plan %s\n", model->tables->n,
                          TrsPlural(model->tables->n, "s"), model->topology->world_size,
                          TrsPlural(model->topology->world_size, "s"), verdict));
  if (too_little) PetscCall(say_reserved(model, &solution->reservation, text));
  if (solution->space.n_tables) PetscCall(say_need(model, &solution->reservation, &solution->space, text));
  if (changes->n) PetscCall(TrsTextAppend(text, changes->data, changes->n));
  PetscFunctionReturn(PETSC_SUCCESS);
}
