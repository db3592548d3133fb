/* SPDX-License-Identifier: BSD-3-Clause */
#include "random_model.h"

#include "optim/sparse_optimizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TABLES = 8, MAX_FEATURES = 3, MAX_DIM = 40, MAX_ROWS = 60, MAX_BATCH = 24, MAX_BLOCKS = 4 };

/*
  splitmix64 (Steele, Lea, Flood, OOPSLA'14). It is independent of the product's generator, which is
  itself tested here.
*/
static uint64_t next_bits(random_stream *r)
{
  uint64_t z = r->state += 0x9E3779B97F4A7C15U;

  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
  z = (z ^ z >> 27) * 0x94D049BB133111EBU;
  return z ^ z >> 31;
}

int64_t random_int(random_stream *r, int64_t low, int64_t high)
{
  return low + (int64_t)(next_bits(r) % (uint64_t)(high - low + 1));
}

float random_float(random_stream *r, float low, float high)
{
  return low + (high - low) * (float)(next_bits(r) >> 40) * 0x1p-24F;
}

PetscBool random_once_in(random_stream *r, int n)
{
  return (PetscBool)(random_int(r, 1, n) == 1);
}

/* Draw the pooling of sequences, and position weights. */
static PetscErrorCode draw_kind(random_stream *r, PetscBool reproducible, TrsTableConfig *table)
{
  PetscFunctionBegin;
  if (table->pooling == TRS_POOLING_NONE) {
    table->sequence_pooling = (TrsSequencePoolingKind)random_int(r, TRS_SEQUENCE_POOLING_MEAN,
                                                                 TRS_SEQUENCE_POOLING_CONCAT);
    table->sequence_length = 1;
    if (table->sequence_pooling == TRS_SEQUENCE_POOLING_CONCAT)
      table->sequence_length = (int)random_int(r, 1, 3);
  }
  if (table->pooling != TRS_POOLING_SUM || table->is_weighted || reproducible || !random_once_in(r, 2))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc1((size_t)table->n_features, &table->max_feature_lengths));
  for (int k = 0; k < table->n_features; k++) table->max_feature_lengths[k] = MODEL_MAX_BAG;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode draw_table(random_stream *r, int t, PetscBool reproducible, TrsTableConfig *table)
{
  char name[32];

  PetscFunctionBegin;
  *table = (TrsTableConfig){.num_embeddings = random_int(r, 1, random_once_in(r, 3) ? 4 : MAX_ROWS),
                            .embedding_dim = (int)random_int(r, 1, random_once_in(r, 3) ? 5 : MAX_DIM),
                            .pooling = (TrsPooling)random_int(r, TRS_POOLING_SUM, TRS_POOLING_NONE),
                            .data_type = TRS_FP32,
                            .stochastic_rounding = random_once_in(r, 2),
                            .init = {.kind = TRS_LAW_UNIFORM, .low = -1.0F, .high = 1.0F},
                            .n_features = (int)random_int(r, 1, MAX_FEATURES)};
  if (random_once_in(r, 3)) table->init = (TrsRandomLaw){.kind = TRS_LAW_NORMAL, .mean = 0.25F, .std = 0.5F};
  if (random_once_in(r, 3)) table->data_type = random_once_in(r, 2) ? TRS_FP16 : TRS_BF16;
  if (table->pooling == TRS_POOLING_SUM) table->is_weighted = random_once_in(r, 2);
  PetscCall(draw_kind(r, reproducible, table));
  (void)snprintf(name, sizeof(name), "t%d", t);
  PetscCall(PetscStrallocpy(name, &table->name));
  PetscCall(PetscCalloc1((size_t)table->n_features, &table->features));
  for (int k = 0; k < table->n_features; k++) {
    (void)snprintf(name, sizeof(name), "t%d_f%d", t, k);
    PetscCall(PetscStrallocpy(name, &table->features[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int compare_cuts(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

  return (x > y) - (x < y);
}

/*
  Cut 0..total into n runs: run i is cut[i]..cut[i + 1]. The cuts are even as in the planner (blocks
  are rounded up, and the last blocks may be empty), or at any positions.
*/
static void cut_evenly_or_not(random_stream *r, int64_t total, int n, PetscBool may_be_empty, int64_t *cut)
{
  const PetscBool even = (PetscBool)(may_be_empty && random_once_in(r, 2));
  const int64_t block = (total + n - 1) / n;

  cut[0] = 0;
  for (int i = 1; i < n; i++) {
    /*
      If no run may be empty, draw n - 1 cuts from total - n + 1 positions, sort them, and add to
      each its index, so that all cuts differ.
    */
    if (even)
      cut[i] = PetscMin(i * block, total);
    else
      cut[i] = random_int(r, 0, may_be_empty ? total : total - n);
  }
  cut[n] = total;
  if (even) return;
  qsort(cut + 1, (size_t)n - 1, sizeof(*cut), compare_cuts);
  if (!may_be_empty)
    for (int i = 1; i < n; i++) cut[i] += i;
}

static void add_shard(TrsTablePlan *plan, int rank, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
  plan->shard[plan->n_shards++] = (TrsShard){
      .rank = rank, .row_offset = row, .rows = rows, .col_offset = col, .cols = cols};
}

/* Distribute the rows of a column block over the ranks first .. first + n - 1. */
static void add_block(random_stream *r, TrsTablePlan *plan, const TrsTableConfig *table, int first, int n,
                      int64_t col, int64_t cols)
{
  int64_t cut[MODEL_MAX_RANKS + 1];

  cut_evenly_or_not(r, table->num_embeddings, n, PETSC_TRUE, cut);
  for (int i = 0; i < n; i++) add_shard(plan, first + i, cut[i], cut[i + 1] - cut[i], col, cols);
}

/*
  Draw a sharding type for the table. With -reproducible, the rows of a sequence table may be cut
  only if the sequences are averaged.
*/
static TrsShardingType draw_type(random_stream *r, PetscBool reproducible, const TrsTableConfig *table)
{
  static const TrsShardingType whole_rows[] = {TRS_SHARDING_TABLE_WISE, TRS_SHARDING_ROW_WISE,
                                               TRS_SHARDING_TABLE_ROW_WISE, TRS_SHARDING_DATA_PARALLEL};

  if (reproducible && table->pooling == TRS_POOLING_NONE &&
      table->sequence_pooling != TRS_SEQUENCE_POOLING_MEAN)
    return whole_rows[random_int(r, 0, 3)];
  return (TrsShardingType)random_int(r, 0, TRS_N_SHARDINGS - 1);
}

static PetscErrorCode draw_table_plan(random_stream *r, const random_model *model, PetscBool reproducible,
                                      const TrsTableConfig *table, TrsTablePlan *plan)
{
  const int W = model->size, L = model->local_world_size, H = W / L, D = table->embedding_dim;
  const int n_blocks = (int)random_int(r, 1, PetscMin(MAX_BLOCKS, D)), host = (int)random_int(r, 0, H - 1);
  int64_t cut[MAX_BLOCKS + 1];

  PetscFunctionBegin;
  plan->sharding_type = draw_type(r, reproducible, table);
  plan->compute_kernel = plan->sharding_type == TRS_SHARDING_DATA_PARALLEL ? TRS_KERNEL_DENSE
                                                                           : TRS_KERNEL_FUSED;
  PetscCall(PetscStrallocpy(table->name, &plan->name));
  PetscCall(PetscMalloc1((size_t)W * MAX_BLOCKS, &plan->shard));
  cut_evenly_or_not(r, D, n_blocks, PETSC_FALSE, cut);
  switch (plan->sharding_type) {
  case TRS_SHARDING_DATA_PARALLEL:
    for (int q = 0; q < W; q++) add_shard(plan, q, 0, table->num_embeddings, 0, D);
    break;
  case TRS_SHARDING_TABLE_WISE:
    add_shard(plan, (int)random_int(r, 0, W - 1), 0, table->num_embeddings, 0, D);
    break;
  case TRS_SHARDING_COLUMN_WISE:
  case TRS_SHARDING_TABLE_COLUMN_WISE:
    for (int i = 0; i < n_blocks; i++)
      add_shard(plan,
                (int)(plan->sharding_type == TRS_SHARDING_COLUMN_WISE
                          ? random_int(r, 0, W - 1)
                          : random_int(r, (int64_t)host * L, (int64_t)host * L + L - 1)),
                0, table->num_embeddings, cut[i], cut[i + 1] - cut[i]);
    break;
  case TRS_SHARDING_ROW_WISE: add_block(r, plan, table, 0, W, 0, D); break;
  case TRS_SHARDING_TABLE_ROW_WISE: add_block(r, plan, table, host * L, L, 0, D); break;
  default: /* grid_shard */
    for (int i = 0; i < n_blocks; i++)
      add_block(r, plan, table, (int)random_int(r, 0, H - 1) * L, L, cut[i], cut[i + 1] - cut[i]);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode draw_plan(random_stream *r, PetscBool reproducible, random_model *model)
{
  TrsShardingPlan *plan = &model->plan;

  PetscFunctionBegin;
  *plan = (TrsShardingPlan){.world_size = model->size,
                            .local_world_size = model->local_world_size,
                            .pod_size = 1,
                            .n_tables = model->tables.n};
  PetscCall(PetscCalloc1((size_t)plan->n_tables, &plan->table));
  for (int t = 0; t < plan->n_tables; t++)
    PetscCall(draw_table_plan(r, model, reproducible, &model->tables.table[t], &plan->table[t]));
  PetscCall(TrsShardingPlanCheck(plan, &model->tables, model->size, "drawn plan"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void draw_optimizer(random_stream *r, uint64_t seed, TrsSparseOptimizerArgs *args)
{
  *args = (TrsSparseOptimizerArgs){
      .kind = (TrsSparseOptimizerKind)random_int(r, TRS_OPTIM_SGD, TRS_OPTIM_FTRL),
      .weight_decay_mode = (TrsWeightDecayMode)random_int(r, TRS_DECAY_NONE, TRS_DECAY_DECOUPLE),
      .learning_rate = 0.1F,
      /*
        eps is as large as the gradients. With a small eps, g / (|g| + eps) would be a sign, which
        is only noise if g cancels out
      */
      .eps = 0.25F,
      .beta1 = 0.9F,
      .beta2 = 0.99F,
      .weight_decay = random_once_in(r, 2) ? 0.05F : 0.0F,
      .eta = 0.1F,
      .momentum = 0.8F,
      .beta = 0.5F,
      .l1 = 0.0F,
      .l2 = 0.2F,
      .seed = seed};
  if (args->kind == TRS_OPTIM_SGD || args->kind == TRS_OPTIM_ADAGRAD || args->kind == TRS_OPTIM_FTRL)
    args->weight_decay = 0.0F;
}

/* Draw the optimizers. Half of the models have one optimizer for all tables. */
static PetscErrorCode draw_optimizers(random_stream *r, random_model *model)
{
  TrsSparseOptimizers *optimizers = &model->optimizers;

  PetscFunctionBegin;
  *optimizers = (TrsSparseOptimizers){
      .n = random_once_in(r, 2) ? 1 : (int)random_int(r, 2, MODEL_MAX_OPTIMIZERS), .args = model->args};
  PetscCall(PetscMalloc1((size_t)model->tables.n, &optimizers->of_table));
  for (int i = 0; i < optimizers->n; i++) draw_optimizer(r, model->seed, &model->args[i]);
  for (int t = 0; t < model->tables.n; t++)
    optimizers->of_table[t] = (int)random_int(r, 0, optimizers->n - 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode lay_out_features(random_stream *r, random_model *model)
{
  const TrsTableConfigs *tables = &model->tables;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    model->n_features += tables->table[t].n_features;
    if (tables->table[t].is_weighted) model->weighted = PETSC_TRUE;
  }
  PetscCall(
      PetscMalloc2((size_t)model->n_features, &model->table_of, (size_t)model->n_features, &model->columns));
  for (int t = 0, f = 0; t < tables->n; t++)
    for (int k = 0; k < tables->table[t].n_features; k++, f++) {
      if (random_once_in(r, 4)) model->stride += random_int(r, 1, 3);
      model->table_of[f] = t;
      model->columns[f] = model->stride;
      model->stride += (int64_t)tables->table[t].embedding_dim * TrsTableVectors(&tables->table[t]);
    }
  PetscCall(PetscMalloc1((size_t)model->n_features * MODEL_MAX_BAG, &model->position));
  for (int i = 0; i < model->n_features * MODEL_MAX_BAG; i++)
    model->position[i] = random_float(r, -1.0F, 1.0F);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode random_model_create(uint64_t seed, int size, PetscBool reproducible, random_model *model)
{
  random_stream r = {.state = seed << 8}, split = {.state = seed << 8 | 16 | (uint64_t)size};

  PetscFunctionBegin;
  PetscCheck(size <= MODEL_MAX_RANKS, PETSC_COMM_SELF, TRS_ERR_OPTION, "at most %d ranks", MODEL_MAX_RANKS);
  *model = (random_model){.seed = seed, .size = size};
  model->n_steps = (int)random_int(&r, 2, 3);
  model->ahead = random_once_in(&r, 2);
  model->index_dedup = (PetscBool)(!reproducible && random_once_in(&r, 2));
  model->variable_batch = (PetscBool)(!reproducible && random_once_in(&r, 3));
  model->tables.n = (int)random_int(&r, 1, MAX_TABLES);
  PetscCall(PetscCalloc1((size_t)model->tables.n, &model->tables.table));
  for (int t = 0; t < model->tables.n; t++)
    PetscCall(draw_table(&r, t, reproducible, &model->tables.table[t]));
  PetscCall(draw_optimizers(&r, model));
  PetscCall(lay_out_features(&r, model));
  do { /* repeat until it divides the number of ranks */
    model->local_world_size = (int)random_int(&split, 1, size);
  } while (size % model->local_world_size);
  PetscCall(draw_plan(&split, reproducible, model));
  model->hierarchical = (PetscBool)(!reproducible && random_once_in(&split, 2));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode random_model_destroy(random_model *model)
{
  PetscFunctionBegin;
  PetscCall(TrsShardingPlanFree(&model->plan));
  PetscCall(TrsTableConfigsFree(&model->tables));
  PetscCall(PetscFree(model->optimizers.of_table));
  PetscCall(PetscFree2(model->table_of, model->columns));
  PetscCall(PetscFree(model->position));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Distribute the samples over the ranks: as equally as possible, or in any numbers, even 0. */
static void draw_split(random_stream *r, int size, random_batch *batch)
{
  const PetscBool equal = random_once_in(r, 3);

  batch->first[size] = batch->G;
  for (int q = 1; q < size; q++) batch->first[q] = equal ? q * batch->G / size : random_int(r, 0, batch->G);
  qsort(batch->first + 1, (size_t)size - 1, sizeof(*batch->first), compare_cuts);
}

/* Draw an id. A few rows are frequent, and every tenth id is pruned. */
static int64_t draw_id(random_stream *r, int64_t rows)
{
  if (random_once_in(r, 10)) return -1;
  return random_int(r, 0, random_once_in(r, 2) ? PetscMin(rows, 3) - 1 : rows - 1);
}

PetscErrorCode random_batch_create(const random_model *model, int step, random_batch *batch)
{
  random_stream r = {.state = model->seed << 8 | 32 | (uint64_t)step};
  random_stream split = {.state = model->seed << 8 | 64 |
                                  (uint64_t)(step * 2 * MODEL_MAX_RANKS + model->size)};
  int64_t bags, n;

  PetscFunctionBegin;
  *batch = (random_batch){0};
  batch->G = random_int(&r, 1, random_once_in(&r, 4) ? 3 : MAX_BATCH);
  draw_split(&split, model->size, batch);
  bags = model->n_features * batch->G;
  PetscCall(PetscMalloc2((size_t)bags, &batch->lengths, (size_t)bags + 1, &batch->offsets));
  batch->offsets[0] = 0;
  for (int64_t b = 0; b < bags; b++) {
    batch->lengths[b] = random_once_in(&r, 3) ? 0 : (int32_t)random_int(&r, 1, MODEL_MAX_BAG);
    batch->offsets[b + 1] = batch->offsets[b] + batch->lengths[b];
  }
  n = batch->offsets[bags];
  PetscCall(PetscMalloc1((size_t)n + 1, &batch->values));
  for (int64_t b = 0; b < bags; b++)
    for (int64_t i = batch->offsets[b]; i < batch->offsets[b + 1]; i++)
      batch->values[i] = draw_id(&r, model->tables.table[model->table_of[b / batch->G]].num_embeddings);
  if (model->weighted) {
    PetscCall(PetscMalloc1((size_t)n + 1, &batch->weights));
    for (int64_t i = 0; i < n; i++) batch->weights[i] = random_float(&r, -1.0F, 1.0F);
  }
  PetscCall(PetscMalloc1((size_t)(batch->G * model->stride), &batch->grad));
  for (int64_t i = 0; i < batch->G * model->stride; i++) batch->grad[i] = random_float(&r, -1.0F, 1.0F);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode random_batch_destroy(random_batch *batch)
{
  PetscFunctionBegin;
  PetscCall(PetscFree2(batch->lengths, batch->offsets));
  PetscCall(PetscFree(batch->values));
  PetscCall(PetscFree(batch->weights));
  PetscCall(PetscFree(batch->grad));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void random_model_print(const random_model *model)
{
  static const char *const sequence[] = {" (mean)", " (max)", " (concat)"};

  printf("  seed %" PRIu64 ", %d ranks, %d a host, %d steps%s%s%s%s\n", model->seed, model->size,
         model->local_world_size, model->n_steps, model->ahead ? ", input dist ahead" : "",
         model->index_dedup ? ", index dedup" : "", model->variable_batch ? ", variable batch" : "",
         model->hierarchical ? ", hierarchical" : "");
  for (int t = 0; t < model->tables.n; t++) {
    const TrsTableConfig *table = &model->tables.table[t];
    const TrsTablePlan *plan = &model->plan.table[t];
    const TrsSparseOptimizerArgs *args = TrsSparseOptimizersOf(&model->optimizers, t);
    printf("  %s: %s, weight decay %g (mode %d), %" PRId64 " x %d %s%s, pooling %s%s%s, %d features, %s:",
           table->name, TrsSparseOptimizerName(args->kind), (double)args->weight_decay,
           (int)args->weight_decay_mode, table->num_embeddings, table->embedding_dim,
           TrsDTypeName(table->data_type), table->stochastic_rounding ? "" : " to nearest",
           TrsPoolingName(table->pooling),
           table->pooling == TRS_POOLING_NONE ? sequence[table->sequence_pooling] : "",
           table->is_weighted           ? " weighted"
           : table->max_feature_lengths ? " by position"
                                        : "",
           table->n_features, TrsShardingTypeName(plan->sharding_type));
    for (int i = 0; i < plan->n_shards; i++)
      printf(" %d:[%" PRId64 "+%" PRId64 ",%" PRId64 "+%" PRId64 "]", plan->shard[i].rank,
             plan->shard[i].row_offset, plan->shard[i].rows, plan->shard[i].col_offset, plan->shard[i].cols);
    printf("\n");
  }
}
