/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Payload: rows in order. It is used with -reproducible for tables whose sums would otherwise be
  made in parts on several ranks. Here each sum is made on one rank. Pooled rows are summed on the
  sample's rank, in the bag's order. A row's gradients are summed on the row's rank, in the order of
  the global batch. Shards with all rows do this in any case. All sharding types thus give the same
  bits on any number of ranks.

    row_wise, table_row_wise, grid_shard:
      own ids --route--> ids of my rows --lookup--> a row for each id
      --all-to-all--> rows in the order in which ids were sent
      --pool by the bags, divide means--> model's matrix
      (if the host can read the tables, rows_in_place.c copies only rows that are sent)
    data_parallel: a rank looks up its own samples' rows; ids are sent to all ranks only for the
      update
    Backward: the pooled gradients of all samples are sent to every rank that has rows of the
      feature. There they are a matrix [G, D] in the order of samples.

  Cost: the forward sends a row for each id instead of a row for each bag. data_parallel sends ids
  and gradients to all ranks instead of touched rows.
*/
#include "shard/rows_in_place.h"

#include <string.h>

/* A batch's ids by entry. If rows are sent, also the position at which each id was sent. */
typedef struct {
  TrsKjt ids;
  TrsDeviceBuffer places;
} TrsOrderedBatch;

typedef struct {
  int *repeat; /* data_parallel: [W * n_entries] the entry that is sent at each position */
  TrsOrderedBatch batch[TRS_SHARD_SLOTS];
  /* The next fields are used by the forward that sends rows. */
  int64_t row_dim; /* floats from one row to the next in messages: the width of the widest entry */
  TrsDeviceBuffer rows, arrival;
  TrsSequenceAllToAll rows_dist;
  /* [n_entries] the rows that arrived, as tables; their ids are positions */
  TrsTbeTable *arrived;
  TrsTbeFeature *pool_feature;
  TrsTbe pool;
  TrsWorkspace pool_workspace;
  TrsRowsInPlace in_place; /* replaces this forward if the tables allow it; otherwise NULL */
  /* The next field is used by the forward of data_parallel. */
  TrsLookup local;
  /* The remaining fields are used by the backward. */
  int64_t *dims; /* [W] number of gradient columns that are sent to each rank */
  int64_t *send_counts, *send_displs, *recv_counts, *recv_displs;
  const float **send_block; /* [W] */
  TrsDeviceBuffer send_grad, recv_grad;
  TrsRequest request;
} TrsOrdered;

static PetscBool is_replicated(const TrsSharding sharding)
{
  return (PetscBool)(sharding->ops == &trs_payload_ordered_replicas);
}

