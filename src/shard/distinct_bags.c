/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Payload: distinct bags (-ebc_variable_batch). If several samples of a rank have equal bags of a
  feature, the bag is sent once. Its pooled row comes back once and is copied for all of these
  samples.

    own ids
    --find distinct bags, cut by rows--> [my host's entries][bags of all ranks]
    --lookup, exchanges of pooled.c--> [bags, D] of each entry
    --expand--> model's matrix

  The kernels need the same number of bags for all features. Features with fewer bags therefore get
  additional empty bags before they are cut and looked up. The host receives the numbers of distinct
  bags when it sends the counts. All groups share this one wait.

  Pooled rows are sent as a flat vector. For each source in the order of arrival, and for each
  entry, it has a matrix [bags, D].

  Source: TorchRec TwPooledEmbeddingSharding with VariableBatchPooledEmbeddingsAllToAll,
          RwPooledEmbeddingSharding with VariableBatchPooledEmbeddingsReduceScatter,
          TwRwPooledEmbeddingSharding with both
*/
#include "dist/variable_batch.h"
#include "shard/sharding.h"
#include "sparse/unique_bags.h"

typedef struct {
  /* number of bags and first id of each list that is sent: TrsUniqueBagsTake() */
  TrsPinnedBuffer limits;
  TrsDeviceBuffer inverse;       /* int64 [n_entries][B] index of each sample's bag */
  TrsDeviceBuffer offsets;       /* offsets of the bags that arrived, including the empty bags */
  TrsTbeOccurrences occurrences; /* samples of a training batch, sorted by bag, or NULL */
} TrsDistinctBatch;

typedef struct {
  /* true: the rows of tables are cut, so means are divided on the sample's rank */
  PetscBool cuts;
  PetscBool repeats;   /* true: the entries are not the same as the group's features */
  int n_sent, n_local; /* number of features sent to all ranks, and of entries on this rank */
  /*
    [n_sent] for each item that is sent: the index of its feature in the batch (of its bucket if
    `cuts`), and of its list of bags
  */
  int *block, *list;
  int64_t *dims;    /* [n_entries] number of columns of each entry */
  int64_t *columns; /* [n_entries] first column of each entry in the model's matrix */
  /* [n_local] number of columns of each entry on this rank, a part of dims */
  const int64_t *local_dim;
  TrsDistinctBatch batch[TRS_SHARD_SLOTS];
  /* The next fields are used by the input dist, which handles one batch at a time. */
  TrsUniqueBags bags;
  TrsBuffer id_begin;
  TrsDeviceBuffer device_limits, inverse; /* inverse: int64 [n_features][B] */
  /* [n_entries] copies from `inverse` to the slot's inverse */
  TrsRowsCopy *repeat;
  /* The remaining fields are used by the forward and backward, which handle one batch at a time. */
  TrsWorkspace workspace;
  TrsRowsCopy *copy;  /* [W * n_local] */
  int64_t *first_bag; /* [n_local] */
  /* [L] number of floats for the sources that have the same position within their hosts */
  int64_t *chunks;
  int64_t *strides; /* [n_entries] number of distinct bags in this rank's batch */
  int64_t *displs;  /* [n_entries + 1] number of floats before each entry's rows */
  int64_t *ahead;   /* [2 n_entries + 1] strides and displs of the batch that is being sorted */
  /* [H][n_local] number of bags from one rank of each host, which has this rank's position in
     its host */
  int64_t *host_strides;
  TrsDeviceBuffer flat;
  TrsPooledChunks intra;     /* exchange of floats inside the host; NULL: shards have all rows */
  TrsVariableAllToAll cross; /* exchange across the hosts; NULL: there is one host */
  TrsVariableExpand expand;
} TrsDistinctBags;

/* List the features that are sent to each rank, and the columns that come back. */
static void list_sent(TrsSharding sharding, TrsDistinctBags *d)
{
  const TrsRoute *route = &sharding->route;
  const int n = route->n_entries;

  d->repeats = (PetscBool)(n != route->n_features);
  for (int e = 0; e < n; e++) {
    d->dims[e] = route->entry[e].columns;
    d->columns[e] = TrsShardingColumn(sharding, route->feature[e]) + route->entry[e].column;
    if (route->place[e] != e) d->repeats = PETSC_TRUE;
  }
  for (int j = 0; j < d->n_sent; j++) {
    const int cut = route->order ? route->order[j] : j;
    d->list[j] = route->place[cut % n];
    d->block[j] = d->cuts ? cut : route->feature[cut];
  }
}

static PetscErrorCode create_exchanges(TrsSharding sharding, TrsDistinctBags *d)
{
  const TrsShardingContext *context = sharding->context;
  const TrsCommGroups *groups = context->groups;
  const TrsRoute *route = &sharding->route;
  int *n_of_host;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)route->H, &n_of_host));
  for (int h = 0; h < route->H; h++) n_of_host[h] = route->host_entry[h + 1] - route->host_entry[h];
  PetscCall(TrsShardingCreateSums(sharding, 1, &d->intra));
  if (route->grid == TRS_GRID_RANKS || route->grid == TRS_GRID_HOSTS)
    PetscCall(TrsVariableAllToAllCreate(d->cuts ? groups->cross : groups->world, n_of_host, d->dims,
                                        &sharding->dist, &d->cross));
  PetscCall(TrsVariableExpandCreate(context->device, context->compute, route->n_entries, d->dims, d->columns,
                                    &d->expand));
  PetscCall(TrsRouteCreateExchanges(sharding, PETSC_FALSE));
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) PetscCall(TrsKjtExchangeSetVariable(sharding->slot[s].exchange));
  PetscCall(PetscFree(n_of_host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_distinct_bags(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  const TrsComm comm = context->groups->world;
  const TrsRoute *route = &sharding->route;
  const size_t n = (size_t)route->n_entries;
  TrsDistinctBags *d;

  PetscFunctionBegin;
  PetscCall(PetscNew(&d));
  sharding->data = d;
  d->cuts = (PetscBool)(route->grid != TRS_GRID_RANKS);
  d->n_sent = route->n_entries * (d->cuts ? route->L : 1);
  d->n_local = route->n_sent[comm->rank];
  PetscCall(PetscCalloc6(n, &d->dims, n, &d->columns, n, &d->repeat, n, &d->strides, n + 1, &d->displs,
                         2 * n + 1, &d->ahead));
  PetscCall(PetscMalloc6((size_t)d->n_sent, &d->block, (size_t)d->n_sent, &d->list,
                         (size_t)(comm->size * d->n_local), &d->copy, (size_t)d->n_local, &d->first_bag,
                         (size_t)route->L, &d->chunks, (size_t)(route->H * d->n_local), &d->host_strides));
  PetscCall(context->compute->workspace_create(&d->workspace));
  list_sent(sharding, d);
  d->local_dim = d->dims + route->host_entry[comm->rank / route->L];
  PetscCall(TrsRouteCreateLookup(sharding, (PetscBool)!d->cuts, PETSC_FALSE, &sharding->lookup,
                                 &sharding->local_dim));
  PetscCall(create_exchanges(sharding, d));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_distinct_bags(TrsSharding sharding)
{
  const TrsDeviceOps *device = sharding->context->device;
  TrsDistinctBags *d = (TrsDistinctBags *)sharding->data;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    PetscCall(TrsPinnedBufferFree(device, &d->batch[s].limits));
    PetscCall(TrsDeviceBufferFree(device, &d->batch[s].inverse));
    PetscCall(TrsDeviceBufferFree(device, &d->batch[s].offsets));
    PetscCall(TrsLookupOccurrencesDestroy(sharding->context->compute, &d->batch[s].occurrences));
  }
  PetscCall(TrsPooledChunksDestroy(&d->intra));
  PetscCall(TrsVariableAllToAllDestroy(&d->cross));
  PetscCall(TrsVariableExpandDestroy(&d->expand));
  PetscCall(TrsUniqueBagsFree(device, &d->bags));
  PetscCall(TrsBufferFree(&d->id_begin));
  PetscCall(TrsDeviceBufferFree(device, &d->device_limits));
  PetscCall(TrsDeviceBufferFree(device, &d->inverse));
  PetscCall(TrsDeviceBufferFree(device, &d->flat));
  PetscCall(sharding->context->compute->workspace_destroy(&d->workspace));
  PetscCall(PetscFree6(d->dims, d->columns, d->repeat, d->strides, d->displs, d->ahead));
  PetscCall(PetscFree6(d->block, d->list, d->copy, d->first_bag, d->chunks, d->host_strides));
  PetscCall(PetscFree(d));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- input dist --- */

/* Count the batch's ids in all entries, before repeated bags are removed. */
static PetscErrorCode count_ids(TrsSharding sharding, TrsDistinctBags *d, const TrsKjt *batch,
                                TrsStream stream, int64_t *n)
{
  const TrsShardingContext *context = sharding->context;
  PetscBool pending = PETSC_FALSE;
  int64_t *begin;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&d->id_begin, (batch->n_features + 1) * (int64_t)sizeof(*begin), PETSC_FALSE));
  begin = (int64_t *)d->id_begin.data;
  PetscCall(
      TrsKjtReadLimits(context->device, context->compute, stream, batch, &d->device_limits, begin, &pending));
  if (pending) PetscCall(context->device->stream_synchronize(stream));
  *n = 0;
  for (int e = 0; e < sharding->route.n_entries; e++) {
    const int f = sharding->route.feature[e];
    *n += begin[f + 1] - begin[f];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy the inverse indices of each feature to all entries of this feature. */
static PetscErrorCode repeat_inverse(TrsSharding sharding, const TrsDistinctBags *d, TrsDistinctBatch *own,
                                     int64_t B, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  const int64_t bytes = B * (int64_t)sizeof(int64_t);
  const int n = sharding->route.n_entries;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(context->device, &own->inverse, n * bytes));
  if (bytes == 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int e = 0; e < n; e++)
    d->repeat[e] = (TrsRowsCopy){.n = 1,
                                 .row_bytes = bytes,
                                 .from = (const char *)d->inverse.data + sharding->route.place[e] * bytes,
                                 .to = (char *)own->inverse.data + e * bytes};
  PetscCall(context->compute->copy_rows(stream, sharding->workspace, n, d->repeat));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_distinct_bags(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsDeviceOps *device = sharding->context->device;
  const TrsComputeOps *compute = sharding->context->compute;
  TrsDistinctBags *d = (TrsDistinctBags *)sharding->data;
  TrsDistinctBatch *own = &d->batch[slot - sharding->slot];
  TrsRoute *route = &sharding->route;
  const TrsKjt *from = slot->batch;
  TrsBagLists lists;
  int64_t n = 0;

  PetscFunctionBegin;
  PetscCall(count_ids(sharding, d, slot->batch, stream, &n));
  PetscCall(TrsUniqueBagsFind(device, compute, stream, sharding->workspace, slot->batch, route->n_features,
                              route->group_feature, &d->bags, d->repeats ? &d->inverse : &own->inverse));
  if (d->repeats) PetscCall(repeat_inverse(sharding, d, own, slot->batch->batch, stream));
  lists = d->bags.lists;
  if (d->cuts) { /* pad the batch with empty bags */
    PetscCall(TrsUniqueBagsTake(
        device, compute, stream, sharding->workspace, &d->bags,
        &(TrsTakenBags){&lists, slot->batch, route->n_entries, route->feature, route->place, n}, NULL,
        &route->entries));
    PetscCall(TrsRouteCut(sharding, stream, &route->entries, NULL, &route->cut));
    lists.sample = NULL; /* take the first bags of each bucket */
    from = &route->cut;
  }
  PetscCall(TrsUniqueBagsTake(device, compute, stream, sharding->workspace, &d->bags,
                              &(TrsTakenBags){&lists, from, d->n_sent, d->block, d->list, n}, &own->limits,
                              &slot->send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Make an ordinary batch from the bags that arrived. Every feature is padded with empty bags up to
  the number of bags of the longest feature. The padded batch therefore has other lengths than the
  bags that arrived.
*/
static PetscErrorCode pad_received(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  TrsDistinctBatch *own = &((TrsDistinctBags *)sharding->data)->batch[slot - sharding->slot];
  TrsKjt *recv = &slot->recv;
  int64_t most = 0;

  PetscFunctionBegin;
  for (int f = 0; f < recv->n_features; f++) most = PetscMax(most, recv->strides[f]);
  PetscCall(TrsDeviceBufferReserve(context->device, &own->offsets,
                                   (recv->n_features * most + 1) * (int64_t)sizeof(int64_t)));
  PetscCall(context->compute->pad_offsets(stream, sharding->workspace, recv->n_features, recv->strides, most,
                                          recv->jagged.offsets, (int64_t *)own->offsets.data));
  recv->batch = most;
  recv->strides = NULL;
  recv->jagged.n_bags = recv->n_features * most;
  recv->jagged.offsets = (int64_t *)own->offsets.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- rows --- */

/* Find the rows of each entry that come back for this rank's batch. */
static void find_own_rows(const TrsSharding sharding, const TrsDistinctBags *d, const TrsShardingSlot *slot,
                          int64_t *strides, int64_t *displs)
{
  const TrsRoute *route = &sharding->route;

  /* A host's buckets are adjacent. Each bucket has all entries of the host. */
  for (int h = 0; h < route->H; h++)
    for (int first = route->host_entry[h], e = first; e < route->host_entry[h + 1]; e++)
      strides[e] = slot->send.strides[first * (d->cuts ? route->L : 1) + e - first];
  displs[0] = 0;
  for (int e = 0; e < route->n_entries; e++) displs[e + 1] = displs[e] + strides[e] * d->dims[e];
}

/*
  Count the rows of the batch that are sent and received. Returns the number of floats in the flat
  vector.
*/
static int64_t count_rows(TrsSharding sharding, TrsDistinctBags *d, const TrsShardingSlot *slot,
                          const int64_t *source_strides)
{
  const TrsRoute *route = &sharding->route;
  const int me = sharding->context->groups->world->rank % route->L, n = d->n_local;
  int64_t floats = 0;

  for (int l = 0; l < route->L; l++) d->chunks[l] = 0;
  for (int i = 0; i < route->L * route->H * n; i++) {
    const int q = i / n;
    d->chunks[q % route->L] += source_strides[i] * d->local_dim[i % n];
    if (q % route->L == me) d->host_strides[q / route->L * n + i % n] = source_strides[i];
  }
  for (int l = 0; l < route->L; l++) floats += d->chunks[l];
  find_own_rows(sharding, d, slot, d->strides, d->displs);
  return floats;
}

/*
  Copy the lookup's matrix [bags of the longest feature, local_dim] to the flat vector, or the flat
  vector to this matrix.
*/
static PetscErrorCode copy_flat(TrsSharding sharding, const TrsDistinctBags *d, TrsStream stream,
                                const int64_t *source_strides, const float *from, float *to,
                                PetscBool to_flat)
{
  const int n = sharding->context->groups->world->size * d->n_local;
  const int64_t matrix_stride = sharding->local_dim * (int64_t)sizeof(float);
  int64_t at = 0, column = 0;

  PetscFunctionBegin;
  for (int f = 0; f < d->n_local; f++) d->first_bag[f] = 0;
  for (int i = 0; i < n; i++) {
    const int f = i % d->n_local, source = TrsRouteSource(&sharding->route, i / d->n_local);
    const int64_t D = d->local_dim[f], row_bytes = D * (int64_t)sizeof(float);
    const int64_t rows = source_strides[source * d->n_local + f];
    int64_t in_matrix;

    if (f == 0) column = 0;
    in_matrix = d->first_bag[f] * sharding->local_dim + column;
    d->copy[i] = (TrsRowsCopy){.n = rows,
                               .row_bytes = row_bytes,
                               .from_stride = to_flat ? matrix_stride : row_bytes,
                               .to_stride = to_flat ? row_bytes : matrix_stride};
    if (rows) {
      d->copy[i].from = from + (to_flat ? in_matrix : at);
      d->copy[i].to = to + (to_flat ? at : in_matrix);
    }
    d->first_bag[f] += rows;
    column += D;
    at += rows * D;
  }
  PetscCall(sharding->context->compute->copy_rows(stream, d->workspace, n, d->copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode sort_distinct_bags(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  TrsDistinctBags *d = (TrsDistinctBags *)sharding->data;
  TrsDistinctBatch *own = &d->batch[slot - sharding->slot];
  int64_t *displs = d->ahead + sharding->route.n_entries;

  PetscFunctionBegin;
  find_own_rows(sharding, d, slot, d->ahead, displs);
  PetscCall(TrsVariableExpandSort(d->expand, stream, slot->batch->batch, (const int64_t *)own->inverse.data,
                                  displs, &own->occurrences));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_start_distinct_bags(TrsSharding sharding, TrsShardingSlot *slot,
                                                  TrsStream stream, const TrsPooledMatrix *pooled)
{
  const TrsDeviceOps *device = sharding->context->device;
  TrsDistinctBags *d = (TrsDistinctBags *)sharding->data;
  const int64_t *source_strides;
  int64_t floats;

  PetscFunctionBegin;
  (void)pooled;
  PetscCall(TrsKjtExchangeSourceStrides(slot->exchange, &source_strides));
  floats = count_rows(sharding, d, slot, source_strides);
  PetscCall(TrsDeviceBufferReserve(device, &sharding->pooled,
                                   slot->recv.batch * sharding->local_dim * (int64_t)sizeof(float)));
  PetscCall(TrsDeviceBufferReserve(device, &d->flat, floats * (int64_t)sizeof(float)));
  PetscCall(TrsLookupForward(sharding->lookup, stream, &slot->recv,
                             TrsFloats((float *)sharding->pooled.data, sharding->local_dim)));
  PetscCall(copy_flat(sharding, d, stream, source_strides, (const float *)sharding->pooled.data,
                      (float *)d->flat.data, PETSC_TRUE));
  if (d->intra)
    PetscCall(TrsPooledChunksStart(d->intra, stream, (float *)d->flat.data, d->chunks));
  else
    PetscCall(TrsVariableAllToAllStart(d->cross, stream, (float *)d->flat.data, d->host_strides, d->strides));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_wait_distinct_bags(TrsSharding sharding, TrsShardingSlot *slot,
                                                 TrsStream stream, const TrsPooledMatrix *pooled)
{
  TrsDistinctBags *d = (TrsDistinctBags *)sharding->data;
  const int64_t *inverse = (const int64_t *)d->batch[slot - sharding->slot].inverse.data, *displs;
  const float *recv = NULL;

  PetscFunctionBegin;
  if (d->intra) PetscCall(TrsPooledChunksWait(d->intra, stream, &recv));
  if (d->intra && d->cross) {
    float *summed; /* after GradWait: the gradient of these sums */
    PetscCall(TrsPooledChunksGradBuffer(d->intra, &summed));
    PetscCall(TrsVariableAllToAllStart(d->cross, stream, summed, d->host_strides, d->strides));
  }
  if (d->cross) PetscCall(TrsVariableAllToAllWait(d->cross, stream, &recv, &displs));
  if (slot->batch->batch > 0)
    PetscCall(TrsVariableExpandForward(d->expand, stream, slot->batch->batch, inverse, recv, d->displs,
                                       TrsPooledFloats(pooled, 0), pooled->rows.stride));
  if (d->cuts) PetscCall(TrsShardingDivideMeans(sharding, slot, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_distinct_bags(TrsSharding sharding, TrsShardingSlot *slot,
                                                   TrsStream stream, const TrsPooledMatrix *grad)
{
  TrsDistinctBags *d = (TrsDistinctBags *)sharding->data;
  const TrsDistinctBatch *own = &d->batch[slot - sharding->slot];
  const int64_t *displs;
  float *send;

  PetscFunctionBegin;
  if (d->cuts) PetscCall(TrsShardingDivideMeans(sharding, slot, stream, grad));
  if (d->cross)
    PetscCall(TrsVariableAllToAllGradBuffer(d->cross, &send, &displs));
  else
    PetscCall(TrsPooledChunksGradBuffer(d->intra, &send));
  if (slot->batch->batch > 0)
    PetscCall(TrsVariableExpandBackward(d->expand, stream, slot->batch->batch,
                                        (const int64_t *)own->inverse.data, own->occurrences,
                                        TrsPooledFloats(grad, 0), grad->rows.stride, send, d->displs));
  if (d->cross)
    PetscCall(TrsVariableAllToAllGradStart(d->cross, stream));
  else
    PetscCall(TrsPooledChunksGradStart(d->intra, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_wait_distinct_bags(TrsSharding sharding, TrsShardingSlot *slot,
                                                  TrsStream stream, const TrsPooledMatrix *grad,
                                                  TrsMatrix *arrived)
{
  TrsDistinctBags *d = (TrsDistinctBags *)sharding->data;
  const int64_t *source_strides;
  const float *flat = NULL;

  PetscFunctionBegin;
  (void)grad;
  /* The gradients from other hosts arrive in the memory from which `intra` sends them. */
  if (d->cross) PetscCall(TrsVariableAllToAllGradWait(d->cross, stream, &flat));
  if (d->cross && d->intra) PetscCall(TrsPooledChunksGradStart(d->intra, stream));
  if (d->intra) PetscCall(TrsPooledChunksGradWait(d->intra, stream, &flat));
  PetscCall(TrsKjtExchangeSourceStrides(slot->exchange, &source_strides));
  PetscCall(
      copy_flat(sharding, d, stream, source_strides, flat, (float *)sharding->pooled.data, PETSC_FALSE));
  *arrived = TrsFloats((const float *)sharding->pooled.data, sharding->local_dim);
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_payload_distinct_bags = {
    .name = "distinct bags",
    .setup = setup_distinct_bags,
    .destroy = destroy_distinct_bags,
    .prepare = prepare_distinct_bags,
    .input_wait = pad_received,
    .sort = sort_distinct_bags,
    .forward_start = forward_start_distinct_bags,
    .forward_wait = forward_wait_distinct_bags,
    .backward_start = backward_start_distinct_bags,
    .backward_wait = backward_wait_distinct_bags,
};
