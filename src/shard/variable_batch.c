/* SPDX-License-Identifier: BSD-3-Clause */
/*
  table_wise, column_wise, table_column_wise and row_wise with -ebc_variable_batch: of a rank's samples that have the same bag of a feature, one sends
  it and gets its pooled row, the others copy that.

    own ids --distinct bags--> each feature with a batch of its own --permute--> [rank q][features of q's shards][bags] --all-to-all-->
    lookup of [my features][bags of all ranks] --all-to-all--> [bags, D] for each feature --expand--> model's matrix

  row_wise: the distinct bags are cut into buckets before the first exchange, and partial sums are added up in the second (reduce-scatter).

  The kernels take one number of bags for all features, so features are looked up as if they had as many as the one with most, without ids.
  Host memory only. Source: TorchRec TwPooledEmbeddingSharding with VariableBatchPooledEmbeddingsAllToAll,
  RwPooledEmbeddingSharding with VariableBatchPooledEmbeddingsReduceScatter.
*/
#include "dist/variable_batch.h"

#include "shard/row_split.h"
#include "shard/sharding.h"
#include "sparse/unique_bags.h"

typedef struct {
  TrsKjt group; /* the batch's features of this group */
  TrsUniqueBags bags;
  TrsDeviceBuffer inverse; /* int64 [n_expanded][B]; by rows that of the bags is as good */
  int64_t *strides;        /* [n_sent] by rows: bags of each place sent */
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
  int64_t *strides;         /* [n_sent] of the batch under way */
  TrsVariableSlot slot[TRS_SHARD_SLOTS];
  TrsBuffer offsets,
      offsets_sent; /* int64: bags that arrived, or are cut into buckets, as the kernels take them */
  TrsDeviceBuffer flat;
  TrsRowSplit split; /* by rows, like the following */
  TrsVariableReduceScatter sum;
  int64_t *displs; /* [n_features + 1] floats of the summed blocks */
  TrsVariableAllToAll dist;
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
    PetscCall(TrsVariableReduceScatterCreate(comm, v->n_features, v->dims, &context->dist, &v->sum));
  else
    PetscCall(TrsVariableAllToAllCreate(comm, v->n_of_rank, v->dims, &context->dist, &v->dist));
  PetscCall(TrsVariableExpandCreate(context->device, context->compute, v->n_expanded, v->dims, v->columns,
                                    &v->expand));
  PetscCall(TrsShardingCreateExchanges(sharding, v->n_of_rank, NULL, PETSC_FALSE));
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    PetscCall(TrsUniqueBagsCreate(v->n_features, &v->slot[s].bags));
    PetscCall(PetscCalloc1((size_t)v->n_sent, &v->slot[s].strides));
    PetscCall(TrsKjtExchangeSetVariable(sharding->slot[s].exchange));
  }
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
  PetscCall(PetscMalloc4((size_t)v->n_expanded, &v->sent, (size_t)v->n_expanded, &v->dims,
                         (size_t)v->n_expanded, &v->columns, (size_t)v->n_sent, &v->strides));
  PetscCall(PetscMalloc1((size_t)v->n_local + 1, &lookup));
  if (by_rows) {
    PetscCall(TrsRowSplitCreate(comm->size, v->n_features, &v->split));
    PetscCall(visit_rows(sharding, v, lookup));
  }
  for (int q = 0, at = 0; !by_rows && q < comm->size; at += v->n_of_rank[q++])
    (void)visit_rank(sharding, q, v, at, q == comm->rank ? lookup : NULL);
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
    PetscCall(TrsKjtFree(device, &v->slot[s].group));
    PetscCall(TrsUniqueBagsDestroy(device, &v->slot[s].bags));
    PetscCall(TrsDeviceBufferFree(device, &v->slot[s].inverse));
    PetscCall(PetscFree(v->slot[s].strides));
  }
  PetscCall(TrsVariableAllToAllDestroy(&v->dist));
  PetscCall(TrsVariableReduceScatterDestroy(&v->sum));
  PetscCall(TrsRowSplitDestroy(&v->split));
  PetscCall(TrsVariableExpandDestroy(&v->expand));
  PetscCall(TrsBufferFree(&v->offsets));
  PetscCall(TrsBufferFree(&v->offsets_sent));
  PetscCall(TrsDeviceBufferFree(device, &v->flat));
  PetscCall(PetscFree3(v->feature, v->n_of_rank, v->displs));
  PetscCall(PetscFree4(v->sent, v->dims, v->columns, v->strides));
  PetscCall(PetscFree(v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A batch with as many bags for every feature as the one with most has: a view with offsets of its own. */
static PetscErrorCode level(const TrsKjt *kjt, TrsBuffer *offsets, TrsKjt *even)
{
  const int64_t *from = kjt->jagged.offsets;
  int64_t most = 0, *to;

  PetscFunctionBegin;
  for (int f = 0; f < kjt->n_features; f++) most = PetscMax(most, kjt->strides[f]);
  PetscCall(TrsBufferReserve(offsets, (kjt->n_features * most + 1) * (int64_t)sizeof(*to), PETSC_FALSE));
  to = (int64_t *)offsets->data;
  *even = *kjt;
  even->batch = most;
  even->strides = NULL;
  even->id_begin = NULL;
  even->jagged.n_bags = kjt->n_features * most;
  even->jagged.offsets = to;
  for (int f = 0; f < kjt->n_features; from += kjt->strides[f++])
    for (int64_t b = 0; b < most; b++) *to++ = from[PetscMin(b, kjt->strides[f])];
  *to = kjt->jagged.n_values;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The distinct bags in [rank q][features of q's shards]. */
static PetscErrorCode send_by_tables(TrsSharding sharding, TrsVariableBatch *v, TrsShardingSlot *slot,
                                     TrsVariableSlot *own, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  const int64_t B = slot->batch->batch, bytes = B * (int64_t)sizeof(int64_t);

  PetscFunctionBegin;
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, &own->bags.kjt,
                          v->n_sent, v->sent, &slot->send));
  PetscCall(TrsDeviceBufferReserve(context->device, &own->inverse, v->n_sent * bytes));
  for (int j = 0; B > 0 && j < v->n_sent; j++)
    PetscCall(context->device->copy((int64_t *)own->inverse.data + j * B,
                                    (const int64_t *)own->bags.inverse.data + v->sent[j] * B, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The distinct bags in [rank q's rows][feature]: cut as a level batch, then without the bags that only level it. */
static PetscErrorCode send_by_rows(TrsSharding sharding, TrsVariableBatch *v, TrsShardingSlot *slot,
                                   TrsVariableSlot *own, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  TrsKjt even, *send = &slot->send;
  int32_t *to;

  PetscFunctionBegin;
  PetscCall(level(&own->bags.kjt, &v->offsets_sent, &even));
  PetscCall(TrsRowSplitBucketize(&v->split, context->device, context->compute, stream, sharding->workspace,
                                 &even, send, NULL));
  to = send->jagged.lengths;
  send->jagged.n_bags = 0;
  for (int j = 0; j < v->n_sent; j++) {
    const int64_t n = own->strides[j] = own->bags.strides[j % v->n_features];
    for (int64_t b = 0; b < n; b++) *to++ = send->jagged.lengths[j * even.batch + b];
    send->jagged.n_bags += n;
  }
  send->batch = TRS_KJT_VARIABLE;
  send->strides = own->strides;
  send->id_begin = NULL;
  PetscCall(TrsKjtOffsets(context->compute, stream, send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_variable_batch(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  TrsVariableSlot *own = &v->slot[slot - sharding->slot];

  PetscFunctionBegin;
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, slot->batch,
                          v->n_features, v->feature, &own->group));
  PetscCall(TrsUniqueBagsFind(context->device, context->compute, stream, &own->group, &own->bags));
  if (v->by_rows)
    PetscCall(send_by_rows(sharding, v, slot, own, stream));
  else
    PetscCall(send_by_tables(sharding, v, slot, own, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Between the lookup's matrix, [bags of the longest feature, local_dim], and the flat vector for each source, for each feature, [bags, D]. */
static PetscErrorCode move_rows(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                PetscBool to_flat, float *matrix, float *flat)
{
  const TrsShardingContext *context = sharding->context;
  const TrsVariableBatch *v = (const TrsVariableBatch *)sharding->data;
  const int64_t *strides;

  PetscFunctionBegin;
  PetscCall(TrsKjtExchangeSourceStrides(slot->exchange, &strides));
  for (int f = 0; f < v->n_local; f++) {
    int64_t bag = 0, column = 0, at = 0;
    for (int e = 0; e < f; e++) column += v->local_dim[e];
    for (int q = 0; q < context->groups->world->size; q++) {
      const int64_t *n = strides + (int64_t)q * v->n_local, D = v->local_dim[f];
      float *in_matrix = matrix + bag * sharding->local_dim + column, *in_flat;
      for (int e = 0; e < f; e++) at += n[e] * v->local_dim[e];
      in_flat = flat + at;
      if (to_flat && n[f] > 0)
        PetscCall(context->compute->copy_matrix(stream, n[f], D, in_matrix, sharding->local_dim, in_flat, D));
      else if (n[f] > 0)
        PetscCall(context->compute->copy_matrix(stream, n[f], D, in_flat, D, in_matrix, sharding->local_dim));
      for (int e = f; e < v->n_local; e++) at += n[e] * v->local_dim[e];
      bag += n[f];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Floats of the flat vector. */
static int64_t flat_floats(const TrsVariableBatch *v, const TrsKjt *recv)
{
  int64_t n = 0;
  for (int f = 0; f < v->n_local; f++) n += recv->strides[f] * v->local_dim[f];
  return n;
}

static PetscErrorCode forward_start_variable_batch(TrsSharding sharding, TrsShardingSlot *slot,
                                                   TrsStream stream, const TrsPooledMatrix *pooled)
{
  const TrsDeviceOps *device = sharding->context->device;
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  const int64_t *source_strides;
  TrsKjt even;

  PetscFunctionBegin;
  (void)pooled;
  PetscCall(level(&slot->recv, &v->offsets, &even));
  PetscCall(TrsDeviceBufferReserve(device, &sharding->pooled,
                                   even.batch * sharding->local_dim * (int64_t)sizeof(float)));
  PetscCall(TrsDeviceBufferReserve(device, &v->flat, flat_floats(v, &slot->recv) * (int64_t)sizeof(float)));
  PetscCall(
      TrsLookupForward(sharding->lookup, stream, &even, (float *)sharding->pooled.data, sharding->local_dim));
  PetscCall(
      move_rows(sharding, slot, stream, PETSC_TRUE, (float *)sharding->pooled.data, (float *)v->flat.data));
  PetscCall(TrsKjtExchangeSourceStrides(slot->exchange, &source_strides));
  for (int j = 0; j < v->n_sent; j++) v->strides[j] = TrsKjtStride(&slot->send, j);
  if (v->by_rows)
    PetscCall(TrsVariableReduceScatterStart(v->sum, stream, (float *)v->flat.data, source_strides));
  else
    PetscCall(TrsVariableAllToAllStart(v->dist, stream, (float *)v->flat.data, source_strides, v->strides));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The bag of each sample, [n_expanded][B]. */
static const int64_t *inverse_of(TrsSharding sharding, const TrsVariableBatch *v, const TrsShardingSlot *slot)
{
  const TrsVariableSlot *own = &v->slot[slot - sharding->slot];
  return (const int64_t *)(v->by_rows ? own->bags.inverse.data : own->inverse.data);
}

/* By rows: where the features' summed blocks begin. */
static const int64_t *find_displs(TrsSharding sharding, TrsVariableBatch *v, const TrsShardingSlot *slot)
{
  const int64_t *strides = v->slot[slot - sharding->slot].bags.strides;

  v->displs[0] = 0;
  for (int f = 0; f < v->n_features; f++) v->displs[f + 1] = v->displs[f] + strides[f] * v->dims[f];
  return v->displs;
}

static PetscErrorCode forward_wait_variable_batch(TrsSharding sharding, TrsShardingSlot *slot,
                                                  TrsStream stream, const TrsPooledMatrix *pooled)
{
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  const int64_t *displs = find_displs(sharding, v, slot);
  const float *recv;

  PetscFunctionBegin;
  if (v->by_rows)
    PetscCall(TrsVariableReduceScatterWait(v->sum, stream, &recv));
  else
    PetscCall(TrsVariableAllToAllWait(v->dist, stream, &recv, &displs));
  if (slot->batch->batch > 0)
    PetscCall(TrsVariableExpandForward(v->expand, stream, slot->batch->batch, inverse_of(sharding, v, slot),
                                       recv, displs, pooled->data, pooled->stride));
  if (v->by_rows) PetscCall(TrsShardingDivideMeans(sharding, slot, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_variable_batch(TrsSharding sharding, TrsShardingSlot *slot,
                                                    TrsStream stream, const TrsPooledMatrix *grad)
{
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  const int64_t *displs = find_displs(sharding, v, slot);
  float *send;

  PetscFunctionBegin;
  if (v->by_rows) {
    PetscCall(TrsShardingDivideMeans(sharding, slot, stream, grad));
    PetscCall(TrsVariableReduceScatterGradBuffer(v->sum, &send));
  } else {
    PetscCall(TrsVariableAllToAllGradBuffer(v->dist, &send, &displs));
  }
  if (slot->batch->batch > 0)
    PetscCall(TrsVariableExpandBackward(v->expand, stream, slot->batch->batch, inverse_of(sharding, v, slot),
                                        grad->data, grad->stride, send, displs));
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
  const float *arrived;
  TrsKjt even;

  PetscFunctionBegin;
  (void)grad;
  if (v->by_rows)
    PetscCall(TrsVariableReduceScatterGradWait(v->sum, stream, &arrived));
  else
    PetscCall(TrsVariableAllToAllGradWait(v->dist, stream, &arrived));
  PetscCall(level(&slot->recv, &v->offsets, &even)); /* arrived is in the flat vector's place */
  PetscCall(
      move_rows(sharding, slot, stream, PETSC_FALSE, (float *)sharding->pooled.data, (float *)v->flat.data));
  PetscCall(TrsLookupBackward(sharding->lookup, stream, &even, (const float *)sharding->pooled.data,
                              sharding->local_dim, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_variable_by_tables = {
    .name = "variable batch by tables",
    .setup = setup_variable_batch,
    .destroy = destroy_variable_batch,
    .prepare = prepare_variable_batch,
    .forward_start = forward_start_variable_batch,
    .forward_wait = forward_wait_variable_batch,
    .backward_start = backward_start_variable_batch,
    .backward_update = backward_update_variable_batch,
};

const TrsShardingOps trs_variable_by_rows = {
    .name = "variable batch by rows",
    .setup = setup_variable_batch,
    .destroy = destroy_variable_batch,
    .prepare = prepare_variable_batch,
    .forward_start = forward_start_variable_batch,
    .forward_wait = forward_wait_variable_batch,
    .backward_start = backward_start_variable_batch,
    .backward_update = backward_update_variable_batch,
};
