/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/route.h"

#include "embed/directory.h"
#include "shard/sharding.h"

/* The host of this rank in the grid. */
static int own_host(TrsSharding sharding)
{
  return sharding->context->groups->world->rank / sharding->route.L;
}

/* The number of shards of a column block that form one entry. It is one if each rank is a host. */
static int shards_of_entry(const TrsRoute *route, const TrsColumnBlock *block)
{
  return route->grid == TRS_GRID_RANKS ? 1 : block->n_shards;
}

/* Add the entries of host h. If the entries have no memory yet, only count them. */
static void add_entries(TrsSharding sharding, int h)
{
  TrsRoute *route = &sharding->route;

  for (int i = 0; i < sharding->n_tables; i++) {
    const TrsTablePlan *plan = TrsShardingTablePlan(sharding, i);
    for (TrsColumnBlock block = {0}; TrsColumnBlockNext(plan, &block);)
      for (int s = block.first, n = shards_of_entry(route, &block); s < block.first + block.n_shards; s += n)
        for (int k = route->table_feature[i]; k < route->table_feature[i + 1]; k++) {
          if (plan->shard[s].rank / route->L != h) continue;
          if (route->entry) {
            route->entry[route->n_entries] = (TrsRouteEntry){
                .table = i,
                .block = {.index = block.index, .first = s, .n_shards = n},
                .columns = plan->shard[s].cols,
                .column = plan->shard[s].col_offset};
            route->place[route->n_entries] = k;
            route->feature[route->n_entries] = route->group_feature[k];
          }
          route->n_entries++;
        }
  }
}

/* List the features of the group's tables. */
static PetscErrorCode list_features(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)sharding->n_tables + 1, &route->table_feature));
  route->table_feature[0] = 0;
  for (int i = 0; i < sharding->n_tables; i++)
    route->table_feature[i + 1] = route->table_feature[i] + TrsShardingTableConfig(sharding, i)->n_features;
  route->n_features = route->table_feature[sharding->n_tables];
  PetscCall(PetscMalloc1((size_t)route->n_features, &route->group_feature));
  for (int i = 0; i < sharding->n_tables; i++)
    for (int k = route->table_feature[i]; k < route->table_feature[i + 1]; k++)
      route->group_feature[k] = context->first_feature[sharding->table[i]] + k - route->table_feature[i];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Cut entry e's rows. The n_shards shards in `shard` are consecutive ranges of rows, which may be
  empty. They lie on n_shards ranks of the host, from rank `first` on.
*/
static void cut_entry(TrsRoute *route, int e, int first, int n_shards, const TrsShard *shard,
                      const TrsTableConfig *table)
{
  const int n = route->L;
  const int64_t rows = shard[n_shards - 1].row_offset + shard[n_shards - 1].rows,
                bucket_rows = (rows + n - 1) / n;
  int64_t *bounds = route->bounds + (int64_t)e * (n + 1);
  PetscBool even = PETSC_TRUE;

  for (int q = 0; q <= n; q++) {
    const int i = PetscMax(q - first, 0);
    bounds[q] = i < n_shards ? shard[i].row_offset : rows;
    even = (PetscBool)(even && bounds[q] == PetscMin(q * bucket_rows, rows));
  }
  route->cut_by[e] = (TrsBucketSpec){
      .bucket_rows = bucket_rows, .bounds = even ? NULL : bounds, .keys = TrsDirectoryBuckets(table)};
}

