/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/whole_rows.h"

#include <string.h>

/* Rows [begin, end) of a table that two of its shards, in different column blocks, have in common. */
typedef struct {
  int64_t begin, end;
  int local;      /* the lookup's number of the shard that is here */
  int64_t column; /* of the sending shard in the table, */
  int64_t width;  /* and its columns */
} TrsRowsPair;

/* The pairs of one direction, by the other rank; on both sides in order of table, sending shard, receiving shard. */
typedef struct {
  int n;
  TrsRowsPair *pair;
  int *first;               /* [W + 1] */
  int64_t *counts, *displs; /* [W] floats of the exchange under way */
  TrsBuffer data;
} TrsRowsTraffic;

struct TrsWholeRowsImpl {
  TrsSharding sharding;
  int n_tables; /* of the lookup */
  const TrsTbeTable *table;
  TrsEmbeddingStates *states; /* [n_tables] */
  PetscBool *cut;             /* [n_tables] does the table have other column blocks that matter? */
  PetscBool any_pair;         /* on any rank */
  int64_t row_stride;         /* floats from summed gradient to summed gradient */
  int64_t *row_begin;         /* [n_tables + 1] of the lists of touched rows */
  TrsBuffer rows, grads;
  TrsRowsTraffic send, recv;
  TrsBuffer whole[2 + TRS_TBE_STATES]; /* a table's touched rows: gradients, weights (fp32), states */
  TrsBuffer stored, numbers;           /* the weights in their type; the rows' numbers in the table */
  TrsWorkspace workspace;
};

/* The lookup's number of a shard of this rank. */
static int local_number(const struct TrsWholeRowsImpl *w, int shard)
{
  const TrsTbeTable *tbe = &w->sharding->context->shards->shard[shard].tbe;
  int t = 0;

  while (t < w->n_tables && w->table[t].weight != tbe->weight) t++;
  return t;
}

/* One table's pairs with rank q into the traffic, or only counted. */
static void add_pairs(struct TrsWholeRowsImpl *w, int i, int q, PetscBool outgoing, TrsRowsTraffic *traffic)
{
  const TrsShardingContext *context = w->sharding->context;
  const TrsTablePlan *plan = TrsShardingTablePlan(w->sharding, i);
  const int me = context->groups->world->rank, from_rank = outgoing ? me : q, to_rank = outgoing ? q : me;

  for (int f = 0; f < plan->n_shards; f++)
    for (int t = 0; t < plan->n_shards; t++) {
      const TrsShard *from = &plan->shard[f], *to = &plan->shard[t];
      const int64_t begin = PetscMax(from->row_offset, to->row_offset);
      const int64_t end = PetscMin(from->row_offset + from->rows, to->row_offset + to->rows);
      int local;
      if (from->col_offset == to->col_offset || begin >= end) continue;
      w->any_pair = PETSC_TRUE;
      if (from->rank != from_rank || to->rank != to_rank) continue;
      local = local_number(w,
                           TrsEmbeddingShardsFind(context->shards, w->sharding->table[i], outgoing ? f : t));
      w->cut[local] = PETSC_TRUE;
      if (traffic->pair)
        traffic->pair[traffic->n] = (TrsRowsPair){
            .begin = begin, .end = end, .local = local, .column = from->col_offset, .width = from->cols};
      traffic->n++;
    }
}

