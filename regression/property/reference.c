/* SPDX-License-Identifier: BSD-3-Clause */
#include "reference.h"

#include "core/random/random.h"
#include "optimizer_definition.h"

#include <math.h>
#include <string.h>

int reference_width(const reference_table *table, int s)
{
  return s >= 0 && table->rowwise[s] ? table->n_blocks : table->D;
}

/* Find the column blocks in a table's plan. Its shards are sorted by column, then by row. */
static PetscErrorCode find_blocks(const TrsTablePlan *plan, PetscBool whole_rows, reference_table *table)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)plan->n_shards + 1, &table->block));
  table->block[0] = 0;
  table->n_blocks = 1;
  for (int i = 0; !whole_rows && i < plan->n_shards; i++)
    if (plan->shard[i].col_offset > table->block[table->n_blocks - 1])
      table->block[table->n_blocks++] = plan->shard[i].col_offset;
  table->block[table->n_blocks] = table->D;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode reference_create(const random_model *model, PetscBool whole_rows, reference_table **tables)
{
  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)model->tables.n, tables));
  for (int t = 0; t < model->tables.n; t++) {
    const TrsTableConfig *config = &model->tables.table[t];
    const size_t n = (size_t)config->num_embeddings * (size_t)config->embedding_dim;
    reference_table *table = &(*tables)[t];
    const char *names[TRS_OPTIMIZER_STATES];
    float *initial;

    table->R = config->num_embeddings;
    table->D = config->embedding_dim;
    PetscCall(find_blocks(&model->plan.table[t], whole_rows, table));
    TrsSparseOptimizerStates(TrsSparseOptimizersOf(&model->optimizers, t)->kind, &table->n_states, names,
                             table->rowwise);
    PetscCall(PetscMalloc1(n, &table->weight));
    for (int s = 0; s < table->n_states; s++)
      PetscCall(PetscCalloc1((size_t)(table->R * reference_width(table, s)), &table->state[s]));
    PetscCall(PetscMalloc2((size_t)table->R, &table->touched, n, &table->undetermined));
    PetscCall(PetscMalloc1(n, &initial));
    TrsRandomFill(model->seed, TRS_RANDOM_TABLE_INIT, TrsNameHash(config->name), 0, (int64_t)n, &config->init,
                  initial);
    for (size_t i = 0; i < n; i++) table->weight[i] = (double)initial[i];
    PetscCall(PetscFree(initial));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode reference_destroy(const random_model *model, reference_table **tables)
{
  PetscFunctionBegin;
  for (int t = 0; *tables && t < model->tables.n; t++) {
    reference_table *table = &(*tables)[t];
    PetscCall(PetscFree(table->block));
    PetscCall(PetscFree(table->weight));
    for (int s = 0; s < table->n_states; s++) PetscCall(PetscFree(table->state[s]));
    PetscCall(PetscFree2(table->touched, table->undetermined));
  }
  PetscCall(PetscFree(*tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Return the factor of the i-th id of bag b of feature f. It is the id's weight, or the weight of
  its position, or for a mean 1 / the bag's length. The length includes pruned ids.
*/
static double factor_of(const random_model *model, int f, const random_batch *batch, int64_t b, int64_t i)
{
  const TrsTableConfig *config = &model->tables.table[model->table_of[f]];

  if (config->is_weighted) return (double)batch->weights[i];
  if (config->max_feature_lengths) return (double)model->position[f * MODEL_MAX_BAG + i - batch->offsets[b]];
  return config->pooling == TRS_POOLING_SUM ? 1.0 : 1.0 / (double)batch->lengths[b];
}

static TrsSequencePoolingKind sequence_of(const random_model *model, int f)
{
  const TrsTableConfig *config = &model->tables.table[model->table_of[f]];

  return config->pooling == TRS_POOLING_NONE ? config->sequence_pooling : TRS_SEQUENCE_POOLING_MEAN;
}

/*
  Find the first id of bag b whose row has the maximum in column d. Returns -1 if the bag has no
  row.
*/
static int64_t largest_id(const reference_table *table, const random_batch *batch, int64_t b, int d)
{
  int64_t best = -1;

  for (int64_t i = batch->offsets[b]; i < batch->offsets[b + 1]; i++)
    if (batch->values[i] >= 0 && (best < 0 || table->weight[batch->values[i] * table->D + d] >
                                                  table->weight[batch->values[best] * table->D + d]))
      best = i;
  return best;
}

/* Pool a bag into out [D]. For a concatenation, out has D numbers for each position. */
static void pool_bag(const random_model *model, const reference_table *table, int f,
                     const random_batch *batch, int64_t b, double *out)
{
  const TrsTableConfig *config = &model->tables.table[model->table_of[f]];
  const int64_t begin = batch->offsets[b], end = batch->offsets[b + 1];

  memset(out, 0, (size_t)(table->D * TrsTableVectors(config)) * sizeof(*out));
  for (int d = 0; d < table->D; d++) {
    if (sequence_of(model, f) == TRS_SEQUENCE_POOLING_MAX) {
      const int64_t best = largest_id(table, batch, b, d);
      if (best >= 0) out[d] = table->weight[batch->values[best] * table->D + d];
      continue;
    }
    for (int64_t i = begin; i < end; i++) {
      const double x = batch->values[i] < 0 ? 0.0 : table->weight[batch->values[i] * table->D + d];
      if (sequence_of(model, f) == TRS_SEQUENCE_POOLING_MEAN)
        out[d] += factor_of(model, f, batch, b, i) * x;
      else if (i - begin < config->sequence_length)
        out[(i - begin) * table->D + d] = x;
    }
  }
}

void reference_forward(const random_model *model, const reference_table *tables, const random_batch *batch,
                       double *pooled)
{
  for (int f = 0; f < model->n_features; f++)
    for (int64_t g = 0; g < batch->G; g++)
      pool_bag(model, &tables[model->table_of[f]], f, batch, f * batch->G + g,
               pooled + g * model->stride + model->columns[f]);
}

/* Return the gradient that the i-th id of bag b adds to column d of its row. */
static double gradient_of(const random_model *model, const reference_table *table, int f,
                          const random_batch *batch, int64_t b, int64_t i, int d)
{
  const float *grad = batch->grad + (b - f * batch->G) * model->stride + model->columns[f];
  const int64_t place = i - batch->offsets[b];

  switch (sequence_of(model, f)) {
  case TRS_SEQUENCE_POOLING_MAX: return largest_id(table, batch, b, d) == i ? (double)grad[d] : 0.0;
  case TRS_SEQUENCE_POOLING_CONCAT:
    return place < model->tables.table[model->table_of[f]].sequence_length
               ? (double)grad[place * table->D + d]
               : 0.0;
  default: return factor_of(model, f, batch, b, i) * (double)grad[d];
  }
}

/*
  Compute the gradient of every row of table t, summed over all its occurrences in the global batch.
*/
static void sum_gradients(const random_model *model, int t, const random_batch *batch, reference_table *table,
                          double *sum)
{
  for (int f = 0; f < model->n_features; f++)
    for (int64_t b = f * batch->G; model->table_of[f] == t && b < (f + 1) * batch->G; b++)
      for (int64_t i = batch->offsets[b]; i < batch->offsets[b + 1]; i++) {
        const int64_t row = batch->values[i];
        if (row < 0) continue;
        table->touched[row] = PETSC_TRUE;
        for (int d = 0; d < table->D; d++)
          sum[row * table->D + d] += gradient_of(model, table, f, batch, b, i, d);
      }
}

void reference_position_gradients(const random_model *model, const reference_table *tables,
                                  const random_batch *batch, double *gradients)
{
  memset(gradients, 0, (size_t)(model->n_features * MODEL_MAX_BAG) * sizeof(*gradients));
  for (int f = 0; f < model->n_features; f++) {
    const reference_table *table = &tables[model->table_of[f]];
    if (!model->tables.table[model->table_of[f]].max_feature_lengths) continue;
    for (int64_t b = f * batch->G; b < (f + 1) * batch->G; b++) {
      const float *grad = batch->grad + (b - f * batch->G) * model->stride + model->columns[f];
      for (int64_t i = batch->offsets[b]; i < batch->offsets[b + 1]; i++)
        for (int d = 0; batch->values[i] >= 0 && d < table->D; d++)
          gradients[f * MODEL_MAX_BAG + i - batch->offsets[b]] +=
              (double)grad[d] * table->weight[batch->values[i] * table->D + d];
    }
  }
}

/*
  Lion steps by the sign of beta1 m + (1 - beta1) g. If this sum is not larger than rounding errors,
  its sign is undetermined.
*/
static void find_undetermined(const TrsSparseOptimizerArgs *args, reference_table *table, const double *g)
{
  for (int64_t i = 0; args->kind == TRS_OPTIM_LION && i < table->R * table->D; i++) {
    const double u = (double)args->beta1 * table->state[0][i] + (1.0 - (double)args->beta1) * g[i];
    table->undetermined[i] = (PetscBool)(u != 0.0 && fabs(u) < 1e-6);
  }
}

static void update_row(const TrsSparseOptimizerArgs *args, reference_table *table, int64_t row,
                       const double *g)
{
  for (int c = 0; c < table->n_blocks; c++) {
    double *state[TRS_OPTIMIZER_STATES] = {NULL};
    for (int s = 0; s < table->n_states; s++)
      state[s] = table->state[s] + row * reference_width(table, s) +
                 (table->rowwise[s] ? c : table->block[c]);
    step_by_definition(args, (int)(table->block[c + 1] - table->block[c]),
                       table->weight + row * table->D + table->block[c], g + row * table->D + table->block[c],
                       state[0], state[1]);
  }
}

PetscErrorCode reference_update(const random_model *model, reference_table *tables, const random_batch *batch,
                                int step)
{
  PetscFunctionBegin;
  for (int t = 0; t < model->tables.n; t++) {
    reference_table *table = &tables[t];
    TrsSparseOptimizerArgs args = *TrsSparseOptimizersOf(&model->optimizers, t);
    double *sum;

    args.step = step + 1;
    PetscCall(PetscCalloc1((size_t)(table->R * table->D), &sum));
    memset(table->touched, 0, (size_t)table->R * sizeof(*table->touched));
    memset(table->undetermined, 0, (size_t)(table->R * table->D) * sizeof(*table->undetermined));
    sum_gradients(model, t, batch, table, sum);
    find_undetermined(&args, table, sum);
    for (int64_t row = 0; row < table->R; row++)
      if (table->touched[row]) update_row(&args, table, row, sum);
    PetscCall(PetscFree(sum));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
