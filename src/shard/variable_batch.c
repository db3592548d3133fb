/* SPDX-License-Identifier: BSD-3-Clause */
/*
  table_wise, column_wise, table_column_wise and row_wise with -ebc_variable_batch: of a rank's samples that have the same bag of a feature, one sends
  it and gets its pooled row, the others copy that.

    own ids --distinct bags--> [rank q][features of q's shards][bags] --all-to-all--> lookup of [my features][bags of all ranks]
    --all-to-all--> [bags, D] for each feature --expand--> model's matrix

  row_wise: the distinct bags are cut into buckets before the first exchange, and partial sums are added up in the second (reduce-scatter).

  The kernels take one number of bags for all features, so features are cut and looked up as if they had as many as the one with most, without ids. How many bags
  are distinct the host learns when it sends the counts, in the one wait for all groups there is anyway.
  Source: TorchRec TwPooledEmbeddingSharding with VariableBatchPooledEmbeddingsAllToAll,
  RwPooledEmbeddingSharding with VariableBatchPooledEmbeddingsReduceScatter.
*/
#include "dist/variable_batch.h"

#include "shard/row_split.h"
#include "shard/sharding.h"
#include "sparse/unique_bags.h"

typedef struct {
  TrsPinnedBuffer limits;  /* bags of each place sent, and where its ids begin: TrsUniqueBagsTake() */
  TrsDeviceBuffer inverse; /* int64 [n_expanded][B] each sample's bag */
  TrsDeviceBuffer offsets; /* of the bags that arrived, with empty ones */
} TrsVariableSlot;

typedef struct {
  PetscBool by_rows;
  int n_features, n_sent, n_local;
  int n_expanded;           /* blocks of columns that come back: features sent; by rows: features */
  int *feature;             /* [n_features] model features of the group */
  int *n_of_rank;           /* [W] features sent to each rank */
  int *sent;                /* [n_expanded] feature of the group, */
  int64_t *dims;            /* [n_expanded] its columns, */
  int64_t *columns;         /* [n_expanded] and the first of them in the model's matrix */
  const int64_t *local_dim; /* [n_local] columns of this rank's features: a part of dims */
  int *block, *list;        /* [n_sent] what is sent: of the batch's features, or by rows of the buckets' */
  TrsVariableSlot slot[TRS_SHARD_SLOTS];
  /* of the input dist of one batch at a time */
  TrsUniqueBags bags;
  TrsBuffer id_begin;
  TrsDeviceBuffer device_limits;
  TrsDeviceBuffer inverse; /* by tables: [n_features][B], */
  TrsRowsCopy *repeat;     /* [n_expanded] and its parts at the places sent */
  TrsKjt padded, cut;      /* by rows: the distinct bags, and in buckets */
  TrsRowSplit split;       /* by rows */
  /* of the forward and backward of one batch at a time */
  TrsWorkspace workspace;
  TrsRowsCopy *copy;  /* [W * n_local] */
  int64_t *first_bag; /* [n_local] */
  TrsDeviceBuffer flat;
  int64_t *displs; /* [n_features + 1] by rows: floats of the summed blocks */
  TrsVariableAllToAll dist;
  TrsVariableReduceScatter sum; /* by rows */
  TrsVariableExpand expand;
} TrsVariableBatch;

/* Everything rank q gets: one entry a feature of each of its shards. Returns how many; arrays may be NULL to count. */
static int visit_rank(TrsSharding sharding, int q, TrsVariableBatch *v, int at, TrsLookupFeature *lookup)
{
  const TrsShardingContext *context = sharding->context;
  int64_t column = 0;
  int n = 0, first = 0;

  for (int i = 0; i < sharding->n_tables; i++) {
    const TrsTableConfig *config = TrsShardingTableConfig(sharding, i);
    const TrsTablePlan *plan = TrsShardingTablePlan(sharding, i);
    for (int s = 0; s < plan->n_shards; s++)
      for (int k = 0; plan->shard[s].rank == q && k < config->n_features; k++, n++) {
        const int f = TrsShardingFirstFeature(sharding, i) + k;
        if (v) {
          v->sent[at + n] = first + k;
          v->dims[at + n] = plan->shard[s].cols;
          v->columns[at + n] = context->columns[f] + plan->shard[s].col_offset;
        }
        if (lookup)
          lookup[n] = (TrsLookupFeature){
              .shard = TrsEmbeddingShardsFind(context->shards, sharding->table[i], s),
              .mean = TrsShardingIsMean(config),
              .out_column = column,
              .position = TrsShardingPosition(sharding, f)};
        column += plan->shard[s].cols;
      }
    first += config->n_features;
  }
  return n;
}

