/* SPDX-License-Identifier: BSD-3-Clause */
/*
  table_row_wise, grid_shard: all rows of a table (of a column block) on one host, cut over the host's L ranks.

    own ids --permute--> [host][its features] --bucketize--> [bucket l][host][feature] --permute--> [host][bucket][feature]
    --all-to-all--> my host's features, my rows, sources ordered by (local index, host) --lookup--> partial sums
    --reduce-scatter inside the host--> sums for the samples of all sources with my local index, by host
    --all-to-all across hosts--> [B, D_h] from each host h --copy columns, divide means--> model's matrix

  Source: TorchRec TwRwPooledEmbeddingSharding, GridPooledEmbeddingSharding ("staggered shuffle").
*/
#include "dist/pooled_chunks.h"
#include "shard/row_split.h"
#include "shard/sharding.h"

typedef struct {
  int L, H;
  int n_entries;                    /* (column block, feature) pairs of all hosts */
  int *feature;                     /* [n_entries] model feature of each, by host */
  int *stagger;                     /* [n_entries * L] (bucket, host, feature) -> (host, bucket, feature) */
  int64_t *dims;                    /* [H] columns of each host */
  int64_t *chunk_rows, *host_batch; /* [L], [H] of the batch under way */
  TrsRowSplit split;
  TrsKjt group, bucketized;
  TrsPooledChunks intra;
  const float **block; /* [H] where pooled rows have come */
  TrsPooledAllToAll cross;
} TrsTableRowWise;

typedef struct {
  int table, block; /* the group's table, its column block */
  int feature;      /* model feature */
} TrsHostEntry;

/* Host of a column block: L consecutive shards on L consecutive ranks. */
static int host_of(const TrsTablePlan *plan, int block, int L)
{
  return plan->shard[(int64_t)block * L].rank / L;
}

/* Host h's entries, in order of table, column block, feature; returns their number. */
static int host_entries(const TrsSharding sharding, int L, int h, TrsHostEntry *entry)
{
  int n = 0;
  for (int i = 0; i < sharding->n_tables; i++) {
    const TrsTablePlan *plan = TrsShardingTablePlan(sharding, i);
    const int first = TrsShardingFirstFeature(sharding, i);
    for (int block = 0; block < plan->n_shards / L; block++) {
      if (host_of(plan, block, L) != h) continue;
      for (int k = 0; k < TrsShardingTableConfig(sharding, i)->n_features; k++, n++)
        if (entry) entry[n] = (TrsHostEntry){.table = i, .block = block, .feature = first + k};
    }
  }
  return n;
}

