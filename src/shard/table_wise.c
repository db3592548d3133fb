/* SPDX-License-Identifier: BSD-3-Clause */
/*
  table_wise, column_wise, table_column_wise: a shard has all rows, so whole bags travel to its rank and pooled rows travel back.

    own ids --permute--> [rank q][features of q's shards][B] --all-to-all--> [my features][G] --lookup--> [G, D_me]
    --all-to-all--> from each q [B, D_q] --copy columns--> model's matrix

  A feature is sent once for every shard of its table: two column shards on one rank stay two tables. On one rank nothing travels, and the
  lookup works on the model's matrices (unless an encoding is to change the rows).
  Source: TorchRec TwPooledEmbeddingSharding, CwPooledEmbeddingSharding, TwCwPooledEmbeddingSharding.
*/
#include "shard/sharding.h"

typedef struct {
  int n_sent;
  int *sent;           /* [n_sent] model feature sent at each place */
  int64_t *dims;       /* [W] */
  const float **block; /* [W] where pooled rows have come */
  TrsPooledAllToAll dist;
  PetscBool alone; /* one rank, no encoding: nothing travels */
  PetscBool as_is; /* the group's features are the model's, in order */
} TrsTableWise;

/* Everything rank q gets from the group: visit its (shard, feature) pairs in order. Returns how many; adds its column runs when asked. */
static PetscErrorCode visit_rank(TrsSharding sharding, int q, PetscBool add_runs, int *n, int *sent,
                                 int64_t *dim, TrsLookupFeature *lookup)
{
  const TrsShardingContext *context = sharding->context;
  const TrsTableWise *tw = (const TrsTableWise *)sharding->data;

  PetscFunctionBegin;
  *n = 0;
  *dim = 0;
  for (int i = 0; i < sharding->n_tables; i++) {
    const TrsTableConfig *config = TrsShardingTableConfig(sharding, i);
    const TrsTablePlan *plan = TrsShardingTablePlan(sharding, i);
    const int first = TrsShardingFirstFeature(sharding, i);
    for (int s = 0; s < plan->n_shards; s++) {
      const TrsShard *shard = &plan->shard[s];
      if (shard->rank != q) continue;
      for (int f = first; f < first + config->n_features; f++) {
        if (sent) sent[*n] = f;
        if (lookup)
          lookup[*n] = (TrsLookupFeature){
              .shard = TrsEmbeddingShardsFind(context->shards, sharding->table[i], s),
              .mean = (PetscBool)(!context->dist.reproducible && TrsShardingIsMean(config)),
              .out_column = tw->alone ? context->columns[f] + shard->col_offset : *dim,
              .position = TrsShardingPosition(sharding, f)};
        if (add_runs)
          PetscCall(
              TrsShardingAddRun(sharding, q, *dim, context->columns[f] + shard->col_offset, shard->cols));
        *dim += shard->cols;
        ++*n;
      }
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_table_wise(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  const TrsComm comm = context->groups->world;
  TrsLookupFeature *lookup;
  TrsTableWise *tw;
  int *n_features;

  PetscFunctionBegin;
  PetscCall(PetscNew(&tw));
  sharding->data = tw;
  tw->alone = (PetscBool)(comm->size == 1 && context->dist.forward.kind == TRS_CODEC_FP32 &&
                          context->dist.backward.kind == TRS_CODEC_FP32);
  PetscCall(PetscMalloc1((size_t)comm->size, &n_features));
  PetscCall(PetscMalloc1((size_t)comm->size, &tw->dims));
  PetscCall(PetscMalloc1((size_t)comm->size, &tw->block));
  for (int q = 0; q < comm->size; q++) {
    PetscCall(visit_rank(sharding, q, PETSC_TRUE, &n_features[q], NULL, &tw->dims[q], NULL));
    tw->n_sent += n_features[q];
  }
  PetscCall(PetscMalloc1((size_t)tw->n_sent, &tw->sent));
  for (int q = 0, at = 0, n; q < comm->size; q++, at += n)
    PetscCall(visit_rank(sharding, q, PETSC_FALSE, &n, tw->sent + at, &tw->dims[q], NULL));
  tw->as_is = PETSC_TRUE;
  for (int i = 0; i < tw->n_sent; i++) tw->as_is = (PetscBool)(tw->as_is && tw->sent[i] == i);

  PetscCall(PetscMalloc1((size_t)PetscMax(n_features[comm->rank], 1), &lookup));
  PetscCall(visit_rank(sharding, comm->rank, PETSC_FALSE, &n_features[comm->rank], NULL, &sharding->local_dim,
                       lookup));
  PetscCall(
      TrsLookupCreate(context->compute, context->shards, n_features[comm->rank], lookup, &sharding->lookup));
  PetscCall(PetscFree(lookup));

  PetscCall(TrsPooledAllToAllCreate(comm, tw->dims, &context->dist, &tw->dist));
  if (!tw->alone) PetscCall(TrsShardingCreateExchanges(sharding, n_features, NULL, PETSC_TRUE));
  PetscCall(PetscFree(n_features));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_table_wise(TrsSharding sharding)
{
  TrsTableWise *tw = (TrsTableWise *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsPooledAllToAllDestroy(&tw->dist));
  PetscCall(PetscFree(tw->sent));
  PetscCall(PetscFree(tw->dims));
  PetscCall(PetscFree(tw->block));
  PetscCall(PetscFree(tw));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_table_wise(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  const TrsTableWise *tw = (const TrsTableWise *)sharding->data;

  PetscFunctionBegin;
  if (tw->alone && tw->as_is)
    PetscCall(TrsKjtView(slot->batch, 0, tw->n_sent, &slot->recv));
  else
    PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, slot->batch,
                            tw->n_sent, tw->sent, tw->alone ? &slot->recv : &slot->send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_start_table_wise(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                               const TrsPooledMatrix *pooled)
{
  TrsTableWise *tw = (TrsTableWise *)sharding->data;

  PetscFunctionBegin;
  if (tw->alone) {
    PetscCall(TrsLookupForward(sharding->lookup, stream, &slot->recv, pooled->data, pooled->stride));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsShardingLookup(sharding, slot, stream));
  PetscCall(TrsPooledAllToAllStart(tw->dist, stream, sharding->rows, slot->source_batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_wait_table_wise(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                              const TrsPooledMatrix *pooled)
{
  const TrsTableWise *tw = (const TrsTableWise *)sharding->data;

  PetscFunctionBegin;
  if (!tw->alone) {
    PetscCall(TrsPooledAllToAllArrive(tw->dist, stream, tw->block));
    PetscCall(TrsShardingScatterRuns(sharding, stream, slot->batch->batch, tw->block, tw->dims, pooled));
    PetscCall(TrsPooledAllToAllRelease(tw->dist, stream));
  }
  if (sharding->context->dist.reproducible) /* where and how the other families do it */
    PetscCall(TrsShardingDivideMeans(sharding, slot, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_table_wise(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                                const TrsPooledMatrix *grad)
{
  const TrsTableWise *tw = (const TrsTableWise *)sharding->data;
  float *send;
  const int64_t *displs;

  PetscFunctionBegin;
  if (sharding->context->dist.reproducible) PetscCall(TrsShardingDivideMeans(sharding, slot, stream, grad));
  if (tw->alone) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPooledAllToAllGradBuffer(tw->dist, &send, &displs));
  PetscCall(TrsShardingGatherRuns(sharding, stream, slot->batch->batch, grad, send, displs, tw->dims,
                                  TrsPooledAllToAllOwnGrad(tw->dist)));
  PetscCall(TrsPooledAllToAllGradStart(tw->dist, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_update_table_wise(TrsSharding sharding, TrsShardingSlot *slot,
                                                 TrsStream stream, const TrsPooledMatrix *grad,
                                                 const TrsSparseOptimizerArgs *args)
{
  const TrsTableWise *tw = (const TrsTableWise *)sharding->data;
  const float *arrived = grad->data;

  PetscFunctionBegin;
  if (!tw->alone) PetscCall(TrsPooledAllToAllGradWait(tw->dist, stream, &arrived));
  PetscCall(TrsShardingUpdate(sharding, slot, stream, arrived, tw->alone ? grad->stride : sharding->local_dim,
                              args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_sharding_table_wise = {
    .name = "table_wise",
    .setup = setup_table_wise,
    .destroy = destroy_table_wise,
    .prepare = prepare_table_wise,
    .forward_start = forward_start_table_wise,
    .forward_wait = forward_wait_table_wise,
    .backward_start = backward_start_table_wise,
    .backward_update = backward_update_table_wise,
};