/* Cut the rows of all entries, and set the order in which their buckets are sent. */
static PetscErrorCode cut_rows(TrsSharding sharding)
{
  TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  PetscCall(PetscCalloc2((size_t)route->n_entries, &route->cut_by,
                         (size_t)route->n_entries * (size_t)(route->L + 1), &route->bounds));
  for (int e = 0; e < route->n_entries; e++) {
    const TrsColumnBlock *block = &route->entry[e].block;
    const TrsShard *shard = &TrsShardingTablePlan(sharding, route->entry[e].table)->shard[block->first];
    cut_entry(route, e, shard->rank % route->L, block->n_shards, shard,
              TrsShardingTableConfig(sharding, route->entry[e].table));
  }
  if (route->L == 1 || route->H == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1((size_t)route->n_entries * (size_t)route->L, &route->order));
  for (int h = 0, j = 0; h < route->H; h++)
    for (int l = 0; l < route->L; l++)
      for (int e = route->host_entry[h]; e < route->host_entry[h + 1]; e++)
        route->order[j++] = l * route->n_entries + e;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRouteCreate(TrsSharding sharding)
{
  const TrsCommGroups *groups = sharding->context->groups;
  const int W = groups->world->size;
  TrsRoute *route = &sharding->route;
  size_t n;

  PetscFunctionBegin;
  route->L = route->grid == TRS_GRID_RANKS ? 1 : route->grid == TRS_GRID_HOSTS ? groups->local_world_size : W;
  route->H = W / route->L;
  route->source_hosts = route->grid == TRS_GRID_WORLD_BY_HOSTS ? groups->n_hosts : route->H;
  PetscCall(list_features(sharding));
  for (int h = 0; h < route->H; h++) add_entries(sharding, h);
  n = (size_t)route->n_entries;
  PetscCall(PetscMalloc3(n, &route->entry, n, &route->place, n, &route->feature));
  PetscCall(PetscCalloc2((size_t)route->H + 1, &route->host_entry, (size_t)W, &route->n_sent));
  route->n_entries = 0;
  for (int h = 0; h < route->H; h++) {
    add_entries(sharding, h);
    route->host_entry[h + 1] = route->n_entries;
  }
  for (int q = 0; q < W; q++)
    route->n_sent[q] = route->host_entry[q / route->L + 1] - route->host_entry[q / route->L];
  if (route->grid != TRS_GRID_RANKS) PetscCall(cut_rows(sharding));
  if (route->L == 1 || route->source_hosts == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1((size_t)W, &route->source));
  for (int q = 0; q < W; q++) route->source[q] = TrsRouteSource(route, q);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRouteDestroy(TrsSharding sharding)
{
  TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  PetscCall(PetscFree2(route->cut_by, route->bounds));
  PetscCall(TrsKjtFree(sharding->context->device, &route->entries));
  PetscCall(TrsKjtFree(sharding->context->device, &route->cut));
  PetscCall(PetscFree(route->table_feature));
  PetscCall(PetscFree(route->group_feature));
  PetscCall(PetscFree3(route->entry, route->place, route->feature));
  PetscCall(PetscFree2(route->host_entry, route->n_sent));
  PetscCall(PetscFree(route->order));
  PetscCall(PetscFree(route->source));
  PetscCall(PetscFree(route->run));
  PetscCall(PetscFree(route->whole));
  PetscCall(PetscFree(route->copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The index in the table's plan of the shard of entry e on rank q. -1: there is none. */
static int shard_on(TrsSharding sharding, int e, int q)
{
  const TrsRouteEntry *entry = &sharding->route.entry[e];

  return TrsColumnBlockOn(TrsShardingTablePlan(sharding, entry->table), &entry->block, q);
}

int TrsRouteShard(TrsSharding sharding, int e)
{
  const TrsShardingContext *context = sharding->context;
  const int shard = shard_on(sharding, e, context->groups->world->rank);

  if (shard < 0) return -1;
  return TrsEmbeddingShardsFind(context->shards, sharding->table[sharding->route.entry[e].table], shard);
}

PetscErrorCode TrsRouteCreateLookup(TrsSharding sharding, PetscBool mean, PetscBool direct, TrsLookup *lookup,
                                    int64_t *dim)
{
  const TrsShardingContext *context = sharding->context;
  const int rank = context->groups->world->rank, n = sharding->route.n_sent[rank];
  const int first = sharding->route.host_entry[own_host(sharding)];
  TrsLookupFeature *feature;
  int64_t column = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)PetscMax(n, 1), &feature));
  for (int e = first; e < first + n; e++) {
    const TrsRouteEntry *entry = &sharding->route.entry[e];
    const int f = sharding->route.feature[e], shard = TrsRouteShard(sharding, e);
    feature[e - first] = (TrsLookupFeature){
        .shard = shard,
        .mean = (PetscBool)(mean && TrsShardingIsMean(TrsShardingTableConfig(sharding, entry->table))),
        .out_column = direct ? TrsShardingColumn(sharding, f) + entry->column : column,
        .position = TrsShardingPosition(sharding, f)};
    if (shard >= 0) column += entry->columns;
  }
  PetscCall(TrsLookupCreate(context->compute, context->shards, n, feature, lookup));
  if (dim) *dim = column;
  PetscCall(PetscFree(feature));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Add a run. If it is adjacent to the last run, extend the last run instead. Must be called in the
  order of columns in the block.
*/
static PetscErrorCode add_run(TrsRoute *route, TrsColumnRun run)
{
  TrsColumnRun *last = route->n_runs ? &route->run[route->n_runs - 1] : NULL;

  PetscFunctionBegin;
  if (last && last->block == run.block && last->block_column + last->width == run.block_column &&
      last->column + last->width == run.column) {
    last->width += run.width;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscRealloc(sizeof(*route->run) * (size_t)(route->n_runs + 1), &route->run));
  PetscCall(PetscRealloc(sizeof(*route->copy) * (size_t)(route->n_runs + 1), &route->copy));
  route->run[route->n_runs++] = run;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRouteCreateRuns(TrsSharding sharding, PetscBool by_rank, PetscBool whole, int64_t *dims)
{
  TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  if (whole) PetscCall(PetscMalloc1((size_t)route->n_entries, &route->whole));
  for (int q = 0; q < (by_rank ? sharding->context->groups->world->size : route->H); q++) {
    const int host = by_rank ? q / route->L : q;
    dims[q] = 0;
    for (int e = route->host_entry[host]; e < route->host_entry[host + 1]; e++) {
      const TrsRouteEntry *entry = &route->entry[e];
      if (by_rank && shard_on(sharding, e, q) < 0) continue;
      if (whole && entry->columns == TrsShardingTableConfig(sharding, entry->table)->embedding_dim)
        route->whole[route->n_whole++] = (TrsWholeFeature){
            .block = q, .feature = route->feature[e], .block_column = dims[q]};
      else
        PetscCall(add_run(
            route, (TrsColumnRun){.block = q,
                                  .block_column = dims[q],
                                  .column = TrsShardingColumn(sharding, route->feature[e]) + entry->column,
                                  .width = entry->columns}));
      dims[q] += entry->columns;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRouteCreateExchanges(TrsSharding sharding, PetscBool in_turn)
{
  const TrsCommGroups *groups = sharding->context->groups;
  const TrsRoute *route = &sharding->route;
  const int W = groups->world->size;
  TrsShardingSlot *slot = sharding->slot;
  int *source_order;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)W, &source_order));
  for (int q = 0; q < W; q++) source_order[q] = TrsRouteSource(route, q);
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    PetscCall(TrsKjtExchangeCreate(groups->input, route->n_sent, route->n_sent[groups->world->rank],
                                   sharding->weighted, source_order, &slot[s].exchange));
    if (sharding->context->ids_in_place) TrsKjtExchangeReadInPlace(slot[s].exchange);
    if (in_turn && s > 0 && s != TRS_TRAINING_SLOTS)
      PetscCall(TrsKjtExchangeShare(slot[s].exchange,
                                    slot[(int64_t)TrsShardingTurn(s) * TRS_TRAINING_SLOTS].exchange));
  }
  PetscCall(PetscFree(source_order));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRouteCut(TrsSharding sharding, TrsStream stream, const TrsKjt *entries, int64_t *places,
                           TrsKjt *out)
{
  const TrsDeviceOps *device = sharding->context->device;
  const TrsComputeOps *compute = sharding->context->compute;
  const TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  PetscCall(TrsKjtReserve(device, out, route->L * route->n_entries, entries->batch, entries->jagged.n_values,
                          entries->is_weighted));
  PetscCall(compute->bucketize(stream, sharding->workspace, route->L, route->n_entries, entries->batch,
                               route->cut_by, &entries->jagged, &out->jagged, places));
  PetscCall(TrsKjtOffsets(compute, stream, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRouteSend(TrsSharding sharding, TrsStream stream, const TrsKjt *in, const int *feature,
                            TrsKjt *entries, TrsDeviceBuffer *places, TrsKjt *send)
{
  const TrsDeviceOps *device = sharding->context->device;
  const TrsComputeOps *compute = sharding->context->compute;
  TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  PetscCall(TrsKjtPermute(device, compute, stream, sharding->workspace, in, route->n_entries, feature,
                          route->cut_by ? entries : send));
  if (!route->cut_by) PetscFunctionReturn(PETSC_SUCCESS);
  if (places)
    PetscCall(TrsDeviceBufferReserve(device, places, entries->jagged.n_values * (int64_t)sizeof(int64_t)));
  PetscCall(TrsRouteCut(sharding, stream, entries, places ? (int64_t *)places->data : NULL,
                        route->order ? &route->cut : send));
  if (route->order)
    PetscCall(TrsKjtPermute(device, compute, stream, sharding->workspace, &route->cut,
                            route->n_entries * route->L, route->order, send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The columns of a run as a matrix in its block, which begins at `block`. */
static TrsMatrix block_columns(TrsSharding sharding, const TrsColumnRun *run, const float *block,
                               const int64_t *dims)
{
  return TrsMatrixColumns(TrsShardingRows(sharding, block, dims[run->block]), run->block_column);
}

PetscErrorCode TrsRouteScatterRuns(TrsSharding sharding, TrsStream stream, int64_t B,
                                   const float *const *block, const int64_t *dims,
                                   const TrsPooledMatrix *pooled)
{
  TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  for (int i = 0; i < route->n_runs; i++) {
    const TrsColumnRun *run = &route->run[i];
    route->copy[i] = (TrsColumnCopy){.from = block_columns(sharding, run, block[run->block], dims),
                                     .to = TrsMatrixColumns(pooled->rows, run->column),
                                     .cols = run->width};
  }
  PetscCall(sharding->context->compute->copy_columns(stream, B, route->n_runs, route->copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRouteGatherRuns(TrsSharding sharding, TrsStream stream, int64_t B,
                                  const TrsPooledMatrix *pooled, const float *const *block,
                                  const int64_t *dims)
{
  TrsRoute *route = &sharding->route;

  PetscFunctionBegin;
  for (int i = 0; i < route->n_runs; i++) {
    const TrsColumnRun *run = &route->run[i];

    route->copy[i] = (TrsColumnCopy){.from = TrsMatrixColumns(pooled->rows, run->column),
                                     .to = block_columns(sharding, run, block[run->block], dims),
                                     .cols = run->width};
  }
  PetscCall(sharding->context->compute->copy_columns(stream, B, route->n_runs, route->copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}