/* One host's part of the group: its features, row splits, column runs, and on its own ranks the lookup. */
static PetscErrorCode setup_host(TrsSharding sharding, int h, int at, int n, const TrsHostEntry *entry)
{
  const TrsShardingContext *context = sharding->context;
  TrsTableRowWise *twrw = (TrsTableRowWise *)sharding->data;
  const PetscBool mine = (PetscBool)(context->groups->world->rank / twrw->L == h);
  TrsLookupFeature *lookup;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)PetscMax(n, 1), &lookup));
  for (int e = 0; e < n; e++) {
    const TrsShard *shard =
        &TrsShardingTablePlan(sharding, entry[e].table)->shard[(int64_t)entry[e].block * twrw->L];
    twrw->feature[at + e] = entry[e].feature;
    PetscCall(TrsRowSplitSet(&twrw->split, at + e, shard));
    PetscCall(TrsShardingAddRun(sharding, h, twrw->dims[h],
                                context->columns[entry[e].feature] + shard->col_offset, shard->cols));
    lookup[e] = (TrsLookupFeature){.out_column = twrw->dims[h],
                                   .position = TrsShardingPosition(sharding, entry[e].feature)};
    if (mine)
      lookup[e].shard = TrsEmbeddingShardsFind(context->shards, sharding->table[entry[e].table],
                                               entry[e].block * twrw->L + context->groups->host->rank);
    twrw->dims[h] += shard->cols;
  }
  if (mine) PetscCall(TrsLookupCreate(context->compute, context->shards, n, lookup, &sharding->lookup));
  PetscCall(PetscFree(lookup));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_exchanges(TrsSharding sharding, const int *host_n)
{
  const TrsShardingContext *context = sharding->context;
  TrsTableRowWise *twrw = (TrsTableRowWise *)sharding->data;
  const int W = context->groups->world->size, L = twrw->L;
  int *n_features, *source_order;

  PetscFunctionBegin;
  sharding->local_dim = twrw->dims[context->groups->world->rank / L];
  PetscCall(TrsPooledReduceScatterCreate(context->groups->host, sharding->local_dim, &context->reduce_scatter,
                                         &twrw->intra));
  PetscCall(TrsPooledAllToAllCreate(context->groups->cross, twrw->dims, &context->dist, &twrw->cross));
  PetscCall(PetscMalloc2((size_t)W, &n_features, (size_t)W, &source_order));
  for (int q = 0; q < W; q++) {
    n_features[q] = host_n[q / L];
    source_order[q] = q % twrw->H * L + q / twrw->H; /* by local index, then host */
  }
  PetscCall(TrsShardingCreateExchanges(sharding, n_features, source_order, PETSC_TRUE));
  PetscCall(PetscFree2(n_features, source_order));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_table_row_wise(TrsSharding sharding)
{
  const TrsCommGroups *groups = sharding->context->groups;
  TrsTableRowWise *twrw;
  TrsHostEntry *entry;
  int *host_n;

  PetscFunctionBegin;
  PetscCall(PetscNew(&twrw));
  sharding->data = twrw;
  twrw->L = groups->local_world_size;
  twrw->H = groups->n_hosts;
  PetscCall(PetscMalloc1((size_t)twrw->H, &twrw->block));
  PetscCall(PetscCalloc3((size_t)twrw->H, &twrw->dims, (size_t)twrw->H, &twrw->host_batch, (size_t)twrw->L,
                         &twrw->chunk_rows));
  PetscCall(PetscMalloc1((size_t)twrw->H, &host_n));
  for (int h = 0; h < twrw->H; h++) {
    host_n[h] = host_entries(sharding, twrw->L, h, NULL);
    twrw->n_entries += host_n[h];
  }
  PetscCall(PetscMalloc1((size_t)twrw->n_entries, &entry));
  PetscCall(PetscMalloc2((size_t)twrw->n_entries, &twrw->feature, (size_t)twrw->n_entries * (size_t)twrw->L,
                         &twrw->stagger));
  PetscCall(TrsRowSplitCreate(twrw->L, twrw->n_entries, &twrw->split));
  for (int h = 0, at = 0, out = 0; h < twrw->H; at += host_n[h], h++) {
    (void)host_entries(sharding, twrw->L, h, entry);
    PetscCall(setup_host(sharding, h, at, host_n[h], entry));
    for (int l = 0; l < twrw->L; l++)
      for (int e = 0; e < host_n[h]; e++) twrw->stagger[out++] = l * twrw->n_entries + at + e;
  }
  PetscCall(setup_exchanges(sharding, host_n));
  PetscCall(PetscFree(host_n));
  PetscCall(PetscFree(entry));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_table_row_wise(TrsSharding sharding)
{
  TrsTableRowWise *twrw = (TrsTableRowWise *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsPooledChunksDestroy(&twrw->intra));
  PetscCall(TrsPooledAllToAllDestroy(&twrw->cross));
  PetscCall(TrsKjtFree(sharding->context->device, &twrw->group));
  PetscCall(TrsKjtFree(sharding->context->device, &twrw->bucketized));
  PetscCall(TrsRowSplitDestroy(&twrw->split));
  PetscCall(PetscFree2(twrw->feature, twrw->stagger));
  PetscCall(PetscFree3(twrw->dims, twrw->host_batch, twrw->chunk_rows));
  PetscCall(PetscFree(twrw->block));
  PetscCall(PetscFree(twrw));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_table_row_wise(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  TrsTableRowWise *twrw = (TrsTableRowWise *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, slot->batch,
                          twrw->n_entries, twrw->feature, &twrw->group));
  PetscCall(TrsRowSplitBucketize(&twrw->split, context->device, context->compute, stream, sharding->workspace,
                                 &twrw->group, &twrw->bucketized, NULL));
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, &twrw->bucketized,
                          twrw->n_entries * twrw->L, twrw->stagger, &slot->send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_start_table_row_wise(TrsSharding sharding, TrsShardingSlot *slot,
                                                   TrsStream stream, const TrsPooledMatrix *pooled)
{
  const TrsShardingContext *context = sharding->context;
  TrsTableRowWise *twrw = (TrsTableRowWise *)sharding->data;
  const int L = twrw->L, l = context->groups->host->rank;

  PetscFunctionBegin;
  (void)pooled;
  for (int j = 0; j < L; j++) {
    twrw->chunk_rows[j] = 0;
    for (int h = 0; h < twrw->H; h++) twrw->chunk_rows[j] += slot->source_batch[h * L + j];
  }
  for (int h = 0; h < twrw->H; h++) twrw->host_batch[h] = slot->source_batch[h * L + l];
  PetscCall(TrsShardingLookup(sharding, slot, stream));
  PetscCall(TrsPooledChunksStart(twrw->intra, stream, sharding->rows, twrw->chunk_rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_wait_table_row_wise(TrsSharding sharding, TrsShardingSlot *slot,
                                                  TrsStream stream, const TrsPooledMatrix *pooled)
{
  TrsTableRowWise *twrw = (TrsTableRowWise *)sharding->data;
  const float *recv;
  float *summed; /* and, from GradWait, its gradient */

  PetscFunctionBegin;
  PetscCall(TrsPooledChunksWait(twrw->intra, stream, &recv));
  PetscCall(TrsPooledChunksGradBuffer(twrw->intra, &summed));
  PetscCall(TrsPooledAllToAllStart(twrw->cross, stream, summed, twrw->host_batch));
  PetscCall(TrsPooledAllToAllArrive(twrw->cross, stream, twrw->block));
  PetscCall(TrsShardingScatterRuns(sharding, stream, slot->batch->batch, twrw->block, twrw->dims, pooled));
  PetscCall(TrsPooledAllToAllRelease(twrw->cross, stream));
  PetscCall(TrsShardingDivideMeans(sharding, slot, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_table_row_wise(TrsSharding sharding, TrsShardingSlot *slot,
                                                    TrsStream stream, const TrsPooledMatrix *grad)
{
  TrsTableRowWise *twrw = (TrsTableRowWise *)sharding->data;
  float *send;
  const int64_t *displs;

  PetscFunctionBegin;
  PetscCall(TrsShardingDivideMeans(sharding, slot, stream, grad));
  PetscCall(TrsPooledAllToAllGradBuffer(twrw->cross, &send, &displs));
  PetscCall(
      TrsShardingGatherRuns(sharding, stream, slot->batch->batch, grad, send, displs, twrw->dims, NULL));
  PetscCall(TrsPooledAllToAllGradStart(twrw->cross, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_update_table_row_wise(TrsSharding sharding, TrsShardingSlot *slot,
                                                     TrsStream stream, const TrsPooledMatrix *grad,
                                                     const TrsSparseOptimizerArgs *args)
{
  const TrsTableRowWise *twrw = (const TrsTableRowWise *)sharding->data;
  const float *crossed, *gathered;

  PetscFunctionBegin;
  (void)grad;
  PetscCall(TrsPooledAllToAllGradWait(twrw->cross, stream, &crossed)); /* to where intra's GradBuffer is */
  PetscCall(TrsPooledChunksGradStart(twrw->intra, stream));
  PetscCall(TrsPooledChunksGradWait(twrw->intra, stream, &gathered));
  PetscCall(TrsLookupBackward(sharding->lookup, stream, &slot->recv, gathered, sharding->local_dim, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_sharding_table_row_wise = {
    .name = "table_row_wise",
    .setup = setup_table_row_wise,
    .destroy = destroy_table_row_wise,
    .prepare = prepare_table_row_wise,
    .forward_start = forward_start_table_row_wise,
    .forward_wait = forward_wait_table_row_wise,
    .backward_start = backward_start_table_row_wise,
    .backward_update = backward_update_table_row_wise,
};
