/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/look_ahead.h"

#include <string.h>

/*
  The rows of some bags for samples on other hosts. A message has one entry after the other, and of
  each entry the rows of its bags in the order of samples, without gaps.
*/
typedef struct {
  int64_t *sent, *sent_at, *arrived, *arrived_at; /* [W] floats and their positions */
  TrsDeviceBuffer rows, arrived_rows;
  TrsCodedExchange exchange;
} TrsFarRows;

/* A batch of which rows travel ahead, from Tell to Join. */
typedef struct {
  const TrsShardingSlot *slot; /* NULL: there is no batch */
  int64_t *source_batch;       /* [W] its numbers of samples */
  TrsBuffer untouched;         /* uint8_t [entries of this rank, G] a flag for each bag */
  /*
    [W] masks, in words of 64 bits, and their positions. A mask has a bit for each of the owner's
    bags, entry by entry, which is set if the bag travels ahead. `own` are masks of this rank's bags
    for samples of other ranks, and `got` are masks of other ranks' bags for this rank's samples.
  */
  int64_t *own_words, *own_at, *got_words, *got_at;
  TrsBuffer own, got;
  TrsRequest request; /* the exchange of the masks */
} TrsAheadBatch;

struct TrsLookAheadImpl {
  TrsSharding sharding;
  TrsComm comm;
  int W, rank;
  const int64_t *dims;
  PetscBool *far;         /* [W] true: the rank is on another host */
  int64_t *width;         /* [entries] number of columns of each entry of the route */
  TrsAheadBatch batch[2]; /* batch[turn] is for Rest and Join, the other for Tell and Send */
  int turn;
  TrsFarRows ahead, rest;
  TrsKjt bags; /* scratch: some bags of one entry */
  int64_t n_bags, n_ahead;
};