static PetscErrorCode find_traffic(struct TrsWholeRowsImpl *w, PetscBool outgoing, TrsRowsTraffic *traffic)
{
  const int W = w->sharding->context->groups->world->size;

  PetscFunctionBegin;
  PetscCall(
      PetscCalloc3((size_t)W + 1, &traffic->first, (size_t)W, &traffic->counts, (size_t)W, &traffic->displs));
  for (int pass = 0; pass < 2; pass++) { /* count, then list */
    traffic->n = 0;
    for (int q = 0; q < W; q++) {
      traffic->first[q] = traffic->n;
      for (int i = 0; i < w->sharding->n_tables; i++)
        if (TrsShardingTablePlan(w->sharding, i)->sharding_type != TRS_SHARDING_DATA_PARALLEL &&
            TrsEmbeddingShardsStates(w->sharding->context->shards, w->sharding->table[i]).couples_columns)
          add_pairs(w, i, q, outgoing, traffic);
    }
    traffic->first[W] = traffic->n;
    if (pass == 0) PetscCall(PetscMalloc1((size_t)traffic->n + 1, &traffic->pair));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsWholeRowsCreate(TrsSharding sharding, TrsWholeRows *whole)
{
  const TrsShardingContext *context = sharding->context;
  struct TrsWholeRowsImpl *w;

  PetscFunctionBegin;
  PetscCall(PetscNew(&w));
  w->sharding = sharding;
  PetscCall(TrsLookupTables(sharding->lookup, &w->n_tables, &w->table));
  for (int t = 0; t < w->n_tables; t++) w->row_stride = PetscMax(w->row_stride, w->table[t].dim);
  PetscCall(PetscCalloc3((size_t)w->n_tables + 1, &w->states, (size_t)w->n_tables + 1, &w->cut,
                         (size_t)w->n_tables + 1, &w->row_begin));
  for (int i = 0; i < context->shards->n; i++) {
    const int t = local_number(w, i);
    if (t < w->n_tables)
      w->states[t] = TrsEmbeddingShardsStates(context->shards, context->shards->shard[i].table);
  }
  PetscCall(context->compute->workspace_create(&w->workspace));
  PetscCall(find_traffic(w, PETSC_TRUE, &w->send));
  PetscCall(find_traffic(w, PETSC_FALSE, &w->recv));
  *whole = w;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsWholeRowsDestroy(TrsWholeRows *whole)
{
  TrsWholeRows w = *whole;
  TrsRowsTraffic *traffic[2];

  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  traffic[0] = &w->send;
  traffic[1] = &w->recv;
  for (int i = 0; i < 2; i++) {
    PetscCall(PetscFree(traffic[i]->pair));
    PetscCall(PetscFree3(traffic[i]->first, traffic[i]->counts, traffic[i]->displs));
    PetscCall(TrsBufferFree(&traffic[i]->data));
  }
  PetscCall(TrsBufferFree(&w->rows));
  PetscCall(TrsBufferFree(&w->grads));
  for (int i = 0; i < 2 + TRS_TBE_STATES; i++) PetscCall(TrsBufferFree(&w->whole[i]));
  PetscCall(TrsBufferFree(&w->stored));
  PetscCall(TrsBufferFree(&w->numbers));
  PetscCall(w->sharding->context->compute->workspace_destroy(&w->workspace));
  PetscCall(PetscFree3(w->states, w->cut, w->row_begin));
  PetscCall(PetscFree(*whole));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The touched rows of a pair: entries [*begin, *end) of its shard's list, which is sorted. */
static void find_entries(const struct TrsWholeRowsImpl *w, const TrsRowsPair *pair, int64_t *begin,
                         int64_t *end)
{
  const int64_t *rows = (const int64_t *)w->rows.data;
  const int64_t offset = w->table[pair->local].row_offset, limit[2] = {pair->begin, pair->end};
  int64_t *found[2] = {begin, end};

  for (int k = 0; k < 2; k++) {
    int64_t low = w->row_begin[pair->local], high = w->row_begin[pair->local + 1];
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (rows[middle] + offset < limit[k])
        low = middle + 1;
      else
        high = middle;
    }
    *found[k] = low;
  }
}

/* What travels with a touched row: gradient, weights, element-wise states of the sender's columns. */
static int64_t row_floats(const struct TrsWholeRowsImpl *w, const TrsRowsPair *pair)
{
  const TrsEmbeddingStates *states = &w->states[pair->local];
  int64_t n = 2;

  for (int s = 0; s < states->n; s++) n += !states->rowwise[s];
  return pair->width * n;
}

static PetscErrorCode count_floats(struct TrsWholeRowsImpl *w, TrsRowsTraffic *traffic)
{
  int64_t total = 0;

  PetscFunctionBegin;
  for (int q = 0; q < w->sharding->context->groups->world->size; q++) {
    traffic->displs[q] = total;
    for (int p = traffic->first[q]; p < traffic->first[q + 1]; p++) {
      int64_t begin, end;
      find_entries(w, &traffic->pair[p], &begin, &end);
      total += (end - begin) * row_floats(w, &traffic->pair[p]);
    }
    traffic->counts[q] = total - traffic->displs[q];
  }
  PetscCall(TrsBufferReserve(&traffic->data, total * (int64_t)sizeof(float), PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode widen_row(const struct TrsWholeRowsImpl *w, const TrsTbeTable *table, int64_t row,
                                float *to)
{
  PetscFunctionBegin;
  PetscCall(w->sharding->context->compute->convert(
      NULL, table->dim, table->dtype,
      (const char *)table->weight + row * table->stride * TrsDTypeBytes(table->dtype), TRS_FP32, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode pack(const struct TrsWholeRowsImpl *w, TrsRowsTraffic *send)
{
  const int64_t *rows = (const int64_t *)w->rows.data;
  float *to = (float *)send->data.data;

  PetscFunctionBegin;
  for (int p = 0; p < send->n; p++) {
    const TrsRowsPair *pair = &send->pair[p];
    const TrsTbeTable *table = &w->table[pair->local];
    const size_t bytes = (size_t)table->dim * sizeof(float);
    int64_t begin, end;
    find_entries(w, pair, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
      memcpy(to, (const float *)w->grads.data + i * w->row_stride, bytes);
      PetscCall(widen_row(w, table, rows[i], to + table->dim));
      to += (int64_t)2 * table->dim;
      for (int s = 0; s < w->states[pair->local].n; s++)
        if (!w->states[pair->local].rowwise[s]) {
          memcpy(to, table->state[s] + rows[i] * table->dim, bytes);
          to += table->dim;
        }
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode exchange(struct TrsWholeRowsImpl *w, TrsStream stream)
{
  const TrsComm comm = w->sharding->context->groups->world;
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(count_floats(w, &w->send));
  PetscCall(count_floats(w, &w->recv));
  PetscCall(pack(w, &w->send));
  PetscCall(TrsCommAlltoallv(comm, stream, w->send.data.data, w->send.counts, w->send.displs,
                             w->recv.data.data, w->recv.counts, w->recv.displs, sizeof(float), &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Column `column` of entry i of a table's list in its k-th whole matrix (0 gradients, 1 weights, 2 + s state s). */
static float *whole_at(const struct TrsWholeRowsImpl *w, int t, int k, int64_t i, int64_t column)
{
  return (float *)w->whole[k].data + (i - w->row_begin[t]) * w->table[t].table_dim + column;
}

/* This rank's own columns of table t's touched rows into the whole matrices. */
static PetscErrorCode place_own(const struct TrsWholeRowsImpl *w, int t)
{
  const TrsTbeTable *table = &w->table[t];
  const int64_t *rows = (const int64_t *)w->rows.data;
  const size_t bytes = (size_t)table->dim * sizeof(float);

  PetscFunctionBegin;
  for (int64_t i = w->row_begin[t]; i < w->row_begin[t + 1]; i++) {
    memcpy(whole_at(w, t, 0, i, table->col_offset), (const float *)w->grads.data + i * w->row_stride, bytes);
    PetscCall(widen_row(w, table, rows[i], whole_at(w, t, 1, i, table->col_offset)));
    for (int s = 0; s < w->states[t].n; s++)
      if (w->states[t].rowwise[s])
        ((float *)w->whole[2 + s].data)[i - w->row_begin[t]] = table->state[s][rows[i]];
      else
        memcpy(whole_at(w, t, 2 + s, i, table->col_offset), table->state[s] + rows[i] * table->dim, bytes);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The columns of other shards that arrived for table t. */
static void place_arrived(const struct TrsWholeRowsImpl *w, int t)
{
  const float *from = (const float *)w->recv.data.data;

  for (int p = 0; p < w->recv.n; p++) {
    const TrsRowsPair *pair = &w->recv.pair[p];
    const size_t bytes = (size_t)pair->width * sizeof(float);
    int64_t begin, end;
    find_entries(w, pair, &begin, &end);
    if (pair->local != t) {
      from += (end - begin) * row_floats(w, pair);
      continue;
    }
    for (int64_t i = begin; i < end; i++)
      for (int k = 0; k < 2 + w->states[t].n; k++) {
        if (k >= 2 && w->states[t].rowwise[k - 2]) continue;
        memcpy(whole_at(w, t, k, i, pair->column), from, bytes);
        from += pair->width;
      }
  }
}

/* The updated whole rows' own columns back into the shard. */
static void keep_own(const struct TrsWholeRowsImpl *w, int t)
{
  const TrsTbeTable *table = &w->table[t];
  const int64_t *rows = (const int64_t *)w->rows.data, bytes = TrsDTypeBytes(table->dtype);

  for (int64_t i = w->row_begin[t]; i < w->row_begin[t + 1]; i++) {
    const int64_t entry = i - w->row_begin[t];
    memcpy((char *)table->weight + rows[i] * table->stride * bytes,
           (const char *)w->stored.data + (entry * table->table_dim + table->col_offset) * bytes,
           (size_t)(table->dim * bytes));
    for (int s = 0; s < w->states[t].n; s++)
      if (w->states[t].rowwise[s])
        table->state[s][rows[i]] = ((const float *)w->whole[2 + s].data)[entry];
      else
        memcpy(table->state[s] + rows[i] * table->dim, whole_at(w, t, 2 + s, i, table->col_offset),
               (size_t)table->dim * sizeof(float));
  }
}

/* Update table t, of which this rank has some columns, by whole rows. */
static PetscErrorCode update_cut(struct TrsWholeRowsImpl *w, TrsStream stream, int t,
                                 const TrsSparseOptimizerArgs *args)
{
  const TrsComputeOps *compute = w->sharding->context->compute;
  const int64_t n = w->row_begin[t + 1] - w->row_begin[t], D = w->table[t].table_dim;
  const int64_t *rows = (const int64_t *)w->rows.data + w->row_begin[t];
  TrsTbeTable whole = w->table[t];
  int64_t *numbers;

  PetscFunctionBegin;
  for (int k = 0; k < 2 + w->states[t].n; k++)
    PetscCall(TrsBufferReserve(&w->whole[k], n * D * (int64_t)sizeof(float), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&w->stored, n * D * TrsDTypeBytes(whole.dtype), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&w->numbers, 2 * n * (int64_t)sizeof(*numbers), PETSC_FALSE));
  PetscCall(place_own(w, t));
  place_arrived(w, t);
  PetscCall(compute->convert(stream, n * D, TRS_FP32, w->whole[1].data, whole.dtype, w->stored.data));
  numbers = (int64_t *)w->numbers.data;
  for (int64_t i = 0; i < n; i++) {
    numbers[i] = i;
    numbers[n + i] = rows[i];
  }
  whole.weight = w->stored.data;
  whole.rows = n;
  whole.stride = D;
  whole.dim = (int32_t)D;
  whole.col_offset = 0;
  whole.row_of = numbers + n;
  for (int s = 0; s < w->states[t].n; s++) whole.state[s] = (float *)w->whole[2 + s].data;
  PetscCall(compute->tbe_update_rows(stream, w->workspace, 1, &whole, n, numbers, NULL,
                                     (const float *)w->whole[0].data, D, args));
  keep_own(w, t);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsWholeRowsUpdate(TrsWholeRows w, TrsStream stream, const TrsKjt *kjt, const float *grad,
                                  int64_t stride, const TrsSparseOptimizerArgs *args)
{
  const int64_t n_values = kjt->jagged.n_values;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&w->rows, n_values * (int64_t)sizeof(int64_t), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&w->grads, n_values * w->row_stride * (int64_t)sizeof(float), PETSC_FALSE));
  memset(w->row_begin, 0, ((size_t)w->n_tables + 1) * sizeof(*w->row_begin));
  if (n_values > 0)
    PetscCall(TrsLookupRowGradients(w->sharding->lookup, stream, kjt, grad, stride, w->row_begin,
                                    (int64_t *)w->rows.data, (float *)w->grads.data, w->row_stride));
  PetscCall(
      TrsLookupWriteBack(w->sharding->lookup, stream, PETSC_TRUE)); /* rows are changed where they live */
  if (w->any_pair) PetscCall(exchange(w, stream));
  for (int t = 0; t < w->n_tables; t++) {
    const int64_t begin = w->row_begin[t], n = w->row_begin[t + 1] - begin;
    if (n == 0) continue;
    if (w->cut[t])
      PetscCall(update_cut(w, stream, t, args));
    else
      PetscCall(w->sharding->context->compute->tbe_update_rows(
          stream, w->workspace, 1, &w->table[t], n, (const int64_t *)w->rows.data + begin, NULL,
          (const float *)w->grads.data + begin * w->row_stride, w->row_stride, args));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
