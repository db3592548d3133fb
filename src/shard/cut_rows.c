/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/cut_rows.h"

/* A pair of two shards of the group's i-th table. */
typedef struct {
  int i, from_index, to_index;
  const TrsShard *from, *to;
  int64_t begin, end; /* range of the rows that both shards have */
} TrsShardPair;

/* Go to the next pair of the group. Start with a pair of zeros whose to_index is -1. */
static PetscBool next_pair(TrsSharding sharding, TrsShardPair *p)
{
  const TrsShardingContext *context = sharding->context;

  for (; p->i < sharding->n_tables; p->i++, p->from_index = 0, p->to_index = -1) {
    const TrsTablePlan *plan = TrsShardingTablePlan(sharding, p->i);

    if (plan->sharding_type == TRS_SHARDING_DATA_PARALLEL ||
        !TrsEmbeddingShardsStates(context->shards, sharding->table[p->i]).couples_columns)
      continue;
    for (; p->from_index < plan->n_shards; p->from_index++, p->to_index = -1)
      while (++p->to_index < plan->n_shards) {
        p->from = &plan->shard[p->from_index];
        p->to = &plan->shard[p->to_index];
        p->begin = PetscMax(p->from->row_offset, p->to->row_offset);
        p->end = PetscMin(p->from->row_offset + p->from->rows, p->to->row_offset + p->to->rows);
        if (p->from->col_offset != p->to->col_offset && p->begin < p->end) return PETSC_TRUE;
      }
  }
  return PETSC_FALSE;
}

/*
  Choose the update from the pairs in the plan, so that all ranks make the same choice. Sums of
  squares are enough under three conditions: the shards of every pair have the same rows, their
  columns begin at whole blocks of TRS_SQUARES_COLUMNS, and the optimizers need only the sum of a
  row's squared gradients.
*/
static PetscErrorCode setup_cut_rows(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  PetscBool any = PETSC_FALSE, by_squares = (PetscBool)(context->compute->tbe_row_squares != NULL);
  TrsShardPair p = {.to_index = -1};

  PetscFunctionBegin;
  while (next_pair(sharding, &p)) {
    any = PETSC_TRUE;
    by_squares = (PetscBool)(by_squares &&
                             TrsEmbeddingShardsStates(context->shards, sharding->table[p.i]).by_squares &&
                             p.from->col_offset % TRS_SQUARES_COLUMNS == 0 &&
                             p.from->row_offset == p.to->row_offset && p.from->rows == p.to->rows);
  }
  sharding->update = !any ? &trs_update_owner : by_squares ? &trs_update_cut_squares : &trs_update_cut_whole;
  if (any) PetscCall(sharding->update->setup(sharding));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsUpdateOps trs_update_cut_rows = {.name = "cut rows", .setup = setup_cut_rows};

int TrsCutRowsNumber(const TrsCutRows *rows, int shard)
{
  const TrsTbeTable *tbe = &rows->sharding->context->shards->shard[shard].tbe;
  int t = 0;

  while (t < rows->n_tables && rows->table[t].weight != tbe->weight) t++;
  return t;
}

/* List the pairs in which this rank sends (outgoing) or receives. */
static PetscErrorCode find_pairs(const TrsCutRows *rows, PetscBool outgoing, TrsRowsTraffic *traffic)
{
  const TrsShardingContext *context = rows->sharding->context;
  const int W = context->groups->world->size, me = context->groups->world->rank;
  const int *table = rows->sharding->table;

  PetscFunctionBegin;
  PetscCall(PetscCalloc2((size_t)W, &traffic->counts, (size_t)W, &traffic->displs));
  /* the first pass counts the pairs, the second lists them */
  for (int pass = 0; pass < 2; pass++) {
    traffic->n = 0;
    for (int q = 0; q < W; q++)
      for (TrsShardPair p = {.to_index = -1}; next_pair(rows->sharding, &p);) {
        const int mine = outgoing ? p.from_index : p.to_index;

        if (p.from->rank != (outgoing ? me : q) || p.to->rank != (outgoing ? q : me)) continue;
        if (pass == 1)
          traffic->pair[traffic->n] = (TrsRowsPair){
              .rank = q,
              .begin = p.begin,
              .end = p.end,
              .local = TrsCutRowsNumber(rows, TrsEmbeddingShardsFind(context->shards, table[p.i], mine)),
              .column = p.from->col_offset,
              .width = p.from->cols};
        traffic->n++;
      }
    if (pass == 0) PetscCall(PetscMalloc1((size_t)traffic->n + 1, &traffic->pair));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCutRowsSetUp(TrsSharding sharding, TrsCutRows *rows)
{
  PetscFunctionBegin;
  *rows = (TrsCutRows){.sharding = sharding};
  PetscCall(TrsLookupTables(sharding->lookup, &rows->n_tables, &rows->table));
  PetscCall(PetscCalloc1((size_t)rows->n_tables + 1, &rows->cut));
  PetscCall(find_pairs(rows, PETSC_TRUE, &rows->send));
  PetscCall(find_pairs(rows, PETSC_FALSE, &rows->recv));
  /* a shard sends the same rows to each shard from which it receives rows */
  for (int p = 0; p < rows->recv.n; p++) rows->cut[rows->recv.pair[p].local] = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCutRowsDestroy(TrsCutRows *rows)
{
  TrsRowsTraffic *const both[2] = {&rows->send, &rows->recv};

  PetscFunctionBegin;
  for (int i = 0; i < 2; i++) {
    PetscCall(PetscFree(both[i]->pair));
    PetscCall(PetscFree2(both[i]->counts, both[i]->displs));
    PetscCall(TrsDeviceBufferFree(rows->sharding->context->device, &both[i]->data));
  }
  PetscCall(PetscFree(rows->cut));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCutRowsReserve(TrsCutRows *rows, int64_t unit, TrsRowsPairUnitsFn *units,
                                 const void *update)
{
  TrsRowsTraffic *const both[2] = {&rows->send, &rows->recv};

  PetscFunctionBegin;
  for (int i = 0; i < 2; i++) {
    int64_t total = 0;

    for (int q = 0, p = 0; q < rows->sharding->context->groups->world->size; q++) {
      both[i]->displs[q] = total;
      for (; p < both[i]->n && both[i]->pair[p].rank == q; p++) {
        both[i]->pair[p].at = total;
        total += units(update, &both[i]->pair[p]);
      }
      both[i]->counts[q] = total - both[i]->displs[q];
    }
    PetscCall(
        TrsDeviceBufferReserveShared(rows->sharding->context->device, &both[i]->data, (total + 1) * unit));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCutRowsExchange(TrsCutRows *rows, TrsStream stream, int64_t unit)
{
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsCommAlltoallv(rows->sharding->context->groups->world, stream,
                             (TrsSentBlocks){rows->send.data.data, rows->send.counts, rows->send.displs},
                             (TrsReceivedBlocks){rows->recv.data.data, rows->recv.counts, rows->recv.displs},
                             unit, &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