/* Describe how the rows of each entry that arrived are pooled. */
static PetscErrorCode setup_rows(TrsSharding sharding, TrsOrdered *o)
{
  const TrsShardingContext *context = sharding->context;
  const TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  PetscCall(PetscCalloc2((size_t)route->n_entries, &o->arrived, (size_t)route->n_entries, &o->pool_feature));
  for (int e = 0; e < route->n_entries; e++) {
    const TrsRouteEntry *entry = &route->entry[e];
    o->row_dim = PetscMax(o->row_dim, entry->columns);
    o->arrived[e] = (TrsTbeTable){
        .dim = (int32_t)entry->columns, .dtype = TRS_FP32, .table_dim = entry->columns};
    o->pool_feature[e] = (TrsTbeFeature){
        .table = e, .out_column = TrsShardingColumn(sharding, route->feature[e]) + entry->column};
  }
  for (int e = 0; e < route->n_entries; e++) o->arrived[e].stride = o->row_dim;
  o->pool = (TrsTbe){.n_tables = route->n_entries,
                     .n_features = route->n_entries,
                     .table = o->arrived,
                     .feature = o->pool_feature};
  PetscCall(context->compute->workspace_create(&o->pool_workspace));
  PetscCall(TrsSequenceAllToAllCreate(context->groups->world, o->row_dim, &sharding->dist, &o->rows_dist));
  PetscCall(TrsRowsInPlaceCreate(sharding, o->rows_dist, o->row_dim, &o->in_place));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_ordered(TrsSharding sharding)
{
  const size_t W = (size_t)sharding->context->groups->world->size, n = (size_t)sharding->route.n_entries;
  TrsOrdered *o;

  PetscFunctionBegin;
  PetscCall(PetscNew(&o));
  sharding->data = o;
  PetscCall(PetscMalloc1(W * n, &o->repeat));
  for (size_t i = 0; i < W * n; i++) o->repeat[i] = (int)(i % n);
  PetscCall(PetscCalloc6(W, &o->dims, W, &o->send_counts, W, &o->send_displs, W, &o->recv_counts, W,
                         &o->recv_displs, W, &o->send_block));
  PetscCall(TrsRouteCreateRuns(sharding, PETSC_TRUE, PETSC_FALSE, o->dims));
  PetscCall(
      TrsRouteCreateLookup(sharding, PETSC_FALSE, PETSC_FALSE, &sharding->lookup, &sharding->local_dim));
  if (is_replicated(sharding))
    PetscCall(TrsRouteCreateLookup(sharding, PETSC_FALSE, PETSC_TRUE, &o->local, NULL));
  else
    PetscCall(setup_rows(sharding, o));
  PetscCall(TrsRouteCreateExchanges(sharding, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_ordered(TrsSharding sharding)
{
  const TrsDeviceOps *device = sharding->context->device;
  TrsOrdered *o = (TrsOrdered *)sharding->data;
  TrsDeviceBuffer *buffers[] = {&o->rows, &o->arrival, &o->send_grad, &o->recv_grad};

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
    PetscCall(TrsDeviceBufferFree(device, buffers[i]));
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    PetscCall(TrsKjtFree(device, &o->batch[s].ids));
    PetscCall(TrsDeviceBufferFree(device, &o->batch[s].places));
  }
  if (!is_replicated(sharding)) {
    PetscCall(TrsRowsInPlaceDestroy(&o->in_place));
    PetscCall(TrsSequenceAllToAllDestroy(&o->rows_dist));
    PetscCall(sharding->context->compute->workspace_destroy(&o->pool_workspace));
    PetscCall(PetscFree2(o->arrived, o->pool_feature));
  }
  PetscCall(TrsLookupDestroy(&o->local));
  PetscCall(PetscFree(o->repeat));
  PetscCall(
      PetscFree6(o->dims, o->send_counts, o->send_displs, o->recv_counts, o->recv_displs, o->send_block));
  PetscCall(PetscFree(o));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsOrderedBatch *batch_of(TrsSharding sharding, const TrsShardingSlot *slot)
{
  return &((TrsOrdered *)sharding->data)->batch[slot - sharding->slot];
}

static PetscErrorCode prepare_rows(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsRowsInPlace in_place = ((TrsOrdered *)sharding->data)->in_place;
  TrsOrderedBatch *batch = batch_of(sharding, slot);

  PetscFunctionBegin;
  PetscCall(TrsRouteSend(sharding, stream, slot->batch, sharding->route.feature, &batch->ids, &batch->places,
                         &slot->send));
  if (in_place) TrsRowsInPlacePrepare(in_place, &slot->send, &batch->ids, (int64_t *)batch->places.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_replicas(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  const TrsOrdered *o = (const TrsOrdered *)sharding->data;
  const TrsRoute *route = &sharding->route;
  TrsKjt *ids = &batch_of(sharding, slot)->ids;

  PetscFunctionBegin;
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, slot->batch,
                          route->n_entries, route->feature, ids));
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, ids,
                          route->n_entries * context->groups->world->size, o->repeat, &slot->send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_start_rows(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                         const TrsPooledMatrix *pooled)
{
  const TrsShardingContext *context = sharding->context;
  TrsOrdered *o = (TrsOrdered *)sharding->data;
  const int64_t bytes = slot->recv.jagged.n_values * o->row_dim * (int64_t)sizeof(float);
  const int64_t *sent, *received;

  PetscFunctionBegin;
  (void)pooled;
  if (o->in_place) {
    PetscCall(TrsRowsInPlaceStart(o->in_place, slot, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsDeviceBufferReserve(context->device, &o->rows, bytes));
  PetscCall(TrsDeviceBufferReserveShared(context->device, &o->arrival, bytes));
  PetscCall(context->device->zero(o->rows.data, bytes,
                                  /* ids without a row (pruned) go to rank 0, which may have no rows
                                     */
                                  stream));
  PetscCall(TrsLookupForwardRows(sharding->lookup, stream, &slot->recv, (float *)o->rows.data, o->row_dim));
  PetscCall(TrsKjtExchangeRowsToArrival(slot->exchange, stream, o->row_dim, (const float *)o->rows.data,
                                        (float *)o->arrival.data));
  PetscCall(TrsKjtExchangeIds(slot->exchange, &sent, &received));
  PetscCall(TrsSequenceAllToAllStart(o->rows_dist, stream, (float *)o->arrival.data, received, sent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_wait_rows(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                        const TrsPooledMatrix *pooled)
{
  TrsOrdered *o = (TrsOrdered *)sharding->data;
  const TrsOrderedBatch *batch = batch_of(sharding, slot);
  const TrsJagged *ids = &batch->ids.jagged;
  const TrsTbeInput input = {.batch = batch->ids.batch,
                             .offsets = ids->offsets,
                             .values = (const int64_t *)batch->places.data,
                             .weights = ids->weights,
                             .n_values = ids->n_values};
  const float *rows;

  PetscFunctionBegin;
  if (o->in_place) {
    PetscCall(TrsRowsInPlaceWait(o->in_place, stream, &batch->ids, (int64_t *)batch->places.data, pooled));
    PetscCall(TrsShardingDivideMeans(sharding, slot, stream, pooled));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsSequenceAllToAllWait(o->rows_dist, stream, &rows));
  for (int e = 0; e < sharding->route.n_entries; e++) {
    /* a const pointer becomes a plain one here, because a forward only reads the rows */
    memcpy(&o->arrived[e].weight, &rows, sizeof(rows));
    o->arrived[e].rows = ids->n_values;
  }
  if (input.batch > 0)
    PetscCall(
        sharding->context->compute->tbe_forward(stream, o->pool_workspace, &o->pool, &input, pooled->rows));
  PetscCall(TrsShardingDivideMeans(sharding, slot, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_start_replicas(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                             const TrsPooledMatrix *pooled)
{
  const TrsOrdered *o = (const TrsOrdered *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsLookupForward(o->local, stream, &batch_of(sharding, slot)->ids, pooled->rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_wait_replicas(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                            const TrsPooledMatrix *pooled)
{
  PetscFunctionBegin;
  PetscCall(TrsShardingDivideMeans(sharding, slot, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_ordered(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                             const TrsPooledMatrix *grad)
{
  const TrsShardingContext *context = sharding->context;
  const TrsComm comm = context->groups->world;
  TrsOrdered *o = (TrsOrdered *)sharding->data;
  const int64_t B = slot->batch->batch;
  int64_t n_send = 0, n_recv = 0;

  PetscFunctionBegin;
  /* allowed in place, because only this group uses these columns, and reads them once */
  PetscCall(TrsShardingDivideMeans(sharding, slot, stream, grad));
  for (int q = 0; q < comm->size; q++) {
    o->send_displs[q] = n_send;
    o->send_counts[q] = q == comm->rank ? 0 : B * o->dims[q];
    o->recv_displs[q] = n_recv;
    o->recv_counts[q] = q == comm->rank ? 0 : slot->source_batch[q] * sharding->local_dim;
    n_send += o->send_counts[q];
    n_recv += slot->source_batch[q] * sharding->local_dim;
  }
  PetscCall(TrsDeviceBufferReserveShared(context->device, &o->send_grad, n_send * (int64_t)sizeof(float)));
  PetscCall(TrsDeviceBufferReserve(context->device, &o->recv_grad, n_recv * (int64_t)sizeof(float)));
  /* copy this rank's gradients to the memory in which they would arrive */
  for (int q = 0; q < comm->size; q++)
    o->send_block[q] = q == comm->rank ? (const float *)o->recv_grad.data + o->recv_displs[q]
                                       : (const float *)o->send_grad.data + o->send_displs[q];
  PetscCall(TrsRouteGatherRuns(sharding, stream, B, grad, o->send_block, o->dims));
  PetscCall(TrsCommAlltoallv(comm, stream, (TrsSentBlocks){o->send_grad.data, o->send_counts, o->send_displs},
                             (TrsReceivedBlocks){o->recv_grad.data, o->recv_counts, o->recv_displs},
                             sizeof(float), &o->request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_wait_ordered(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                            const TrsPooledMatrix *grad, TrsMatrix *arrived)
{
  TrsOrdered *o = (TrsOrdered *)sharding->data;

  PetscFunctionBegin;
  (void)slot;
  (void)grad;
  PetscCall(TrsRequestWait(&o->request, stream));
  *arrived = TrsFloats((const float *)o->recv_grad.data, sharding->local_dim);
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_payload_ordered_rows = {
    .name = "rows in order",
    .setup = setup_ordered,
    .destroy = destroy_ordered,
    .prepare = prepare_rows,
    .forward_start = forward_start_rows,
    .forward_wait = forward_wait_rows,
    .backward_start = backward_start_ordered,
    .backward_wait = backward_wait_ordered,
};

const TrsShardingOps trs_payload_ordered_replicas = {
    .name = "replicas in order",
    .setup = setup_ordered,
    .destroy = destroy_ordered,
    .prepare = prepare_replicas,
    .forward_start = forward_start_replicas,
    .forward_wait = forward_wait_replicas,
    .backward_start = backward_start_ordered,
    .backward_wait = backward_wait_ordered,
};
