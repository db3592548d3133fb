/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed/embedding_shards.h"

#include "compute/quant.h"
#include "compute/random_rows.h"
#include "embed/directory.h"
#include "embed/placement.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Number of floats filled at a time: a strip that stays in the cache while it is converted. */
enum { TRS_FILL_STRIP_FLOATS = 1 << 18 };

/* The states that the optimizer keeps for a table. */
typedef struct {
  int n;
  const char *name[TRS_OPTIMIZER_STATES];
  PetscBool rowwise[TRS_OPTIMIZER_STATES];
} TrsOptimizerStates;

static TrsOptimizerStates states_of(const TrsSparseOptimizers *optimizers, int table)
{
  TrsOptimizerStates states = {.n = 0};
  if (optimizers)
    TrsSparseOptimizerStates(TrsSparseOptimizersOf(optimizers, table)->kind, &states.n, states.name,
                             states.rowwise);
  return states;
}

/* Number of a table's column blocks. */
static int count_columns(const TrsTablePlan *plan)
{
  int n = 0;

  for (TrsColumnBlock block = {0}; TrsColumnBlockNext(plan, &block);) n++;
  return n;
}

/*
  Write rows [row, row + n) of a shard in fp32. A value depends only on (seed, table, row, column).
*/
static void fill_rows(const TrsTbeTable *t, const TrsTableConfig *config, uint64_t seed, int64_t row,
                      int64_t n, float *to)
{
  TrsRandomRows(seed, TRS_RANDOM_TABLE_INIT, t->key,
                (uint64_t)((t->row_offset + row) * t->table_dim + t->col_offset), n, t->dim, t->table_dim,
                &config->init, to);
}

