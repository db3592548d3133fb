/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/rows_in_place.h"

#include "compute/for_each.h"

#include <string.h>

struct TrsRowsInPlaceImpl {
  TrsSharding sharding;     /* borrowed */
  TrsSequenceAllToAll dist; /* borrowed */
  int64_t row_dim;          /* floats from one row to the next in messages */
  /* [n_entries] this rank's rows of each entry; NULL: this rank has none */
  const TrsTbeTable **own;
  TrsDeviceBuffer arrival;  /* rows that are sent to the other ranks */
  int64_t *received, *sent; /* [W] number of ids that are sent; 0 for this rank */
  int64_t *sent_begin;      /* [W + 1] index of the first id for each rank in the sent batch */
  const float **block;      /* [W] the rows that arrived from each rank */
  TrsDeviceBuffer where;    /* int64 [N] number of floats from `base` to each id's row, or -1 */
  TrsTbeTable *from;        /* [n_entries] tables that consist of floats at arbitrary addresses */
  TrsTbeFeature *feature;   /* [n_entries] */
  TrsWorkspace workspace;
};

/* True if every rank holds the group's rows in memory that the host can read. */
static PetscBool is_possible(TrsSharding sharding)
{
  if (!sharding->context->device->host_memory) return PETSC_FALSE;
  for (int i = 0; i < sharding->n_tables; i++)
    if (TrsShardingTableConfig(sharding, i)->data_type != TRS_FP32 ||
        TrsPlacementTreats(sharding->context->shards, sharding->table[i], PETSC_FALSE))
      return PETSC_FALSE;
  return PETSC_TRUE;
}

