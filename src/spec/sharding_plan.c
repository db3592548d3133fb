/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/sharding_plan.h"

#include "core/names.h"
#include "core/random/random.h"
#include "core/ranks.h"
#include "spec/text.h"

#include <inttypes.h>
#include <string.h>

PetscErrorCode TrsShardingPlanFree(TrsShardingPlan *plan)
{
  PetscFunctionBegin;
  for (int t = 0; t < plan->n_tables; t++) {
    PetscCall(PetscFree(plan->table[t].name));
    PetscCall(PetscFree(plan->table[t].shard));
  }
  PetscCall(PetscFree(plan->table));
  PetscCall(PetscFree(plan->device_storage));
  PetscCall(PetscFree(plan->device_perf));
  PetscCall(PetscFree(plan->device_capacity));
  PetscCall(PetscFree(plan->device_available));
  *plan = (TrsShardingPlan){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsTablePlan *TrsShardingPlanFind(const TrsShardingPlan *plan, const char *table)
{
  int at = 0;

  return TrsShardingPlanFindNext(plan, table, &at);
}

const TrsTablePlan *TrsShardingPlanFindNext(const TrsShardingPlan *plan, const char *table, int *at)
{
  for (int i = 0; i < plan->n_tables; i++) {
    const int t = *at < plan->n_tables ? *at : 0;

    *at = t + 1;
    if (!strcmp(plan->table[t].name, table)) return &plan->table[t];
  }
  return NULL;
}

PetscBool TrsColumnBlockNext(const TrsTablePlan *plan, TrsColumnBlock *block)
{
  const int first = block->first + block->n_shards;
  int end = first;

  while (end < plan->n_shards && plan->shard[end].col_offset == plan->shard[first].col_offset) end++;
  *block = (TrsColumnBlock){.index = first ? block->index + 1 : 0, .first = first, .n_shards = end - first};
  return (PetscBool)(end > first);
}

int TrsColumnBlockOn(const TrsTablePlan *plan, const TrsColumnBlock *block, int rank)
{
  /* Most blocks have their shards on consecutive ranks, so first try the index that this gives. */
  const int64_t ahead = (int64_t)rank - plan->shard[block->first].rank;

  if (ahead >= 0 && ahead < block->n_shards && plan->shard[block->first + ahead].rank == rank)
    return block->first + (int)ahead;
  for (int s = block->first; s < block->first + block->n_shards; s++)
    if (plan->shard[s].rank == rank) return s;
  return -1;
}

static PetscErrorCode broadcast_text(MPI_Comm comm, TrsText *text)
{
  uint64_t n = (uint64_t)text->n;
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(TrsBroadcast(comm, &n, (int64_t)sizeof(n)));
  if (rank != 0) {
    PetscCall(PetscMalloc1((size_t)n + 1, &text->data));
    text->n = (size_t)n;
    text->capacity = text->n + 1;
    text->data[text->n] = '\0';
  }
  PetscCall(TrsBroadcast(comm, text->data, (int64_t)text->n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that the plans of all ranks are equal: write each plan as JSON again and compare the hashes.
*/
static PetscErrorCode check_hash(MPI_Comm comm, const TrsShardingPlan *plan)
{
  char *json;
  /*
    The hash and its complement. If the maxima over all ranks are complements as well, all hashes
    are equal.
  */
  uint64_t hash[2];
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsShardingPlanToJson(plan, &json));
  hash[0] = TrsNameHash(json);
  hash[1] = ~hash[0];
  PetscCall(PetscFree(json));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, hash, 2, MPI_UINT64_T, MPI_MAX, comm));
  ierr = hash[0] == ~hash[1] ? PETSC_SUCCESS : TRS_ERR_INTERNAL;
  PetscCheck(!ierr, PETSC_COMM_SELF, ierr, "the ranks hold different sharding plans after the broadcast");
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingPlanBroadcast(MPI_Comm comm, PetscErrorCode ierr, TrsShardingPlan *plan)
{
  TrsText text = {0};
  char *json = NULL;
  int rank, size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  if (rank == 0 && !ierr && size > 1) {
    ierr = TrsShardingPlanToJson(plan, &json);
    if (!ierr) text = (TrsText){.data = json, .n = strlen(json)};
  }
  PetscCall(TrsAgree(comm, rank == 0 ? ierr : PETSC_SUCCESS));
  if (size == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(broadcast_text(comm, &text));
  ierr = rank == 0 ? PETSC_SUCCESS : TrsShardingPlanFromJson(text.data, "rank 0's plan", plan);
  PetscCall(PetscFree(text.data));
  PetscCall(TrsAgree(comm, ierr));
  PetscCall(check_hash(comm, plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode view_table(const TrsTablePlan *table, MPI_Comm comm)
{
  int64_t n_rows = 0, n_cols = 0;
  int first = table->n_shards ? table->shard[0].rank : 0;
  PetscBool is_run = PETSC_TRUE;
  char ranks[64];

  PetscFunctionBegin;
  for (int i = 0; i < table->n_shards; i++) {
    const TrsShard *shard = &table->shard[i];

    n_rows = PetscMax(n_rows, shard->row_offset + shard->rows);
    n_cols = PetscMax(n_cols, shard->col_offset + shard->cols);
    if (shard->rank != first + i) is_run = PETSC_FALSE;
  }
  if (table->n_shards == 1) {
    snprintf(ranks, sizeof(ranks), "rank %d", first);
  } else if (is_run) {
    snprintf(ranks, sizeof(ranks), "ranks %d-%d", first, first + table->n_shards - 1);
  } else {
    snprintf(ranks, sizeof(ranks), "%d shards", table->n_shards);
  }
  PetscCall(PetscPrintf(comm, "  %-*s %12" PRId64 " x %-5" PRId64 " %-18s %-17s %s\n",
                        TrsNameWidth(table->name, 24), table->name, n_rows, n_cols,
                        TrsShardingTypeName(table->sharding_type),
                        TrsComputeKernelName(table->compute_kernel), ranks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardingPlanViewTables(const TrsShardingPlan *plan, MPI_Comm comm, int max_tables)
{
  int n_shown = PetscMin(plan->n_tables, max_tables);

  PetscFunctionBegin;
  for (int t = 0; t < n_shown; t++) PetscCall(view_table(&plan->table[t], comm));
  if (n_shown < plan->n_tables)
    PetscCall(PetscPrintf(comm, "  ... and %d table%s more\n", plan->n_tables - n_shown,
                          TrsPlural(plan->n_tables - n_shown, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsShardingPlanLine(const TrsShardingPlan *plan, char *line, size_t size)
{
  snprintf(line, size, "plan: %d table%s on %d rank%s, critical path %.4g ms", plan->n_tables,
           TrsPlural(plan->n_tables, "s"), plan->world_size, TrsPlural(plan->world_size, "s"),
           plan->critical_path);
}

PetscErrorCode TrsShardingPlanView(const TrsShardingPlan *plan, MPI_Comm comm, int max_tables)
{
  char line[128];

  PetscFunctionBegin;
  TrsShardingPlanLine(plan, line, sizeof(line));
  PetscCall(PetscPrintf(comm, "%s\n", line));
  PetscCall(TrsShardingPlanViewTables(plan, comm, max_tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}
