/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Payload: pooled rows. Bags are sent to their tables' shards, and a pooled row for each bag is sent
  back.

    own ids
    --route--> [my host's entries][G], ids of my rows
    --lookup--> sums of my rows, [G, D of my host]
    --reduce-scatter inside the host--> sums for the sources that have my position in their hosts
    --all-to-all across the hosts--> [B, D_h] from each host h
    --copy columns--> model's matrix

  If shards have all rows, rows and their gradients have the type of the model's matrix, so bf16
  rows are sent without encoding. Partial sums are fp32, and messages encode them. For a mean, the
  sample's rank divides the sum by the bag's length, and then rounds the mean to bf16.

  TRS_GRID_RANKS has no reduce-scatter, because a shard has all rows. TRS_GRID_WORLD and
  TRS_GRID_WORLD_BY_HOSTS have no all-to-all, because there is one host. The reduce-scatter of
  TRS_GRID_WORLD_BY_HOSTS has two levels (dist/pooled_chunks.h). The backward makes the same steps
  in reverse order, with gradients instead of rows. If a shard has all rows, the lookup divides sums
  to get means. Otherwise the sample's rank divides them.

  If the model reads vectors in place, whole rows are not copied. The model reads a row in its
  block, and writes the gradient there. Inside a host, the block is the memory of the row's owner.

  With -ebc_look_ahead, the all-to-all of whole rows between hosts has two parts (look_ahead.h).

  A feature is sent once for every column block of its table. Two column shards on one rank remain
  two tables. On one rank nothing is sent. The lookup works on the model's matrices, unless an
  encoding would change the rows, or gradients are also sent to other copies of the tables.

  Source: TorchRec TwPooledEmbeddingSharding, CwPooledEmbeddingSharding,
          TwCwPooledEmbeddingSharding, RwPooledEmbeddingSharding (a mean divides by the exact
          length, not by TorchRec's length + 1e-6), TwRwPooledEmbeddingSharding,
          GridPooledEmbeddingSharding ("staggered shuffle")
*/
#include "shard/look_ahead.h"

/* Some columns of a feature with pooling mean in a host's fp32 block. */
typedef struct {
  int block, feature; /* the feature's index in the model */
  int64_t block_column, cols;
} TrsBlockMean;

typedef struct {
  PetscBool alone;   /* true: there is one rank without encoding, so nothing is sent */
  PetscBool as_is;   /* true: the group's features are the model's features, in the same order */
  PetscBool divides; /* true: this rank divides the sums of its samples to get means */
  /* true: the model reads whole rows in the blocks, and writes gradients there */
  PetscBool in_place;
  int64_t *dims; /* [H] number of columns of each host */
  /* [L] number of samples of the sources that have the same position within their hosts */
  int64_t *chunk_rows;
  /* [H] number of samples of one rank of each host, which has this rank's position in its host */
  int64_t *host_batch;
  const float **block; /* [H] the rows that arrived from each host, or the gradients for it */
  int n_means;
  /* [n_means] columns that are divided in blocks; NULL: means are divided in the model's matrix */
  TrsBlockMean *mean;
  TrsMeanColumns *divided; /* [n_means] scratch */
  TrsPooledChunks intra;   /* exchange inside the host; NULL: shards have all rows */
  TrsPooledAllToAll cross; /* exchange across the hosts; NULL: there is one host */
} TrsPooled;

/* True if an exchange with these options does not change the rows on one rank. */
static PetscBool is_plain(const TrsPooledDistOptions *options)
{
  return (PetscBool)(options->forward.kind == TRS_CODEC_FP32 && options->backward.kind == TRS_CODEC_FP32);
}

/* True if the codec does not change bf16 rows. */
static PetscBool keeps_bf16(const TrsCodec *codec)
{
  return (PetscBool)(codec->kind == TRS_CODEC_FP32 ||
                     (codec->kind == TRS_CODEC_BF16 && codec->loss_scale == 1.0F));
}

/*
  The type of whole rows. bf16 rows are sent without a codec, as half as many floats. For this, each
  rank's row must have an even number of columns.
*/
static TrsDType type_of_rows(TrsSharding sharding)
{
  const TrsPooledDistOptions *options = &sharding->dist;
  const TrsRoute *route = &sharding->route;
  PetscBool keeps = (PetscBool)(route->grid == TRS_GRID_RANKS && keeps_bf16(&options->forward) &&
                                keeps_bf16(&options->backward));

  for (int h = 0; h < route->H; h++) {
    int64_t columns = 0;

    for (int e = route->host_entry[h]; e < route->host_entry[h + 1]; e++) columns += route->entry[e].columns;
    keeps = (PetscBool)(keeps && columns % 2 == 0);
  }
  return keeps ? sharding->context->rows : TRS_FP32;
}

/* Create the all-to-all of whole rows. */
static PetscErrorCode create_cross(TrsSharding sharding, TrsPooled *p)
{
  const TrsCommGroups *groups = sharding->context->groups;
  const PetscBool has_intra = (PetscBool)(sharding->route.grid != TRS_GRID_RANKS);
  const int H = sharding->route.H;
  TrsPooledDistOptions options = sharding->dist;
  int64_t *floats;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)H, &floats));
  if (sharding->rows_type != TRS_FP32) options.forward.kind = options.backward.kind = TRS_CODEC_FP32;
  for (int h = 0; h < H; h++)
    floats[h] = p->dims[h] * TrsDTypeBytes(sharding->rows_type) / (int64_t)sizeof(float);
  PetscCall(TrsPooledAllToAllCreate(has_intra ? groups->cross : groups->world, floats, &options, &p->cross));
  PetscCall(PetscFree(floats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add columns of a mean feature to the list, with their position in a host's block. */
static void add_mean(TrsPooled *p, int block, int feature, int64_t block_column, int64_t cols)
{
  p->mean[p->n_means++] = (TrsBlockMean){
      .block = block, .feature = feature, .block_column = block_column, .cols = cols};
}

/*
  Add a mean feature to the list for each block that has all of its columns. Returns true if there
  is such a block.
*/
static PetscBool add_whole_mean(TrsPooled *p, const TrsRoute *route, int feature, int64_t dim)
{
  PetscBool found = PETSC_FALSE;

  for (int w = 0; w < route->n_whole; w++) {
    if (route->whole[w].feature != feature) continue;
    add_mean(p, route->whole[w].block, feature, route->whole[w].block_column, dim);
    found = PETSC_TRUE;
  }
  return found;
}

/* Add a mean feature to the list, run by run. Its columns begin at the model's column `first`. */
static void add_means_of_runs(TrsPooled *p, const TrsRoute *route, int feature, int64_t first, int64_t dim)
{
  for (int r = 0; r < route->n_runs; r++) {
    const TrsColumnRun *run = &route->run[r];
    const int64_t begin = PetscMax(first, run->column), end = PetscMin(first + dim, run->column + run->width);

    if (begin < end) add_mean(p, run->block, feature, run->block_column + begin - run->column, end - begin);
  }
}

/* List the columns of all mean features in the hosts' blocks. */
static PetscErrorCode list_means(TrsSharding sharding, TrsPooled *p)
{
  const TrsRoute *route = &sharding->route;
  const size_t most = (size_t)(route->n_features + route->n_runs + route->n_whole);

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(most, &p->mean, most, &p->divided));
  for (int i = 0; i < sharding->n_tables; i++) {
    const TrsTableConfig *config = TrsShardingTableConfig(sharding, i);

    for (int k = route->table_feature[i]; TrsShardingIsMean(config) && k < route->table_feature[i + 1]; k++) {
      const int f = route->group_feature[k];

      if (!add_whole_mean(p, route, f, config->embedding_dim))
        add_means_of_runs(p, route, f, TrsShardingColumn(sharding, f), config->embedding_dim);
    }
  }
  if (!p->n_means) PetscCall(PetscFree2(p->mean, p->divided));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Divide the sums of means in fp32 blocks. Used if means are not copied to the model's matrix, or if
  a division in a bf16 matrix would round once more. At this time only this rank uses a block in its
  owner's memory. A device's blocks are always in this rank's memory. Not collective.
*/
static PetscErrorCode divide_blocks(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream)
{
  const TrsPooled *p = (const TrsPooled *)sharding->data;
  const int64_t B = slot->batch->batch;

  PetscFunctionBegin;
  for (int i = 0; i < p->n_means; i++) {
    const TrsBlockMean *mean = &p->mean[i];

    p->divided[i] = (TrsMeanColumns){
        .columns = TrsMatrixColumns(TrsFloats(p->block[mean->block], p->dims[mean->block]),
                                    mean->block_column),
        .lengths = slot->batch->jagged.lengths + mean->feature * B,
        .cols = mean->cols};
  }
  PetscCall(sharding->context->compute->divide_columns(stream, B, p->n_means, p->divided));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_pooled(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  const TrsCommGroups *groups = context->groups;
  const TrsRoute *route = &sharding->route;
  const PetscBool has_intra = (PetscBool)(route->grid != TRS_GRID_RANKS);
  const PetscBool has_cross = (PetscBool)(route->grid == TRS_GRID_RANKS || route->grid == TRS_GRID_HOSTS);
  TrsPooled *p;

  PetscFunctionBegin;
  PetscCall(PetscNew(&p));
  sharding->data = p;
  p->alone = (PetscBool)(groups->world->size == 1 && !context->copied &&
                         (!has_intra || is_plain(&sharding->reduce_scatter)) &&
                         (!has_cross || is_plain(&sharding->dist)));
  p->divides = (PetscBool)((has_intra && !(p->alone && context->rows != TRS_FP32)) ||
                           context->dist.reproducible);
  if (!p->alone) sharding->rows_type = type_of_rows(sharding);
  p->in_place = (PetscBool)(context->in_place && !p->alone && sharding->rows_type == context->rows &&
                            (!has_cross || sharding->rows_type != TRS_FP32 || is_plain(&sharding->dist)));
  p->as_is = PETSC_TRUE;
  for (int e = 0; e < route->n_entries; e++) p->as_is = (PetscBool)(p->as_is && route->feature[e] == e);
  PetscCall(PetscCalloc4((size_t)route->H, &p->dims, (size_t)route->H, &p->block, (size_t)route->H,
                         &p->host_batch, (size_t)route->L, &p->chunk_rows));
  PetscCall(TrsRouteCreateRuns(sharding, PETSC_FALSE, p->in_place, p->dims));
  PetscCall(TrsRouteCreateLookup(sharding, (PetscBool)!p->divides, p->alone, &sharding->lookup,
                                 &sharding->local_dim));
  if (p->alone) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsShardingCreateSums(sharding, sharding->local_dim, &p->intra));
  if (has_cross) PetscCall(create_cross(sharding, p));
  if (p->in_place && has_cross) TrsPooledAllToAllSetInPlace(p->cross);
  PetscCall(TrsLookAheadCreate(sharding, p->dims, &sharding->ahead));
  /* On one rank, the sums are the rows themselves. */
  sharding->lends_rows = (PetscBool)(p->in_place && route->L == 1);
  if (p->divides && (context->rows != TRS_FP32 || p->in_place)) PetscCall(list_means(sharding, p));
  PetscCall(TrsRouteCreateExchanges(sharding, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_pooled(TrsSharding sharding)
{
  TrsPooled *p = (TrsPooled *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsLookAheadDestroy(&sharding->ahead));
  PetscCall(TrsPooledChunksDestroy(&p->intra));
  PetscCall(TrsPooledAllToAllDestroy(&p->cross));
  PetscCall(PetscFree4(p->dims, p->block, p->host_batch, p->chunk_rows));
  PetscCall(PetscFree2(p->mean, p->divided));
  PetscCall(PetscFree(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_pooled(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  const TrsPooled *p = (const TrsPooled *)sharding->data;
  TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  if (!p->alone)
    PetscCall(
        TrsRouteSend(sharding, stream, slot->batch, route->feature, &route->entries, NULL, &slot->send));
  else if (p->as_is)
    PetscCall(TrsKjtView(slot->batch, 0, route->n_entries, &slot->recv));
  else
    PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, slot->batch,
                            route->n_entries, route->feature, &slot->recv));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Count the samples of the current batch. */
static void count_samples(TrsPooled *p, const TrsRoute *route, const int64_t *source_batch, int rank)
{
  for (int l = 0; l < route->L; l++) p->chunk_rows[l] = 0;
  for (int q = 0; q < route->L * route->H; q++) p->chunk_rows[q % route->L] += source_batch[q];
  for (int h = 0; h < route->H; h++) p->host_batch[h] = source_batch[h * route->L + rank % route->L];
}

static PetscErrorCode forward_start_pooled(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                           const TrsPooledMatrix *pooled)
{
  TrsPooled *p = (TrsPooled *)sharding->data;
  const PetscBool *far;

  PetscFunctionBegin;
  if (p->alone) {
    PetscCall(TrsLookupForward(sharding->lookup, stream, &slot->recv, pooled->rows));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  count_samples(p, &sharding->route, slot->source_batch, sharding->context->groups->world->rank);
  if (TrsLookAheadIsFor(sharding->ahead, slot)) {
    PetscCall(TrsLookAheadRest(sharding->ahead, stream, &far));
    TrsPooledAllToAllSkip(p->cross, far);
  } else {
    PetscCall(TrsShardingLookup(sharding, slot, stream));
  }
  if (p->intra)
    PetscCall(TrsPooledChunksStart(p->intra, stream, sharding->rows, p->chunk_rows));
  else
    PetscCall(TrsPooledAllToAllStart(p->cross, stream, sharding->rows, p->host_batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the addresses at which whole rows have arrived. The model may overwrite these blocks. */
static void place_whole(TrsSharding sharding, const TrsPooledMatrix *pooled)
{
  const TrsPooled *p = (const TrsPooled *)sharding->data;

  for (int i = 0; i < sharding->route.n_whole; i++) {
    const TrsWholeFeature *whole = &sharding->route.whole[i];
    const TrsMatrix block = TrsShardingRows(sharding, p->block[whole->block], p->dims[whole->block]);

    pooled->place[whole->feature] = (TrsVectorPlace){
        .data = TrsMatrixColumns(block, whole->block_column).data, .stride = block.stride};
  }
}

static PetscErrorCode forward_wait_pooled(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                          const TrsPooledMatrix *pooled)
{
  TrsPooled *p = (TrsPooled *)sharding->data;

  PetscFunctionBegin;
  if (p->intra) PetscCall(TrsPooledChunksWait(p->intra, stream, &p->block[0]));
  if (p->intra && p->cross) {
    float *summed; /* after GradWait: the gradient of these sums */
    PetscCall(TrsPooledChunksGradBuffer(p->intra, &summed));
    PetscCall(TrsPooledAllToAllStart(p->cross, stream, summed, p->host_batch));
  }
  if (p->cross) PetscCall(TrsPooledAllToAllArrive(p->cross, stream, p->block));
  if (TrsLookAheadIsFor(sharding->ahead, slot))
    PetscCall(TrsLookAheadJoin(sharding->ahead, stream, p->block));
  if (p->mean) PetscCall(divide_blocks(sharding, slot, stream));
  if (!p->alone)
    PetscCall(TrsRouteScatterRuns(sharding, stream, slot->batch->batch, p->block, p->dims, pooled));
  if (p->in_place) place_whole(sharding, pooled);
  if (p->cross && !p->in_place) PetscCall(TrsPooledAllToAllRelease(p->cross, stream));
  if (p->divides && !p->mean && !p->in_place)
    PetscCall(TrsShardingDivideMeans(sharding, slot, stream, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* End a forward in place without a backward. */
static PetscErrorCode forward_end_pooled(TrsSharding sharding, TrsStream stream)
{
  const TrsPooled *p = (const TrsPooled *)sharding->data;

  PetscFunctionBegin;
  if (p->in_place && p->cross) PetscCall(TrsPooledAllToAllRelease(p->cross, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the blocks from which gradients are sent to each host. Gradients for this rank's own rows go
  directly to the memory of their owner.
*/
static PetscErrorCode find_grad_blocks(TrsPooled *p, const TrsRoute *route, int own)
{
  static const int64_t one_block = 0; /* displacement of the block if there is one host */
  const int64_t *displs = &one_block;
  float *send, *stays = NULL;

  PetscFunctionBegin;
  if (p->cross) {
    PetscCall(TrsPooledAllToAllGradBuffer(p->cross, &send, &displs));
    if (!p->mean) stays = TrsPooledAllToAllOwnGrad(p->cross);
  } else {
    PetscCall(TrsPooledChunksGradBuffer(p->intra, &send));
  }
  for (int h = 0; h < route->H; h++) p->block[h] = send + displs[h];
  if (stays) p->block[own] = stays;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_pooled(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                            const TrsPooledMatrix *grad)
{
  TrsPooled *p = (TrsPooled *)sharding->data;
  const TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  /* Dividing in place is allowed, because only this group uses these columns, and reads them
     once. */
  if (p->divides && !p->mean && !p->in_place) PetscCall(TrsShardingDivideMeans(sharding, slot, stream, grad));
  if (p->alone) PetscFunctionReturn(PETSC_SUCCESS);
  if (!p->in_place) PetscCall(find_grad_blocks(p, route, sharding->context->groups->world->rank / route->L));
  PetscCall(TrsRouteGatherRuns(sharding, stream, slot->batch->batch, grad, p->block, p->dims));
  if (p->mean) PetscCall(divide_blocks(sharding, slot, stream));
  if (p->in_place && p->cross)
    PetscCall(TrsPooledAllToAllReturn(p->cross, stream));
  else if (p->cross)
    PetscCall(TrsPooledAllToAllGradStart(p->cross, stream));
  else
    PetscCall(TrsPooledChunksGradStart(p->intra, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_wait_pooled(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                           const TrsPooledMatrix *grad, TrsMatrix *arrived)
{
  const TrsPooled *p = (const TrsPooled *)sharding->data;
  const float *rows = NULL;

  PetscFunctionBegin;
  (void)slot;
  *arrived = grad->rows;
  if (p->alone) PetscFunctionReturn(PETSC_SUCCESS);
  /* The gradients from other hosts arrive in the memory from which `intra` sends them. */
  if (p->cross) PetscCall(TrsPooledAllToAllGradWait(p->cross, stream, &rows));
  if (p->cross && p->intra) PetscCall(TrsPooledChunksGradStart(p->intra, stream));
  if (p->intra) PetscCall(TrsPooledChunksGradWait(p->intra, stream, &rows));
  *arrived = TrsShardingRows(sharding, rows, sharding->local_dim);
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_payload_pooled = {
    .name = "pooled rows",
    .typed = PETSC_TRUE,
    .setup = setup_pooled,
    .destroy = destroy_pooled,
    .prepare = prepare_pooled,
    .forward_start = forward_start_pooled,
    .forward_wait = forward_wait_pooled,
    .forward_end = forward_end_pooled,
    .backward_start = backward_start_pooled,
    .backward_wait = backward_wait_pooled,
};
