/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/row_pairs.h"

/* Two shards of the group's i-th table. */
typedef struct {
  int i, from_index, to_index;
  const TrsShard *from, *to;
  int64_t begin, end; /* the rows that both shards have */
} TrsShardPair;

/* Step to the next pair of the group. Start with a pair of zeros, with to_index -1. */
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

static PetscBool has_rows(const TrsShard *shard, int64_t begin, int64_t end)
{
  return (PetscBool)(shard->row_offset == begin && shard->row_offset + shard->rows == end);
}

TrsRowsPairs TrsRowsPairsOf(TrsSharding sharding)
{
  TrsRowsPairs pairs = {.by_squares = PETSC_TRUE};
  TrsShardPair p = {.to_index = -1};

  while (next_pair(sharding, &p)) {
    pairs.any = PETSC_TRUE;
    pairs.by_squares =
        (PetscBool)(pairs.by_squares &&
                    TrsEmbeddingShardsStates(sharding->context->shards, sharding->table[p.i]).by_squares &&
                    p.from->col_offset % TRS_SQUARES_COLUMNS == 0 && has_rows(p.from, p.begin, p.end) &&
                    has_rows(p.to, p.begin, p.end));
  }
  return pairs;
}

int TrsRowsLocalNumber(TrsSharding sharding, int shard)
{
  const TrsTbeTable *tbe = &sharding->context->shards->shard[shard].tbe, *table;
  int n, t = 0;

  (void)TrsLookupTables(sharding->lookup, &n, &table);
  while (t < n && table[t].weight != tbe->weight) t++;
  return t;
}

/* Add the pairs with rank q to the traffic, or only count them. */
static void add_pairs(TrsSharding sharding, int q, PetscBool outgoing, TrsRowsTraffic *traffic)
{
  const TrsShardingContext *context = sharding->context;
  const int me = context->groups->world->rank;
  TrsShardPair p = {.to_index = -1};

  while (next_pair(sharding, &p)) {
    const int mine = outgoing ? p.from_index : p.to_index;

    if (p.from->rank != (outgoing ? me : q) || p.to->rank != (outgoing ? q : me)) continue;
    if (traffic->pair)
      traffic->pair[traffic->n] = (TrsRowsPair){
          .begin = p.begin,
          .end = p.end,
          .local = TrsRowsLocalNumber(sharding,
                                      TrsEmbeddingShardsFind(context->shards, sharding->table[p.i], mine)),
          .column = p.from->col_offset,
          .width = p.from->cols};
    traffic->n++;
  }
}

PetscErrorCode TrsRowsTrafficFind(TrsSharding sharding, PetscBool outgoing, TrsRowsTraffic *traffic)
{
  const int W = sharding->context->groups->world->size;

  PetscFunctionBegin;
  PetscCall(
      PetscCalloc3((size_t)W + 1, &traffic->first, (size_t)W, &traffic->counts, (size_t)W, &traffic->displs));
  for (int pass = 0; pass < 2; pass++) { /* the first pass counts, the second lists */
    traffic->n = 0;
    for (int q = 0; q < W; q++) {
      traffic->first[q] = traffic->n;
      add_pairs(sharding, q, outgoing, traffic);
    }
    traffic->first[W] = traffic->n;
    if (pass == 0) PetscCall(PetscMalloc1((size_t)traffic->n + 1, &traffic->pair));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRowsTrafficDestroy(TrsSharding sharding, TrsRowsTraffic *traffic)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(traffic->pair));
  PetscCall(PetscFree3(traffic->first, traffic->counts, traffic->displs));
  PetscCall(TrsDeviceBufferFree(sharding->context->device, &traffic->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}