/* By rows: every rank gets all features, and has some rows of each table. */
static PetscErrorCode visit_rows(TrsSharding sharding, TrsVariableBatch *v, TrsLookupFeature *lookup)
{
  const TrsShardingContext *context = sharding->context;
  int64_t column = 0;

  PetscFunctionBegin;
  for (int i = 0, n = 0; i < sharding->n_tables; i++)
    for (int k = 0; k < TrsShardingTableConfig(sharding, i)->n_features; k++, n++) {
      const int64_t D = TrsShardingTableConfig(sharding, i)->embedding_dim;
      PetscCall(TrsRowSplitSet(&v->split, n, TrsShardingTablePlan(sharding, i)->shard));
      v->sent[n] = n;
      v->dims[n] = D;
      v->columns[n] = context->columns[v->feature[n]];
      lookup[n] = (TrsLookupFeature){
          .shard = TrsEmbeddingShardsFind(context->shards, sharding->table[i], context->groups->world->rank),
          .out_column = column,
          .position = TrsShardingPosition(sharding, v->feature[n])};
      column += D;
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The exchanges of rows and of ids. */
static PetscErrorCode create_exchanges(TrsSharding sharding, TrsVariableBatch *v)
{
  const TrsShardingContext *context = sharding->context;
  const TrsComm comm = context->groups->world;

  PetscFunctionBegin;
  if (v->by_rows)
    PetscCall(
        TrsVariableReduceScatterCreate(comm, v->n_features, v->dims, &context->reduce_scatter, &v->sum));
  else
    PetscCall(TrsVariableAllToAllCreate(comm, v->n_of_rank, v->dims, &context->dist, &v->dist));
  PetscCall(TrsVariableExpandCreate(context->device, context->compute, v->n_expanded, v->dims, v->columns,
                                    &v->expand));
  PetscCall(TrsShardingCreateExchanges(sharding, v->n_of_rank, NULL, PETSC_FALSE));
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) PetscCall(TrsKjtExchangeSetVariable(sharding->slot[s].exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_variable_batch(TrsSharding sharding)
{
  const PetscBool by_rows = (PetscBool)(sharding->ops == &trs_variable_by_rows);
  const TrsShardingContext *context = sharding->context;
  const TrsComm comm = context->groups->world;
  TrsLookupFeature *lookup;
  TrsVariableBatch *v;
  int first_local = 0;

  PetscFunctionBegin;
  PetscCall(PetscNew(&v));
  sharding->data = v;
  v->by_rows = by_rows;
  v->n_features = TrsShardingFeatures(sharding, NULL);
  PetscCall(PetscMalloc3((size_t)v->n_features, &v->feature, (size_t)comm->size, &v->n_of_rank,
                         (size_t)v->n_features + 1, &v->displs));
  (void)TrsShardingFeatures(sharding, v->feature);
  for (int q = 0; q < comm->size; q++) {
    v->n_of_rank[q] = by_rows ? v->n_features : visit_rank(sharding, q, NULL, 0, NULL);
    if (q < comm->rank && !by_rows) first_local += v->n_of_rank[q];
    v->n_sent += v->n_of_rank[q];
  }
  v->n_local = v->n_of_rank[comm->rank];
  v->n_expanded = by_rows ? v->n_features : v->n_sent;
  PetscCall(PetscCalloc4((size_t)v->n_expanded, &v->sent, (size_t)v->n_expanded, &v->dims,
                         (size_t)v->n_expanded, &v->columns, (size_t)v->n_expanded, &v->repeat));
  PetscCall(PetscMalloc4((size_t)v->n_sent, &v->block, (size_t)v->n_sent, &v->list,
                         (size_t)(comm->size * v->n_local), &v->copy, (size_t)v->n_local, &v->first_bag));
  PetscCall(context->compute->workspace_create(&v->workspace));
  PetscCall(PetscMalloc1((size_t)v->n_local + 1, &lookup));
  if (by_rows) {
    PetscCall(TrsRowSplitCreate(comm->size, v->n_features, &v->split));
    PetscCall(visit_rows(sharding, v, lookup));
  }
  for (int q = 0, at = 0; !by_rows && q < comm->size; at += v->n_of_rank[q++])
    (void)visit_rank(sharding, q, v, at, q == comm->rank ? lookup : NULL);
  for (int j = 0; j < v->n_sent; j++) {
    v->list[j] = by_rows ? j % v->n_features : v->sent[j];
    v->block[j] = by_rows ? j : v->feature[v->sent[j]];
  }
  v->local_dim = v->dims + first_local;
  for (int f = 0; f < v->n_local; f++) sharding->local_dim += v->local_dim[f];
  PetscCall(TrsLookupCreate(context->compute, context->shards, v->n_local, lookup, &sharding->lookup));
  PetscCall(PetscFree(lookup));
  PetscCall(create_exchanges(sharding, v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_variable_batch(TrsSharding sharding)
{
  const TrsDeviceOps *device = sharding->context->device;
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    PetscCall(TrsPinnedBufferFree(device, &v->slot[s].limits));
    PetscCall(TrsDeviceBufferFree(device, &v->slot[s].inverse));
    PetscCall(TrsDeviceBufferFree(device, &v->slot[s].offsets));
  }
  PetscCall(TrsVariableAllToAllDestroy(&v->dist));
  PetscCall(TrsVariableReduceScatterDestroy(&v->sum));
  PetscCall(TrsRowSplitDestroy(&v->split));
  PetscCall(TrsVariableExpandDestroy(&v->expand));
  PetscCall(TrsUniqueBagsFree(device, &v->bags));
  PetscCall(TrsBufferFree(&v->id_begin));
  PetscCall(TrsDeviceBufferFree(device, &v->device_limits));
  PetscCall(TrsDeviceBufferFree(device, &v->inverse));
  PetscCall(TrsKjtFree(device, &v->padded));
  PetscCall(TrsKjtFree(device, &v->cut));
  PetscCall(TrsDeviceBufferFree(device, &v->flat));
  PetscCall(sharding->context->compute->workspace_destroy(&v->workspace));
  PetscCall(PetscFree3(v->feature, v->n_of_rank, v->displs));
  PetscCall(PetscFree4(v->sent, v->dims, v->columns, v->repeat));
  PetscCall(PetscFree4(v->block, v->list, v->copy, v->first_bag));
  PetscCall(PetscFree(v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- input dist --- */

/* Ids of the batch at the places sent (by rows: of the group's features), before any is left out. */
static PetscErrorCode count_ids(TrsSharding sharding, TrsVariableBatch *v, const TrsKjt *batch,
                                TrsStream stream, int64_t *n)
{
  const TrsShardingContext *context = sharding->context;
  PetscBool pending = PETSC_FALSE;
  int64_t *begin;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&v->id_begin, (batch->n_features + 1) * (int64_t)sizeof(*begin), PETSC_FALSE));
  begin = (int64_t *)v->id_begin.data;
  PetscCall(
      TrsKjtReadLimits(context->device, context->compute, stream, batch, &v->device_limits, begin, &pending));
  if (pending) PetscCall(context->device->stream_synchronize(stream));
  *n = 0;
  for (int j = 0; j < v->n_expanded; j++) {
    const int f = v->feature[v->sent[j]];
    *n += begin[f + 1] - begin[f];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Samples' bags as the blocks of columns come back: a feature's for each of its column shards. */
static PetscErrorCode repeat_inverse(TrsSharding sharding, const TrsVariableBatch *v, TrsVariableSlot *own,
                                     int64_t B, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  const int64_t bytes = B * (int64_t)sizeof(int64_t);

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(context->device, &own->inverse, v->n_expanded * bytes));
  if (bytes == 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int j = 0; j < v->n_expanded; j++)
    v->repeat[j] = (TrsRowsCopy){.n = 1,
                                 .row_bytes = bytes,
                                 .from = (const char *)v->inverse.data + v->sent[j] * bytes,
                                 .to = (char *)own->inverse.data + j * bytes};
  PetscCall(context->compute->copy_rows(stream, sharding->workspace, v->n_expanded, v->repeat));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* By tables: the distinct bags in [rank q][features of q's shards]. */
static PetscErrorCode prepare_by_tables(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsDeviceOps *device = sharding->context->device;
  const TrsComputeOps *compute = sharding->context->compute;
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  TrsVariableSlot *own = &v->slot[slot - sharding->slot];
  int64_t n;

  PetscFunctionBegin;
  PetscCall(count_ids(sharding, v, slot->batch, stream, &n));
  PetscCall(TrsUniqueBagsFind(device, compute, stream, sharding->workspace, slot->batch, v->n_features,
                              v->feature, &v->bags, &v->inverse));
  PetscCall(repeat_inverse(sharding, v, own, slot->batch->batch, stream));
  PetscCall(TrsUniqueBagsTake(device, compute, stream, sharding->workspace, &v->bags, &v->bags.lists,
                              slot->batch, v->n_sent, v->block, v->list, n, &own->limits, &slot->send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* By rows: the distinct bags in [rank q's rows][feature], cut as a padded batch. */
static PetscErrorCode prepare_by_rows(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsDeviceOps *device = sharding->context->device;
  const TrsComputeOps *compute = sharding->context->compute;
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  TrsVariableSlot *own = &v->slot[slot - sharding->slot];
  TrsBagLists first;
  int64_t n;

  PetscFunctionBegin;
  PetscCall(count_ids(sharding, v, slot->batch, stream, &n));
  PetscCall(TrsUniqueBagsFind(device, compute, stream, sharding->workspace, slot->batch, v->n_features,
                              v->feature, &v->bags, &own->inverse));
  PetscCall(TrsUniqueBagsTake(device, compute, stream, sharding->workspace, &v->bags, &v->bags.lists,
                              slot->batch, v->n_features, v->feature, v->sent, n, NULL, &v->padded));
  PetscCall(TrsRowSplitBucketize(&v->split, device, compute, stream, sharding->workspace, &v->padded, &v->cut,
                                 NULL));
  first = v->bags.lists;
  first.sample = NULL;
  PetscCall(TrsUniqueBagsTake(device, compute, stream, sharding->workspace, &v->bags, &first, &v->cut,
                              v->n_sent, v->block, v->list, n, &own->limits, &slot->send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What has come, as an ordinary batch of as many bags for every feature as the one with most has; the lengths are not those of its bags. */
static PetscErrorCode pad_received(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  TrsVariableSlot *own = &((TrsVariableBatch *)sharding->data)->slot[slot - sharding->slot];
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

/*
  Copy between the lookup's matrix, [bags of the longest feature, local_dim], and the flat vector for each source, for each feature, [bags, D]: to the flat
  one, or from it.
*/
static PetscErrorCode copy_flat(TrsSharding sharding, const TrsVariableBatch *v, TrsStream stream,
                                const int64_t *source_strides, const float *from, float *to,
                                PetscBool to_flat)
{
  const int n = sharding->context->groups->world->size * v->n_local;
  const int64_t matrix_stride = sharding->local_dim * (int64_t)sizeof(float);
  int64_t at = 0, column = 0;

  PetscFunctionBegin;
  for (int f = 0; f < v->n_local; f++) v->first_bag[f] = 0;
  for (int i = 0; i < n; i++) {
    const int f = i % v->n_local;
    const int64_t D = v->local_dim[f], rows = source_strides[i], row_bytes = D * (int64_t)sizeof(float);
    int64_t in_matrix;

    if (f == 0) column = 0;
    in_matrix = v->first_bag[f] * sharding->local_dim + column;
    v->copy[i] = (TrsRowsCopy){.n = rows,
                               .row_bytes = row_bytes,
                               .from_stride = to_flat ? matrix_stride : row_bytes,
                               .to_stride = to_flat ? row_bytes : matrix_stride};
    if (rows) {
      v->copy[i].from = from + (to_flat ? in_matrix : at);
      v->copy[i].to = to + (to_flat ? at : in_matrix);
    }
    v->first_bag[f] += rows;
    column += D;
    at += rows * D;
  }
  PetscCall(sharding->context->compute->copy_rows(stream, v->workspace, n, v->copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Floats of the flat vector. */
static int64_t count_flat(TrsSharding sharding, const TrsVariableBatch *v, const int64_t *source_strides)
{
  int64_t floats = 0;

  for (int i = 0; i < sharding->context->groups->world->size * v->n_local; i++)
    floats += source_strides[i] * v->local_dim[i % v->n_local];
  return floats;
}

static PetscErrorCode forward_start_variable_batch(TrsSharding sharding, TrsShardingSlot *slot,
                                                   TrsStream stream, const TrsPooledMatrix *pooled)
{
  const TrsShardingContext *context = sharding->context;
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  const int64_t *source_strides;

  PetscFunctionBegin;
  (void)pooled;
  PetscCall(TrsKjtExchangeSourceStrides(slot->exchange, &source_strides));
  PetscCall(TrsDeviceBufferReserve(context->device, &sharding->pooled,
                                   slot->recv.batch * sharding->local_dim * (int64_t)sizeof(float)));
  PetscCall(TrsDeviceBufferReserve(context->device, &v->flat,
                                   count_flat(sharding, v, source_strides) * (int64_t)sizeof(float)));
  PetscCall(TrsLookupForward(sharding->lookup, stream, &slot->recv, (float *)sharding->pooled.data,
                             sharding->local_dim));
  PetscCall(copy_flat(sharding, v, stream, source_strides, (const float *)sharding->pooled.data,
                      (float *)v->flat.data, PETSC_TRUE));
  if (v->by_rows)
    PetscCall(TrsVariableReduceScatterStart(v->sum, stream, (float *)v->flat.data, source_strides));
  else
    PetscCall(
        TrsVariableAllToAllStart(v->dist, stream, (float *)v->flat.data, source_strides, slot->send.strides));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* By rows: where the features' summed blocks begin. */
static const int64_t *find_displs(TrsVariableBatch *v, const TrsShardingSlot *slot)
{
  v->displs[0] = 0;
  for (int f = 0; f < v->n_features; f++)
    v->displs[f + 1] = v->displs[f] + slot->send.strides[f] * v->dims[f];
  return v->displs;
}

static PetscErrorCode forward_wait_variable_batch(TrsSharding sharding, TrsShardingSlot *slot,
                                                  TrsStream stream, const TrsPooledMatrix *pooled)
{
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  const int64_t *inverse = (const int64_t *)v->slot[slot - sharding->slot].inverse.data;
  const int64_t *displs = v->by_rows ? find_displs(v, slot) : NULL;
  const float *recv;

  PetscFunctionBegin;
  if (v->by_rows)
    PetscCall(TrsVariableReduceScatterWait(v->sum, stream, &recv));
  else
    PetscCall(TrsVariableAllToAllWait(v->dist, stream, &recv, &displs));
  if (slot->batch->batch > 0)
    PetscCall(TrsVariableExpandForward(v->expand, stream, slot->batch->batch, inverse, recv, displs,
                                       pooled->data, pooled->stride));
  if (v->by_rows) PetscCall(TrsShardingDivideMeans(sharding, slot, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_variable_batch(TrsSharding sharding, TrsShardingSlot *slot,
                                                    TrsStream stream, const TrsPooledMatrix *grad)
{
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  const int64_t *inverse = (const int64_t *)v->slot[slot - sharding->slot].inverse.data;
  const int64_t *displs = v->by_rows ? find_displs(v, slot) : NULL;
  float *send;

  PetscFunctionBegin;
  if (v->by_rows) {
    PetscCall(TrsShardingDivideMeans(sharding, slot, stream, grad));
    PetscCall(TrsVariableReduceScatterGradBuffer(v->sum, &send));
  } else {
    PetscCall(TrsVariableAllToAllGradBuffer(v->dist, &send, &displs));
  }
  if (slot->batch->batch > 0)
    PetscCall(TrsVariableExpandBackward(v->expand, stream, slot->batch->batch, inverse, grad->data,
                                        grad->stride, send, displs));
  if (v->by_rows)
    PetscCall(TrsVariableReduceScatterGradStart(v->sum, stream));
  else
    PetscCall(TrsVariableAllToAllGradStart(v->dist, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_update_variable_batch(TrsSharding sharding, TrsShardingSlot *slot,
                                                     TrsStream stream, const TrsPooledMatrix *grad,
                                                     const TrsSparseOptimizerArgs *args)
{
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  const int64_t *source_strides;
  const float *arrived;

  PetscFunctionBegin;
  (void)grad;
  if (v->by_rows)
    PetscCall(TrsVariableReduceScatterGradWait(v->sum, stream, &arrived));
  else
    PetscCall(TrsVariableAllToAllGradWait(v->dist, stream, &arrived));
  PetscCall(TrsKjtExchangeSourceStrides(slot->exchange, &source_strides));
  PetscCall(
      copy_flat(sharding, v, stream, source_strides, arrived, (float *)sharding->pooled.data, PETSC_FALSE));
  PetscCall(TrsLookupBackward(sharding->lookup, stream, &slot->recv, (const float *)sharding->pooled.data,
                              sharding->local_dim, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_variable_by_tables = {
    .name = "variable batch by tables",
    .setup = setup_variable_batch,
    .destroy = destroy_variable_batch,
    .prepare = prepare_by_tables,
    .input_wait = pad_received,
    .forward_start = forward_start_variable_batch,
    .forward_wait = forward_wait_variable_batch,
    .backward_start = backward_start_variable_batch,
    .backward_update = backward_update_variable_batch,
};

const TrsShardingOps trs_variable_by_rows = {
    .name = "variable batch by rows",
    .setup = setup_variable_batch,
    .destroy = destroy_variable_batch,
    .prepare = prepare_by_rows,
    .input_wait = pad_received,
    .forward_start = forward_start_variable_batch,
    .forward_wait = forward_wait_variable_batch,
    .backward_start = backward_start_variable_batch,
    .backward_update = backward_update_variable_batch,
};