PetscErrorCode TrsLookAheadComm(const TrsCommGroups *groups, const TrsDeviceOps *device,
                                const TrsComputeOps *compute, TrsComm *comm)
{
  const TrsComm world = groups->world;

  PetscFunctionBegin;
  *comm = NULL;
  if (!device->host_memory || world->n_shared >= world->size) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCommCreate(world->mpi, world->ops->name, device, compute, comm));
  (*comm)->trace_as = TRS_TRACE_AHEAD;
  (*comm)->next = world->next ? world->next : world;
  world->next = *comm;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookAheadCommDestroy(const TrsCommGroups *groups, TrsComm *comm)
{
  TrsComm before = groups->world;

  PetscFunctionBegin;
  if (!*comm) PetscFunctionReturn(PETSC_SUCCESS);
  while (before->next != *comm) before = before->next;
  before->next = (*comm)->next == before ? NULL : (*comm)->next;
  PetscCall(TrsCommDestroy(comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if the group's rows can travel ahead (TrsLookAheadCreate). */
static PetscBool can_travel(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  const TrsCodecKind kind = sharding->dist.forward.kind;
  PetscBool can = (PetscBool)(context->ahead && sharding->route.grid == TRS_GRID_RANKS &&
                              sharding->weights != TRS_SHARDING_POSITIONS && context->copies <= 1 &&
                              !context->copied && sharding->rows_type == TRS_FP32 &&
                              (kind == TRS_CODEC_FP32 || kind == TRS_CODEC_FP16 || kind == TRS_CODEC_BF16));

  for (int i = 0; i < sharding->n_tables; i++)
    can = (PetscBool)(can && !TrsPlacementTreats(context->shards, sharding->table[i], PETSC_FALSE));
  return can;
}

static PetscErrorCode create_rows(TrsLookAhead a, TrsFarRows *rows)
{
  const size_t W = (size_t)a->W;

  PetscFunctionBegin;
  PetscCall(PetscCalloc4(W, &rows->sent, W, &rows->sent_at, W, &rows->arrived, W, &rows->arrived_at));
  PetscCall(TrsCodedExchangeInit(a->comm, &a->sharding->dist.forward, &rows->exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_rows(TrsLookAhead a, TrsFarRows *rows)
{
  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeFree(&rows->exchange));
  PetscCall(TrsDeviceBufferFree(a->comm->device, &rows->rows));
  PetscCall(TrsDeviceBufferFree(a->comm->device, &rows->arrived_rows));
  PetscCall(PetscFree4(rows->sent, rows->sent_at, rows->arrived, rows->arrived_at));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookAheadCreate(TrsSharding sharding, const int64_t *dims, TrsLookAhead *ahead)
{
  const TrsRoute *route = &sharding->route;
  const TrsComm world = sharding->context->groups->world;
  const size_t W = (size_t)world->size;
  TrsLookAhead a;

  PetscFunctionBegin;
  *ahead = NULL;
  if (!can_travel(sharding)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&a));
  a->sharding = sharding;
  a->comm = sharding->context->ahead;
  a->W = world->size;
  a->rank = world->rank;
  a->dims = dims;
  PetscCall(PetscMalloc1((size_t)route->n_entries + 1, &a->width));
  for (int e = 0; e < route->n_entries; e++) a->width[e] = route->entry[e].columns;
  PetscCall(PetscMalloc1(W, &a->far));
  for (int q = 0; q < a->W; q++) a->far[q] = (PetscBool)(q != a->rank && !TrsLanesTo(world->lanes, q));
  for (int i = 0; i < 2; i++) {
    TrsAheadBatch *batch = &a->batch[i];

    PetscCall(PetscCalloc5(W, &batch->source_batch, W, &batch->own_words, W, &batch->own_at, W,
                           &batch->got_words, W, &batch->got_at));
  }
  PetscCall(create_rows(a, &a->ahead));
  PetscCall(create_rows(a, &a->rest));
  *ahead = a;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookAheadDestroy(TrsLookAhead *ahead)
{
  TrsLookAhead a = *ahead;

  PetscFunctionBegin;
  if (!a) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsLookAheadCancel(a, NULL));
  for (int i = 0; i < 2; i++) {
    TrsAheadBatch *batch = &a->batch[i];

    PetscCall(TrsBufferFree(&batch->untouched));
    PetscCall(TrsBufferFree(&batch->own));
    PetscCall(TrsBufferFree(&batch->got));
    PetscCall(
        PetscFree5(batch->source_batch, batch->own_words, batch->own_at, batch->got_words, batch->got_at));
  }
  PetscCall(destroy_rows(a, &a->ahead));
  PetscCall(destroy_rows(a, &a->rest));
  PetscCall(TrsKjtFree(a->comm->device, &a->bags));
  PetscCall(PetscFree(a->far));
  PetscCall(PetscFree(a->width));
  PetscCall(PetscFree(*ahead));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The first entry of rank q, and the number of its entries. */
static int first_entry(const struct TrsLookAheadImpl *a, int q)
{
  return a->sharding->route.host_entry[q];
}

static int n_entries(const struct TrsLookAheadImpl *a, int q)
{
  return first_entry(a, q + 1) - first_entry(a, q);
}

/* --- masks --- */

static int bit_at(const uint64_t *mask, int64_t i)
{
  return (int)(mask[i / 64] >> i % 64 & 1);
}

static const uint64_t *got_mask(const TrsAheadBatch *x, int q)
{
  return (const uint64_t *)x->got.data + x->got_at[q];
}

/* Count the words of all masks, and allocate memory for them. */
static PetscErrorCode lay_out_masks(const struct TrsLookAheadImpl *a, TrsAheadBatch *x)
{
  int64_t n_own = 0, n_got = 0;

  PetscFunctionBegin;
  for (int q = 0; q < a->W; q++) {
    x->own_words[q] = a->far[q] ? (x->source_batch[q] * n_entries(a, a->rank) + 63) / 64 : 0;
    x->got_words[q] = a->far[q] ? (x->source_batch[a->rank] * n_entries(a, q) + 63) / 64 : 0;
    x->own_at[q] = n_own;
    x->got_at[q] = n_got;
    n_own += x->own_words[q];
    n_got += x->got_words[q];
  }
  PetscCall(TrsBufferReserve(&x->own, (n_own + 1) * (int64_t)sizeof(uint64_t), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&x->got, (n_got + 1) * (int64_t)sizeof(uint64_t), PETSC_FALSE));
  memset(x->own.data, 0, (size_t)n_own * sizeof(uint64_t));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the masks of this rank's bags. */
static void fill_masks(TrsLookAhead a, TrsAheadBatch *x, int64_t G)
{
  const int F = n_entries(a, a->rank);
  const uint8_t *untouched = (const uint8_t *)x->untouched.data;

  for (int64_t q = 0, first = 0; q < a->W; first += x->source_batch[q++]) {
    uint64_t *mask = (uint64_t *)x->own.data + x->own_at[q];

    if (!a->far[q]) continue;
    for (int64_t i = 0, f = 0; f < F; f++)
      for (int64_t b = 0; b < x->source_batch[q]; b++, i++) {
        const uint64_t bit = untouched[f * G + first + b];

        mask[i / 64] |= bit << i % 64;
        a->n_ahead += (int64_t)bit;
      }
    a->n_bags += F * x->source_batch[q];
  }
}

/* --- rows for samples on other hosts --- */

/*
  Copy the ids of some bags of an entry to a->bags: of the bags first .. first + n - 1 either those
  that are untouched, or those that are not. Returns the number of bags.
*/
static int64_t take_bags(TrsLookAhead a, const TrsAheadBatch *x, int64_t first, int64_t n, int untouched)
{
  const TrsKjt *ids = &x->slot->recv;
  const int64_t *offsets = ids->jagged.offsets;
  const uint8_t *flag = (const uint8_t *)x->untouched.data;
  TrsJagged *to = &a->bags.jagged;
  int64_t n_bags = 0, n_values = 0;

  to->offsets[0] = 0;
  for (int64_t bag = first; bag < first + n; bag++) {
    if (flag[bag] != untouched) continue;
    for (int64_t i = offsets[bag]; i < offsets[bag + 1]; i++) {
      if (to->weights) to->weights[n_values] = ids->jagged.weights[i];
      to->values[n_values++] = ids->jagged.values[i];
    }
    to->offsets[++n_bags] = n_values;
  }
  to->n_values = n_values;
  return n_bags;
}

/* Look up the bags of far samples that are untouched, or those that are not. */
static PetscErrorCode look_up_far(TrsLookAhead a, const TrsAheadBatch *x, int untouched, TrsStream stream,
                                  TrsFarRows *rows)
{
  const TrsKjt *ids = &x->slot->recv;
  const int64_t G = ids->batch;
  const TrsJagged *bags = &a->bags.jagged;
  int64_t at = 0, first = 0;

  PetscFunctionBegin;
  PetscCall(TrsKjtReserve(a->comm->device, &a->bags, 1, G, ids->jagged.n_values,
                          (PetscBool)(ids->jagged.weights != NULL)));
  PetscCall(TrsDeviceBufferReserve(a->comm->device, &rows->rows,
                                   G * a->sharding->local_dim * (int64_t)sizeof(float)));
  for (int q = 0; q < a->W; first += x->source_batch[q++]) {
    rows->sent_at[q] = at;
    for (int f = 0; a->far[q] && f < n_entries(a, a->rank); f++) {
      const int64_t width = a->width[first_entry(a, a->rank) + f];
      const int64_t n = take_bags(a, x, f * G + first, x->source_batch[q], untouched);

      PetscCall(TrsLookupForwardFeature(a->sharding->lookup, stream, f,
                                        &(TrsTbeInput){.batch = n,
                                                       .offsets = bags->offsets,
                                                       .values = bags->values,
                                                       .weights = bags->weights,
                                                       .n_values = bags->n_values},
                                        (float *)rows->rows.data + at, width));
      at += n * width;
    }
    rows->sent[q] = at - rows->sent_at[q];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find out from the masks how many floats arrive, and start the exchange of the rows. untouched: the
  rows are those of untouched bags.
*/
static PetscErrorCode start_rows(TrsLookAhead a, const TrsAheadBatch *x, int untouched, TrsStream stream,
                                 TrsFarRows *rows)
{
  const int64_t B = x->source_batch[a->rank];
  int64_t at = 0;

  PetscFunctionBegin;
  for (int q = 0; q < a->W; q++) {
    rows->arrived_at[q] = at;
    for (int64_t i = 0, f = 0; a->far[q] && f < n_entries(a, q); f++) {
      int64_t n = 0;

      for (int64_t b = 0; b < B; b++, i++) n += bit_at(got_mask(x, q), i) == untouched;
      at += n * a->width[first_entry(a, q) + f];
    }
    rows->arrived[q] = at - rows->arrived_at[q];
  }
  PetscCall(TrsDeviceBufferReserve(a->comm->device, &rows->arrived_rows, at * (int64_t)sizeof(float)));
  PetscCall(TrsCodedAlltoallvStart(
      &rows->exchange, stream, (TrsSentBlocks){rows->rows.data, rows->sent, rows->sent_at},
      (TrsReceivedBlocks){rows->arrived_rows.data, rows->arrived, rows->arrived_at}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy the rows of rank q, which have arrived in both messages, to its block [B, dims[q]]. */
static void fill_block(const struct TrsLookAheadImpl *a, const TrsAheadBatch *x, int q, float *block)
{
  const int64_t B = x->source_batch[a->rank], dim = a->dims[q];
  const uint64_t *mask = got_mask(x, q);
  const float *from[2] = {(const float *)a->rest.arrived_rows.data + a->rest.arrived_at[q],
                          (const float *)a->ahead.arrived_rows.data + a->ahead.arrived_at[q]};

  for (int64_t i = 0, column = 0, f = 0; f < n_entries(a, q); f++) {
    const int64_t width = a->width[first_entry(a, q) + f];

    for (int64_t b = 0; b < B; b++, i++) {
      const float **row = &from[bit_at(mask, i)];

      memcpy(block + b * dim + column, *row, (size_t)width * sizeof(*block));
      *row += width;
    }
    column += width;
  }
}

/* Look up the bags of samples on this host in their places in sharding->rows. */
static PetscErrorCode look_up_near(TrsLookAhead a, const TrsAheadBatch *x, TrsStream stream)
{
  const TrsKjt *ids = &x->slot->recv;
  const int64_t G = ids->batch, dim = a->sharding->local_dim;
  int64_t first = 0;

  PetscFunctionBegin;
  for (int q = 0; q < a->W; first += x->source_batch[q++]) {
    int64_t column = 0;

    for (int f = 0; !a->far[q] && f < n_entries(a, a->rank); f++) {
      PetscCall(TrsLookupForwardFeature(a->sharding->lookup, stream, f,
                                        &(TrsTbeInput){.batch = x->source_batch[q],
                                                       .offsets = ids->jagged.offsets + f * G + first,
                                                       .values = ids->jagged.values,
                                                       .weights = ids->jagged.weights,
                                                       .n_values = ids->jagged.n_values},
                                        a->sharding->rows + first * dim + column, dim));
      column += a->width[first_entry(a, a->rank) + f];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the batch --- */

PetscErrorCode TrsLookAheadTell(TrsLookAhead a, const TrsShardingSlot *written, const TrsShardingSlot *next,
                                TrsStream stream)
{
  const int64_t G = next->recv.batch;
  TrsAheadBatch *x = &a->batch[1 - a->turn];

  PetscFunctionBegin;
  PetscCheck(!x->slot, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "two batches look ahead");
  x->slot = next;
  PetscCall(PetscArraycpy(x->source_batch, next->source_batch, (size_t)a->W));
  PetscCall(TrsBufferReserve(&x->untouched, n_entries(a, a->rank) * G + 1, PETSC_FALSE));
  PetscCall(lay_out_masks(a, x));
  PetscCall(
      TrsLookupUntouched(a->sharding->lookup, &written->recv, &next->recv, (uint8_t *)x->untouched.data));
  fill_masks(a, x, G);
  PetscCall(TrsCommAlltoallv(a->comm, stream, (TrsSentBlocks){x->own.data, x->own_words, x->own_at},
                             (TrsReceivedBlocks){x->got.data, x->got_words, x->got_at},
                             (int64_t)sizeof(uint64_t), &x->request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookAheadSend(TrsLookAhead a, TrsStream stream)
{
  TrsAheadBatch *x = &a->batch[1 - a->turn];

  PetscFunctionBegin;
  PetscCheck(x->slot && !a->batch[a->turn].slot, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "rows are sent ahead without Tell, or before Join");
  PetscCall(look_up_far(a, x, 1, stream, &a->ahead));
  PetscCall(TrsRequestWait(&x->request, stream));
  PetscCall(start_rows(a, x, 1, stream, &a->ahead));
  a->turn = 1 - a->turn;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsLookAheadIsFor(TrsLookAhead a, const TrsShardingSlot *slot)
{
  return (PetscBool)(a && a->batch[a->turn].slot == slot);
}

PetscErrorCode TrsLookAheadRest(TrsLookAhead a, TrsStream stream, const PetscBool **far)
{
  const TrsAheadBatch *x = &a->batch[a->turn];

  PetscFunctionBegin;
  PetscCall(look_up_far(a, x, 0, stream, &a->rest));
  PetscCall(start_rows(a, x, 0, stream, &a->rest));
  PetscCall(TrsShardingReserveRows(a->sharding, x->slot->recv.batch));
  PetscCall(look_up_near(a, x, stream));
  *far = a->far;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookAheadJoin(TrsLookAhead a, TrsStream stream, const float *const *block)
{
  TrsAheadBatch *x = &a->batch[a->turn];

  PetscFunctionBegin;
  PetscCall(TrsCodedExchangeWait(&a->ahead.exchange, stream));
  PetscCall(TrsCodedExchangeWait(&a->rest.exchange, stream));
  /* the blocks of far ranks are in this rank's memory, which may be written */
  for (int q = 0; q < a->W; q++)
    if (a->far[q]) fill_block(a, x, q, (float *)TrsFloats(block[q], a->dims[q]).data);
  x->slot = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLookAheadCancel(TrsLookAhead a, TrsStream stream)
{
  PetscFunctionBegin;
  for (int i = 0; i < 2; i++) {
    PetscCall(TrsRequestWait(&a->batch[i].request, stream));
    a->batch[i].slot = NULL;
  }
  PetscCall(TrsCodedExchangeWait(&a->ahead.exchange, stream));
  PetscCall(TrsCodedExchangeWait(&a->rest.exchange, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsLookAheadCount(TrsLookAhead a, int64_t *n_bags, int64_t *n_ahead)
{
  *n_bags = a->n_bags;
  *n_ahead = a->n_ahead;
}