/*
  Fill a shard strip by strip. Each strip is made and rounded on the host, for every device, and
  then copied.
*/
static PetscErrorCode fill_by_strips(const TrsTbeTable *t, const TrsTableConfig *config,
                                     const TrsDeviceOps *device, uint64_t seed)
{
  const int64_t strip_rows = PetscMax((int64_t)1, (int64_t)TRS_FILL_STRIP_FLOATS / t->dim);
  const int64_t row_bytes = (int64_t)t->dim * TrsDTypeBytes(t->dtype);
  TrsPinnedBuffer converted = {0};
  const TrsComputeOps *host;
  float *strip = NULL;

  PetscFunctionBegin;
  PetscCheck(t->stride == t->dim, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a table with gaps between rows");
  PetscCall(TrsComputeFind("cpu", &host));
  PetscCall(TrsAlloc(strip_rows * t->dim, sizeof(float), &strip));
  PetscCall(TrsPinnedBufferReserve(device, &converted, strip_rows * row_bytes));
  for (int64_t row = 0; row < t->rows; row += strip_rows) {
    const int64_t n = PetscMin(strip_rows, t->rows - row);

    fill_rows(t, config, seed, row, n, strip);
    /* The previous strip's copy still reads `converted`. */
    PetscCall(device->stream_synchronize(NULL));
    PetscCall(host->convert(NULL, n * t->dim, TRS_FP32, strip, t->dtype, converted.data));
    PetscCall(device->copy((char *)t->weight + row * row_bytes, converted.data, n * row_bytes, NULL));
  }
  PetscCall(device->stream_synchronize(NULL));
  PetscCall(TrsPinnedBufferFree(device, &converted));
  PetscCall(TrsFree(&strip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fill(const TrsEmbeddingShard *shard, const TrsTableConfig *config,
                           const TrsDeviceOps *device, uint64_t seed)
{
  const TrsTbeTable *t = &shard->tbe;

  PetscFunctionBegin;
  if (t->dtype == TRS_FP32 && (device->host_memory || shard->on_host) && t->stride == t->dim) {
    fill_rows(t, config, seed, 0, t->rows, (float *)t->weight);
  } else {
    PetscCall(fill_by_strips(t, config, device, seed));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The unit of a row's stride in bytes: the size of an element, or 1 if a row does not consist of
  whole elements.
*/
static int64_t stride_unit(TrsDType dtype)
{
  return TrsQuantIsPacked(dtype) ? 1 : TrsDTypeBytes(dtype);
}

static void describe(TrsTbeTable *t, const TrsTableConfig *config, const TrsShard *place, PetscBool quantised)
{
  t->rows = place->rows;
  t->dim = (int32_t)place->cols;
  t->stride = place->cols;
  if (quantised)
    t->stride = TrsQuantRowBytes(config->data_type, TRS_ROWS_TBE, t->dim) / stride_unit(config->data_type);
  t->dtype = config->data_type;
  t->stochastic_rounding = config->stochastic_rounding ? 1 : 0;
  t->key = TrsNameHash(config->name);
  t->row_offset = place->row_offset;
  t->col_offset = place->col_offset;
  t->table_dim = config->embedding_dim;
}

static PetscErrorCode allocate(const TrsEmbeddingShards *shards, TrsEmbeddingShard *shard)
{
  const TrsDeviceOps *device = shards->device;
  const TrsTableConstraints *constraints = &shards->tables->table[shard->table].constraints;
  const TrsOptimizerStates states = states_of(shards->optimizers, shard->table);
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_TABLES);
  TrsTbeTable *t = &shard->tbe;

  PetscFunctionBegin;
  if (t->rows > 0)
    PetscCall((shard->on_host ? device->alloc_host
                              : device->alloc)(t->rows * t->stride * stride_unit(t->dtype), &t->weight));
  (void)TrsMemoryFor(TRS_MEMORY_STATES);
  for (int i = 0; i < states.n && t->rows > 0; i++) {
    void *memory = NULL;

    shard->state_on_host[i] = (PetscBool)(shard->on_host && !states.rowwise[i] && !constraints->enforce_hbm);
    PetscCall((shard->state_on_host[i] ? device->alloc_host : device->alloc)(
        (states.rowwise[i] ? t->rows : t->rows * t->dim) * (int64_t)sizeof(float), &memory));
    t->state[i] = (float *)memory;
  }
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsRowCacheWish cache_wish(const TrsTablePlan *plan, const TrsTableConstraints *constraints, int table)
{
  return (TrsRowCacheWish){.load_factor = plan->has_cache_load_factor ? plan->cache_load_factor
                                                                      : TRS_CACHE_LOAD_FACTOR,
                           .algorithm = constraints->cache_lfu ? TRS_CACHE_LFU : TRS_CACHE_LRU,
                           .reserved_bytes = constraints->choice[TRS_CHOICE_CACHE_RESERVED_MEMORY].value,
                           .table = table};
}

/* Append the rank's shards of table t to the list, without memory. */
static void list_table(TrsEmbeddingShards *shards, int t, const TrsTablePlan *plan, int rank)
{
  const TrsTableConfig *config = &shards->tables->table[t];

  for (TrsColumnBlock block = {0}; TrsColumnBlockNext(plan, &block);)
    for (int i = block.first; i < block.first + block.n_shards; i++) {
      TrsEmbeddingShard *shard = &shards->shard[shards->n];
      if (plan->shard[i].rank != rank) continue;
      shard->table = t;
      shard->column = block.index;
      shard->whole = (PetscBool)(plan->sharding_type == TRS_SHARDING_DATA_PARALLEL);
      switch (TrsKernelHome(plan->compute_kernel)) {
      case TRS_ROWS_DEVICE: break;
      case TRS_ROWS_HOST: shard->on_host = PETSC_TRUE; break;
      }
      if (TrsKernelKeepsLines(plan->compute_kernel)) shard->cache = cache_wish(plan, &config->constraints, t);
      describe(&shard->tbe, config, &plan->shard[i], shards->quantised);
      shards->n++;
    }
}

/* List the rank's shards of all tables. shards->tables, plan and quantised must be set. */
static PetscErrorCode list_shards(TrsEmbeddingShards *shards, int rank)
{
  const TrsTableConfigs *tables = shards->tables;
  const TrsShardingPlan *plan = shards->plan;
  int n = 0;

  PetscFunctionBegin;
  for (int t = 0; t < plan->n_tables; t++)
    for (int i = 0; i < plan->table[t].n_shards; i++) n += plan->table[t].shard[i].rank == rank;
  PetscCall(PetscCalloc1((size_t)PetscMax(n, 1), &shards->shard));
  for (int t = 0; t < tables->n; t++) {
    const TrsTablePlan *table_plan = TrsShardingPlanFind(plan, tables->table[t].name);
    PetscCheck(table_plan, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "the plan has no table '%s'",
               tables->table[t].name);
    list_table(shards, t, table_plan, rank);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Create (or destroy) the maps from keys to rows of shard i. */
static PetscErrorCode each_map(const TrsEmbeddingShards *shards, int i, PetscBool create)
{
  PetscFunctionBegin;
  for (const TrsPlacementOps *const *kind = shards->placements; kind && *kind; kind++)
    if ((*kind)->create_keys && (*kind)->treats(shards, shards->shard[i].table))
      PetscCall((create ? (*kind)->create_keys : (*kind)->destroy_keys)(shards, i));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEmbeddingShardsCreate(const TrsDeviceOps *device, const TrsTableConfigs *tables,
                                        const TrsShardingPlan *plan, int rank,
                                        const TrsSparseOptimizers *optimizers, TrsEmbeddingShards *shards)
{
  PetscFunctionBegin;
  *shards = (TrsEmbeddingShards){.device = device,
                                 .tables = tables,
                                 .plan = plan,
                                 .optimizers = optimizers,
                                 .placements = trs_placements};
  PetscCall(list_shards(shards, rank));
  for (int i = 0; i < shards->n; i++) {
    TrsEmbeddingShard *shard = &shards->shard[i];
    shard->tbe.optimizer = optimizers->of_table ? optimizers->of_table[shard->table] : 0;
    PetscCall(allocate(shards, shard));
    PetscCall(each_map(shards, i, PETSC_TRUE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Fill the only rows that a table whose rows are drawn as ids arrive has at first: those of ids
  without a row, the first of each bucket.
*/
static PetscErrorCode fill_first_rows(const TrsEmbeddingShard *shard, const TrsTableConfig *config,
                                      const TrsDeviceOps *device, uint64_t seed)
{
  const int64_t unit = TrsTableRowUnit(config);
  TrsEmbeddingShard first = *shard;

  PetscFunctionBegin;
  if (config->unknown == TRS_UNKNOWN_ZERO) PetscFunctionReturn(PETSC_SUCCESS);
  first.tbe.rows = 1;
  for (int64_t row = 0; row < shard->tbe.rows; row += unit) {
    first.tbe.weight = (char *)shard->tbe.weight + row * shard->tbe.stride * stride_unit(shard->tbe.dtype);
    first.tbe.row_offset = shard->tbe.row_offset + row;
    PetscCall(fill(&first, config, device, seed));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEmbeddingShardsFill(const TrsEmbeddingShards *shards, uint64_t seed)
{
  PetscFunctionBegin;
  for (int i = 0; i < shards->n; i++) {
    const TrsEmbeddingShard *shard = &shards->shard[i];
    const TrsTableConfig *config = &shards->tables->table[shard->table];

    if (shard->tbe.rows)
      PetscCall((config->id_map.kind == TRS_ID_MAP_DYNAMIC ? fill_first_rows : fill)(shard, config,
                                                                                     shards->device, seed));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEmbeddingShardsCreateQuantised(const TrsDeviceOps *device, const TrsTableConfigs *tables,
                                                 const TrsShardingPlan *plan, int rank,
                                                 TrsEmbeddingShards *shards)
{
  PetscFunctionBegin;
  *shards = (TrsEmbeddingShards){.device = device,
                                 .tables = tables,
                                 .plan = plan,
                                 .quantised = PETSC_TRUE,
                                 .placements = trs_placements};
  PetscCall(list_shards(shards, rank));
  for (int i = 0; i < shards->n; i++) {
    PetscCall(allocate(shards, &shards->shard[i]));
    PetscCall(each_map(shards, i, PETSC_TRUE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_weight(const TrsEmbeddingShards *shards, TrsEmbeddingShard *shard)
{
  PetscFunctionBegin;
  if (shard->map)
    (void)munmap(shard->map, (size_t)shard->map_bytes);
  else
    PetscCall((shard->on_host ? shards->device->release_host : shards->device->release)(&shard->tbe.weight));
  shard->map = NULL;
  shard->tbe.weight = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEmbeddingShardsMap(const TrsEmbeddingShards *shards, int i, int fd, int64_t offset)
{
  const int64_t page = (int64_t)sysconf(_SC_PAGESIZE), before = offset % page;
  TrsEmbeddingShard *shard = &shards->shard[i];
  TrsTbeTable *t = &shard->tbe;
  /* Numbers have no padding in a file. Packed rows have the same padding as in memory. */
  const int64_t stride = TrsQuantIsPacked(t->dtype) ? t->stride : t->dim;
  const int64_t bytes = t->rows * stride * stride_unit(t->dtype);
  void *map = mmap(NULL, (size_t)(before + bytes), PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd,
                   (off_t)(offset - before));

  PetscFunctionBegin;
  PetscCheck(map != MAP_FAILED, PETSC_COMM_SELF, TRS_ERR_IO,
             "the rows of table \"%s\" cannot be mapped from their file: %s",
             shards->tables->table[shard->table].name, strerror(errno));
  PetscCall(release_weight(shards, shard));
  shard->map = map;
  shard->map_bytes = before + bytes;
  shard->map_offset = offset;
  t->weight = (char *)map + before;
  t->stride = stride;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEmbeddingShardsUnseal(const TrsEmbeddingShards *shards)
{
  PetscFunctionBegin;
  for (int i = 0; i < shards->n; i++) {
    const TrsEmbeddingShard *shard = &shards->shard[i];

    PetscCheck(!shard->map || mprotect(shard->map, (size_t)shard->map_bytes, PROT_READ | PROT_WRITE) == 0,
               PETSC_COMM_SELF, TRS_ERR_MEMORY, "the rows of table \"%s\" cannot be made writable: %s",
               shards->tables->table[shard->table].name, strerror(errno));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEmbeddingShardsCopy(const TrsEmbeddingShards *shards, int fd, const TrsEmbeddingShards *to)
{
  PetscFunctionBegin;
  for (int i = 0; i < shards->n; i++) {
    const TrsEmbeddingShard *shard = &shards->shard[i];
    const TrsTbeTable *t = &shard->tbe;

    if (shard->map)
      PetscCall(TrsEmbeddingShardsMap(to, i, fd, shard->map_offset));
    else if (t->rows > 0)
      memcpy(to->shard[i].tbe.weight, t->weight, (size_t)(t->rows * t->stride * stride_unit(t->dtype)));
    if (TrsDirectoryOf(shards, i))
      PetscCall(TrsDirectoryCopy(TrsDirectoryOf(shards, i), TrsDirectoryOf(to, i)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEmbeddingShardsDestroy(TrsEmbeddingShards *shards)
{
  PetscFunctionBegin;
  for (int i = 0; i < shards->n; i++) {
    TrsEmbeddingShard *shard = &shards->shard[i];

    PetscCall(each_map(shards, i, PETSC_FALSE));
    PetscCall(release_weight(shards, shard));
    for (int s = 0; s < TRS_OPTIMIZER_STATES; s++) {
      void *memory = shard->tbe.state[s];
      PetscCall((shard->state_on_host[s] ? shards->device->release_host : shards->device->release)(&memory));
    }
  }
  PetscCall(PetscFree(shards->shard));
  shards->n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsEmbeddingStates TrsEmbeddingShardsStates(const TrsEmbeddingShards *shards, int table)
{
  const TrsOptimizerStates all = states_of(shards->optimizers, table);
  TrsEmbeddingStates states = {.n = all.n};

  if (shards->optimizers) {
    const TrsSparseOptimizerArgs *args = TrsSparseOptimizersOf(shards->optimizers, table);
    states.couples_columns = TrsSparseOptimizerCouplesColumns(args->kind);
    states.by_squares = TrsSparseOptimizerNeedsSquaresAlone(args);
  }
  for (int s = 0; s < all.n; s++) states.rowwise[s] = all.rowwise[s];
  return states;
}

int TrsEmbeddingShardsFind(const TrsEmbeddingShards *shards, int table, int index)
{
  const TrsTablePlan *plan = TrsShardingPlanFind(shards->plan, shards->tables->table[table].name);
  int first = 0, before = 0;

  while (first < shards->n && shards->shard[first].table != table) first++;
  if (first == shards->n || !plan || index >= plan->n_shards) return -1;
  /* This rank's shards of a table are in the plan's order, so count those before `index`. */
  for (int i = 0; i < index; i++) before += plan->shard[i].rank == plan->shard[index].rank;
  if (first + before >= shards->n || shards->shard[first + before].table != table) return -1;
  return shards->shard[first + before].tbe.row_offset == plan->shard[index].row_offset &&
                 shards->shard[first + before].tbe.col_offset == plan->shard[index].col_offset
             ? first + before
             : -1;
}

PetscErrorCode TrsEmbeddingShardsAddRows(const TrsEmbeddingShards *shards, int table, const char *path,
                                         TrsDType dtype, int64_t cols, TrsState *state,
                                         TrsStateTensor **tensor)
{
  PetscFunctionBegin;
  PetscCall(TrsStateAdd(state, path, dtype, cols ? 2 : 1, shards->tables->table[table].num_embeddings,
                        cols ? cols : 1, tensor));
  (*tensor)->rows_of = shards->tables->table[table].name;
  for (const TrsPlacementOps *const *kind = shards->placements; *kind; kind++)
    if ((*kind)->list_rows && (*kind)->treats(shards, table))
      PetscCall((*kind)->list_rows(shards, table, *tensor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEmbeddingShardAddPart(const TrsEmbeddingShards *shards, int i, const TrsStatePart *part,
                                        TrsStateTensor *tensor)
{
  const TrsEmbeddingShard *shard = &shards->shard[i];
  const int64_t rows = tensor->count ? TrsTableRowUnit(&shards->tables->table[shard->table])
                                     : shard->tbe.rows;
  const int64_t bytes = rows * part->stride * TrsDTypeBytes(tensor->dtype);

  PetscFunctionBegin;
  for (int64_t n = 0; n * rows < shard->tbe.rows; n++) {
    PetscCall(TrsStateAddPart(tensor, tensor->count ? 0 : shard->tbe.row_offset, part->col_offset,
                              tensor->count ? 0 : rows, part->cols,
                              part->data ? (char *)part->data + n * bytes : NULL, part->stride));
    tensor->part[tensor->n_parts - 1].copy = part->copy;
    if (tensor->count) tensor->part[tensor->n_parts - 1].unit = shard->tbe.row_offset / rows + n;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Add this rank's rectangles of table t to `tensor`. state < 0: the weights. A row-wise state has
  one column, or one column per column block.
*/
static PetscErrorCode add_parts(const TrsEmbeddingShards *shards, int t, int state, PetscBool rowwise,
                                PetscBool by_column, TrsStateTensor *tensor)
{
  PetscFunctionBegin;
  for (int i = 0; i < shards->n; i++) {
    const TrsEmbeddingShard *shard = &shards->shard[i];
    const TrsTbeTable *tbe = &shard->tbe;
    TrsStatePart part = {.col_offset = tbe->col_offset, .cols = tbe->dim, .stride = tbe->dim};

    if (shard->table != t || tbe->rows == 0) continue;
    if (shard->whole) tensor->replicated = PETSC_TRUE;
    if (state < 0) {
      part.data = tbe->weight;
      part.stride = tbe->stride;
    } else {
      part.data = tbe->state[state];
    }
    if (rowwise) {
      part = (TrsStatePart){.data = part.data, .cols = 1, .stride = 1};
      part.col_offset = by_column ? shard->column : 0;
      part.copy = (PetscBool)(shards->shared_rowwise && shard->column > 0);
    }
    PetscCall(TrsEmbeddingShardAddPart(shards, i, &part, tensor));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_rowwise_state(const TrsEmbeddingShards *shards, int t, int state, const char *path,
                                        TrsState *list)
{
  const TrsTableConfig *config = &shards->tables->table[t];
  const char *optimizer = TrsSparseOptimizerName(TrsSparseOptimizersOf(shards->optimizers, t)->kind);
  const TrsTablePlan *plan = TrsShardingPlanFind(shards->plan, config->name);
  const int n_columns = count_columns(plan);
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  if (n_columns == 1 || shards->shared_rowwise) {
    PetscCall(TrsEmbeddingShardsAddRows(shards, t, path, TRS_FP32, 0, list, &tensor));
  } else {
    char columns_path[PETSC_MAX_PATH_LEN];
    int64_t *offsets;
    double *weights;
    PetscCall(PetscSNPrintf(columns_path, sizeof(columns_path), "%s_columns", path));
    PetscCall(PetscMalloc2((size_t)n_columns, &offsets, (size_t)n_columns, &weights));
    for (TrsColumnBlock block = {0}; TrsColumnBlockNext(plan, &block);) {
      offsets[block.index] = plan->shard[block.first].col_offset;
      weights[block.index] = (double)plan->shard[block.first].cols / config->embedding_dim;
    }
    PetscCall(TrsEmbeddingShardsAddRows(shards, t, columns_path, TRS_FP32, n_columns, list, &tensor));
    PetscCall(TrsStateSetColumns(tensor, path, n_columns, offsets, weights));
    PetscCall(PetscFree2(offsets, weights));
  }
  tensor->optional = PETSC_TRUE;
  tensor->optimizer = optimizer;
  PetscCall(
      add_parts(shards, t, state, PETSC_TRUE, (PetscBool)(n_columns > 1 && !shards->shared_rowwise), tensor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* After a file was read, let placements use their tensors. */
static PetscErrorCode state_was_read(const void *context, const char *path)
{
  const TrsEmbeddingShards *shards = (const TrsEmbeddingShards *)context;

  PetscFunctionBegin;
  for (const TrsPlacementOps *const *kind = shards->placements; *kind; kind++)
    for (int t = 0; (*kind)->state_was_read && t < shards->tables->n; t++)
      if ((*kind)->treats(shards, t)) PetscCall((*kind)->state_was_read(shards, t, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add a table's weights and the optimizer's states to the list. */
static PetscErrorCode add_table(const TrsEmbeddingShards *shards, int t, TrsState *state)
{
  const TrsTableConfig *config = &shards->tables->table[t];
  const TrsOptimizerStates states = states_of(shards->optimizers, t);
  char path[PETSC_MAX_PATH_LEN];
  TrsStateTensor *tensor;

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(path, sizeof(path), "embedding/%s/weight", config->name));
  PetscCall(
      TrsEmbeddingShardsAddRows(shards, t, path, config->data_type, config->embedding_dim, state, &tensor));
  tensor->id_map = TrsIdMapName(config->id_map.kind);
  PetscCall(add_parts(shards, t, -1, PETSC_FALSE, PETSC_FALSE, tensor));
  for (int i = 0; i < states.n; i++) {
    PetscCall(PetscSNPrintf(path, sizeof(path), "embedding/%s/%s", config->name, states.name[i]));
    if (states.rowwise[i]) {
      PetscCall(add_rowwise_state(shards, t, i, path, state));
    } else {
      PetscCall(TrsEmbeddingShardsAddRows(shards, t, path, TRS_FP32, config->embedding_dim, state, &tensor));
      tensor->optional = PETSC_TRUE;
      tensor->optimizer = TrsSparseOptimizerName(TrsSparseOptimizersOf(shards->optimizers, t)->kind);
      PetscCall(add_parts(shards, t, i, PETSC_FALSE, PETSC_FALSE, tensor));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEmbeddingShardsAddState(const TrsEmbeddingShards *shards, TrsState *state)
{
  PetscFunctionBegin;
  state->was_read = state_was_read;
  state->was_read_context = shards;
  for (int t = 0; t < shards->tables->n; t++) {
    /* Keys come first, because reading the rows may need them. */
    for (const TrsPlacementOps *const *kind = shards->placements; *kind; kind++)
      if ((*kind)->add_state && (*kind)->treats(shards, t)) PetscCall((*kind)->add_state(shards, t, state));
    if (!shards->quantised) PetscCall(add_table(shards, t, state));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsEmbeddingShardsBytes(const TrsEmbeddingShards *shards, int64_t *weight_bytes, int64_t *state_bytes)
{
  *weight_bytes = *state_bytes = 0;
  for (int i = 0; i < shards->n; i++) {
    const TrsTbeTable *t = &shards->shard[i].tbe;
    const TrsOptimizerStates states = states_of(shards->optimizers, shards->shard[i].table);
    *weight_bytes += t->rows * t->stride * stride_unit(t->dtype);
    for (int s = 0; s < states.n; s++)
      *state_bytes += t->rows * (states.rowwise[s] ? 1 : t->dim) * (int64_t)sizeof(float);
  }
}

int64_t TrsEmbeddingShardsHostBytes(const TrsEmbeddingShards *shards)
{
  int64_t bytes = 0;

  for (int i = 0; i < shards->n; i++) {
    const TrsEmbeddingShard *shard = &shards->shard[i];
    const TrsTbeTable *t = &shard->tbe;

    if (shard->on_host) bytes += t->rows * t->stride * stride_unit(t->dtype);
    for (int s = 0; s < TRS_OPTIMIZER_STATES; s++)
      if (shard->state_on_host[s]) bytes += t->rows * t->dim * (int64_t)sizeof(float);
  }
  return bytes;
}