PetscErrorCode TrsRowsInPlaceCreate(TrsSharding sharding, TrsSequenceAllToAll rows_dist, int64_t row_dim,
                                    TrsRowsInPlace *rows)
{
  const TrsShardingContext *context = sharding->context;
  const TrsRoute *route = &sharding->route;
  const size_t W = (size_t)context->groups->world->size, n = (size_t)route->n_entries;
  TrsRowsInPlace r;

  PetscFunctionBegin;
  *rows = NULL;
  if (!is_possible(sharding)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&r));
  r->sharding = sharding;
  r->dist = rows_dist;
  r->row_dim = row_dim;
  PetscCall(PetscCalloc3(n, &r->own, n, &r->from, n, &r->feature));
  PetscCall(PetscCalloc4(W, &r->received, W, &r->sent, W + 1, &r->sent_begin, W, &r->block));
  for (int e = 0; e < route->n_entries; e++) {
    const TrsRouteEntry *entry = &route->entry[e];
    const int shard = TrsRouteShard(sharding, e);

    if (shard >= 0 && context->shards->shard[shard].tbe.rows > 0)
      r->own[e] = &context->shards->shard[shard].tbe;
    r->from[e] = (TrsTbeTable){.rows = INT64_MAX,
                               .stride = 1,
                               .dim = (int32_t)entry->columns,
                               .dtype = TRS_FP32,
                               .table_dim = entry->columns};
    r->feature[e] = (TrsTbeFeature){
        .table = e, .out_column = TrsShardingColumn(sharding, route->feature[e]) + entry->column};
  }
  PetscCall(context->compute->workspace_create(&r->workspace));
  *rows = r;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRowsInPlaceDestroy(TrsRowsInPlace *rows)
{
  TrsRowsInPlace r = *rows;

  PetscFunctionBegin;
  if (!r) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferFree(r->sharding->context->device, &r->arrival));
  PetscCall(TrsDeviceBufferFree(r->sharding->context->device, &r->where));
  PetscCall(r->sharding->context->compute->workspace_destroy(&r->workspace));
  PetscCall(PetscFree3(r->own, r->from, r->feature));
  PetscCall(PetscFree4(r->received, r->sent, r->sent_begin, r->block));
  PetscCall(PetscFree(*rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The ids of a batch's entries, as the argument of TrsForEach() over entries. */
typedef struct {
  TrsRowsInPlace rows;
  const TrsKjt *ids;
  int64_t *places;    /* for each id its index in the sent batch */
  const TrsKjt *send; /* used by Prepare: the batch as it is sent */
  uintptr_t base;     /* used by Wait: the lowest address of a row */
} TrsEntryIds;

/* For ids that this rank sends to itself, replace their index in the sent batch by -2 - row. */
static void mark_own(void *context, int64_t e)
{
  const TrsEntryIds *of = context;
  const int64_t *offsets = of->ids->jagged.offsets, B = of->ids->batch;
  const int64_t bags = of->rows->sharding->route.n_entries * B;
  const int64_t first = of->rows->sharding->context->groups->world->rank * bags;
  const int64_t begin = of->send->jagged.offsets[first], end = of->send->jagged.offsets[first + bags];

  for (int64_t i = offsets[e * B]; i < offsets[(e + 1) * B]; i++)
    if (of->places[i] >= begin && of->places[i] < end)
      of->places[i] = -2 - of->send->jagged.values[of->places[i]];
}

void TrsRowsInPlacePrepare(TrsRowsInPlace rows, const TrsKjt *send, const TrsKjt *ids, int64_t *places)
{
  TrsEntryIds of = {.rows = rows, .ids = ids, .send = send};

  of.places = places;
  TrsForEach(rows->sharding->route.n_entries, mark_own, &of);
}

/*
  Look up entry e's rows for the samples of one rank: received ids begin .. end - 1. If this rank
  has no rows of the entry, it receives only ids without a row (pruned).
*/
static PetscErrorCode look_up(TrsRowsInPlace r, TrsStream stream, const TrsJagged *received, int e,
                              int64_t begin, int64_t end, float *to)
{
  const int64_t offsets[] = {0, end - begin};
  const TrsTbeFeature feature = {.table = 0};
  const TrsTbe tbe = {.n_tables = 1, .n_features = 1, .table = r->own[e], .feature = &feature};
  const TrsTbeInput input = {
      .batch = 1, .offsets = offsets, .values = received->values + begin, .n_values = end - begin};

  PetscFunctionBegin;
  if (begin == end) PetscFunctionReturn(PETSC_SUCCESS);
  if (!r->own[e])
    memset(to, 0, (size_t)((end - begin) * r->row_dim) * sizeof(*to));
  else
    PetscCall(
        r->sharding->context->compute->tbe_forward_rows(stream, r->workspace, &tbe, &input, to, r->row_dim));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Look up the rows for rank q's samples. They are sent entry by entry. `before` is the number of
  samples that an entry has from the ranks before q.
*/
static PetscErrorCode look_up_for(TrsRowsInPlace r, TrsStream stream, const TrsShardingSlot *slot, int q,
                                  int64_t before, float *to)
{
  const TrsKjt *received = &slot->recv;
  const int64_t *offsets = received->jagged.offsets;

  PetscFunctionBegin;
  for (int e = 0; e < r->sharding->route.n_entries; e++) {
    const int64_t begin = offsets[e * received->batch + before],
                  end = offsets[e * received->batch + before + slot->source_batch[q]];

    PetscCall(look_up(r, stream, &received->jagged, e, begin, end, to));
    to += (end - begin) * r->row_dim;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRowsInPlaceStart(TrsRowsInPlace r, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = r->sharding->context;
  const int W = context->groups->world->size, rank = context->groups->world->rank;
  const int64_t *sent, *received;
  int64_t n = 0, before = 0;

  PetscFunctionBegin;
  PetscCall(TrsKjtExchangeIds(slot->exchange, &sent, &received));
  for (int q = 0; q < W; q++) {
    r->sent_begin[q + 1] = r->sent_begin[q] + sent[q];
    r->sent[q] = q == rank ? 0 : sent[q];
    r->received[q] = q == rank ? 0 : received[q];
    n += r->received[q];
  }
  PetscCall(
      TrsDeviceBufferReserveShared(context->device, &r->arrival, n * r->row_dim * (int64_t)sizeof(float)));
  n = 0;
  /* The grid has one host, so sources are in the order of ranks. */
  for (int q = 0; q < W; q++) {
    if (q != rank)
      PetscCall(look_up_for(r, stream, slot, q, before, (float *)r->arrival.data + n * r->row_dim));
    n += r->received[q];
    before += slot->source_batch[q];
  }
  PetscCall(TrsSequenceAllToAllStart(r->dist, stream, (float *)r->arrival.data, r->received, r->sent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The lowest address at which a row begins. */
static uintptr_t lowest(TrsRowsInPlace r)
{
  uintptr_t base = UINTPTR_MAX;

  for (int e = 0; e < r->sharding->route.n_entries; e++)
    if (r->own[e]) base = PetscMin(base, (uintptr_t)r->own[e]->weight);
  for (int q = 0; q < r->sharding->context->groups->world->size; q++)
    if (r->sent[q]) base = PetscMin(base, (uintptr_t)r->block[q]);
  return base;
}

/* The rank to which the id at index `place` was sent. */
static int rank_of(TrsRowsInPlace r, int64_t place)
{
  int low = 0, high = r->sharding->context->groups->world->size;

  while (high - low > 1) {
    const int middle = (low + high) / 2;

    if (r->sent_begin[middle] <= place)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* Find the row of each id of an entry. */
static void find_rows(void *context, int64_t e)
{
  const TrsEntryIds *of = context;
  const TrsRowsInPlace r = of->rows;
  const TrsTbeTable *own = r->own[e];
  const int64_t *offsets = of->ids->jagged.offsets, B = of->ids->batch, stride = own ? own->stride : 0;
  const int64_t first = own ? (int64_t)(((uintptr_t)own->weight - of->base) / sizeof(float)) : 0;
  int64_t *where = (int64_t *)r->where.data;

  for (int64_t i = offsets[e * B]; i < offsets[(e + 1) * B]; i++) {
    const int64_t place = of->places[i];

    if (place >= 0) {
      const int q = rank_of(r, place);
      const float *row = r->block[q] + (place - r->sent_begin[q]) * r->row_dim;

      where[i] = (int64_t)(((uintptr_t)row - of->base) / sizeof(float));
    } else {
      where[i] = place == -1 ? -1 : first + (-2 - place) * stride;
    }
  }
}

PetscErrorCode TrsRowsInPlaceWait(TrsRowsInPlace r, TrsStream stream, const TrsKjt *ids, int64_t *places,
                                  const TrsPooledMatrix *pooled)
{
  const TrsShardingContext *context = r->sharding->context;
  const int n_entries = r->sharding->route.n_entries;
  const TrsJagged *jagged = &ids->jagged;
  const TrsTbe tbe = {
      .n_tables = n_entries, .n_features = n_entries, .table = r->from, .feature = r->feature};
  TrsTbeInput input = {.batch = ids->batch,
                       .offsets = jagged->offsets,
                       .weights = jagged->weights,
                       .n_values = jagged->n_values};
  TrsEntryIds of = {.rows = r, .ids = ids};

  PetscFunctionBegin;
  of.places = places;
  PetscCall(TrsSequenceAllToAllArrive(r->dist, stream, r->block));
  PetscCall(TrsDeviceBufferReserve(context->device, &r->where, jagged->n_values * (int64_t)sizeof(int64_t)));
  input.values = (const int64_t *)r->where.data;
  of.base = lowest(r);
  TrsForEach(n_entries, find_rows, &of);
  /* the const is dropped here, because a forward only reads rows */
  for (int e = 0; e < n_entries; e++) memcpy(&r->from[e].weight, &of.base, sizeof(of.base));
  if (input.batch > 0)
    PetscCall(context->compute->tbe_forward(stream, r->workspace, &tbe, &input, pooled->rows));
  PetscCall(TrsSequenceAllToAllRelease(r->dist, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
