/* SPDX-License-Identifier: BSD-3-Clause */
/*
  -plan_explain TABLE shows the table's options side by side, the plan's cost with each option, and
  the parts of these numbers.
*/
#include "plan/advice/summary.h"
#include "plan/report_format.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GIB 1073741824.0

/*
  One of the table's options, tried in the plan. All other tables keep their options; all tables are
  placed anew.
*/
typedef struct {
  const TrsPlanOption *option;
  PetscBool placed;
  double rating;
} TrsTrial;

static PetscBool is_same(const TrsPlanOption *a, const TrsPlanOption *b)
{
  return (PetscBool)(a->type == b->type && a->kernel == b->kernel);
}

/* Try all options. The chosen option keeps the plan's rating, because the optimal proposer may have
   placed it better. */
static PetscErrorCode try_options(const TrsReportInput *in, int index, TrsTrial *trial)
{
  const TrsTableOptions *mine = &in->space->table[index];
  const TrsBestPlan *best = &in->search->best;
  const TrsPartitionerConfig config = TrsPlanPartitioner(in->model, in->reservation);
  TrsProposal proposal = {.n = best->proposal.n};
  const TrsPartitionHint hint = {.limit = HUGE_VAL};
  const TrsPlacement *placement;
  const TrsPlanOption *chosen;
  TrsPartitioner partitioner;
  int position = 0;

  PetscFunctionBegin;
  PetscCall(TrsPartitionerCreate(&config, proposal.n, &partitioner));
  PetscCall(PetscMalloc1(proposal.n, &proposal.option));
  memcpy(proposal.option, best->proposal.option, (size_t)proposal.n * sizeof(const TrsPlanOption *));
  while (proposal.option[position]->table != mine->table) position++;
  chosen = proposal.option[position];
  for (int i = 0; i < mine->n; i++) {
    trial[i] = (TrsTrial){.option = &in->space->option[mine->first + i]};
    if (!TrsOptionIsValid(trial[i].option)) continue;
    if (is_same(trial[i].option, chosen)) {
      trial[i].placed = PETSC_TRUE;
      trial[i].rating = best->rating;
      continue;
    }
    proposal.option[position] = trial[i].option;
    PetscCall(TrsPartition(partitioner, &proposal, &hint, &placement, &trial[i].placed, &trial[i].rating));
  }
  PetscCall(PetscFree(proposal.option));
  PetscCall(TrsPartitionerDestroy(&partitioner));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int compare_trials(const void *a, const void *b)
{
  const TrsTrial *x = a, *y = b;

  if (x->placed != y->placed) return x->placed ? -1 : 1;
  if (x->placed && x->rating != y->rating) return x->rating < y->rating ? -1 : 1;
  return x->option < y->option ? -1 : 1;
}

static PetscErrorCode say_shards(const TrsTrial *trial, TrsText *text)
{
  const TrsPlanOption *option = trial->option;
  char perf[128];

  PetscFunctionBegin;
  TrsPerfText(&option->shard_class[0].perf, perf, sizeof(perf));
  PetscCall(TrsTextPrintf(text, "%-18s %-17s %6d %36s %10.4g %10.4f %10.4f",
                          TrsShardingTypeName(option->type), TrsComputeKernelName(option->kernel),
                          option->n_shards, perf, option->total_perf, (double)option->total_storage.hbm / GIB,
                          (double)option->total_storage.ddr / GIB));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_trials(const TrsReportInput *in, const TrsPlanOption *chosen, int n,
                                 const TrsTrial *trial, TrsText *text)
{
  double now = in->search->best.rating;

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(text,
                          "\nIts options; the others each in place of the chosen one, with all tables placed "
                          "anew (the slowest rank now: "
                          "%.6g ms):\n%-18s %-17s %6s %36s %10s %10s %10s  %s\n",
                          now, "sharding type", "kernel", "shards", "one shard, ms", "sum, ms", "HBM GiB",
                          "DDR GiB", "slowest rank"));
  for (int i = 0; i < n; i++) {
    PetscCall(say_shards(&trial[i], text));
    if (trial[i].placed) {
      PetscCall(
          TrsTextPrintf(text, "  %.6g ms (%+.3g%%)", trial[i].rating, 100 * (trial[i].rating / now - 1)));
    } else {
      PetscCall(TrsTextPrintf(text, "  does not fit"));
    }
    PetscCall(TrsTextPrintf(text, "%s\n", is_same(trial[i].option, chosen) ? "  <- chosen" : ""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write that an option would make the slowest rank faster. The optimal proposer minimises the
  critical path, so it too may pass over such an option.
*/
static PetscErrorCode say_missed(const TrsReportInput *in, TrsText *text)
{
  const double path = in->plan->critical_path, other = in->alternative->path_ms;

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(text, "It is better in this number, but no proposer offered this combination%s",
                          in->search->best.proposer == TRS_PROPOSER_OPTIMAL
                              ? ", or the optimal proposer left it for a shorter critical path"
                              : ""));
  if (other > 0 && other < path)
    PetscCall(TrsTextPrintf(
        text, ". -plan_proposers optimal gives a critical path of %.4g ms instead of %.4g ms", other, path));
  PetscCall(TrsTextPrintf(text, ".\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_why(const TrsReportInput *in, const TrsPlanOption *chosen, int n,
                              const TrsTrial *trial, TrsText *text)
{
  const TrsTrial *second = NULL;
  double now = in->search->best.rating;

  PetscFunctionBegin;
  for (int i = 0; i < n && !second; i++) {
    if (trial[i].placed && !is_same(trial[i].option, chosen)) second = &trial[i];
  }
  if (n == 1) {
    PetscCall(TrsTextPrintf(text, "\nThere was no choice: its constraints leave this one option.\n"));
  } else if (!second) {
    PetscCall(TrsTextPrintf(text, "\nNothing else fits in memory beside the other tables.\n"));
  } else {
    PetscCall(TrsTextPrintf(
        text,
        "\nSecond: %s/%s, with which the slowest rank would take %.6g ms instead of %.6g ms (%+.3g%%).\n",
        TrsShardingTypeName(second->option->type), TrsComputeKernelName(second->option->kernel),
        second->rating, now, 100 * (second->rating / now - 1)));
    if (second->rating < now * (1 - 1e-9)) PetscCall(say_missed(in, text));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rank with the largest total. */
static int find_slowest(const TrsShardingPlan *plan)
{
  int slowest = 0;

  for (int r = 1; r < plan->world_size; r++) {
    if (TrsPerfTotal(&plan->device_perf[r]) > TrsPerfTotal(&plan->device_perf[slowest])) slowest = r;
  }
  return slowest;
}

/*
  Write the table's share of the slowest rank's time. If the table is on other ranks, write the
  slowest rank's time with one of the table's shards.
*/
static PetscErrorCode say_slowest(const TrsReportInput *in, const TrsTablePlan *table, TrsText *text)
{
  const TrsShardingPlan *plan = in->plan;
  const int slowest = find_slowest(plan);
  const double now = TrsPerfTotal(&plan->device_perf[slowest]);
  const TrsStorage *used = &plan->device_storage[slowest], *left = &in->reservation->left[slowest];
  const TrsShard *slowest_shard = &table->shard[0];
  double there = 0, longest;
  PetscBool fits;

  PetscFunctionBegin;
  for (int s = 0; s < table->n_shards; s++) {
    if (TrsPerfTotal(&table->shard[s].perf) > TrsPerfTotal(&slowest_shard->perf))
      slowest_shard = &table->shard[s];
    if (table->shard[s].rank == slowest) there += TrsPerfTotal(&table->shard[s].perf);
  }
  longest = TrsPerfTotal(&slowest_shard->perf);
  if (there > 0) {
    PetscCall(TrsTextPrintf(text, "It takes %.4g of the %.4g ms of the slowest rank, %d (%.3g%%).\n", there,
                            now, slowest, 100 * there / now));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  fits = (PetscBool)(slowest_shard->storage.hbm <= left->hbm - used->hbm &&
                     slowest_shard->storage.ddr <= left->ddr - used->ddr);
  PetscCall(TrsTextPrintf(text,
                          "It is not on the slowest rank, %d (%.4g ms), but on rank %d (%.4g ms). On rank %d "
                          "%s would add %.4g ms: %.4g ms (%+.3g%%)%s.\n",
                          slowest, now, slowest_shard->rank,
                          TrsPerfTotal(&plan->device_perf[slowest_shard->rank]), slowest,
                          table->n_shards == 1 ? "it" : "one of its shards", longest, now + longest,
                          100 * longest / now, fits ? "" : ", and has no room in memory"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int find_index(const TrsReportInput *in, const char *name)
{
  for (int index = 0; index < in->space->n_tables; index++) {
    if (!strcmp(in->model->tables->table[in->space->table[index].table].name, name)) return index;
  }
  return -1;
}

PetscErrorCode TrsExplain(const TrsReportInput *in, const char *table, TrsText *text)
{
  int index = find_index(in, table), n;
  const TrsPlanOption *chosen = NULL;
  const TrsTablePlan *plan = TrsShardingPlanFind(in->plan, table);
  const TrsTableConfig *config;
  TrsTrial *trial;

  PetscFunctionBegin;
  PetscCheck(index >= 0 && plan && in->search->best.found, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-plan_explain %s: no such table in this search (a plan from -plan_input has none)", table);
  for (int i = 0; i < in->search->best.proposal.n && !chosen; i++) {
    if (in->search->best.proposal.option[i]->table == in->space->table[index].table)
      chosen = in->search->best.proposal.option[i];
  }
  PetscCheck(chosen, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "table %s is in no proposal", table);
  config = &in->model->tables->table[chosen->table];
  n = in->space->table[index].n;
  PetscCall(TrsTextPrintf(text, "Table \"%s\": %" PRId64 " x %d %s, %s, is %s/%s on ", table,
                          config->num_embeddings, config->embedding_dim, TrsDTypeName(config->data_type),
                          TrsPoolingName(config->pooling), TrsShardingTypeName(plan->sharding_type),
                          TrsComputeKernelName(plan->compute_kernel)));
  PetscCall(TrsTextPrintf(text, plan->n_shards == 1 ? "rank %d" : "%d ranks",
                          plan->n_shards == 1 ? plan->shard[0].rank : plan->n_shards));
  PetscCall(TrsTextPrintf(text, " (proposer %s).\n", TrsProposerKindName(in->search->best.proposer)));
  if (plan->n_shards > 0) PetscCall(say_slowest(in, plan, text));
  PetscCall(PetscMalloc1(n, &trial));
  PetscCall(try_options(in, index, trial));
  qsort(trial, (size_t)n, sizeof(*trial), compare_trials);
  PetscCall(say_trials(in, chosen, n, trial, text));
  PetscCall(say_why(in, chosen, n, trial, text));
  PetscCall(PetscFree(trial));
  PetscFunctionReturn(PETSC_SUCCESS);
}
