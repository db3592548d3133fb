/* SPDX-License-Identifier: BSD-3-Clause */
/*
  row_wise: rank r has rows [r * block, (r+1) * block) of every table, so ids are cut into buckets and partial sums are added up.

    own ids --bucketize--> [rank q][F][B] --all-to-all--> [F][G], ids of my rows --lookup--> partial sums [G, D]
    --reduce-scatter--> [B, D] --copy columns, divide means--> model's matrix

  Backward: the all-gather of the gradients, so that every rank updates the rows it owns.
  Source: TorchRec RwPooledEmbeddingSharding; mean divides by the exact length (spec: not TorchRec's length + 1e-6).
*/
#include "dist/pooled_chunks.h"
#include "shard/row_split.h"
#include "shard/sharding.h"

typedef struct {
  int n_features;
  int *feature; /* [n_features] model features of the group */
  TrsRowSplit split;
  TrsKjt group; /* the batch's features of this group */
  TrsPooledChunks dist;
} TrsRowWise;

static const int64_t one_block = 0; /* displacement of the only block: all columns come together */

static PetscErrorCode setup_row_wise(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  const TrsComm comm = context->groups->world;
  TrsLookupFeature *lookup;
  TrsRowWise *rw;
  int *n_features, n = 0;

  PetscFunctionBegin;
  PetscCall(PetscNew(&rw));
  sharding->data = rw;
  rw->n_features = TrsShardingFeatures(sharding, NULL);
  PetscCall(PetscMalloc1((size_t)rw->n_features, &rw->feature));
  TrsShardingFeatures(sharding, rw->feature);
  PetscCall(TrsRowSplitCreate(comm->size, rw->n_features, &rw->split));
  PetscCall(PetscMalloc1((size_t)rw->n_features, &lookup));
  for (int i = 0; i < sharding->n_tables; i++) {
    const TrsTableConfig *config = TrsShardingTableConfig(sharding, i);
    const TrsTablePlan *plan = TrsShardingTablePlan(sharding, i);
    for (int k = 0; k < config->n_features; k++, n++) {
      PetscCall(TrsRowSplitSet(&rw->split, n, plan->shard));
      PetscCall(TrsShardingAddRun(sharding, 0, sharding->local_dim, context->columns[rw->feature[n]],
                                  config->embedding_dim));
      lookup[n] = (TrsLookupFeature){
          .shard = TrsEmbeddingShardsFind(context->shards, sharding->table[i], comm->rank),
          .out_column = sharding->local_dim,
          .position = TrsShardingPosition(sharding, rw->feature[n])};
      sharding->local_dim += config->embedding_dim;
    }
  }
  PetscCall(TrsLookupCreate(context->compute, context->shards, rw->n_features, lookup, &sharding->lookup));
  PetscCall(PetscFree(lookup));
  PetscCall(TrsPooledReduceScatterCreate(comm, sharding->local_dim, &context->reduce_scatter, &rw->dist));
  PetscCall(PetscMalloc1((size_t)comm->size, &n_features));
  for (int q = 0; q < comm->size; q++) n_features[q] = rw->n_features;
  PetscCall(TrsShardingCreateExchanges(sharding, n_features, NULL, PETSC_TRUE));
  PetscCall(PetscFree(n_features));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_row_wise(TrsSharding sharding)
{
  TrsRowWise *rw = (TrsRowWise *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsPooledChunksDestroy(&rw->dist));
  PetscCall(TrsKjtFree(sharding->context->device, &rw->group));
  PetscCall(TrsRowSplitDestroy(&rw->split));
  PetscCall(PetscFree(rw->feature));
  PetscCall(PetscFree(rw));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_row_wise(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  TrsRowWise *rw = (TrsRowWise *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, slot->batch,
                          rw->n_features, rw->feature, &rw->group));
  PetscCall(TrsRowSplitBucketize(&rw->split, context->device, context->compute, stream, sharding->workspace,
                                 &rw->group, &slot->send, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_start_row_wise(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                             const TrsPooledMatrix *pooled)
{
  TrsRowWise *rw = (TrsRowWise *)sharding->data;

  PetscFunctionBegin;
  (void)pooled;
  PetscCall(TrsShardingLookup(sharding, slot, stream));
  PetscCall(TrsPooledChunksStart(rw->dist, stream, sharding->rows, slot->source_batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_wait_row_wise(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                            const TrsPooledMatrix *pooled)
{
  const TrsRowWise *rw = (const TrsRowWise *)sharding->data;
  const float *summed;

  PetscFunctionBegin;
  PetscCall(TrsPooledChunksWait(rw->dist, stream, &summed));
  PetscCall(
      TrsShardingScatterRuns(sharding, stream, slot->batch->batch, &summed, &sharding->local_dim, pooled));
  PetscCall(TrsShardingDivideMeans(sharding, slot, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_row_wise(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                              const TrsPooledMatrix *grad)
{
  const TrsRowWise *rw = (const TrsRowWise *)sharding->data;
  float *send;

  PetscFunctionBegin;
  /* dividing in place is allowed: these columns of the model's gradient are this group's alone and read once */
  PetscCall(TrsShardingDivideMeans(sharding, slot, stream, grad));
  PetscCall(TrsPooledChunksGradBuffer(rw->dist, &send));
  PetscCall(TrsShardingGatherRuns(sharding, stream, slot->batch->batch, grad, send, &one_block,
                                  &sharding->local_dim, NULL));
  PetscCall(TrsPooledChunksGradStart(rw->dist, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_update_row_wise(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                               const TrsPooledMatrix *grad,
                                               const TrsSparseOptimizerArgs *args)
{
  const TrsRowWise *rw = (const TrsRowWise *)sharding->data;
  const float *gathered;

  PetscFunctionBegin;
  (void)grad;
  PetscCall(TrsPooledChunksGradWait(rw->dist, stream, &gathered));
  PetscCall(TrsLookupBackward(sharding->lookup, stream, &slot->recv, gathered, sharding->local_dim, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_sharding_row_wise = {
    .name = "row_wise",
    .setup = setup_row_wise,
    .destroy = destroy_row_wise,
    .prepare = prepare_row_wise,
    .forward_start = forward_start_row_wise,
    .forward_wait = forward_wait_row_wise,
    .backward_start = backward_start_row_wise,
    .backward_update = backward_update_row_wise,
};
