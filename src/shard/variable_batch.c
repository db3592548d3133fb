/* SPDX-License-Identifier: BSD-3-Clause */
/*
  table_wise, column_wise and table_column_wise with -ebc_variable_batch: of a rank's samples that have the same bag of a feature, one sends
  it and gets its pooled row, the others copy that.

    own ids --distinct bags--> each feature with a batch of its own --permute--> [rank q][features of q's shards][bags] --all-to-all-->
    lookup of [my features][bags of all ranks] --all-to-all--> [bags, D] for each feature --expand--> model's matrix

  The kernels take one number of bags for all features, so features are looked up as if they had as many as the one with most, without ids.
  Host memory only. Source: TorchRec TwPooledEmbeddingSharding with VariableBatchPooledEmbeddingsAllToAll.
*/
#include "dist/variable_batch.h"

#include "shard/sharding.h"
#include "sparse/unique_bags.h"

typedef struct {
  TrsKjt group; /* the batch's features of this group */
  TrsUniqueBags bags;
  TrsDeviceBuffer inverse; /* int64 [n_sent][B] */
} TrsVariableSlot;

typedef struct {
  int n_features, n_sent, n_local;
  int *feature;       /* [n_features] model features of the group */
  int *n_of_rank;     /* [W] features sent to each rank */
  int *sent;          /* [n_sent] feature of the group at each place sent, */
  int64_t *dims;      /* [n_sent] its columns, */
  int64_t *columns;   /* [n_sent] and the first of them in the model's matrix */
  int64_t *local_dim; /* [n_local] columns of this rank's features */
  int64_t *strides;   /* [n_sent] of the batch under way */
  TrsVariableSlot slot[TRS_SHARD_SLOTS];
  TrsBuffer offsets; /* int64: the arrived bags as the kernels take them */
  TrsDeviceBuffer flat;
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

static PetscErrorCode setup_variable_batch(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  const TrsComm comm = context->groups->world;
  TrsLookupFeature *lookup;
  TrsVariableBatch *v;

  PetscFunctionBegin;
  PetscCall(PetscNew(&v));
  sharding->data = v;
  v->n_features = TrsShardingFeatures(sharding, NULL);
  PetscCall(PetscMalloc2((size_t)v->n_features, &v->feature, (size_t)comm->size, &v->n_of_rank));
  (void)TrsShardingFeatures(sharding, v->feature);
  for (int q = 0; q < comm->size; q++) {
    v->n_of_rank[q] = visit_rank(sharding, q, NULL, 0, NULL);
    v->n_sent += v->n_of_rank[q];
  }
  v->n_local = v->n_of_rank[comm->rank];
  PetscCall(PetscMalloc5((size_t)v->n_sent, &v->sent, (size_t)v->n_sent, &v->dims, (size_t)v->n_sent,
                         &v->columns, (size_t)v->n_sent, &v->strides, (size_t)v->n_local + 1, &v->local_dim));
  PetscCall(PetscMalloc1((size_t)v->n_local + 1, &lookup));
  for (int q = 0, at = 0; q < comm->size; at += v->n_of_rank[q++])
    (void)visit_rank(sharding, q, v, at, q == comm->rank ? lookup : NULL);
  for (int q = 0, at = 0; q <= comm->rank; at += v->n_of_rank[q++])
    for (int e = 0; q == comm->rank && e < v->n_local; e++) {
      v->local_dim[e] = v->dims[at + e];
      sharding->local_dim += v->local_dim[e];
    }
  PetscCall(TrsLookupCreate(context->compute, context->shards, v->n_local, lookup, &sharding->lookup));
  PetscCall(PetscFree(lookup));
  PetscCall(TrsVariableAllToAllCreate(comm, v->n_of_rank, v->dims, &context->dist, &v->dist));
  PetscCall(
      TrsVariableExpandCreate(context->device, context->compute, v->n_sent, v->dims, v->columns, &v->expand));
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    PetscCall(TrsUniqueBagsCreate(v->n_features, &v->slot[s].bags));
    PetscCall(TrsKjtExchangeCreate(context->groups->input, v->n_of_rank, v->n_local, sharding->weighted, NULL,
                                   &sharding->slot[s].exchange));
    PetscCall(TrsKjtExchangeSetVariable(sharding->slot[s].exchange));
  }
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
  }
  PetscCall(TrsVariableAllToAllDestroy(&v->dist));
  PetscCall(TrsVariableExpandDestroy(&v->expand));
  PetscCall(TrsBufferFree(&v->offsets));
  PetscCall(TrsDeviceBufferFree(device, &v->flat));
  PetscCall(PetscFree2(v->feature, v->n_of_rank));
  PetscCall(PetscFree5(v->sent, v->dims, v->columns, v->strides, v->local_dim));
  PetscCall(PetscFree(v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_variable_batch(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  const TrsDeviceOps *device = context->device;
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  TrsVariableSlot *own = &v->slot[slot - sharding->slot];
  const int64_t B = slot->batch->batch, bytes = B * (int64_t)sizeof(int64_t);

  PetscFunctionBegin;
  PetscCall(TrsKjtPermute(device, context->compute, stream, sharding->workspace, slot->batch, v->n_features,
                          v->feature, &own->group));
  PetscCall(TrsUniqueBagsFind(device, context->compute, stream, &own->group, &own->bags));
  PetscCall(TrsKjtPermute(device, context->compute, stream, sharding->workspace, &own->bags.kjt, v->n_sent,
                          v->sent, &slot->send));
  PetscCall(TrsDeviceBufferReserve(device, &own->inverse, v->n_sent * bytes));
  for (int j = 0; B > 0 && j < v->n_sent; j++)
    PetscCall(device->copy((int64_t *)own->inverse.data + j * B,
                           (const int64_t *)own->bags.inverse.data + v->sent[j] * B, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The arrived bags with as many for every feature as the one with most has: a view of recv with offsets of its own. */
static PetscErrorCode level(TrsVariableBatch *v, const TrsKjt *recv, TrsKjt *even)
{
  const int64_t *from = recv->jagged.offsets;
  int64_t most = 0, *to;

  PetscFunctionBegin;
  for (int f = 0; f < v->n_local; f++) most = PetscMax(most, recv->strides[f]);
  PetscCall(TrsBufferReserve(&v->offsets, (v->n_local * most + 1) * (int64_t)sizeof(*to), PETSC_FALSE));
  to = (int64_t *)v->offsets.data;
  *even = *recv;
  even->batch = most;
  even->strides = NULL;
  even->id_begin = NULL;
  even->jagged.n_bags = v->n_local * most;
  even->jagged.offsets = to;
  for (int f = 0; f < v->n_local; from += recv->strides[f++])
    for (int64_t b = 0; b < most; b++) *to++ = from[PetscMin(b, recv->strides[f])];
  *to = recv->jagged.n_values;
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
  PetscCall(level(v, &slot->recv, &even));
  PetscCall(TrsDeviceBufferReserve(device, &sharding->pooled,
                                   even.batch * sharding->local_dim * (int64_t)sizeof(float)));
  PetscCall(TrsDeviceBufferReserve(device, &v->flat, flat_floats(v, &slot->recv) * (int64_t)sizeof(float)));
  PetscCall(
      TrsLookupForward(sharding->lookup, stream, &even, (float *)sharding->pooled.data, sharding->local_dim));
  PetscCall(
      move_rows(sharding, slot, stream, PETSC_TRUE, (float *)sharding->pooled.data, (float *)v->flat.data));
  PetscCall(TrsKjtExchangeSourceStrides(slot->exchange, &source_strides));
  for (int j = 0; j < v->n_sent; j++) v->strides[j] = TrsKjtStride(&slot->send, j);
  PetscCall(
      TrsVariableAllToAllStart(v->dist, stream, (const float *)v->flat.data, source_strides, v->strides));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_wait_variable_batch(TrsSharding sharding, TrsShardingSlot *slot,
                                                  TrsStream stream, const TrsPooledMatrix *pooled)
{
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  const int64_t *inverse = (const int64_t *)v->slot[slot - sharding->slot].inverse.data, *displs;
  const float *recv;

  PetscFunctionBegin;
  PetscCall(TrsVariableAllToAllWait(v->dist, stream, &recv, &displs));
  if (slot->batch->batch > 0)
    PetscCall(TrsVariableExpandForward(v->expand, stream, slot->batch->batch, inverse, recv, displs,
                                       pooled->data, pooled->stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_variable_batch(TrsSharding sharding, TrsShardingSlot *slot,
                                                    TrsStream stream, const TrsPooledMatrix *grad)
{
  TrsVariableBatch *v = (TrsVariableBatch *)sharding->data;
  const int64_t *inverse = (const int64_t *)v->slot[slot - sharding->slot].inverse.data, *displs;
  float *send;

  PetscFunctionBegin;
  PetscCall(TrsVariableAllToAllGradBuffer(v->dist, &send, &displs));
  if (slot->batch->batch > 0)
    PetscCall(TrsVariableExpandBackward(v->expand, stream, slot->batch->batch, inverse, grad->data,
                                        grad->stride, send, displs));
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
  PetscCall(TrsVariableAllToAllGradWait(v->dist, stream, &arrived));
  PetscCall(level(v, &slot->recv, &even));
  PetscCall(sharding->context->device->copy(v->flat.data, arrived,
                                            flat_floats(v, &slot->recv) * (int64_t)sizeof(float), stream));
  PetscCall(
      move_rows(sharding, slot, stream, PETSC_FALSE, (float *)sharding->pooled.data, (float *)v->flat.data));
  PetscCall(TrsLookupBackward(sharding->lookup, stream, &even, (const float *)sharding->pooled.data,
                              sharding->local_dim, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_sharding_variable_batch = {
    .name = "variable batch",
    .setup = setup_variable_batch,
    .destroy = destroy_variable_batch,
    .prepare = prepare_variable_batch,
    .forward_start = forward_start_variable_batch,
    .forward_wait = forward_wait_variable_batch,
    .backward_start = backward_start_variable_batch,
    .backward_update = backward_update_variable_batch,
};
